"""The transforms of airline operations."""

from __future__ import annotations

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from pipelines.operations.transforms import sales_by_hour


@pytest.mark.slow
def test_sales_are_added_up_by_hour_and_flight(spark: SparkSession) -> None:
    bookings = spark.createDataFrame(
        [
            ("2026-05-01 10:05:00", "AA", 1, 2, "20.00", "USD"),
            ("2026-05-01 10:59:59", "AA", 1, 1, "10.50", "USD"),
            ("2026-05-01 10:30:00", "AA", 1, 1, "9.00", "EUR"),
            ("2026-05-01 11:00:00", "AA", 1, 4, "40.00", "USD"),
        ],
        "booked_at STRING, carrier STRING, flight INT, seats INT, price STRING, currency STRING",
    ).selectExpr("CAST(booked_at AS TIMESTAMP) booked_at", "carrier", "flight", "seats", "CAST(price AS DECIMAL(12,2)) price", "currency")  # fmt: skip
    wanted = spark.createDataFrame(
        [
            ("2026-05-01 10:00:00", "AA", 1, "USD", 3, "30.50"),
            ("2026-05-01 10:00:00", "AA", 1, "EUR", 1, "9.00"),
            ("2026-05-01 11:00:00", "AA", 1, "USD", 4, "40.00"),
        ],
        "hour STRING, carrier STRING, flight INT, currency STRING, seats BIGINT, price STRING",
    ).selectExpr("CAST(hour AS TIMESTAMP) hour", "carrier", "flight", "currency", "seats", "CAST(price AS DECIMAL(18,2)) price")  # fmt: skip
    assert_df_equality(sales_by_hour(bookings), wanted, ignore_row_order=True, ignore_nullable=True)
