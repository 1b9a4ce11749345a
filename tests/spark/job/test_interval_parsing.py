"""Spark parses a trigger's interval to the same milliseconds as `millrace import` does for a program."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.unit.advisor.interval_texts_and_milliseconds import INTERVALS


def test_spark_parses_each_interval_as_the_advisor_does(spark: SparkSession) -> None:
    def milliseconds(text: str) -> int | None:
        try:
            return int(spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text).intervalMs())
        except (IllegalArgumentException, Py4JJavaError):
            return None

    assert {text: milliseconds(text) for text in INTERVALS} == INTERVALS
