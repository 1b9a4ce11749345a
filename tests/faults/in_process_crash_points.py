"""Crash a job at every write of a batch, within one process: ``python -m tests.faults.in_process_crash_points``.

As :mod:`tests.faults.crash_at_every_write`, without starting a driver: from a write on nothing that the job does has an effect any more, neither on
S3 nor on PostgreSQL, which is what a kill leaves behind. The job is then started again, with nothing of its state in memory. Tables are
held against the ledger, and results against a plain computation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.sandbox.programs import jars, open_spark_session, start_spark_submit
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark
from tests.faults.crash_at_every_write import PointResult
from tests.faults.crashed_job import BUCKET, JAR_SETS, PORTION, QUICK, Lake, Servers, portion, servers
from tests.faults.in_process_job import Job
from tests.postgres import PASSWORD, USER

HOME = RUN / "faults-crash-in-process"
CHECKED_EVERY = {"latest": 1, "state": 5, "join": 5}
"""By kind, points after which the tables are held against the ledger: a later record hides what is wrong with ``latest_by`` only."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Keyed(Job):
    """A job whose records have few keys, and whose tables are read without Spark."""

    lake: Lake

    def _rows(self, what: str, *columns: str) -> pa.Table:
        return self.lake.rows(*self._table(what).split("."), *columns)

    def send(self) -> None:
        """Send a portion."""
        self._producer.send(portion(self._first), sent=lambda _: None)
        self._first += PORTION


def spark_settings(given: Servers) -> dict[str, str]:
    """Tables and checkpoints behind the proxies; a request that fails is not repeated for long."""
    catalog, s3a, state = "spark.sql.catalog.lake", "spark.hadoop.fs.s3a", "spark.sql.streaming.stateStore"
    stack = LocalStack(given.points.endpoint, given.stack.region, None)
    options = "spark.driver.extraJavaOptions"
    return {
        options: f"{start_spark_submit.LOCAL[options]} {QUICK}",
        **SandboxSpark(stack, given.broker.bootstrap).s3_file_system_settings(),
        f"{s3a}.attempts.maximum": "1",
        f"{s3a}.retry.limit": "1",
        f"{s3a}.retry.interval": "10ms",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:postgresql://127.0.0.1:{given.port}/postgres?sslmode=disable",
        f"{catalog}.jdbc.user": USER,
        f"{catalog}.jdbc.password": PASSWORD,
        f"{catalog}.warehouse": f"s3a://{BUCKET}/lake",
        f"{catalog}.table-default.read.split.open-file-cost": str(128 << 20),
        f"{state}.providerClass": ROCKSDB,
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
    }


def points(
    spark: SparkSession, given: Servers, broker: KafkaBroker, number: int, kind: str, *, every: bool
) -> Iterator[PointResult]:
    """Meet the writes of a derive query's batch, each in a batch of its own.

    The run that recovers from one point meets the next, as soon as the batch that came again is committed.

    Parameters
    ----------
    every
        False for the first of those with the same label only.
    """
    job = Keyed(spark, broker, HOME, number, kind, f"s3a://{BUCKET}/checkpoints/{number}")
    job.lake = Lake(given)
    out, table = given.points, f"t{number}_out"
    out.scope = (f"/checkpoints/{number}/derive/", f"/lake/in_process/{table}/", f"in_process\0{table}")
    jvm: Any = spark._jvm

    def dies() -> None:
        out.dead = True

    def run() -> str:
        ended = job.run()
        out.disarm()
        out.dead = False
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        return ended.message if ended.status and not out.fired.is_set() else ""

    job.send()
    said, pending = run(), False
    job.send()
    out.arm("before", sys.maxsize, dies)
    said = said or run()
    writes = list(out.labels)
    places = [n for n, label in enumerate(writes, 1) if every or label not in writes[: n - 1]]
    sys.stdout.write(f"{kind}: {len(writes)} writes, {len(set(writes))} kinds of them\n")
    while places and not said:
        begun, place = time.monotonic(), places.pop(0)
        job.send()
        out.arm("before", place, dies, after="/derive/commits/" if pending else "")
        said = run()
        met = out.fired.is_set()
        if pending and not met and not said:
            pending = False  # the batch was committed before the kill
            places.insert(0, place)
            continue
        label, pending, starts = (out.labels[-1] if met else ""), met, 1
        wrong: dict[str, int] = {}
        if not said and (len(places) % CHECKED_EVERY[kind] == 0 or not met):
            out.fired.clear()
            said, pending, starts = run(), False, 2
            wrong = dict(job.wrong())
        yield PointResult(
            kind, "before", place, label, starts, wrong, round(time.monotonic() - begun, 1), said
        )


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.in_process_crash_points",
        description="Every write of a batch a crash point.",
    )
    reading.add_argument(
        "--kind", nargs="+", choices=CHECKED_EVERY, default=list(CHECKED_EVERY), metavar="KIND"
    )
    reading.add_argument(
        "--every", action="store_true", help="not only the first of the writes with one label"
    )
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Meet all points of each kind, and print a line for each."""
    asked = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    lines, held = [], True
    with servers() as given:
        # The lease is not cut: it is renewed by the clock.
        os.environ |= {k: v for k, v in given.stack.environment_variables().items() if k.startswith("AWS_")}
        files = [path for name in JAR_SETS for path in jars.jar_files(name)]
        with open_spark_session.running_spark_session(
            files, spark_settings(given), warehouse=HOME / "lake"
        ) as spark:
            for number, kind in enumerate(asked.kind):
                done = []
                for outcome in points(spark, given, given.broker, number, kind, every=asked.every):
                    done.append(outcome)
                    sys.stdout.write(f"{outcome}\n")
                    sys.stdout.flush()
                met = [one for one in done if one.label]
                exact = sum(one.held for one in met)
                held = held and all(one.held for one in done)
                lines.append(f"{kind} {exact} of {len(met)}")
    what = "write" if asked.every else "kind of write"
    sys.stdout.write(f"each {what} of a batch killed once: {', '.join(lines)} exact\n")
    return int(not held)


if __name__ == "__main__":
    raise SystemExit(main())
