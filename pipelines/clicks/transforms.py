"""Transforms of the web shop's clicks: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GAP = "30 minutes"
"""A visit ends when so long nothing was clicked."""


def visits(clicks: DataFrame) -> DataFrame:
    """Put the clicks of each visitor together that lie no further apart than :data:`GAP`.

    Parameters
    ----------
    clicks
        Rows of ``pipelines/clicks/schemas/click.ddl``, streaming, with a watermark on ``clicked_at``.

    Returns
    -------
    DataFrame
        ``visitor`` (the browser's ``session``), ``began`` and ``ended`` (first and last click), ``clicks`` (their number) and
        ``pages`` (different ones). The first two identify a row.
    """
    visit = F.session_window("clicked_at", GAP)
    counted = clicks.groupBy(F.col("session").alias("visitor"), visit.alias("visit")).agg(
        F.max("clicked_at").alias("ended"),
        F.count(F.lit(1)).alias("clicks"),
        F.size(F.collect_set("page")).alias("pages"),
    )
    return counted.select("visitor", F.col("visit.start").alias("began"), "ended", "clicks", "pages")
