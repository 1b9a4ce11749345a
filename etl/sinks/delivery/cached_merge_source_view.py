"""Source of a ``MERGE``: cached rows, under a name in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame


@contextmanager
def cached_temporary_view(rows: DataFrame, view: str) -> Iterator[None]:
    """Cache rows and name them for the time of a ``MERGE``, which reads its source twice.

    The view is on the cached rows. Spark 4.1 stores each table of a view as a reference and resolves it again with
    the view, but not in the scan of a table that is written copy on write: "No plan for TableReference"
    (github.com/apache/spark/issues/56515).

    Parameters
    ----------
    rows
        Rows with any columns; an action before or after reads them from the cache.
    view
        Name of a view in the session; dropped at the end.
    """
    spark: Any = rows.sparkSession
    rows.persist()
    try:
        # From a new DataFrame: the plan of the rows themselves may have been made before they were cached.
        dataset: Any = rows.select("*")._jdf
        datasets = spark._jvm
        for part in dataset.getClass().getName().split("."):
            datasets = getattr(datasets, part)
        planned = dataset.queryExecution().withCachedData()
        DataFrame(datasets.ofRows(spark._jsparkSession, planned), rows.sparkSession).createOrReplaceTempView(
            view
        )
        yield
    finally:
        spark.catalog.dropTempView(view)
        rows.unpersist()
