"""A batch is read from its source once, and is cached only if it has a second reader.

Spark's own counters tell: the input rows of a trigger count every read of them, and the
context lists what is held.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.record.tables import Table
from tests.spark.queries.test_stateful_derive import Pipeline
from tests.spark.source_batches import frame, good, kafka_rows

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]
ROWS = 50


def held(spark: SparkSession) -> int:
    jsc: Any = spark.sparkContext._jsc
    return int(jsc.getPersistentRDDs().size())


def run(pipe: Pipeline, handle: Callable[[DataFrame, int], None] | None = None) -> int:
    """Land a batch, derive from it, and return how many rows Spark counts as read."""
    pipe.land(frame(pipe.spark, kafka_rows(0, 0, [good(n) for n in range(ROWS)])), 0)
    pipe.derive(handle)
    return sum(int(progress["numInputRows"]) for progress in pipe.progress)


@pytest.fixture
def persisted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Everything that was asked to be held."""
    result: list[DataFrame] = []
    frames = type(spark.range(0))  # of Spark 4 a class below DataFrame
    persist = frames.persist

    def noting(rows: DataFrame, *level: Any) -> DataFrame:
        result.append(rows)
        return persist(rows, *level)

    monkeypatch.setattr(frames, "persist", noting)
    return result


def test_one_reader_one_read_and_nothing_is_held(
    spark: SparkSession, table: Names, tmp_path: Path, persisted: list[DataFrame]
) -> None:
    before = held(spark)
    pipe = Pipeline(spark, table, tmp_path, {}, None)
    pipe.state = None  # type: ignore[assignment]  # a derive query without state
    assert run(pipe) == ROWS
    assert (persisted, held(spark)) == ([], before)


def test_two_readers_one_read_and_it_is_let_go(
    spark: SparkSession, table: Names, tmp_path: Path, persisted: list[DataFrame]
) -> None:
    before = held(spark)
    pipe = Pipeline(spark, table, tmp_path, {"key": ["minute", "parity"]}, "by_minute")
    assert run(pipe) == ROWS
    assert len(persisted) >= 1
    assert held(spark) == before


def test_the_counter_would_tell(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Pipeline(spark, table, tmp_path, {}, None)
    pipe.state = None  # type: ignore[assignment]  # as above

    def twice(batch: DataFrame, _: int) -> None:
        batch.count()
        batch.count()

    assert run(pipe, twice) == 2 * ROWS
