"""Test stage of one round: stream, table and the deployed core on local Spark."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from millrace.config.engines.versions import SparkLine
from millrace.sandbox.programs import jars, start_spark_submit
from millrace.sandbox.programs.child_processes import ChildProcess, wait_until
from millrace.sandbox.programs.run_launch_document_locally import local_catalog_settings
from millrace.sandbox.programs.start_spark_submit import read_driver_events
from millrace.sandbox.programs.toolchain import ROOT, program_variables
from millrace.sandbox.records.ledger import LedgerComparison, compare_with_ledger, row_count
from millrace.sandbox.records.producer import KinesisProducer
from tests.faults import small_job_documents
from tests.faults.record_sender import DDL, Feed
from tests.kinesalite import CREDENTIALS, REGION

TABLE = "faults.landed"
JAR_SETS = ("sandbox", "kafka-client")
NOTHING: Mapping[str, str] = MappingProxyType({})
STALL_SECONDS = 180.0
"""Without a landed record for so long, what is missing is lost."""

QUIET_SECONDS = 3.0
"""How long a complete table is watched for rows too many."""


def local_catalog(home: Path) -> SqlCatalog:
    """Open the catalog below a round's folder without Spark; makes its own tables, which the job then finds."""
    (home / "lake").mkdir(parents=True, exist_ok=True)
    return SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db?timeout=30", warehouse=f"file://{home}/lake")


def start(
    name: str,
    home: Path,
    job: Mapping[str, Any],
    *,
    lake_home: Path | None = None,
    jar_sets: Sequence[str] = JAR_SETS,
    spark: Mapping[str, str] = NOTHING,
    binds: Mapping[str, str] = NOTHING,
    environment: Mapping[str, str] = NOTHING,
    prelude: str = "",
    log: str = "driver.log",
    line: SparkLine | None = None,
) -> ChildProcess:
    """Start a job as an engine does: entry script, launch document, arguments.

    Parameters
    ----------
    home
        Its folder: documents, Spark's own files, log.
    job
        Its settings.
    lake_home
        Folder of catalog and tables, where it is another one.
    spark, environment
        Beside those of every job here, or in their place.
    prelude
        Python that the entry script begins with.
    line
        Of Spark; None for this interpreter's.
    """
    lake_home = lake_home or home
    document = home / "launch.json"
    document.write_text(json.dumps({"version": 1, "settings": job}))
    entry = home / "main.py"
    text = (ROOT / "etl" / "main.py").read_text()
    entry.write_text(text.replace("import sys\n", f"import sys\n{prelude}", 1))
    settings = {
        **start_spark_submit.LOCAL,
        **local_catalog_settings("lake", lake_home / "catalog.db", f"file://{lake_home}/lake"),
        "spark.master": "local[2,4]",  # four attempts at a task, as on the engines
        "spark.sql.shuffle.partitions": "2",
        **({"spark.jars": ",".join(str(path) for each in jar_sets for path in jars.jar_files(each, line))} if jar_sets else {}),
        **spark,
    }  # fmt: skip
    arguments = ["--launch-document", document.as_uri()]
    for bind in binds.items():
        arguments += ["--bind", "=".join(bind)]
    variables = {**program_variables(), **CREDENTIALS, "AWS_CBOR_DISABLE": "true", "PYTHONPATH": str(ROOT)}
    variables |= {"AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, **environment}
    return start_spark_submit.start_driver(
        name, home, entry, settings, arguments, environment=variables, log=log, line=line
    )


@dataclass
class Stage:
    """A stream, the landing table and the runs of the job.

    Parameters
    ----------
    kinesis
        A :class:`Kinesalite`, or a server that cannot be told to make faults; None where no stream is read.
    home
        Folder of this round.
    settings
        Of the land query's source, in place of the defaults.
    prelude
        Python that the entry script begins with.
    line
        Of Spark, for the runs that are started from now on; None for this interpreter's.
    """

    kinesis: Any
    home: Path
    stream: str
    choose: random.Random
    settings: dict[str, Any] = field(default_factory=dict)
    trigger_seconds: float = 0.5
    prelude: str = ""
    ddl: str = DDL
    line: SparkLine | None = None
    runs: list[ChildProcess] = field(default_factory=list)
    bootstrap: str | None = None
    ending: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        self.client: Any = self.kinesis.client() if self.kinesis else None
        self.feed = Feed(KinesisProducer(self.client, self.stream), self.choose)
        self.catalog = local_catalog(self.home)
        self.ending.callback(self.catalog.close)

    # ---- the stream ----

    def create_stream(self, shards: int) -> None:
        self.client.create_stream(StreamName=self.stream, ShardCount=shards)
        self.ending.callback(self.client.delete_stream, StreamName=self.stream)
        self.settle()

    def settle(self) -> None:
        """Wait until the stream is active."""
        wait_until(self._is_active, seconds=30, what=f"active: stream {self.stream}", poll_seconds=0.02)

    def _is_active(self) -> bool:
        told = self.client.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]
        return bool(told["StreamStatus"] == "ACTIVE")

    def split(self, count: int = 1) -> None:
        """Split shards in the middle, one after the other."""
        for _ in range(count):
            split_shard(self.client, self.stream, self.choose)
            self.settle()

    def merge(self) -> None:
        """Merge two neighbours."""
        shards = open_shards(self.client, self.stream)
        left = self.choose.randrange(len(shards) - 1)
        self.client.merge_shards(
            StreamName=self.stream,
            ShardToMerge=shards[left]["ShardId"],
            AdjacentShardToMerge=shards[left + 1]["ShardId"],
        )
        self.settle()

    def put(self, key: str, payload: bytes | None, dirt: str | None) -> None:
        """Send one record and enter it into the ledger; Kinesis has no null payload, and takes such as empty."""
        data = payload or b""
        answer = self.client.put_record(StreamName=self.stream, Data=data, PartitionKey=key[:256] or "-")
        self.feed.producer.ledger.add(f"{self.stream}/{answer['SequenceNumber']}", data, dirt)

    # ---- the job ----

    def start(self) -> ChildProcess:
        """Start the job, again or for the first time."""
        schema = self.home / "schema.ddl"
        schema.write_text(self.ddl)
        binds = {"kinesis.endpoint": self.kinesis.endpoint} if self.kinesis else NOTHING
        place = {"home": self.home, **self._place()}
        self.runs.append(
            start(
                f"faults-{self.stream}", job=self._job_settings(schema), binds=binds, prelude=self.prelude,
                log=f"run-{len(self.runs) + 1}.log", line=self.line, **place,
            )
        )  # fmt: skip
        return self.runs[-1]

    def _place(self) -> dict[str, Any]:
        """More for :func:`start`."""
        return {}

    def _source(self) -> dict[str, Any]:
        return {**small_job_documents.stream(self.stream, REGION), **self.settings}

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        queries = small_job_documents.queries(
            "land", self._source(), schema, lambda _: TABLE, trigger_seconds=self.trigger_seconds
        )
        return small_job_documents.settings("faults", queries, f"{self.home}/checkpoints", self.bootstrap)

    def last_positions(self) -> Path:
        """Folder of the connector's own files: how far each shard was read in the last batch."""
        commits = self.home / "checkpoints" / "land" / "sources" / "0" / "shard-commit"
        return max(commits.iterdir(), key=lambda path: int(path.name))

    @property
    def job(self) -> ChildProcess:
        """The run that was started last."""
        return self.runs[-1]

    @property
    def live(self) -> Sequence[ChildProcess]:
        """Runs that have to go on."""
        return self.runs[-1:]

    def batches(self) -> list[dict[str, Any]]:
        """Lines of the accounts, of all runs."""
        return [event for event in self.reported() if event["event"] == "batch"]

    def reported(self) -> Iterator[dict[str, Any]]:
        """All that the core has reported, in all runs."""
        for run in self.runs:
            yield from read_driver_events(run)

    # ---- the table ----

    def landed(self) -> int:
        """Rows of the table, by its last snapshot."""
        return row_count(self.catalog, TABLE)

    def until(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something.

        Raises
        ------
        SandboxError
            It did not come in time, or the job ended before.
        """
        wait_until(reached, seconds=seconds, what=what, runs=self.live)

    def until_landed(self, count: int) -> None:
        """Wait until so many rows are there, as long as rows come."""
        wait_until(
            lambda: self.landed() >= count, seconds=STALL_SECONDS, what="landed", runs=self.live,
            progress=lambda: f"{self.landed():,} of {count:,}", poll_seconds=0.2,
        )  # fmt: skip

    def until_more(self) -> None:
        """Wait for the next rows."""
        self.until_landed(self.landed() + 1)

    def until_complete(self) -> None:
        """Wait for all that was sent, and a little longer for what is too much."""
        self.until_landed(len(self.feed.producer.ledger))
        time.sleep(QUIET_SECONDS)

    def complete(self, records: int) -> None:
        """Send the rest of a round's records, and wait for all."""
        self.feed.backlog(max(0, records - self.feed.sent))
        self.until_complete()

    def account(self) -> LedgerComparison:
        """Hold the table against the ledger."""
        return compare_with_ledger(self.catalog, self.feed.producer.ledger, TABLE)

    def kill(self) -> None:
        """End all runs."""
        for run in self.runs:
            run.kill()

    def close(self) -> None:
        """End all runs, and what was started or opened for them."""
        self.kill()
        self.ending.close()


def open_shards(client: Any, stream: str) -> list[Any]:
    """Open shards in the order of their hash ranges."""
    shards = client.list_shards(StreamName=stream)["Shards"]
    result = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
    return sorted(result, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))


def split_shard(client: Any, stream: str, choose: random.Random) -> None:
    """Split one of the open shards in the middle."""
    shard = choose.choice(open_shards(client, stream))
    low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
    client.split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2)
    )
