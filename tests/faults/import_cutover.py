"""Run the cut-overs that ``millrace import`` describes: ``python -m tests.faults.import_cutover``.

Somebody else's job (``job_to_import.py``: plain Spark, no identity in its rows) copies a topic into a table with the records' times
and into one without. The producers' times are up to two seconds out of order. ``millrace import`` writes its environment twice,
once with a moment at which the new job takes over and once with the event log of the old job as it runs; what it wrote is deployed
to LocalStack and not started. Then the old job ends, is imported again with its final log, which changes nothing but the offsets, that is
deployed, and the new job takes over, in all three ways at once: by offsets, by the time of arrival, by a business key.
What old and new tables hold together must be the orders that were sent, each once. It ends with 1 where it is not.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from confluent_kafka import Producer
from ruamel.yaml import YAML

from millrace.sandbox.localstack_deployment import Sandbox, running_localstack_and_kafka
from millrace.sandbox.programs import jars, start_spark_submit
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, SandboxError
from millrace.sandbox.programs.localstack import ACCOUNT, LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, local_catalog_settings
from millrace.sandbox.records.producer import BackgroundThread
from tests.faults.moto_server import moto
from tests.faults.row_difference import Difference
from tests.faults.shop import orders_with_expected_results
from tests.faults.shop_project import NAME, bring, millrace, prepare

HOME = RUN / "cutover"
OLD = Path(__file__).with_name("job_to_import.py")
TOPIC, PARTITIONS = "orders", 3
BUCKET = "theirs"
SCHEMA = "pipelines/shop/order.ddl"
DISORDER_MS = 2000
"""By how much a record's own time may lie before that of one that was sent earlier."""

MARGIN_SECONDS = 8.0
"""How long the old job runs on behind the moment: its slowest batch, its backlog, and the disorder."""

PATIENCE_SECONDS = 300.0
IDENTIFY = (
    "ALTER TABLE lake.theirs.orders ADD COLUMNS (_id STRING)",
    "UPDATE lake.theirs.orders SET _id = to_json(struct(n))",
)
Row = tuple[Any, ...]


@dataclass
class Sent:
    """Orders that the broker has, with their times in milliseconds; sends more in a thread."""

    brokers: str
    choose: random.Random
    per_second: float
    times: dict[int, int] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 20, "log_level": 3})

    def send(self, count: int) -> None:
        """Send the next orders, some of them spoiled, and wait until the broker has them."""
        for event in orders_with_expected_results.orders(self.choose, self.number, count):
            at = time.time_ns() // 1_000_000 - self.choose.randrange(DISORDER_MS)
            self._producer.produce(TOPIC, event.payload, event.key, timestamp=at)
            if event.dirt is None:
                order = json.loads(event.payload)
                self.times[order["n"]] = at
                self.rows[order["n"]] = (order["n"], order["purchase"], order["item"], order["amount"])
        self.number += count
        if self._producer.flush(30):
            raise SandboxError("the broker did not take all records")

    def end(self) -> None:
        """Leave the broker while it is there to say goodbye to."""
        del self._producer

    def going_on(self) -> BackgroundThread:
        """Send at a steady rate while the block runs."""

        def go(stop: threading.Event) -> None:
            while not stop.wait(0.2):
                self.send(round(self.per_second * 0.2))

        return BackgroundThread(go, "orders")


@dataclass
class Theirs:
    """The old job: its settings of Spark, its run, and what it writes."""

    spark: SandboxSpark
    brokers: str
    home: Path = HOME / "old"
    runs: list[ChildProcess] = field(default_factory=list)

    def start(self, *arguments: str) -> ChildProcess:
        """Submit the program."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "logs").mkdir(exist_ok=True)
        shipped = [path for name in ("sandbox", "kafka-client") for path in jars.jar_files(name)]
        settings = {
            **start_spark_submit.LOCAL,
            **self.spark.s3_file_system_settings(),
            **local_catalog_settings("lake", RUN / "catalog.db", f"s3://{BUCKET}/warehouse"),
            "spark.master": "local[2]",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.jars": ",".join(map(str, shipped)),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": (self.home / "logs").as_uri(),
        }
        environment = self.spark.stack.environment_variables()
        job = start_spark_submit.start_driver(
            "old-job", self.home, OLD, settings, arguments, environment=environment, log="log"
        )
        self.runs.append(job)
        return job

    def copying(self) -> ChildProcess:
        """Start it as its owners do."""
        words = ("--brokers", self.brokers, "--checkpoint", str(self.home / "checkpoint"))
        return self.start(*words, "--stop", str(self.home / "stop"))

    def end(self, job: ChildProcess) -> Path:
        """Let it end before it writes another batch; return its event log."""
        (self.home / "stop").touch()
        if job.popen.wait(120):
            raise SandboxError(f"the old job ended with an error:\n{job.last_log_lines(20)}")
        return self.log()

    def log(self) -> Path:
        """Its newest event log; of a run that goes on, as far as it is written."""
        return max((self.home / "logs").iterdir(), key=lambda each: each.stat().st_mtime)

    def kill(self) -> None:
        """End what still runs."""
        for each in self.runs:
            each.kill()

    def sql(self, *statements: str) -> None:
        """Run statements."""
        job = self.start("--sql", *statements)
        if job.popen.wait(180):
            raise SandboxError(f"SQL failed:\n{job.last_log_lines(20)}")


@contextmanager
def service(brokers: str) -> Iterator[dict[str, str]]:
    """Moto as Glue, with the old job; yields what points a command line at it."""
    os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each call
    with moto() as stack:
        s3 = stack.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="sales.py", Body=OLD.read_bytes())
        stack.client("glue").create_job(
            Name="sales",
            Role="theirs",
            Command={"Name": "gluestreaming", "ScriptLocation": f"s3://{BUCKET}/sales.py"},
            DefaultArguments={"--brokers": brokers, "--checkpoint": f"s3://{BUCKET}/checkpoint"},
            GlueVersion="5.1",
            WorkerType="G.1X",
            NumberOfWorkers=3,
        )
        yield stack.environment_variables()


def imported(project: Path, environment: Mapping[str, str], name: str, *more: str) -> dict[str, Any]:
    """Run ``millrace import`` and return the environment that it wrote; prints the steps that it tells."""
    words = ("import", "glue:sales", "--name", name, "--schema", SCHEMA, "--record-size", "150B", *more)
    printed = millrace(project, *words, environment=environment)
    sys.stdout.write(f"$ millrace {' '.join(words)}\n{printed}\n")
    sys.stdout.flush()
    file = project / "environments" / f"{name}.yaml"
    made: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text())
    return made


def composed(timed: dict[str, Any], exact: Mapping[str, Any]) -> dict[str, Any]:
    """One environment of both, with the query that replaces by the business key in the old job's table."""
    queries = timed["jobs"]["sales"]["queries"]
    # Its transform is to be finished; the query of the business key takes its place.
    del queries["derive-write"]
    other = exact["jobs"]["sales"]["queries"]["land-orders"]
    queries["land-exact"] = other | {"table": "orders_exact"}
    queries["replace"] = {
        "kind": "derive",
        "source": "orders_landed",
        "transform": "pipelines.shop.transforms:latest",
        "state": {"watermark": {"time": "_arrived_at", "delay": "1h"}, "key": ["n"]},
        "sink": {"kind": "iceberg", "table": "orders"},
        "trigger": "2s",
    }
    more = {
        "storage": {"database": "theirs"},
        "network": {"cidr": "10.43.0.0/16", "availability_zones": 2},
        "removal": "destroy",
    }
    return timed | more


def offsets(exact: Mapping[str, Any]) -> dict[int, int]:
    """Where the query of an import with a log begins."""
    query = exact["jobs"]["sales"]["queries"]["land-orders"]
    result: dict[int, int] = query["kafka"]["start_offsets"]
    return result


def deployed(
    project: Path, timed: Mapping[str, Any], exact: Mapping[str, Any], stack: LocalStack, broker: Any
) -> Sandbox:
    """Deploy both as one environment; nothing is started."""
    with (project / "environments" / f"{NAME}.yaml").open("w") as stream:
        YAML().dump(composed(copy.deepcopy(dict(timed)), exact), stream)
    return bring(HOME, stack, broker)


def reached(what: str, job: ChildProcess, condition: Callable[[], bool]) -> None:
    """Wait for something while a job runs."""
    job.wait_until(condition, seconds=PATIENCE_SECONDS, what=what)


class Held:
    """The tables, read without Spark."""

    def __init__(self, spark: SandboxSpark) -> None:
        self.catalog = spark.catalog(f"s3://{BUCKET}/warehouse")

    def rows(
        self, table: str, time_column: str = "", since: int | None = None, *, before: bool = False
    ) -> Counter[Row]:
        """Good orders of a table; with a moment only those from it on, or before it."""
        if not self.catalog.table_exists(f"theirs.{table}"):
            return Counter()
        result = self.catalog.load_table(f"theirs.{table}").scan().to_arrow()
        if "_error" in result.column_names:
            result = result.filter(pc.is_null(result["_error"]))
        if since is not None:
            at = pc.cast(pc.cast(result[time_column], "timestamp[us]"), "int64")
            late = pc.greater_equal(at, since * 1000)
            result = result.filter(pc.invert(late) if before else late)
        return Counter(
            zip(*(result[each].to_pylist() for each in ("n", "purchase", "item", "amount")), strict=True)
        )


def changed_over(sent: Sent, theirs: Theirs, stack: LocalStack, broker: Any, glue: dict[str, str]) -> int:
    """Run the old job, import it, let the new one take over, compare."""
    project, held = HOME / "project", Held(theirs.spark)
    prepare(project)
    old = theirs.copying()
    with sent.going_on():
        reached("orders in the old table", old, lambda: held.rows("orders").total() > 500)
        time.sleep(1.0)
        moment = datetime.now(UTC).replace(microsecond=0)
        since = round(moment.timestamp() * 1000)
        shown = moment.isoformat().replace("+00:00", "Z")
        known = ("--rate", f"{sent.per_second:g}", "--partitions", str(PARTITIONS), "--start", shown)
        timed = imported(project, glue, NAME, *known)
        exact = imported(project, glue, "exact", *known, "--logs", str(theirs.log()))
        deployed(project, timed, exact, stack, broker)
        time.sleep(MARGIN_SECONDS)
        target = since + DISORDER_MS
        reached("the moment passed", old, lambda: held.rows("orders_timed", "arrived", target).total() > 0)
        log = theirs.end(old)
        early, exact = exact, imported(project, glue, "exact", *known, "--logs", str(log))
        if offsets(early) == offsets(exact):
            raise SandboxError("the old job took nothing between the two imports, so that either would do")
        theirs.sql(*IDENTIFY)
        sandbox = deployed(project, timed, exact, stack, broker)
        new = sandbox.spark.submit(sandbox.launch_document("sales"), "sales-1").process
    try:
        wanted = Counter(sent.rows.values())
        late = Counter(row for n, row in sent.rows.items() if sent.times[n] >= since)
        reached("all landed from the moment on", new, lambda: late <= held.rows("orders_landed"))
        reached(
            "all landed behind the offsets",
            new,
            lambda: wanted <= held.rows("orders_exact") + held.rows("orders_timed"),
        )
        reached("all replaced", new, lambda: wanted <= held.rows("orders"))
        time.sleep(6.0)  # what is too much has a while to show
    finally:
        new.stop(grace_seconds=30)
        new.kill()
    before = held.rows("orders_timed", "arrived", since, before=True)
    after, whole = held.rows("orders_landed", "_arrived_at", since), held.rows("orders_landed")
    lines = (
        Difference.of("by offsets", wanted, held.rows("orders_timed") + held.rows("orders_exact")),
        Difference.of("by time of arrival", wanted, before + after),
        Difference.of("by business key", wanted, held.rows("orders")),
    )
    both = Difference.of("old and new as they are", wanted, held.rows("orders_timed") + whole)
    half = Difference.of("only the old one divided", wanted, before + whole)
    for line in (*lines, both, half):
        sys.stdout.write(f"{line.what}: {line.wanted} orders, {line}\n")
    return int(not all(line.exact for line in lines))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.faults.import_cutover", description=__doc__)
    made.add_argument("--per-second", type=float, default=50.0, help="orders that are sent")
    made.add_argument("--seed", type=int, default=1)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run it with servers of its own."""
    options = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    with ExitStack() as ending:
        stack, broker = ending.enter_context(running_localstack_and_kafka())
        glue = ending.enter_context(service(broker.bootstrap))
        broker.create_topic(TOPIC, PARTITIONS)
        stack.client("s3").create_bucket(Bucket=BUCKET)
        choose = random.Random(options.seed)
        theirs = Theirs(SandboxSpark(stack=stack, kafka=broker.bootstrap), broker.bootstrap)
        ending.callback(theirs.kill)
        sent = Sent(broker.bootstrap, choose, options.per_second)
        try:
            return changed_over(sent, theirs, stack, broker, glue)
        finally:
            sent.end()


if __name__ == "__main__":
    raise SystemExit(main())
