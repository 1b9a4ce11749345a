"""The limit of a derive query's batches: no file of a landing table makes a stream stand still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from etl import batch_limit, derive
from etl.tables import Table
from tests.spark.batches import Events, frame, good, kafka_rows, lander

Names = Callable[[str], Table]


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        ("1.10.0", True), ("1.10.0-amzn-1", True), ("1.11.0", True), ("2.0.0", True),
        ("1.9.2", False), ("1.7.1", False), ("1.7.1-amzn-2", False), ("unspecified", False), ("", False),
    ],
)  # fmt: skip
def test_rows_are_a_limit_only_where_a_larger_file_is_taken(version: str, newer: bool) -> None:
    assert (batch_limit.version_of(version) >= batch_limit.TAKES_LARGER_FILES) is newer


@pytest.mark.parametrize("version", ["1.7.1", None])
def test_files_above_the_limit_are_read(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
) -> None:
    """With the version of this Iceberg, and as with one that stands still at such a file."""
    if version is not None:
        monkeypatch.setattr(batch_limit, "build", lambda _: version)
        monkeypatch.setattr(batch_limit, "FILES_PER_BATCH", 1)
    landing, seen = table("landing"), list[int]()
    land = lander(spark, landing, Events())
    for first, count in ((0, 2), (2, 20), (22, 2)):
        land(frame(spark, kafka_rows(0, first, [good(n) for n in range(count)])).coalesce(1), first)

    def counted(batch: DataFrame, _: int) -> None:
        seen.append(batch.count())

    running = (
        derive.read(spark, landing, 10)
        .writeStream.option("checkpointLocation", str(tmp_path))
        .foreachBatch(counted)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    assert sum(seen) == 24
    # By files each one is a batch; by rows those that come before the limit is reached are one.
    assert seen == ([2, 20, 2] if version else [22, 2])
