"""Transforms of airline operations: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, when, window
from pyspark.sql.functions import sum as total


def with_price_per_seat(bookings: DataFrame) -> DataFrame:
    """Add ``price_per_seat``, null where a booking holds no seat.

    Parameters
    ----------
    bookings
        Rows of ``pipelines/operations/schemas/booking.ddl``, and the record identity.

    Returns
    -------
    DataFrame
        The same rows and columns, and ``price_per_seat`` (decimal, in the booking's currency).
    """
    per_seat = when(col("seats") > 0, (col("price") / col("seats")).cast("decimal(12,2)"))
    return bookings.withColumn("price_per_seat", per_seat)


def sales_by_hour(bookings: DataFrame) -> DataFrame:
    """Add up what was booked on each flight in each hour.

    Parameters
    ----------
    bookings
        Rows of ``pipelines/operations/schemas/booking.ddl``, streaming, with a watermark on ``booked_at``.

    Returns
    -------
    DataFrame
        ``hour`` (its beginning), ``carrier``, ``flight``, ``currency``, ``seats`` and ``price`` (decimal). The
        first four identify a row.
    """
    grouped = bookings.groupBy(window("booked_at", "1 hour"), "carrier", "flight", "currency")
    sums = grouped.agg(total("seats").alias("seats"), total("price").cast("decimal(18,2)").alias("price"))
    return sums.select(col("window.start").alias("hour"), "carrier", "flight", "currency", "seats", "price")
