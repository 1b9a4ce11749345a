"""Where in a table a batch's records can be, by what is known of its source."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl.envelope import POSITION_DIGITS
from etl.settings import KafkaSource
from etl.sinks.iceberg import Bound
from etl.sources.kafka import by_shard


def kafka_bound(source: KafkaSource, start: Any, end: Any) -> Bound:
    """Rows of a table that a Kafka batch can hold again: at or after the batch's first offsets.

    A Kafka batch is a fixed range of offsets, so this holds without a check. A
    partition that only the end names is new, and looked at from its beginning. Every
    condition is one that Iceberg can answer from a file's metadata.

    Parameters
    ----------
    source
        What is read.
    start, end
        Spark's Kafka offsets, ``{topic: {partition: offset}}``; None where unknown.
    """
    mine = F.col("_source") == source.name
    first, last = by_shard(source, start), by_shard(source, end)
    if first is None or last is None:
        return Bound(mine)
    offsets = dict.fromkeys(last, 0) | first
    later = [
        (F.col("_shard") == shard) & (F.col("_position") >= str(offset).zfill(POSITION_DIGITS))
        for shard, offset in sorted(offsets.items())
    ]
    return Bound(mine & reduce(lambda a, b: a | b, later)) if later else Bound(mine)
