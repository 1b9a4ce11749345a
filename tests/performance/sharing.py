"""Batches of many queries in one job that fire together: ``python -m tests.performance.sharing --queries 20 --records 20,2000``.

Each query lands a Kinesis stream of its own (kinesalite) with the core's supervisor, in a pool of its own, on the cores of one
local session. A line for each number of records: seconds of a batch (median of the queries' slowest batch of a burst, and of all),
CPU seconds of the JVM for a batch, its heap after a collection, and its threads.
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
from typing import Any, TextIO

from pyspark.sql import SparkSession

from millrace.etl.job import run
from millrace.etl.job.supervise import Supervisor
from millrace.etl.launch import settings
from millrace.etl.record.batch_accounts import Reporter
from millrace.etl.record.job_run import JobRun
from millrace.sandbox.records.producer import KinesisProducer
from tests import kinesalite
from tests.documents import with_route
from tests.kinesalite import CREDENTIALS, REGION, Kinesalite
from tests.performance.by_hand import HOME, SCHEMA
from tests.performance.preloaded import clean
from tests.performance.session import spark_session

WARM_UP = 2
"""Bursts at the beginning that are not counted."""


IDLE_SECONDS = 20.0
"""Seconds at the end in which no stream has records any more."""


@dataclass(frozen=True)
class Burst:
    """What bursts of one number of queries and records took.

    Attributes
    ----------
    queries, records
        Queries of the job, and records of a batch.
    batch, slowest
        Median seconds of a batch, and of the slowest batch of a burst.
    cpu
        CPU seconds of the JVM for a batch.
    heap_mib, threads
        Of the JVM, at the end.
    idle
        CPU seconds of the JVM in a second without records.
    """

    queries: int
    records: int
    batch: float
    slowest: float
    cpu: float
    heap_mib: float
    threads: int
    idle: float

    def line(self) -> str:
        """A row of the table."""
        numbers = (f"{self.batch:.2f}", f"{self.slowest:.2f}", f"{self.cpu:.2f}", f"{self.heap_mib:.0f}")
        cells = (str(self.queries), f"{self.records:,}", *numbers, str(self.threads), f"{self.idle:.2f}")
        return "| " + " | ".join(cells) + " |"


class Jvm:
    """The process in which driver and tasks run."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm.java.lang
        self._process = Path("/proc", str(self._java.ProcessHandle.current().pid()))

    @property
    def cpu(self) -> float:
        """CPU seconds that it has used."""
        user, system = (self._process / "stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def threads(self) -> int:
        """Number of its threads."""
        return len(list((self._process / "task").iterdir()))

    def heap_mib(self) -> float:
        """Heap in use after a collection."""
        self._java.System.gc()
        runtime = self._java.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 1024**2


def _query(number: int, records: int, trigger: float) -> dict[str, Any]:
    stream = f"stream-{number}"
    source: dict[str, Any] = {
        "kind": "kinesis",
        "name": stream,
        "stream": stream,
        "region": REGION,
        "start": "earliest",
    }
    source |= {"records_per_shard": records, "fetch_seconds": 30.0, "retention_seconds": 86_400}
    source |= {"consumer": None, "role": None, "records_per_batch": None}
    query: dict[str, Any] = {
        "kind": "land",
        "name": f"land-{number}",
        "source": source,
        "format": {"kind": "json"},
    }
    query |= {"schema": SCHEMA, "redact": [], "rules": [], "decompress_up_to": None, "repartition": None}
    return with_route(query | {"trigger_seconds": trigger, "table": f"bench.landed_{records}_{number}"})


def _job(queries: int, records: int, trigger: float) -> dict[str, Any]:
    job: dict[str, Any] = {
        "version": 1,
        "environment": "bench",
        "job": f"of-{records}",
        "engine": "sandbox",
        "catalog": "lake",
    }
    job |= {"checkpoints": str(HOME / str(records)), "batch_retries": 0, "dead_letters_kept_seconds": None}
    job |= {"upkeep": None, "connections": {}, "erase_share": 0.1, "run_every_seconds": None}
    return job | {"queries": [_query(each, records, trigger) for each in range(queries)]}


@contextmanager
def _running(spark: SparkSession, job: dict[str, Any], endpoint: str, log: TextIO) -> Iterator[None]:
    report = Reporter(job["job"], log)
    built = run.build(JobRun(spark, settings.parse(job), {"kinesis.endpoint": endpoint}, report))
    supervisor = Supervisor(spark, report)
    thread = threading.Thread(target=supervisor.run, args=(built,))
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()


def _fill(server: Kinesalite, queries: int, events: int) -> None:
    client, payloads = server.client(), list(clean(events))
    for number in range(queries):
        stream = f"stream-{number}"
        client.create_stream(StreamName=stream, ShardCount=1)
        client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})
        KinesisProducer(client, stream).send(payloads, sent=lambda _: None)


def measure(
    queries: int,
    sizes: Sequence[int],
    bursts: int,
    cores: int,
    said: Callable[[Burst], object],
    trigger: float,
) -> list[Burst]:
    """Measure bursts of each number of records."""
    os.environ.update(CREDENTIALS, AWS_CBOR_DISABLE="true", AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    found = []
    with kinesalite.running() as server:
        _fill(server, queries, max(sizes) * (bursts + WARM_UP))
        java = "-Dcom.amazonaws.sdk.disableCbor=true"
        with spark_session(cores, java, conf={"spark.scheduler.mode": "FAIR"}) as spark:
            for records in sizes:
                found.append(_bursts(spark, server, queries, records, bursts, trigger))
                said(found[-1])
    shutil.rmtree(HOME)
    return found


def _bursts(
    spark: SparkSession, server: Kinesalite, queries: int, records: int, bursts: int, trigger: float
) -> Burst:
    jvm, took = Jvm(spark), dict[tuple[str, int], tuple[float, float]]()
    with (
        (HOME / f"{records}.jsonl").open("w") as log,
        _running(spark, _job(queries, records, trigger), server.endpoint, log),
    ):
        used, counted = 0.0, 0
        until = time.monotonic() + 60 + 3 * trigger * (bursts + WARM_UP)
        while len(took) < queries * (bursts + WARM_UP) and time.monotonic() < until:
            time.sleep(0.5)
            for query in spark.streams.active:
                for batch in query.recentProgress:
                    if batch["numInputRows"]:
                        key = (str(query.id), batch["batchId"])
                        took[key] = batch["durationMs"]["triggerExecution"] / 1000, batch["numInputRows"]
            if not used and len(took) >= queries * WARM_UP:
                used, counted = jvm.cpu, len(took)
        used, counted = jvm.cpu - used, len(took) - counted
        begun, before = time.monotonic(), jvm.cpu
        time.sleep(IDLE_SECONDS)
        idle = (jvm.cpu - before) / (time.monotonic() - begun)
        heap, threads = jvm.heap_mib(), jvm.threads
    by_burst: dict[int, list[float]] = {}
    for (_, number), (seconds, _) in took.items():
        by_burst.setdefault(number, []).append(seconds)
    kept = [
        seconds
        for number, seconds in sorted(by_burst.items())
        if number >= WARM_UP and len(seconds) == queries
    ]
    every = [each for seconds in kept for each in seconds]
    return Burst(
        queries,
        records,
        statistics.median(every),
        statistics.median(map(max, kept)),
        used / max(1, counted),
        heap,
        threads,
        idle,
    )


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.sharing", description="Queries that share a job."
    )
    reading.add_argument("--queries", type=int, default=5)
    reading.add_argument("--records", type=numbers, default=[20, 1000], help="of a batch, such as 20,1000")
    reading.add_argument("--bursts", type=int, default=5)
    reading.add_argument("--cores", type=int, default=2)
    reading.add_argument("--trigger", type=float, default=10.0)
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = parser().parse_args(arguments)
    out = sys.stdout
    out.write("| queries | records | batch s | slowest s | CPU s a batch | heap MiB | threads | idle CPU |\n")
    measure(
        given.queries, given.records, given.bursts, given.cores,
        lambda burst: out.write(f"{burst.line()}\n"), given.trigger,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
