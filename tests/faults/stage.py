"""One round's stream, table and job: the deployed core, from a launch document, on local Spark."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyiceberg.catalog.sql import SqlCatalog

from millrace.config.engines.versions import Line
from millrace.sandbox import driver, jars, lake
from millrace.sandbox.driver import events
from millrace.sandbox.kinesalite import CREDENTIALS, REGION
from millrace.sandbox.ledger import Account
from millrace.sandbox.localstack import LocalStack
from millrace.sandbox.process import Process, SandboxError
from millrace.sandbox.producer import KinesisProducer
from millrace.sandbox.spark import iceberg_catalog
from millrace.sandbox.toolchain import ROOT, program_environment
from tests.faults import jobs
from tests.faults.feed import DDL, Feed

TABLE = "faults.landed"
STALL_SECONDS = 180.0
"""Without a landed record for so long, what is missing is lost."""

QUIET_SECONDS = 3.0
"""How long a complete table is watched for rows too many."""


class Server(Protocol):
    """A Kinesis: kinesalite, or LocalStack's by :class:`LocalStackKinesis`."""

    @property
    def endpoint(self) -> str: ...

    def client(self) -> Any: ...

    def throttle(self, probability: float) -> None: ...

    def set_clock(self, ahead_seconds: float) -> None: ...


class UnsupportedError(RuntimeError):
    """A fault that this server cannot be told to make."""


@dataclass(frozen=True)
class LocalStackKinesis:
    """LocalStack's Kinesis: slow with volume, without faults to order and without a clock to set."""

    stack: LocalStack

    @property
    def endpoint(self) -> str:
        return self.stack.endpoint

    def client(self) -> Any:
        return self.stack.client("kinesis")

    def throttle(self, probability: float) -> None:
        raise UnsupportedError(
            f"LocalStack refuses calls by a setting from its start on, not {probability:.0%} from now"
        )

    def set_clock(self, ahead_seconds: float) -> None:
        raise UnsupportedError(f"LocalStack's clock cannot be set {ahead_seconds:g} s ahead")


class StalledError(RuntimeError):
    """The job made no progress; what has landed is compared all the same."""


@dataclass
class Stage:
    """A stream, the landing table and the runs of the job.

    Parameters
    ----------
    home
        Folder of this round.
    settings
        Of the land query's source, in place of the defaults.
    prelude
        Python that the entry script begins with.
    line
        Of Spark, for the runs that are started from now on; None for this interpreter's.
    """

    kinesis: Server
    home: Path
    stream: str
    choose: random.Random
    settings: dict[str, Any] = field(default_factory=dict)
    trigger_seconds: float = 0.5
    prelude: str = ""
    ddl: str = DDL
    line: Line | None = None
    runs: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        (self.home / "lake").mkdir(parents=True)
        self.client = self.kinesis.client()
        self.feed = Feed(KinesisProducer(self.client, self.stream), self.choose)
        self.catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{self.home}/catalog.db?timeout=30", warehouse=f"file://{self.home}/lake"
        )

    # ---- the stream ----

    def create_stream(self, shards: int) -> None:
        self.client.create_stream(StreamName=self.stream, ShardCount=shards)
        self.settle()

    def settle(self) -> None:
        """Wait until the stream is active."""
        deadline = time.monotonic() + 30
        while self._summary()["StreamStatus"] != "ACTIVE":
            if time.monotonic() > deadline:
                raise StalledError(f"stream {self.stream} is not active after 30 s")
            time.sleep(0.02)

    def _summary(self) -> Any:
        return self.client.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]

    def open_shards(self) -> list[Any]:
        """Open shards in the order of their hash ranges."""
        shards = self.client.list_shards(StreamName=self.stream)["Shards"]
        found = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(found, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))

    def split(self, count: int = 1) -> None:
        """Split shards in the middle, one after the other."""
        for _ in range(count):
            shard = self.choose.choice(self.open_shards())
            low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
            middle = str((low + high) // 2)
            self.client.split_shard(
                StreamName=self.stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle
            )
            self.settle()

    def merge(self) -> None:
        """Merge two neighbours."""
        shards = self.open_shards()
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

    def start(self) -> Process:
        """Start the job as an engine does: entry script, launch document, arguments."""
        schema = self.home / "schema.ddl"
        schema.write_text(self.ddl)
        document = self.home / "launch.json"
        document.write_text(json.dumps({"version": 1, "settings": self._job_settings(schema)}))
        entry = self.home / "main.py"
        text = (ROOT / "etl" / "main.py").read_text()
        entry.write_text(text.replace("import sys\n", f"import sys\n{self.prelude}", 1))
        environment = {**program_environment(), **CREDENTIALS, "AWS_CBOR_DISABLE": "true"}
        environment |= {"PYTHONPATH": str(ROOT), "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
        arguments = ["--launch-document", document.as_uri(), *self._binds()]
        name, log = f"faults-{self.stream}", f"run-{len(self.runs) + 1}.log"
        settings = self._spark_settings()
        run = driver.start(
            name, self.home, entry, settings, arguments, environment=environment, log=log, line=self.line
        )
        self.runs.append(run)
        return run

    def _binds(self) -> list[str]:
        return ["--bind", f"kinesis.endpoint={self.kinesis.endpoint}"]

    def _source(self) -> dict[str, Any]:
        return {**jobs.stream(self.stream, REGION), **self.settings}

    def _connections(self) -> dict[str, Any]:
        return {}

    def _jars(self) -> list[Path]:
        return jars.files("sandbox", self.line)

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        query = {"kind": "land", "name": "land", "source": self._source(), "format": "json"}
        query |= {"schema": str(schema)}
        query |= {
            "table": TABLE,
            "trigger_seconds": self.trigger_seconds,
            "repartition": None,
            "redact": [],
            "rules": [],
        }
        query |= {"decompress_up_to": None}
        job = jobs.settings("faults", [query], f"{self.home}/checkpoints", None)
        return job | {"connections": self._connections()}

    def _spark_settings(self) -> dict[str, str]:
        return {
            **driver.LOCAL,
            **iceberg_catalog("lake", self.home / "catalog.db", f"file://{self.home}/lake"),
            "spark.master": "local[2,4]",  # four attempts at a task, as on the engines
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": ",".join(map(str, self._jars())),
        }

    def last_positions(self) -> Path:
        """Folder of the connector's own files: how far each shard was read in the last batch."""
        commits = self.home / "checkpoints" / "land" / "sources" / "0" / "shard-commit"
        return max(commits.iterdir(), key=lambda path: int(path.name))

    @property
    def job(self) -> Process:
        """The run that was started last."""
        return self.runs[-1]

    def batches(self) -> list[dict[str, Any]]:
        """Lines of the accounts, of all runs."""
        return [event for event in self.reported() if event["event"] == "batch"]

    def reported(self) -> Iterator[dict[str, Any]]:
        """All that the core has reported, in all runs."""
        for run in self.runs:
            yield from events(run)

    # ---- the table ----

    def landed(self) -> int:
        """Rows of the table, by its last snapshot."""
        return lake.rows(self.catalog, TABLE)

    def until(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something.

        Raises
        ------
        StalledError
            It did not come in time, or the job ended before.
        """
        try:
            self.job.wait_until(reached, seconds=seconds, what=what)
        except SandboxError as error:
            raise StalledError(str(error)) from error

    def until_landed(self, count: int) -> None:
        """Wait until so many rows are there, as long as rows come."""
        seen, moved = -1, time.monotonic()
        while (now := self.landed()) < count:
            if now != seen:
                seen, moved = now, time.monotonic()
            if not self.job.alive:
                raise StalledError(f"the job ended by itself at {now} of {count}:\n{self.job.tail(25)}")
            if time.monotonic() - moved > STALL_SECONDS:
                raise StalledError(f"no progress for {STALL_SECONDS:.0f} s at {now} of {count}")
            time.sleep(0.2)

    def until_complete(self) -> None:
        """Wait for all that was sent, and a little longer for what is too much."""
        self.until_landed(len(self.feed.producer.ledger))
        time.sleep(QUIET_SECONDS)

    def account(self) -> Account:
        """Hold the table against the ledger."""
        return lake.account(self.catalog, self.feed.producer.ledger, TABLE)

    def close(self) -> None:
        for run in self.runs:
            run.kill()
        self.catalog.close()
        self.client.delete_stream(StreamName=self.stream)
