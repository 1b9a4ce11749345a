"""What Spark makes of a trigger's interval is what ``millrace import`` reads of a program."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.unit.advisor.intervals import INTERVALS


def test_spark_takes_and_refuses_the_intervals_that_are_said_to_be_so(spark: SparkSession) -> None:
    def milliseconds(text: str) -> int | None:
        try:
            return int(spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text).intervalMs())
        except (IllegalArgumentException, Py4JJavaError):
            return None

    assert {text: milliseconds(text) for text in INTERVALS} == INTERVALS
