"""A derive query reads its batch in as many tasks as the rows are worth and the job has cores, however they landed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.queries import derive
from millrace.etl.record.tables import Table
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import frame, good, kafka_rows

Names = Callable[[str], Table]


@pytest.mark.parametrize(
    ("landed_files", "rows_per_task", "planned", "tasks"),
    [
        pytest.param(2, 5, 1, 2, id="a task for each of two files", marks=pytest.mark.slow),
        pytest.param(1, 5, 2, 2, id="rows of one file on two cores"),
        pytest.param(1, 5, 1, 1, id="rows of one file without a shuffle"),
        pytest.param(4, 5, 1, 2, id="four files on the two cores that there are", marks=pytest.mark.slow),
        pytest.param(4, derive.ROWS_PER_TASK, 4, 1, id="few rows in one task"),
    ],
)
def test_a_batch_is_read_in_tasks_for_its_rows(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    landed_files: int,
    rows_per_task: int,
    planned: int,
    tasks: int,
) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    monkeypatch.setattr(derive, "ROWS_PER_TASK", rows_per_task)
    pipe = Pipeline(spark, table, tmp_path)
    for number in range(landed_files):
        rows = kafka_rows(0, 10 * number, [good(10 * number + n) for n in range(10)])
        pipe.land(frame(spark, rows).coalesce(1), number)
    assert spark.table(f"{pipe.landing}.files").count() == landed_files
    pipe.deriver.settings = replace(pipe.deriver.settings, tasks=planned)
    pipe.derive()
    # Each task that has rows writes a file.
    assert spark.table(f"{pipe.sink}.files").count() == tasks
    written = [row["flight"] for row in pipe.written().collect()]
    assert sorted(written) == [n for n in range(10 * landed_files) if n % 3]
    assert pipe.accounts()[0][0] == 10 * landed_files
