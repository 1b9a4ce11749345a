"""Duration of simultaneous batches of one job: ``python -m tests.performance.simultaneous_batches --queries 20 --records 20,2000``.

Each query lands a Kinesis stream of its own (kinesalite), or a Kafka topic, with the core's supervisor, in a pool of its own, on the
cores of one local session. A line for each number of records: seconds of a batch (median of the queries' slowest batch of a burst, and of
all), CPU seconds of JVM and Python for a batch and of its tasks, seconds for which these hold a core, heap of the JVM after a collection, memory of both, and threads.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from pyspark.sql import SparkSession

from millrace.etl.job import build_queries
from millrace.etl.job.supervise import Supervisor
from millrace.etl.launch import settings
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.records.producer import KinesisProducer
from tests import kinesalite
from tests.kinesalite import CREDENTIALS, REGION, Kinesalite
from tests.launch_document_defaults import with_route
from tests.performance.benchmark_session import spark_session
from tests.performance.cpu_time import core_seconds, task_seconds
from tests.performance.hand_written_baselines import HOME, SCHEMA
from tests.performance.preloaded_input import PARTITIONS, TOPIC, clean, preload

IDLE_SECONDS = 20.0
"""Seconds at the end in which no stream has records any more, two triggers at least."""

SourceKind = Literal["kinesis", "kafka"]


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes
    ----------
    queries, records
        Queries of the job that have records, and records of each of their batches.
    trigger
        Seconds.
    bursts, warm_up
        Bursts that are counted, and those before them.
    idle
        More queries, without records.
    """

    queries: int
    records: int
    trigger: float = 10.0
    bursts: int = 5
    warm_up: int = 2
    idle: int = 0

    @property
    def all_queries(self) -> int:
        """Queries with and without records."""
        return self.queries + self.idle

    @property
    def name(self) -> str:
        """Name of its tables and checkpoints."""
        return f"{self.all_queries}_{self.records}"


@dataclass(frozen=True)
class Burst:
    """Result of a cell.

    Attributes
    ----------
    batch, slowest
        Median seconds of a batch, and of the slowest batch of a burst.
    cpu, tasks
        CPU seconds of JVM and Python for a batch, and those of its tasks among them: the rest is the driver's.
    held
        Seconds for which the tasks of a batch hold a core, waiting included.
    heap_mib, memory_mib, threads
        Heap of the JVM, memory of JVM and Python, and threads of the JVM, at the end.
    idle
        CPU seconds of both in a second without records.
    counted
        Batches that are counted.
    """

    cell: Cell
    batch: float
    slowest: float
    cpu: float
    tasks: float
    held: float
    heap_mib: float
    memory_mib: float
    threads: int
    idle: float
    counted: int

    def line(self) -> str:
        """A row of the table."""
        numbers = (
            f"{self.batch:.2f}",
            f"{self.slowest:.2f}",
            f"{self.cpu:.2f}",
            f"{self.tasks:.2f}",
            f"{self.held:.2f}",
        )
        queries = f"{self.cell.all_queries}" + (f", {self.cell.idle} of them idle" * (self.cell.idle > 0))
        rest = (
            f"{self.heap_mib:.0f}",
            f"{self.memory_mib:,.0f}",
            str(self.threads),
            f"{self.idle:.2f}",
            str(self.counted),
        )
        return "| " + " | ".join((queries, f"{self.cell.records:,}", *numbers, *rest)) + " |"


class Processes:
    """The JVM in which driver and tasks run, and the Python of the driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm.java.lang
        self._jvm = Path("/proc", str(self._java.ProcessHandle.current().pid()))

    @property
    def cpu(self) -> float:
        """CPU seconds that both have used."""
        user, system = (self._jvm / "stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + time.process_time()

    @property
    def threads(self) -> int:
        """Number of the JVM's threads."""
        return len(list((self._jvm / "task").iterdir()))

    @property
    def memory_mib(self) -> float:
        """Resident memory of both."""
        pages = sum(int((each / "statm").read_text().split()[1]) for each in (self._jvm, Path("/proc/self")))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2

    def heap_mib(self) -> float:
        """Heap in use after a collection."""
        self._java.System.gc()
        runtime = self._java.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 1024**2


def _source(kind: SourceKind, number: int, records: int) -> dict[str, Any]:
    if kind == "kafka":
        source: dict[str, Any] = {"kind": "kafka", "name": "flights", "topic": TOPIC, "connection": "main"}
        return source | {
            "start": "earliest",
            "records_per_batch": records,
            "retention_seconds": 86_400,
            "reading": None,
        }
    stream = f"stream-{number}"
    source = {"kind": "kinesis", "name": stream, "stream": stream, "region": REGION, "start": "earliest"}
    source |= {"records_per_shard": records, "fetch_seconds": 30.0, "retention_seconds": 86_400}
    return source | {"consumer": None, "role": None, "records_per_batch": None}


def _query(kind: SourceKind, number: int, cell: Cell) -> dict[str, Any]:
    query: dict[str, Any] = {
        "kind": "land",
        "name": f"land-{number}",
        "source": _source(kind, number, cell.records),
        "format": {"kind": "json"},
    }
    query |= {"schema": SCHEMA, "redact": [], "rules": [], "decompress_up_to": None, "repartition": None}
    return with_route(
        query | {"trigger_seconds": cell.trigger, "table": f"bench.landed_{cell.name}_{number}"}
    )


def _job(kind: SourceKind, cell: Cell, bootstrap: str) -> dict[str, Any]:
    job: dict[str, Any] = {
        "version": 1,
        "environment": "bench",
        "job": f"of-{cell.name}",
        "engine": "sandbox",
        "catalog": "lake",
    }
    main = {"cluster": None, "authentication": "none", "bootstrap_servers": bootstrap}
    job |= {"checkpoints": str(HOME / cell.name), "batch_retries": 0, "dead_letters_kept_seconds": None}
    job |= {"connections": {"main": main} if kind == "kafka" else {}}
    job |= {"upkeep": None, "erase_share": 0.1, "run_every_seconds": None}
    return job | {"queries": [_query(kind, each, cell) for each in range(cell.all_queries)]}


@contextmanager
def _running(spark: SparkSession, job: dict[str, Any], endpoint: str, log: TextIO) -> Iterator[None]:
    report = EventReporter(job["job"], log)
    built = build_queries.build_queries(
        JobRun(spark, settings.parse_job_settings(job), {"kinesis.endpoint": endpoint}, report)
    )
    supervisor = Supervisor(spark, report)
    thread = threading.Thread(target=supervisor.run_to_exit_status, args=(built,))
    thread.start()
    try:
        yield
    finally:
        supervisor.request_stop()
        thread.join()


def _fill(server: Kinesalite, cells: Sequence[Cell]) -> None:
    client = server.client()
    payloads = list(clean(max(each.records * (each.bursts + each.warm_up) for each in cells)))
    filled = max(each.queries for each in cells)
    for number in range(max(each.all_queries for each in cells)):
        stream = f"stream-{number}"
        client.create_stream(StreamName=stream, ShardCount=1)
        client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})
        if number < filled:
            KinesisProducer(client, stream).send(payloads, sent=lambda _: None)


@contextmanager
def _servers(kind: SourceKind, cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """Run the source with what the cells read; yield Kinesis's endpoint and Kafka's address."""
    if kind == "kafka":
        with kafka_broker.running_broker() as broker:
            broker.create_topic(TOPIC, PARTITIONS)
            preload(broker.bootstrap, max(each.records * (each.bursts + each.warm_up + 1) for each in cells))
            yield "", broker.bootstrap
    else:
        with kinesalite.running() as server:
            _fill(server, cells)
            yield server.endpoint, ""


def measure(
    cells: Sequence[Cell], cores: int, said: Callable[[Burst], object], kind: SourceKind = "kinesis"
) -> list[Burst]:
    """Measure each cell, one after the other in one session."""
    os.environ.update(CREDENTIALS, AWS_CBOR_DISABLE="true", AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    found = []
    conf = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.numRecentProgressUpdates": "30"}
    with _servers(kind, cells) as (endpoint, bootstrap):
        java = "-Dcom.amazonaws.sdk.disableCbor=true"
        with spark_session(cores, java, conf=conf) as spark:
            for cell in cells:
                found.append(_bursts(spark, _job(kind, cell, bootstrap), endpoint, cell))
                said(found[-1])
    shutil.rmtree(HOME)
    return found


def _bursts(spark: SparkSession, job: dict[str, Any], endpoint: str, cell: Cell) -> Burst:
    both, took = Processes(spark), dict[tuple[str, int], float]()
    last = cell.warm_up + cell.bursts
    with (HOME / f"{cell.name}.jsonl").open("w") as log, _running(spark, job, endpoint, log):
        used, tasks, held, counted = 0.0, 0.0, 0.0, 0
        until = time.monotonic() + 90 + 2 * cell.trigger * last
        while sum(number < last for _, number in took) < cell.queries * last and time.monotonic() < until:
            # Seldom: each question takes the driver's time.
            time.sleep(max(0.5, cell.trigger / 4))
            for query in spark.streams.active:
                for batch in query.recentProgress:
                    if batch["numInputRows"]:
                        took[str(query.id), batch["batchId"]] = batch["durationMs"]["triggerExecution"] / 1000
            if not used and len(took) >= cell.queries * cell.warm_up:
                tasks, held, used, counted = task_seconds(spark), core_seconds(spark), both.cpu, len(took)
        used, tasks, held = both.cpu - used, task_seconds(spark) - tasks, core_seconds(spark) - held
        counted = len(took) - counted
        idle, memory = 0.0, both.memory_mib
        if cell.queries * cell.records and job["connections"] == {}:
            begun, before = time.monotonic(), both.cpu
            time.sleep(max(IDLE_SECONDS, 2 * cell.trigger))
            idle = (both.cpu - before) / (time.monotonic() - begun)
        heap, threads = both.heap_mib(), both.threads
    by_burst: dict[int, list[float]] = {}
    for (_, number), seconds in took.items():
        by_burst.setdefault(number, []).append(seconds)
    kept = [
        seconds
        for number, seconds in sorted(by_burst.items())
        if cell.warm_up <= number < last and len(seconds) == cell.queries
    ]
    if not kept:
        raise SystemExit(f"no burst of {cell} ended in time")
    every = [each for seconds in kept for each in seconds]
    return Burst(
        cell,
        statistics.median(every),
        statistics.median(map(max, kept)),
        used / max(1, counted),
        tasks / max(1, counted),
        held / max(1, counted),
        heap,
        memory,
        threads,
        idle,
        len(every),
    )


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.simultaneous_batches", description="Queries that share a job."
    )
    reading.add_argument("--queries", type=int, default=5)
    reading.add_argument("--idle", type=int, default=0, help="more queries, without records")
    reading.add_argument("--records", type=numbers, default=[20, 1000], help="of a batch, such as 20,1000")
    reading.add_argument("--bursts", type=int, default=5)
    reading.add_argument("--warm-up", type=int, default=2, help="bursts that are not counted")
    reading.add_argument("--cores", type=int, default=2)
    reading.add_argument("--trigger", type=float, default=10.0)
    reading.add_argument("--source", choices=["kinesis", "kafka"], default="kinesis")
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = parser().parse_args(arguments)
    out = sys.stdout
    out.write(
        "| queries | records | batch s | slowest s | CPU s a batch | of tasks | cores held s | heap MiB | memory MiB | threads | idle CPU | batches |\n"
    )
    cells = [
        Cell(given.queries, records, given.trigger, given.bursts, given.warm_up, given.idle)
        for records in given.records
    ]
    measure(cells, given.cores, lambda burst: out.write(f"{burst.line()}\n"), given.source)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
