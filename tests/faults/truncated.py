"""Files of a checkpoint that are cut short: ``python -m tests.faults.truncated``.

For each kind of query, each of its checkpoint's files in turn is cut to nothing and to half, after some batches, or in the
middle of one (its data are committed, and Spark has not noted it). The job is then started as the engines start it, over more
records. It must either go on exactly, or say in one message which file it is and what to do about it: with status 2 before
anything is read, or with status 1 where only reading shows it. With the file put back, it must go on exactly.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from etl import lease, run, settings
from etl.accounts import Reporter
from etl.errors import StartError
from etl.supervise import Query, Supervisor
from millrace.sandbox import kafka
from millrace.sandbox.ledger import compare
from millrace.sandbox.process import RUN, SandboxError
from millrace.sandbox.producer import KafkaProducer
from tests.faults.feed import DDL, events
from tests.faults.session import open_session

HOME = RUN / "faults-truncated"
PORTION = 60
PARTITIONS = 2
_STATE = "org.apache.spark.sql.execution.streaming.state"
STORES: Mapping[str, Mapping[str, str]] = {
    # As infra has it (``infra/spark.py``).
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "heap": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider",
    },
}
CUTS: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
}


def counted(rows: DataFrame) -> DataFrame:
    """Count records of each fifth of the numbers in each minute: what the stateful query keeps."""
    grouped = rows.groupBy(F.window("_arrived_at", "1 minute"), (F.col("n") % 5).alias("fifth"))
    return grouped.agg(F.count(F.lit(1)).alias("records"), F.sum("n").alias("total")).select(
        F.col("window.start").alias("minute"), "fifth", "records", "total"
    )


@dataclass(frozen=True)
class Case:
    """One file that is cut.

    Attributes
    ----------
    kind
        Of the job: ``land``, ``direct``, ``derive`` or ``state``.
    file
        Below the job's checkpoints; of a pattern the newest one, by number.
    within
        Whether the job was killed in the middle of a batch.
    store
        Where a stateful query keeps its state.
    """

    kind: str
    file: str
    within: bool = False
    store: str = "rocksdb"

    def __str__(self) -> str:
        store = f" ({self.store})" if self.kind == "state" and "/state/" in self.file else ""
        return f"{self.file}{store}{', in a batch' if self.within else ''}"


def cases() -> Iterator[Case]:
    """All files that the core or Spark reads again."""
    for kind, query in (("land", "land"), ("direct", "direct"), ("derive", "derive"), ("state", "derive")):
        yield Case(kind, f"{query}/offsets/*")
        yield Case(kind, f"{query}/offsets/*", within=True)
        yield Case(kind, f"{query}/commits/*")
        yield Case(kind, f"{query}/metadata")
        yield Case(kind, f"_millrace/{query}.manifest.json")
    yield Case("land", "land/commits/*", within=True)
    yield Case("land", "land/sources/0/0")
    yield Case("land", "_millrace/lease.json")
    yield Case("derive", "derive/sources/0/offsets/0")
    yield Case("state", "derive/state/0/*/*.changelog")
    yield Case("state", "derive/state/0/*/*.zip")
    yield Case("state", "derive/state/0/*/SSTs/*.sst")
    yield Case("state", "derive/state/0/*/_metadata/schema")
    yield Case("state", "derive/state/0/*/*.delta", store="heap")
    yield Case("state", "derive/state/0/*/*.snapshot", store="heap")


@dataclass(frozen=True)
class Told:
    """How a run of a job ended."""

    status: int
    message: str


class Job:
    """A topic, a job that reads it, its checkpoints and tables."""

    def __init__(self, spark: SparkSession, broker: kafka.Kafka, home: Path, number: int, kind: str) -> None:
        self._spark, self._kind, self._number = spark, kind, number
        self._choose = random.Random(number)  # noqa: S311 - repeatable on purpose
        self._topic = f"truncated-{number}"
        self._bootstrap = broker.bootstrap
        broker.create_topic(self._topic, PARTITIONS)
        self._producer = KafkaProducer(broker.bootstrap, self._topic)
        self._first = 0
        self.home = home / str(number)
        self.checkpoints = self.home / "checkpoints"
        self.drop()  # what a run that was killed has left
        self.home.mkdir(parents=True)
        (self.home / "schema.ddl").write_text(DDL)

    def send(self) -> None:
        """Send a portion."""
        self._producer.send(events(PORTION, self._choose, first=self._first), sent=lambda _: None)
        self._first += PORTION

    def run(self, *, dies: bool = False) -> Told:
        """Run the job over what is there, as ``etl.main`` does it; ``dies`` after its first batch's commit."""
        said = io.StringIO()
        report = Reporter("truncated", said)
        held = lease.of(str(self.checkpoints), "truncated", (), lambda _: None)
        try:
            held.acquire()
            queries = run.build(self._spark, settings.parse(self._job()), {}, report)
        except StartError as error:
            held.release()
            return Told(2, str(error))
        if dies:
            queries = (*queries[:-1], _dying(queries[-1]))
        supervisor = Supervisor(self._spark, report, lease=held)
        over = threading.Event()
        watch = threading.Thread(target=self._end, args=(supervisor, len(queries), over), daemon=True)
        watch.start()
        status = supervisor.run(queries)
        over.set()
        watch.join()
        told = [json.loads(line) for line in said.getvalue().splitlines()]
        return Told(status, "\n".join(each["error"] for each in told if each["event"] == "failed"))

    def _end(self, supervisor: Supervisor, count: int, over: threading.Event) -> None:
        """Stop the job when it has read all."""
        while len(self._spark.streams.active) < count:
            if over.wait(0.05):
                return
        try:
            for query in sorted(self._spark.streams.active, key=lambda each: each.name != "land"):
                query.processAllAvailable()
        except StreamingQueryException:
            return  # the supervisor tells
        supervisor.stop()

    def cut(self, pattern: str, how: str) -> tuple[Path, bytes]:
        """Cut the newest file of a pattern; it, and what it held."""
        found = [
            path
            for path in self.checkpoints.glob(pattern)
            if path.is_file() and not path.name.startswith(".")
        ]
        if not found:
            there = sorted(str(path.relative_to(self.checkpoints)) for path in self.checkpoints.rglob("*"))
            raise SandboxError(f"no file {pattern}: {', '.join(there)}")
        newest = max(found, key=lambda path: (_number(path), path.stat().st_size))
        data = newest.read_bytes()
        newest.write_bytes(CUTS[how](data))
        # Hadoop's local file system would tell of the other length by its checksum; S3 keeps none beside a file.
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        return newest, data

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
        return f"lake.{self._table(what)}"

    def _table(self, what: str) -> str:
        return f"truncated.t{self._number}_{what}"

    def _rows(self, what: str, *columns: str) -> pa.Table:
        rows = [tuple(row) for row in self._spark.table(self._full(what)).select(*columns).collect()]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})

    def _job(self) -> dict[str, Any]:
        connection = {"kind": "external", "cluster": None, "authentication": "none"}
        job: dict[str, Any] = {"version": 1, "environment": "faults", "job": "truncated", "engine": "sandbox"}
        job |= {"catalog": "lake", "checkpoints": str(self.checkpoints), "batch_retries": 0}
        job |= {"dead_letters_kept_seconds": None, "upkeep": None, "queries": self._queries()}
        return job | {"connections": {"main": connection | {"bootstrap_servers": self._bootstrap}}}

    def _queries(self) -> list[dict[str, Any]]:
        source: dict[str, Any] = {"kind": "kafka", "name": "events", "topic": self._topic}
        source |= {"connection": "main", "start": "earliest", "retention_seconds": 86_400, "reading": None}
        reading: dict[str, Any] = {"source": source | {"records_per_batch": PORTION}, "format": "json"}
        reading |= {"redact": [], "schema": str(self.home / "schema.ddl"), "decompress_up_to": None}
        reading |= {"repartition": None, "trigger_seconds": 0}
        onward: dict[str, Any] = {"enrich": [], "transform": None, "trigger_seconds": 0}
        onward |= {"sink": {"kind": "iceberg", "table": self._table("out")}}
        if self._kind == "direct":
            letters = self._table("letters")
            return [{"kind": "direct", "name": "direct", **reading, **onward, "dead_letters": letters}]
        land = {"kind": "land", "name": "land", **reading, "table": self._table("landed")}
        derive = {"kind": "derive", "name": "derive", **onward, "source_table": self._table("landed")}
        derive |= {"state": None, "dead_letters": None, "route": None}
        if self._kind == "state":
            mark = {"time": "_arrived_at", "delay_seconds": 600}
            state = {"watermark": mark, "distinct": [], "key": ["minute", "fifth"], "join": None}
            derive |= {"state": state, "transform": f"{counted.__module__}:counted"}
        return [land] if self._kind == "land" else [land, derive]

    def drop(self) -> None:
        """Remove what it left."""
        for what in ("landed", "out", "letters"):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._full(what)} PURGE")
        shutil.rmtree(self.home, ignore_errors=True)


def _number(path: Path) -> int:
    digits = "".join(c for c in path.name.partition(".")[0] if c.isdecimal())
    return int(digits) if digits else -1


class KilledError(Exception):
    """Ends a batch whose data are committed."""


def _dying(query: Query) -> Query:
    def handle(batch: DataFrame, number: int) -> None:
        query.handle(batch, number)
        raise KilledError("killed")

    return replace(query, handle=handle)


def play(spark: SparkSession, broker: kafka.Kafka, number: int, case: Case, how: str) -> tuple[bool, str]:
    """Cut one file; whether all held, and what it came to."""
    for key, value in STORES[case.store].items():
        spark.conf.set(key, value)
    job = Job(spark, broker, HOME, number, case.kind)
    try:
        for dies in (False, case.within):
            job.send()
            before = job.run(dies=dies)
            if before.status != int(dies):
                return False, f"it did not even run before: {before}"
        job.send()
        path, data = job.cut(case.file, how)
        after = job.run()
        if after.status == 0:
            wrong = job.wrong()
            return not wrong, f"went on: {dict(wrong) or 'exact'}"
        clear = _clear(after.message, path)
        _mend(path, data, after.message)
        mended = job.run()
        wrong = job.wrong()
        held = clear and mended.status == 0 and not wrong
        told = f"status {after.status}, {'told' if clear else 'A RIDDLE'}: {after.message}"
        return held, f"{told} | then {mended.status}: {dict(wrong) or 'exact'}"
    finally:
        job.drop()


def _clear(message: str, path: Path) -> bool:
    """Whether a message names the file, or its folder where only that is known, and a way out."""
    return str(path) in message and "millrace checkpoint" in message


def _mend(path: Path, data: bytes, message: str) -> None:
    """Take the way out: delete the file where that is called safe, put it back else."""
    if "deleting it is safe" in message:
        path.unlink()
    else:
        path.write_bytes(data)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.truncated", description="A checkpoint's files, cut short."
    )
    reading.add_argument("--minutes", type=float, default=float("inf"), help="no case begins later")
    reading.add_argument("--seed", type=int, default=1, help="of the order")
    reading.add_argument("--fresh", action="store_true", help="forget what was played before")
    return reading


def main() -> int:
    """Cut, start, mend, compare, print a line for each; go on where an earlier run ended."""
    given = parser().parse_args()
    until = time.monotonic() + given.minutes * 60
    if given.fresh:
        shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    kept = HOME / "outcomes.jsonl"
    ends: dict[str, str] = {}
    for line in kept.read_text().splitlines() if kept.exists() else []:
        ends |= json.loads(line)
    whole = [(f"{case.kind}: {case}, {how}", case, how) for case in cases() for how in CUTS]
    random.Random(given.seed).shuffle(whole)  # noqa: S311 - repeatable on purpose
    with kafka.running() as broker:
        spark = open_session(HOME / "lake")
        spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
        try:
            for number, (name, case, how) in enumerate(whole):
                # One that missed is played again.
                if ends.get(name, "missed") != "missed" or time.monotonic() > until:
                    continue
                held, line = play(spark, broker, number, case, how)
                ends[name] = line.split(":")[0].split(",")[0] if held else "missed"
                with kept.open("a") as file:
                    file.write(json.dumps({name: ends[name]}) + "\n")
                sys.stdout.write(f"{'ok' if held else 'NOT OK'}: {name}: {line}\n")
                sys.stdout.flush()
        finally:
            spark.stop()
    told = ", ".join(f"{end} {count}" for end, count in sorted(Counter(ends.values()).items()))
    missed = [name for name, end in ends.items() if end == "missed"]
    sys.stdout.write(
        f"{len(ends)} of {len(whole)} files cut short: {told}{'; ' + '; '.join(missed) if missed else ''}\n"
    )
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
