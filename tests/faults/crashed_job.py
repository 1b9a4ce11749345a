"""A job whose writes to servers are numbered: started, killed at one of them, and compared with the ledger of sent records."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import StaticTable

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs import jars, kafka_broker, localstack, start_spark_submit
from millrace.sandbox.programs.child_processes import ChildProcess, SandboxError, wait_until
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark
from millrace.sandbox.records.producer import KafkaProducer, KinesisProducer, RecordProducer
from tests import kinesalite, postgres
from tests.faults import maintenance_on_request, postgres_proxy, s3_proxy, small_job_documents
from tests.faults.numbered_writes import Mode, Points
from tests.faults.record_sender import DDL
from tests.faults.round_setup import start
from tests.kinesalite import REGION, Kinesalite
from tests.postgres import PASSWORD, USER, Postgres

BUCKET = "faults"
JAR_SETS = ("sandbox", "kafka-client", "postgresql")
PARTITIONS = 4
KEYS = 16
"""Of records: enough that each partition gets some."""

PORTION = 48
RETRIES = 5
QUIET_SECONDS = 1.5
"""More than a trigger. Without a mutation for so long, with all batches committed, a job has done what there was to do."""

PATIENCE_SECONDS = 400.0

CATALOG = """\
CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255), property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key))"""
"""As Iceberg's JDBC catalog makes them (``JdbcUtil``, schema version 1)."""

QUICK = "-XX:TieredStopAtLevel=1"
"""No driver here lives long enough to earn back what the second compiler takes."""


@dataclass(frozen=True)
class Servers:
    """One of each, for all points; ``points`` stands before S3 and PostgreSQL."""

    stack: LocalStack
    broker: KafkaBroker
    kinesis: Kinesalite
    database: Postgres
    points: Points
    port: int


@contextmanager
def servers() -> Iterator[Servers]:
    """Start them, with proxies before those that a job changes."""
    with ExitStack() as ending:
        stack = ending.enter_context(localstack.running_localstack(name="faults-crash-points-s3"))
        stack.client("s3").create_bucket(Bucket=BUCKET)
        broker = ending.enter_context(kafka_broker.running_broker())
        kinesis = ending.enter_context(kinesalite.running(name="faults-crash-points-kinesis"))
        database = ending.enter_context(postgres.running())
        database.run(CATALOG)
        points = Points()
        ending.enter_context(s3_proxy.before(stack.endpoint, points))
        port = ending.enter_context(postgres_proxy.before(database.port, points))
        yield Servers(stack, broker, kinesis, database, points, port)


def portion(first: int) -> Iterator[RecordToSend]:
    """Make records of few keys, the last of them spoiled."""
    for n in range(first, first + PORTION):
        key = str(n % KEYS).encode()
        if n % PORTION == PORTION - 1:
            yield RecordToSend(key, b'{"n": ' + str(n).encode(), "broken")
        else:
            yield RecordToSend(key, json.dumps({"n": n, "text": "x" * (n % 40)}).encode())


@dataclass
class Lake:
    """The tables behind the proxies, by a reader that is not Spark."""

    servers: Servers
    _held: dict[str, pa.Table] = field(default_factory=dict)

    def loaded(self, namespace: str, name: str) -> StaticTable | None:
        """Open a table; None where it is not there."""
        result = self.servers.database.run(
            f"SELECT metadata_location FROM iceberg_tables WHERE table_namespace = '{namespace}' "  # noqa: S608 - ours
            f"AND table_name = '{name}'"
        )
        if not result:
            return None
        stack = self.servers.stack
        properties = {"s3.endpoint": stack.endpoint, "s3.region": stack.region}
        properties |= {"s3.access-key-id": "test", "s3.secret-access-key": "test"}
        return StaticTable.from_metadata(result[0][0], properties)

    def rows(self, namespace: str, name: str, *columns: str) -> pa.Table:
        """Columns of a table; a file that was read before is not read again."""
        table = self.loaded(namespace, name)
        if table is None:
            raise SandboxError(f"table {namespace}.{name} is not there")
        scan = table.scan(selected_fields=columns)
        parts = []
        for task in scan.plan_files():
            path = f"{task.file.file_path} {columns}"
            if path not in self._held or task.delete_files:
                reading = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
                self._held[path] = reading.to_table([task])
            parts.append(self._held[path])
        return pa.concat_tables(parts, promote_options="permissive") if parts else scan.to_arrow()


@dataclass(frozen=True)
class Kind:
    """A kind of query, whose batches are crashed in.

    Attributes
    ----------
    queries
        As :func:`tests.faults.small_job_documents.queries` names it.
    query
        The one whose mutations are numbered.
    tables
        Those that it writes.
    sink
        In place of a table of the lake, from the servers and the name of a schema of its own.
    stream
        Whether it reads a stream, and not a topic.
    chores
        Whether the mutations are those of compaction and expiry, between two batches.
    upgrade
        Whether they are those of another version of the job that goes on from the drained one's checkpoint: its schema has a
        column more, which alters the table, and records wait for it.
    """

    queries: str
    query: str
    tables: tuple[str, ...]
    sink: Callable[[Servers, str], Mapping[str, Any]] | None = None
    stream: bool = False
    chores: bool = False
    upgrade: bool = False


@dataclass
class Crashed:
    """A topic, a job that reads it, and its tables.

    Parameters
    ----------
    name
        Of the topic, of the tables' namespace and of the checkpoints.
    classes
        File of the JVM's: what a driver that ended by itself had loaded, from which the others start with half the work.
    """

    servers: Servers
    kind: Kind
    name: str
    home: Path
    classes: Path | None = None
    runs: list[ChildProcess] = field(default_factory=list)
    sent: int = 0
    versions: int = 0

    def __post_init__(self) -> None:
        self._lake = Lake(self.servers)
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "schema.ddl").write_text(DDL)
        self.producer, source = self._stream() if self.kind.stream else self._topic()
        self.s3 = self.servers.stack.client("s3")
        queries = small_job_documents.queries(
            self.kind.queries, source, self.home / "schema.ddl", self.table,
            sink=self.kind.sink and self.kind.sink(self.servers, self.name), trigger_seconds=1.0,
        )  # fmt: skip
        self.names = [query["name"] for query in queries]
        checkpoints = f"s3a://{BUCKET}/{self.name}/checkpoints"
        settings = small_job_documents.settings(
            "crashed", queries, checkpoints, self.servers.broker.bootstrap, retries=RETRIES
        )
        if self.kind.chores:
            landed = {"table": self.table("landed"), "readers": []}
            settings["upkeep"] = {
                "file_bytes": 1 << 20, "snapshots_kept_seconds": 1, "orphans_kept_seconds": 90_000, "tables": [landed],
            }  # fmt: skip
        self.asks = self.home / "asks-for-chores"
        self.settings = settings
        lake = tuple(f"/lake/{self.name}/{table}/" for table in self.kind.tables)
        named = tuple(f"{self.name}\0{table}" for table in self.kind.tables)
        # Of an upgrade the lease and the manifest, too, which lie beside the queries' own.
        own = f"/{self.name}/checkpoints/" + ("" if self.kind.upgrade else f"{self.kind.query}/")
        self.servers.points.scope = (own, *lake, *named, f'"{self.name}"."', f"{self.name}.")

    def _topic(self) -> tuple[RecordProducer, dict[str, Any]]:
        self.servers.broker.create_topic(self.name, PARTITIONS)
        return KafkaProducer(self.servers.broker.bootstrap, self.name), small_job_documents.topic(
            self.name, 100_000
        )

    def _stream(self) -> tuple[RecordProducer, dict[str, Any]]:
        client = self.servers.kinesis.client()
        client.create_stream(StreamName=self.name, ShardCount=PARTITIONS)
        client.get_waiter("stream_exists").wait(StreamName=self.name, WaiterConfig={"Delay": 1})
        return KinesisProducer(client, self.name), small_job_documents.stream(self.name, REGION)

    def table(self, what: str) -> str:
        """Name one of the job's tables."""
        return f"{self.name}.{what}"

    # ---- the job ----

    def start(self) -> ChildProcess:
        """Start a driver as an engine does."""
        stack = LocalStack(self.servers.points.endpoint, self.servers.stack.region, None)
        catalog = "spark.sql.catalog.lake"
        quick = QUICK
        if self.classes is not None:
            known = self.classes.exists()
            quick += f" -XX:{'SharedArchiveFile' if known else 'ArchiveClassesAtExit'}={self.classes}"
        settings = {
            **SandboxSpark(stack, self.servers.broker.bootstrap).s3_file_system_settings(),
            "spark.master": "local[2,4]",
            # Not as spark.jars, of which each start would make a copy of 400 MB.
            "spark.driver.extraClassPath": ":".join(
                str(path) for name in JAR_SETS for path in jars.jar_files(name)
            ),
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{start_spark_submit.LOCAL['spark.driver.extraJavaOptions']} {quick}",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"{catalog}.uri": f"jdbc:postgresql://127.0.0.1:{self.servers.port}/postgres?sslmode=disable",
            f"{catalog}.jdbc.user": USER,
            f"{catalog}.jdbc.password": PASSWORD,
            f"{catalog}.warehouse": f"s3a://{BUCKET}/lake",
            # Each landed file is a task of its own, so that what is derived from it has several files too.
            f"{catalog}.table-default.read.split.open-file-cost": str(128 << 20),
        }
        home = self.home / str(len(self.runs) + 1)
        home.mkdir()
        binds = {
            "secretsmanager.endpoint": self.servers.stack.endpoint,
            "kinesis.endpoint": self.servers.kinesis.endpoint,
        }
        environment = {**stack.environment_variables(), maintenance_on_request.ASKS: str(self.asks)}
        prelude = f"import {maintenance_on_request.__name__}  # noqa\n" if self.kind.chores else ""
        self.runs.append(
            start(
                f"crashed-{self.name}", home, self.settings, jar_sets=(), spark=settings, binds=binds,
                environment=environment, prelude=prelude,
            )
        )  # fmt: skip
        return self.runs[-1]

    def kill(self) -> None:
        """End the run that was started last, as a power cut would."""
        self.job.kill()

    @property
    def job(self) -> ChildProcess:
        """The run that was started last."""
        return self.runs[-1]

    def begin(self, mode: Mode, number: int) -> None:
        """Arm a point, and give the job something to do that meets it."""
        if self.kind.chores:
            self.send()
            self.settle()
        if self.kind.upgrade:
            self.job.stop(grace_seconds=PATIENCE_SECONDS)
            self.send()
            self.versions += 1
            columns = (f", of_version_{number + 1} STRING" for number in range(self.versions))
            (self.home / "schema.ddl").write_text(DDL + "".join(columns))
        self.servers.points.arm(mode, number, self.kill)
        if self.kind.upgrade:
            self.start()
        elif self.kind.chores:
            self.asks.touch()
        else:
            self.send()

    def send(self) -> None:
        """Send a portion at once: all partitions get some, and one of its records is spoiled."""
        self.producer.send(portion(self.sent), sent=lambda _: None)
        self.sent += PORTION

    def settled(self) -> bool:
        """Whether the job has done what there was to do: all is read, all batches are committed, nothing changes any more."""
        quiet = time.monotonic() - self.servers.points.last >= QUIET_SECONDS
        started = {
            event["query"]
            for event in start_spark_submit.read_driver_events(self.job)
            if event["event"] == "started"
        }
        if not quiet or self.asks.exists() or not started.issuperset(self.names):
            return False
        logs = {name: self._log(name) for name in self.names}
        if any(offsets != commits or offsets < 0 for offsets, commits in logs.values()):
            return False
        if any(self._watermark_moved(name, batch) for name, (batch, _) in logs.items()):
            return False
        first, *others = self.names
        if self._read(first, logs[first][0]) < self.sent:
            return False
        ends = (end for name in others for end in self._offsets(name, logs[name][0])[2:])
        return all(self._derived(end) for end in ends)

    def _derived(self, offset: str) -> bool:
        """Whether a derive query has read all that landed: a batch that came again adds a state without rows, which it passes over."""
        table = self._loaded("landed")
        states = table.snapshots() if table else []
        order = {state.snapshot_id: number for number, state in enumerate(states)}
        filled = [
            n for n, state in enumerate(states) if state.summary and int(state.summary["added-records"] or 0)
        ]
        return order.get(json.loads(offset)["snapshot_id"], -1) >= max(filled, default=0)

    def _read(self, query: str, batch: int) -> int:
        """Records up to which a query has read, by its checkpoint; a stream's positions do not count them."""
        if self.kind.stream:
            table = self._loaded("landed")
            return int(table.scan(selected_fields=("_id",)).count()) if table else 0
        return int(sum(json.loads(self._offsets(query, batch)[-1])[self.name].values()))

    def settle(self) -> None:
        """Wait until it is; a job that ended is started again, as an engine does it.

        Raises
        ------
        SandboxError
            It did not come to that.
        """
        most = len(self.runs) + 2

        def settled() -> bool:
            if not self.job.is_alive and len(self.runs) < most:
                self.start()
            return self.job.is_alive and self.settled()

        wait_until(settled, seconds=PATIENCE_SECONDS, what="settled", poll_seconds=0.2)

    def _log(self, query: str) -> tuple[int, int]:
        """The last planned and the last committed batch."""
        last = []
        for log in ("offsets", "commits"):
            prefix = f"{self.name}/checkpoints/{query}/{log}/"
            held = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
            numbers = [int(n) for each in held if (n := each["Key"].rpartition("/")[2]).isdigit()]
            last.append(max(numbers, default=-1))
        return last[0], last[1]

    def _watermark_moved(self, query: str, batch: int) -> bool:
        """Whether a batch without records follows, which lets out the results that the watermark has passed; however slow the machine is."""
        planned, committed = (
            json.loads(self._log_lines(query, log, batch)[1]) for log in ("offsets", "commits")
        )
        return bool(committed["nextBatchWatermarkMs"] > planned["batchWatermarkMs"])

    def _offsets(self, query: str, batch: int) -> list[str]:
        return self._log_lines(query, "offsets", batch)

    def _log_lines(self, query: str, log: str, batch: int) -> list[str]:
        key = f"{self.name}/checkpoints/{query}/{log}/{batch}"
        return list(self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode().splitlines())

    def end(self) -> None:
        """End all runs."""
        for run in self.runs:
            run.kill()

    # ---- the tables ----

    def wrong(self) -> Counter[str]:
        """Hold the tables against the ledger."""
        return small_job_documents.wrong(self.kind.queries, self.producer.ledger, self.rows)

    def _loaded(self, what: str) -> StaticTable | None:
        return self._lake.loaded(self.name, what)

    def rows(self, what: str, *columns: str) -> pa.Table:
        """Columns of a table."""
        if self.kind.sink is not None and what == "out":
            (column,) = columns
            result = self.servers.database.run(f'SELECT {column} FROM "{self.name}".out')  # noqa: S608 - ours
            return pa.table({column: pa.array([row[0] for row in result], pa.string())})
        return self._lake.rows(self.name, what, *columns)


def _database(servers: Servers, schema: str) -> Mapping[str, Any]:
    """A table of the PostgreSQL behind the proxy, and the secret of its login."""
    servers.database.run(f'CREATE SCHEMA "{schema}"')
    secrets = servers.stack.client("secretsmanager")
    login = json.dumps({"username": USER, "password": PASSWORD})
    with suppress(secrets.exceptions.ResourceExistsException):
        secrets.create_secret(Name="database", SecretString=login)
    arn = secrets.describe_secret(SecretId="database")["ARN"]
    url = re.sub(r":\d+/", f":{servers.port}/", servers.database.url)
    return {
        "kind": "jdbc", "url": url, "tls": "off", "authorities": None, "table": f"{schema}.out", "secret": arn,
        "region": servers.stack.region, "connections": 2,
    }  # fmt: skip


KINDS: Mapping[str, Kind] = {
    "land-kafka": Kind("land", "land", ("landed",)),
    "land-kinesis": Kind("land", "land", ("landed",), stream=True),
    "derive": Kind("derive", "derive", ("out",)),
    "upkeep": Kind("land", "land", ("landed",), chores=True),
    "latest": Kind("latest", "derive", ("out",)),
    "stateful": Kind("state", "derive", ("out",)),
    "join": Kind("join", "derive", ("out",)),
    "direct": Kind("direct", "direct", ("out", "letters")),
    "upgrade": Kind("land", "land", ("landed",), upgrade=True),
    "direct-postgresql": Kind("direct", "direct", ("letters",), _database),
}
