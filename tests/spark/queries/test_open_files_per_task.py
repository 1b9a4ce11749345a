"""A task has one open file at a time, for records of any number of days."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.spark.sink_input_rows import none_refused
from tests.spark.source_batches import Events

pytestmark = pytest.mark.slow

DAYS = 40


def batch(spark: SparkSession, days: int = DAYS) -> DataFrame:
    """Two rows of each day, the days in turn."""
    first = spark.sparkContext.parallelize(range(2 * days), 2)
    rows = spark.createDataFrame(first.map(lambda n: (n,)), "n LONG")
    at = f"timestamp_micros(1764000000000000L - (n % {days}) * 86400000000L)"
    return rows.selectExpr("concat('t/0/', n) AS _id", "'flights' AS _source", f"{at} AS _arrived_at", "n")


def order_of_writing(spark: SparkSession, write: Callable[[], Any]) -> str:
    """The plan of the write that ran last, as Spark tells a listener of its SQL."""
    store = spark._jsparkSession.sharedState().statusStore()
    # Not by number: of a long session the oldest are forgotten.
    before = {each.executionId() for each in _list(store.executionsList())}
    write()
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    ran = [each for each in _list(store.executionsList()) if each.executionId() not in before]
    plans = [str(each.physicalPlanDescription()) for each in ran]
    [plan] = [
        each
        for each in plans
        if "AppendData" in each or "OverwriteByExpression" in each or "ReplaceData" in each
    ]
    return plan


def _list(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


@pytest.mark.parametrize("made_by", ["us", "an earlier release", "somebody else"])
def test_rows_of_a_task_are_in_the_order_of_their_partitions(
    spark: SparkSession, table: Callable[[str], Table], made_by: str
) -> None:
    name, rows, events = table("days"), batch(spark), Events()
    if made_by == "somebody else":
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.catalog}.{name.database}")
        spark.sql(
            f"CREATE TABLE {name} (_id STRING, _source STRING, _arrived_at TIMESTAMP, n LONG) USING iceberg "
            "PARTITIONED BY (n, hours(_arrived_at)) TBLPROPERTIES ('write.spark.fanout.enabled'='true', "
            "'write.distribution-mode'='none')"
        )
    tables.create_or_evolve_table(spark, name, rows.schema, report=events.reporter)
    if made_by == "an earlier release":
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.spark.fanout.enabled'='true')")
    plan = order_of_writing(spark, lambda: IcebergSink(name).append(rows, DuplicateLookUp()))
    assert "Sort" in plan
    assert "Exchange" not in plan, "a shuffle costs a quarter of the throughput"
    assert spark.table(str(name)).count() == 2 * DAYS


def test_so_are_results_that_take_the_place_of_others(
    spark: SparkSession, table: Callable[[str], Table]
) -> None:
    name, rows = table("results"), batch(spark).drop("_source")
    tables.create_or_evolve_table(spark, name, rows.schema)
    plan = order_of_writing(
        spark, lambda: KeyedIcebergSink(name, "_arrived_at").write(rows, None, none_refused)
    )
    steps = [
        line for line in plan.split("== Final Plan ==")[1].splitlines()[1:] if "ResultQueryStage" not in line
    ]
    assert "Sort" in steps[0], "below the writing itself"
    assert spark.table(str(name)).count() == 2 * DAYS


@pytest.mark.faults
@pytest.mark.slow
def test_a_thousand_days_in_a_batch_fit_a_small_heap(
    spark: SparkSession, table: Callable[[str], Table], tmp_path: Path
) -> None:
    name, rows = table("thousand"), batch(spark, 1000)
    tables.create_or_evolve_table(spark, name, rows.schema)
    assert IcebergSink(name).append(rows, DuplicateLookUp()).written == 2000
