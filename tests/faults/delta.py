"""Delta, whose jars set-up leaves out: ``python -m millrace.sandbox.jars --also delta && python -m tests.faults.delta``.

A batch that breaks, its replay, one that comes again though it was written, a reset checkpoint, late records, and times of any year, in
tables of this machine.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delta import DeltaSink, DeltaSinkSettings
from millrace.sandbox import jars, session
from millrace.sandbox.child_processes import RUN
from tests.spark.sinks import NOON, breaking, none_refused, place, row, rows
from tests.spark.test_sink_times import REFUSED, TAKEN, odd

HOME = RUN / "faults-delta"


def sink() -> DeltaSink:
    """As a start of the job makes it."""
    return DeltaSink(DeltaSinkSettings("delta", str(HOME), 1))


SETTINGS = {
    "spark.master": "local[2,3]",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def check(what: str, found: object, wanted: object) -> bool:
    """Print a line, and whether it is as it should be."""
    sys.stdout.write(f"{what}: {found}{'' if found == wanted else f', not {wanted}'}\n")
    return found == wanted


def parser() -> argparse.ArgumentParser:
    """Arguments of this program: none but ``--help``."""
    return argparse.ArgumentParser(description=__doc__)


def main() -> int:
    """Run the rounds; 1 where one is not as promised."""
    parser().parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    with session.open_session([*jars.files("delta"), *jars.files("sandbox")], SETTINGS) as spark:
        return int(not all(met(spark)))


def met(spark: SparkSession) -> list[bool]:
    """Write batches, and tell which of the promises held."""

    def flights() -> list[int]:
        return sorted(r["flight"] for r in spark.read.format("delta").load(str(HOME)).collect())

    batch = rows(spark, [row(n) for n in range(20)], parts=4)
    one = sink()
    one.prepare(spark, batch.schema)
    try:
        one.write(breaking(batch, 19), place(0), none_refused)
        broke = False
    except (CapturedException, Py4JJavaError) as error:
        broke = "the executor was lost" in str(error)
    held = [check("a batch that breaks", (broke, flights()), (True, []))]
    held.append(check("comes again", one.write(batch, place(0), none_refused), WriteCounts(20, 20)))
    held.append(check("though it was written", one.write(batch, place(0), none_refused), WriteCounts(20, 0)))
    following = rows(spark, [row(20)])
    held.append(check("the next one", one.write(following, place(1), none_refused), WriteCounts(1, 1)))
    held.append(check("comes again, too", one.write(following, place(1), none_refused), WriteCounts(1, 0)))
    two = sink()
    two.prepare(spark, batch.schema)
    held.append(
        check("a reset checkpoint", two.write(batch, place(0, "run-2"), none_refused), WriteCounts(20, 0))
    )
    late = rows(spark, [row(20), row(21), row(30, _arrived_at=NOON)])
    held.append(
        check("new and late ones", two.write(late, place(1, "run-2"), none_refused), WriteCounts(3, 2))
    )
    held.append(check("in the table", flights(), [*range(22), 30]))
    return [*held, *every_time_is_held(spark)]


def every_time_is_held(spark: SparkSession) -> list[bool]:
    """Times of any year: what other sinks refuse, a Delta table holds and finds again."""
    days = TAKEN | REFUSED
    held = []
    for column in ("at", "day"):
        batch, sink = odd(spark, days, column), DeltaSink(DeltaSinkSettings("delta", f"{HOME}-{column}", 1))
        shutil.rmtree(f"{HOME}-{column}", ignore_errors=True)
        sink.prepare(spark, batch.schema)
        held.append(
            check(f"{column} of any year", sink.write(batch, place(0), none_refused), WriteCounts(9, 9))
        )
        found = spark.read.format("delta").load(f"{HOME}-{column}")
        told = dict(map(tuple, found.selectExpr("flight", f"string(date({column}))").collect()))
        held.append(check("as it is", told, days))
        # By the smallest and largest values that Delta keeps of a file, which readers skip files by.
        ahead = found.where(F.col(column) > F.lit("2000-01-01").cast("date"))
        held.append(check("found", sorted(r["flight"] for r in ahead.select("flight").collect()), [4, 8, 9]))
    return held


if __name__ == "__main__":
    raise SystemExit(main())
