"""Transforms of the flights example: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LATE_MINUTES = 15
"""A departure counts as on time up to here (US Bureau of Transportation Statistics, "Airline On-Time")."""


def with_delay(flights: DataFrame) -> DataFrame:
    """Say of each flight where it went, whether it was late and whether it flew at all.

    Parameters
    ----------
    flights
        Good records of ``schemas/flight.ddl``, with whatever enrichment added.

    Returns
    -------
    DataFrame
        The same rows and columns, and ``route`` (``JFK-MIA``), ``delayed`` (departed more
        than 15 minutes late; false for a flight that never left), ``cancelled`` (no departure).
    """
    return flights.select(
        "*",
        F.concat_ws("-", "origin", "dest").alias("route"),
        F.coalesce(F.col("dep_delay") > LATE_MINUTES, F.lit(False)).alias("delayed"),
        F.col("dep_time").isNull().alias("cancelled"),
    )
