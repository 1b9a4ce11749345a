"""Bound what a Python worker is handed at once by bytes: Spark before 4.1 cuts it by rows alone (SPARK-51316).

Ten thousand payloads of a MiB would be 10 GB, in the executor and in the worker. So each record counts for as many rows as its
bytes come to: rows that hold nothing follow it, and are left out behind the worker. An ordinary record is one row, as before.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, StructField, StructType

MOST_BYTES = 64 << 20
"""Of what a worker is handed at once, and one record more."""

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PICKLED_ROWS = 100
"""Rows that are handed at once to a function that takes values one by one (Spark's ``BatchEvalPythonExec``)."""

FEWEST_BYTES = 1 << 10
"""That count for a row: whoever sets more than 65,536 rows at once takes as many KiB."""

_PLACE = "_place"


def in_portions(
    rows: DataFrame, work: Callable[[DataFrame], DataFrame], *, by_arrow: bool, handed: Column | None = None
) -> DataFrame:
    """Let Python work on rows, of which it is handed so many bytes at once.

    Parameters
    ----------
    rows
        To be worked on.
    work
        Adds columns by a function of Python that Spark takes for not deterministic (otherwise it would leave the empty rows
        out before, and not behind it), or by ``mapInArrow``. It keeps all other columns.
    by_arrow
        Whether rows are handed over in Arrow's batches.
    handed
        The one value of bytes that is handed over; None for all columns.

    Returns
    -------
    DataFrame
        What ``work`` made of these rows.
    """
    most = int(rows.sparkSession.conf.get(ARROW_ROWS) or 0) if by_arrow else PICKLED_ROWS
    if most <= 0:
        # Whole partitions at once: somebody wants it so.
        return work(rows)
    size = _bytes(F.lit(0), handed) if handed is not None else _size(rows)
    more = F.floor(size / max(MOST_BYTES // most, FEWEST_BYTES)).cast("int")
    one = F.array(F.lit(0))
    places = F.when(more > 0, F.sequence(F.lit(0), more)).otherwise(one)
    first = F.col(_PLACE) == 0
    spread = rows.select("*", F.explode(places).alias(_PLACE))
    emptied = (
        F.when(first, F.col(f"`{f.name}`")).alias(f.name) if _is_weighed(f) else F.col(f"`{f.name}`")
        for f in rows.schema
    )
    return work(spread.select(*emptied, _PLACE)).where(first).drop(_PLACE)


def _size(rows: DataFrame) -> Column:
    """Bytes of the columns that a record's producer fills."""
    size = F.lit(0)
    for each in rows.schema:
        value = F.col(f"`{each.name}`")
        if _holds_headers(each.dataType):
            # Asked of each header by itself, and only where there are some.
            of_all = F.aggregate(value, F.lit(0), lambda n, h: n + _bytes(F.length(h["key"]), h["value"]))
            size = size + F.when(F.size(value) > 0, of_all).otherwise(0)
        elif isinstance(each.dataType, BinaryType):
            size = _bytes(size, value)
    return size


def _bytes(size: Column, value: Column) -> Column:
    return size + F.coalesce(F.length(value), F.lit(0))


def _is_weighed(each: StructField) -> bool:
    return isinstance(each.dataType, BinaryType) or _holds_headers(each.dataType)


def _holds_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    return isinstance(element, StructType) and element.fieldNames() == ["key", "value"]
