"""Transforms of airline operations: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


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
    per_seat = F.when(F.col("seats") > 0, (F.col("price") / F.col("seats")).cast("decimal(12,2)"))
    return bookings.withColumn("price_per_seat", per_seat)
