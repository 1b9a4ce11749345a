"""What a ``MERGE`` reads: rows that are held, under a name that SQL knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame


@contextmanager
def named(rows: DataFrame, view: str) -> Iterator[None]:
    """Hold rows and give them a name, for as long as a ``MERGE`` takes, which reads its source twice.

    The view is over the held rows themselves. Spark 4.1 keeps each table of a view as a reference and reads it again with
    the view, but forgets that in what it asks of a table that is written copy on write: "No plan for TableReference"
    (github.com/apache/spark/issues/56515).

    Parameters
    ----------
    rows
        Of any columns; counted or written before, they are read from where they are held.
    view
        Of the session, gone at the end.
    """
    spark: Any = rows.sparkSession
    rows.persist()
    try:
        # Of another data frame: that of the rows themselves may have been planned before they were held.
        held: Any = rows.select("*")._jdf
        datasets = spark._jvm
        for part in held.getClass().getName().split("."):
            datasets = getattr(datasets, part)
        planned = held.queryExecution().withCachedData()
        DataFrame(datasets.ofRows(spark._jsparkSession, planned), rows.sparkSession).createOrReplaceTempView(
            view
        )
        yield
    finally:
        spark.catalog.dropTempView(view)
        rows.unpersist()
