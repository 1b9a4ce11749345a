"""Limit, in bytes, of the rows that a Python worker gets at once: Spark before 4 limits rows only (SPARK-51316).

Ten thousand payloads of a MiB would be 10 GB, in the executor and in the worker. So a large record counts as several rows,
by its size: empty rows follow it and are dropped after the worker. An ordinary record stays one row.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, StructField, StructType

MOST_BYTES = 64 << 20
"""Most bytes that a worker gets at once, plus one record."""

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNCOUNTED = str(2**31 - 1)
"""The only value with which Spark 4 does not add up the buffers of all columns at each row
(``BatchedPythonArrowInput``)."""

PICKLED_ROWS = 100
"""Rows that a function of single values gets at once (Spark's ``BatchEvalPythonExec``)."""

FEWEST_BYTES = 1 << 10
"""Smallest number of bytes that counts as a row: a setting of more than 65,536 rows at once allows as many KiB."""

_PLACE = "_place"


def run_in_portions(
    rows: DataFrame, work: Callable[[DataFrame], DataFrame], *, by_arrow: bool, handed: Column | None = None
) -> DataFrame:
    """Return what Python makes of rows, which it gets in portions of limited bytes.

    Spark 4 limits bytes too, at a higher price. It stops where these portions hold, unless somebody has set its limit: in the
    session of the rows, which each query has of its own.

    Parameters
    ----------
    work
        Adds columns by a Python function that Spark takes for nondeterministic (otherwise Spark would drop the empty rows
        before it, not after), or by ``mapInArrow``. It keeps all other columns.
    by_arrow
        True if rows are sent in Arrow batches.
    handed
        The only binary value that is sent; None for all columns.

    Returns
    -------
    DataFrame
        Result of ``work`` for these rows.
    """
    most = int(rows.sparkSession.conf.get(ARROW_ROWS) or 0) if by_arrow else PICKLED_ROWS
    if most <= 0:
        # The setting asks for complete partitions at once.
        return work(rows)
    if by_arrow and rows.sparkSession.conf.get(ARROW_BYTES, None) is None:
        rows.sparkSession.conf.set(ARROW_BYTES, UNCOUNTED)
    size = _plus_value_bytes(F.lit(0), handed) if handed is not None else _row_size_in_bytes(rows)
    more = F.floor(size / max(MOST_BYTES // most, FEWEST_BYTES)).cast("int")
    one = F.array(F.lit(0))
    places = F.when(more > 0, F.sequence(F.lit(0), more)).otherwise(one)
    first = F.col(_PLACE) == 0
    spread = rows.select("*", F.explode(places).alias(_PLACE))
    emptied = (
        F.when(first, F.col(f"`{f.name}`")).alias(f.name) if _is_counted_column(f) else F.col(f"`{f.name}`")
        for f in rows.schema
    )
    return work(spread.select(*emptied, _PLACE)).where(first).drop(_PLACE)


def _row_size_in_bytes(rows: DataFrame) -> Column:
    """Return the bytes of the columns that a record's producer fills."""
    size = F.lit(0)
    for each in rows.schema:
        value = F.col(f"`{each.name}`")
        if _holds_headers(each.dataType):
            # Computed per header, and only if there are headers.
            of_all = F.aggregate(
                value, F.lit(0), lambda n, h: n + _plus_value_bytes(F.length(h["key"]), h["value"])
            )
            size = size + F.when(F.size(value) > 0, of_all).otherwise(0)
        elif isinstance(each.dataType, BinaryType):
            size = _plus_value_bytes(size, value)
    return size


def _plus_value_bytes(size: Column, value: Column) -> Column:
    return size + F.coalesce(F.length(value), F.lit(0))


def _is_counted_column(each: StructField) -> bool:
    return isinstance(each.dataType, BinaryType) or _holds_headers(each.dataType)


def _holds_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    return isinstance(element, StructType) and element.fieldNames() == ["key", "value"]
