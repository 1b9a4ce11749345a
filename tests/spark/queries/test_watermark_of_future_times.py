"""A record with a time far ahead moves no watermark, so later records are not late."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.metrics.trigger_metrics import BacklogInputs, TriggerMeter
from millrace.etl.record.tables import Table
from tests.spark.queries.test_stateful_derive import Pipeline
from tests.spark.source_batches import DDL, EPOCH, Events, frame, kafka_rows, lander

pytestmark = pytest.mark.slow

MARK = {"time": "at", "delay_seconds": 60, "ahead_seconds": 3600}
FAR = "9999-12-30T00:00:00Z"


def flown(number: int, at: str | None = None) -> bytes:
    moment = (EPOCH + timedelta(seconds=number)).isoformat() if at is None else at
    return json.dumps({"carrier": "AA", "flight": number, "delay": 0.5, "at": moment}).encode()


def by_minute(flights: DataFrame) -> DataFrame:
    """Count flights in each minute of their own time."""
    grouped = flights.groupBy(F.window("at", "1 minute")).agg(F.count(F.lit(1)).alias("flights"))
    return grouped.select(F.col("window.start").alias("minute"), "flights")


def alike(flights: DataFrame, others: DataFrame) -> DataFrame:
    """Pair each flight of one table with that of the other."""
    others = others.select(F.col("flight").alias("other"), F.col("at").alias("other_at"), "_joined_id")
    near = F.col("other_at").between(F.col("at"), F.col("at") + F.expr("INTERVAL 1 SECOND"))
    joined = flights.join(others, (F.col("flight") == F.col("other")) & near)
    return joined.select("_id", "_source", "_arrived_at", "_landed_at", "_joined_id", "flight")


class Timed(Pipeline):
    """With a time in the payload."""

    def __init__(
        self, spark: SparkSession, table: Callable[[str], Table], folder: Path, function: str, **state: Any
    ):
        super().__init__(spark, table, folder, {"watermark": MARK, **state}, None)
        self.function = function
        self.landing, self.other = table("timed"), table("other_timed")
        ddl = f"{DDL}, at TIMESTAMP"
        self.land = lander(spark, self.landing, Events(), ddl=ddl)
        self.land_other = lander(spark, self.other, Events(), ddl=ddl)

    def settings(self) -> Any:
        result = super().settings()
        [query] = result.queries
        name = f"{__name__}:{self.function}"
        return result.__class__(
            **{**vars(result), "queries": (query.__class__(**{**vars(query), "transform": name}),)}
        )

    def measured(self) -> list[dict[str, float]]:
        meter = TriggerMeter("derive-flights", BacklogInputs())
        return [dict(meter.measure(p, None, 0).values) for p in self.progress]


@pytest.mark.faults
def test_one_record_of_a_year_far_ahead_makes_nothing_late(
    spark: SparkSession, table: Callable[[str], Table], tmp_path: Path
) -> None:
    minutes = Timed(spark, table, tmp_path, "by_minute", key=["minute"])
    early = 0
    for number in range(3):
        first = number * 120
        payloads = [flown(n) for n in range(first, first + 120)]
        if number == 0:
            ahead = (EPOCH + timedelta(hours=1, seconds=200)).isoformat()
            payloads += [flown(120, FAR), flown(121, ahead), flown(122, "9999-12-31T23:59:59Z")]
        minutes.land(frame(spark, kafka_rows(number, first, payloads)), number)
        minutes.derive()
        early += int(sum(values.get("EarlyRows", 0) for values in minutes.measured()))
    assert [r["flights"] for r in minutes.rows()] == [60] * 6
    assert early == 3
    assert all(values["WatermarkDelay"] > 0 for values in minutes.measured() if "WatermarkDelay" in values)
    left_out = spark.table(str(minutes.landing)).where(
        "_error IS NULL AND at > least(_arrived_at, _landed_at) + INTERVAL '1' HOUR"
    )
    assert sorted(r["flight"] for r in left_out.select("flight").collect()) == [120, 121, 122]


@pytest.mark.faults
@pytest.mark.slow
def test_nor_in_a_join_whichever_side_it_comes_from(
    spark: SparkSession, table: Callable[[str], Table], tmp_path: Path
) -> None:
    join = {"source_table": "", "route": None, "watermark": MARK}
    pairs = Timed(spark, table, tmp_path, "alike", join=join)
    join["source_table"] = f"tests.{pairs.other.name}"
    for number in range(3):
        first = number * 120
        payloads = [flown(n) for n in range(first, first + 10)]
        odd = [flown(first + 10, FAR)] if number == 0 else []
        pairs.land(frame(spark, kafka_rows(0, first, payloads + odd)), number)
        pairs.land_other(frame(spark, kafka_rows(1, first, payloads + odd)), number)
        pairs.derive()
    assert sorted(r["flight"] for r in pairs.rows()) == [n * 120 + i for n in range(3) for i in range(10)]
