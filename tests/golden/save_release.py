"""Save the project, checkpoints and tables of a release, once per release: ``python -m tests.golden.save_release``.

Writes ``tests/golden/VERSION-project.json`` and ``tests/golden/VERSION-KIND.tar.xz``, some tens of kilobytes each, which every later version goes on from in
``tests/spark/job/test_golden_release.py``. One that is there is not replaced: it is what that release has written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

import millrace.etl as etl
from millrace.sandbox.programs import jars, kafka_broker, open_spark_session
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import Job
from tests.golden import release, saved_project
from tests.spark.source_batches import Events


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return argparse.ArgumentParser(description=__doc__)


def main() -> int:
    """Land, derive, pack what is not there yet."""
    parser().parse_args()
    new = not saved_project.kept(etl.__version__).exists()
    if new:
        sys.stdout.write(f"{saved_project.keep(etl.__version__).name}\n")
    wanted = [kind for kind in release.KINDS if not release.archive(kind, etl.__version__).exists()]
    if not wanted and new:
        return 0
    if not wanted:
        sys.stderr.write(f"{etl.__version__} is there: it is what the release of that version has written\n")
        return 2
    files = [*jars.jar_files("sandbox"), *jars.jar_files("kafka-client")]
    extensions = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
    with open_spark_session.running_spark_session(files, extensions) as spark, release.place():
        release.open_catalog(spark)
        for kind in wanted:
            MAKERS[kind](spark)
            kept = release.pack(kind, etl.__version__)
            sys.stdout.write(f"{kept.name}: {kept.stat().st_size:,} bytes\n")
    return 0


def _derived(spark: SparkSession) -> None:
    release.land(spark, 0, release.FIRST, 0)
    release.derive(spark, Events())
    if result := release.wrong(spark):
        raise AssertionError(f"not what was wanted: {result}")


def _topics(spark: SparkSession) -> None:
    _jobs(spark, release.topic_jobs)


def _routes(spark: SparkSession) -> None:
    _jobs(spark, release.routed_jobs)


def _jobs(spark: SparkSession, made: Callable[[SparkSession, KafkaBroker], Iterable[Job]]) -> None:
    with kafka_broker.running_broker() as broker:
        for job in made(spark, broker):
            result = job.run()
            if result.status or job.wrong():
                raise AssertionError(f"not what was wanted: {result.message} {dict(job.wrong())}")


MAKERS = {"derived": _derived, "topics": _topics, "routes": _routes}


if __name__ == "__main__":
    raise SystemExit(main())
