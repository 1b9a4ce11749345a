"""`state.distinct` keeps the first of equal records, whatever the files and batches."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.queries.test_stateful_derive import MARK, Names, Pipeline
from tests.spark.source_batches import (
    DDL,
    EPOCH,
    KINESIS,
    Events,
    frame,
    good,
    kafka_rows,
    lander,
)


@pytest.mark.slow
def test_of_equal_records_the_first_is_taken(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path, {"distinct": ["carrier", "flight"]}, None)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), good(2), good(1)])), 0)
    pipe.derive()
    pipe.land(frame(spark, kafka_rows(0, 3, [good(2), good(3), good(1)])), 1)
    pipe.derive()
    assert [r["flight"] for r in pipe.rows()] == [1, 2, 3]
    assert {r["_id"] for r in pipe.rows() if r["flight"] == 3} == {"flights-topic/0/4"}


@pytest.mark.slow
def test_of_a_batch_in_several_files_the_first_is_taken(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Records of one shard are in files by their identity; a repeated batch kept others, which no sink knew."""
    pipe = Pipeline(spark, table, tmp_path, {"distinct": ["flight"]}, None)
    rows = [
        (
            f"flights-stream/{1000 + n}",
            "flights",
            None,
            str(1000 + n),
            bytearray(b"k"),
            None,
            EPOCH + timedelta(seconds=n),
            bytearray(good(n % 20)),
        )
        for n in range(60)
    ]
    lander(spark, pipe.landing, Events(), source=KINESIS)(frame(spark, rows), 0)
    assert spark.table(f"{pipe.landing}.files").count() > 1
    pipe.derive()
    assert [r["_id"] for r in pipe.rows()] == [f"flights-stream/{1000 + n}" for n in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3])
def test_records_without_a_time_are_no_repetitions(
    spark: SparkSession, table: Names, tmp_path: Path, together: int
) -> None:
    """Spark forgets them at the next batch, so what was left out depended on the batches."""
    mark = {**MARK, "time": "at"}
    pipe = Pipeline(spark, table, tmp_path, {"distinct": ["flight"], "watermark": mark}, None)
    land = lander(spark, pipe.landing, Events(), ddl=f"{DDL}, at TIMESTAMP")
    for number in range(0, 3, together):
        land(frame(spark, kafka_rows(0, number, [good(1)] * together)), number)
        pipe.derive()
    assert len(pipe.rows()) == 3
