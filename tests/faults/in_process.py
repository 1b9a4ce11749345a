"""A job of one to two queries, run in this process as ``etl.main`` runs it: started, ended, compared in seconds."""

from __future__ import annotations

import io
import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from etl import lease, run, settings
from etl.accounts import Reporter
from etl.errors import StartError, describe
from etl.supervise import Query, Retries, Supervisor
from millrace.sandbox import kafka
from millrace.sandbox.ledger import compare
from millrace.sandbox.producer import KafkaProducer
from tests.faults.feed import DDL, events

PORTION = 60
PARTITIONS = 2


def counted(rows: DataFrame) -> DataFrame:
    """Count records of each fifth of the numbers in each minute: what the stateful query keeps."""
    grouped = rows.groupBy(F.window("_arrived_at", "1 minute"), (F.col("n") % 5).alias("fifth"))
    return grouped.agg(F.count(F.lit(1)).alias("records"), F.sum("n").alias("total")).select(
        F.col("window.start").alias("minute"), "fifth", "records", "total"
    )


@dataclass(frozen=True)
class Told:
    """How a run of a job ended."""

    status: int
    message: str


class Job:
    """A topic, a job that reads it, its checkpoints and tables."""

    def __init__(
        self,
        spark: SparkSession,
        broker: kafka.Kafka,
        home: Path,
        number: int,
        kind: str,
        checkpoints: str | None = None,
        catalog: str = "lake",
    ) -> None:
        """Make the topic.

        Parameters
        ----------
        home
            Folder of this job and others.
        number
            Its own, among them.
        kind
            ``land``, ``direct``, ``derive`` or ``state``.
        checkpoints
            URL, where they do not lie in a folder.
        catalog
            Of its tables.
        """
        self._spark, self._kind, self._number, self.retries = spark, kind, number, 0
        self.events: list[dict[str, Any]] = []
        self._choose = random.Random(number)  # noqa: S311 - repeatable on purpose
        self._topic = f"{home.name}-{number}"
        self._bootstrap = broker.bootstrap
        broker.create_topic(self._topic, PARTITIONS, any_time=True)
        self._producer = KafkaProducer(broker.bootstrap, self._topic)
        self._first = 0
        self.home = home / str(number)
        self.checkpoints = self.home / "checkpoints"
        self._catalog = catalog
        self._url = checkpoints or str(self.checkpoints)
        self.drop()  # what a run that was killed has left
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "schema.ddl").write_text(DDL)

    def send(self) -> None:
        """Send a portion."""
        self._producer.send(events(PORTION, self._choose, first=self._first), sent=lambda _: None)
        self._first += PORTION

    def run(self, *, dies: bool = False, disturbed: Callable[[], None] | None = None) -> Told:
        """Run the job over what is there, as ``etl.main`` does it.

        Parameters
        ----------
        dies
            After its first batch's commit, before Spark has noted it.
        disturbed
            Called at the beginning of each batch.
        """
        said = io.StringIO()
        report = Reporter("in-process", said)
        held = lease.of(self._url, "in-process", (), lambda _: None)
        try:
            held.acquire()
            queries = run.build(self._spark, settings.parse(self._job()), {}, report)
        except StartError as error:
            held.release()
            return Told(2, str(error))
        except (OSError, CapturedException, Py4JJavaError) as error:
            held.release()
            return Told(1, describe(error))
        if dies:
            queries = (*queries[:-1], _dying(queries[-1]))
        if disturbed is not None:
            queries = (*queries[:-1], _disturbed(queries[-1], disturbed))
        supervisor = Supervisor(self._spark, report, retries=Retries(self.retries, 2.0), lease=held)
        over = threading.Event()
        watch = threading.Thread(target=self._end, args=(supervisor, len(queries), over), daemon=True)
        watch.start()
        status = supervisor.run(queries)
        over.set()
        watch.join()
        self.events = [json.loads(line) for line in said.getvalue().splitlines()]
        failures = [each["error"] for each in self.events if each["event"] == "failed"]
        return Told(status, "\n".join(failures))

    def _end(self, supervisor: Supervisor, count: int, over: threading.Event) -> None:
        """Stop the job when it has read all."""
        while len(self._spark.streams.active) < count:
            if over.wait(0.05):
                return
        while not over.is_set():
            try:
                for query in sorted(self._spark.streams.active, key=lambda each: each.name != "land"):
                    query.processAllAvailable()
            except StreamingQueryException:
                # The supervisor tells, or tries again.
                over.wait(0.2)
                continue
            if len(self._spark.streams.active) == count:
                supervisor.stop()
                return
            over.wait(0.1)

    def wrong(self) -> Counter[str]:
        """Hold the tables against the ledger."""
        account = self._account()
        return (
            +Counter(
                lost=account.lost + account.derived_lost,
                doubled=account.duplicated + account.derived_duplicated,
                others=account.unknown + account.misjudged + account.altered,
            )
            + self._sums()
        )

    def _account(self) -> Any:
        ledger, columns = self._producer.ledger, ("_id", "_hash", "_error", "_bytes")
        if self._kind == "direct":
            letters, out = self._rows("letters", *columns), self._rows("out", "_id")["_id"]
            hashes = dict(zip(ledger.ids, ledger.hashes, strict=True))
            good = [(each, hashes.get(each, 0), None, None) for each in out.to_pylist()]
            rows = [*zip(*(letters[name].to_pylist() for name in columns), strict=True), *good]
            kinds = (pa.string(), pa.int64(), pa.string(), pa.binary())
            landed = pa.table(
                [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)],
                names=list(columns),
            )
            return compare(ledger, landed, out)
        landed = self._rows("landed", *columns)
        good_ids = landed.filter(pc.is_null(landed["_error"]))["_id"]
        return compare(
            ledger, landed, self._rows("out", "_id")["_id"] if self._kind == "derive" else good_ids
        )

    def _sums(self) -> Counter[str]:
        if self._kind != "state":
            return Counter()
        columns = ("minute", "fifth", "records", "total")
        wanted = counted(self._spark.table(self._full("landed")).where("_error IS NULL"))
        held = self._spark.table(self._full("out"))
        sums = [Counter(map(tuple, rows.select(*columns).collect())) for rows in (wanted, held)]
        return Counter(sums_missing=(sums[0] - sums[1]).total(), sums_wrong=(sums[1] - sums[0]).total())

    def _full(self, what: str) -> str:
        return f"{self._catalog}.{self._table(what)}"

    def _table(self, what: str) -> str:
        return f"in_process.t{self._number}_{what}"

    def _rows(self, what: str, *columns: str) -> pa.Table:
        rows = [tuple(row) for row in self._spark.table(self._full(what)).select(*columns).collect()]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})

    def _job(self) -> dict[str, Any]:
        connection = {"kind": "external", "cluster": None, "authentication": "none"}
        job: dict[str, Any] = {
            "version": 1,
            "environment": "faults",
            "job": "in-process",
            "engine": "sandbox",
        }
        job |= {"catalog": self._catalog, "checkpoints": self._url, "batch_retries": self.retries}
        job |= {"dead_letters_kept_seconds": None, "upkeep": None, "queries": self._queries()}
        return job | {"connections": {"main": connection | {"bootstrap_servers": self._bootstrap}}}

    def _queries(self) -> list[dict[str, Any]]:
        source: dict[str, Any] = {"kind": "kafka", "name": "events", "topic": self._topic}
        source |= {"connection": "main", "start": "earliest", "retention_seconds": 86_400, "reading": None}
        reading: dict[str, Any] = {"source": source | {"records_per_batch": PORTION}, "format": "json"}
        reading |= {"redact": [], "schema": str(self.home / "schema.ddl"), "decompress_up_to": None}
        # A topic is split by ranges of offsets, without a shuffle.
        reading |= {"repartition": 3, "trigger_seconds": 0}
        onward: dict[str, Any] = {"enrich": [], "transform": None, "trigger_seconds": 0}
        onward |= {"sink": {"kind": "iceberg", "table": self._table("out")}}
        if self._kind == "direct":
            letters = self._table("letters")
            return [{"kind": "direct", "name": "direct", **reading, **onward, "dead_letters": letters}]
        land = {"kind": "land", "name": "land", **reading, "table": self._table("landed")}
        derive = {"kind": "derive", "name": "derive", **onward, "source_table": self._table("landed")}
        derive |= {"state": None, "dead_letters": None, "route": None, "latest_by": []}
        if self._kind == "state":
            mark = {"time": "_arrived_at", "delay_seconds": 600, "ahead_seconds": 3600}
            state = {"watermark": mark, "distinct": [], "key": ["minute", "fifth"], "join": None}
            derive |= {"state": state, "transform": f"{counted.__module__}:counted"}
        return [land] if self._kind == "land" else [land, derive]

    def drop(self) -> None:
        """Remove what it left."""
        for what in ("landed", "out", "letters"):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._full(what)} PURGE")
        shutil.rmtree(self.home, ignore_errors=True)


class KilledError(Exception):
    """Ends a batch whose data are committed."""


def _dying(query: Query) -> Query:
    def handle(batch: DataFrame, number: int) -> None:
        query.handle(batch, number)
        raise KilledError("killed")

    return replace(query, handle=handle)


def _disturbed(query: Query, disturb: Callable[[], None]) -> Query:
    def handle(batch: DataFrame, number: int) -> None:
        disturb()
        query.handle(batch, number)

    return replace(query, handle=handle)
