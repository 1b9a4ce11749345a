"""Transforms of airline operations: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, when


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
