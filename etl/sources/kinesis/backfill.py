"""Backfill from a Kinesis stream by a range of time, through its API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ...commits.duplicate_look_up_bounds import DuplicateLookUp
from ...launch.entry_script_arguments import BackfillRequest
from ...launch.sources import KinesisSource
from ...record import batch_accounts, envelope
from ..base import BackfillPart, Parts, arrived_between_condition, backfill_time_steps
from .closed_shards import AGGREGATE, COLUMNS
from .time_range_reader import KinesisTimeRangeReader


def stream_range_reader(source: KinesisSource, endpoint: str | None) -> Parts:
    """Read a Kinesis stream by its API, a task for each shard and a part for each step of a range.

    No connector can end at a time. Closed shards are read too.

    Parameters
    ----------
    endpoint
        Endpoint other than the region's own.
    """
    reader = KinesisTimeRangeReader(source.stream, source.region, endpoint)

    def backfill_parts(spark: SparkSession, request: BackfillRequest) -> Iterator[BackfillPart]:
        with closing(reader.make_client()) as client:
            shards = reader.shard_ids(client)
        for since, until in backfill_time_steps(request):
            entries = spark.sparkContext.parallelize(shards, len(shards)).mapPartitions(
                partial(reader.yield_records_of_shards, since, until)
            )
            read = spark.createDataFrame(entries.map(partial(_row_of_record, source.stream)), COLUMNS)
            within = arrived_between_condition(since, until)
            records = envelope.from_kinesis(read, source.name).where(within)
            yield BackfillPart(
                batch_accounts.iso_text(since),
                records,
                DuplicateLookUp((F.col("_source") == source.name) & within),
            )

    return backfill_parts


def _row_of_record(stream: str, record: Mapping[str, Any]) -> tuple[Any, ...]:
    number = record["SequenceNumber"]
    if record["Data"].startswith(AGGREGATE):
        raise ValueError(
            f"stream {stream}, record {number} is an aggregate of the Kinesis Producer Library, which only "
            "the engine's connector can read; add a land query with another name, and with the time as its "
            "start"
        )
    arrived = record["ApproximateArrivalTimestamp"]
    return bytearray(record["Data"]), stream, record["PartitionKey"], number, arrived
