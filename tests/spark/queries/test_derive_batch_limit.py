"""The batch limit of a derive query: a file of any size in the landing table is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.queries import derive
from millrace.etl.record.tables import Table
from tests.spark.source_batches import Events, drained, frame, good, kafka_rows, lander

Names = Callable[[str], Table]


@pytest.mark.slow
def test_files_above_the_limit_are_read(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, seen = table("landing"), list[int]()
    land = lander(spark, landing, Events())
    for first, count in ((0, 2), (2, 20), (22, 2)):
        land(frame(spark, kafka_rows(0, first, [good(n) for n in range(count)])).coalesce(1), first)

    def counted(batch: DataFrame, _: int) -> None:
        seen.append(batch.count())

    drained(derive.stream_landing_table(spark, landing, 10), counted, tmp_path)
    assert sum(seen) == 24
