"""Transforms of the queries in the growth cases of keyed sinks."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEYS_PER_MINUTE = 1_000


def by_minute(records: DataFrame) -> DataFrame:
    """Count records of each key in each minute: results whose identity has a time."""
    key = (F.col("n") % KEYS_PER_MINUTE).alias("key")
    counted = records.groupBy(F.window("_arrived_at", "1 minute"), key).agg(
        F.count(F.lit(1)).alias("records")
    )
    return counted.select(F.col("window.start").alias("minute"), "key", "records")


def by_key(records: DataFrame) -> DataFrame:
    """Count records of each key: results whose identity has no time."""
    return records.groupBy(F.col("n").alias("key")).agg(F.count(F.lit(1)).alias("records"))


def last(records: DataFrame) -> DataFrame:
    """Keep the last record of each key."""
    return records.select("_position", "_deleted", F.col("n").alias("key"), "n")
