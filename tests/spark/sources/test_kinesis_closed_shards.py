"""On an engine whose connector passes over closed shards, their rest lands, and is no reason to miss another record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.queries.land import LandBatchWriter
from millrace.etl.record import batch_accounts
from millrace.etl.record.errors import RestartQueryError
from millrace.etl.record.tables import Table
from millrace.etl.sources.kinesis.missed_records_guard import KinesisLossGuard
from tests.spark.source_batches import KINESIS, Events, frame, good, ids, kinesis_rows, lander
from tests.spark.sources.test_kinesis_connector_guards import log_positions

Names = Callable[[str], Table]


def passing_over_shard_0(write: LandBatchWriter, at: datetime) -> KinesisLossGuard:
    """Let records 11 and 12 be the rest of a shard over which the connector passes once it is closed."""
    (guard,) = write.guards.streams
    assert isinstance(guard, KinesisLossGuard)
    record = {"PartitionKey": "k", "ApproximateArrivalTimestamp": at}
    rest = [record | {"Data": good(n), "SequenceNumber": str(n)} for n in (11, 12)]
    guard.tails = lambda before, here: iter([rest] if "shardId-0" in before.shards - here.shards else [])
    return guard


@pytest.mark.slow
def test_the_rest_of_a_closed_shard_is_no_reason_to_miss_the_position_of_a_quiet_one(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, now = table("landing"), batch_accounts.utc_now()
    write = lander(spark, landing, Events(), source=KINESIS, checkpoint=tmp_path)
    passing_over_shard_0(write, now)
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-9": None})
    write(frame(spark, kinesis_rows([10, 20], now - timedelta(minutes=40))), 0)
    log_positions(tmp_path, 1, {"shardId-1": None, "shardId-2": None, "shardId-9": 20})
    write(frame(spark, kinesis_rows([13], now)), 1)
    assert ids(spark, landing) == [f"flights-stream/{n}" for n in (10, 11, 12, 13, 20)]


@pytest.mark.slow
def test_the_query_that_is_built_again_after_a_reshard_reads_the_rest_of_closed_shards(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, now = table("landing"), batch_accounts.utc_now()

    def built(shards: int) -> LandBatchWriter:
        write = lander(spark, landing, Events(), source=KINESIS, checkpoint=tmp_path)
        guard = passing_over_shard_0(write, now)
        guard.shards, guard.count_shards = shards, lambda: 2
        return write

    first = built(1)
    log_positions(tmp_path, 0, {"shardId-0": None})
    first(frame(spark, kinesis_rows([10], now)), 0)
    log_positions(tmp_path, 1, {"shardId-0": 10})
    first(frame(spark, []), 1)
    log_positions(tmp_path, 2, {"shardId-1": None, "shardId-2": None})
    children = frame(spark, kinesis_rows([13, 14], now))
    with pytest.raises(RestartQueryError):
        first(children, 2)
    built(2)(children, 2)
    assert ids(spark, landing) == [f"flights-stream/{n}" for n in range(10, 15)]
