"""Columns of a select, passed to Spark once for all batches.

PySpark passes each column by calls into the JVM, and builds each expression by more calls. For a batch of
few records this takes longer than the records; columns that are the same for every batch are therefore kept in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame


@dataclass
class CachedSelect:
    """Select that many batches share.

    Parameters
    ----------
    columns
        Makes the columns at their first use: PySpark can make none before there is a session.
    """

    columns: Callable[[], Iterable[Column | str]]
    _cached: tuple[Any, Any, Any] | None = field(default=None, repr=False)
    """The connection to the JVM, and the columns in that JVM, as a sequence of Scala and as a list of Java."""

    def select_from(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Select the columns from rows, and ``more`` that only this batch has; ``withColumn`` would analyse the plan again."""
        frame: Any = rows  # PySpark's types do not include its JVM objects
        gateway: Any = rows.sparkSession.sparkContext._gateway
        if self._cached is None or self._cached[0] is not gateway:
            sequence = frame._jcols(*self.columns())
            as_list = gateway.jvm.scala.collection.JavaConverters.seqAsJavaList(sequence)
            self._cached = gateway, sequence, gateway.jvm.java.util.ArrayList(as_list)
        columns = self._cached[1]
        if more:
            extended = self._cached[2].clone()
            for column in more:
                extended.add(column._jc)
            columns = gateway.jvm.PythonUtils.toSeq(extended)
        selected: DataFrame = type(frame)(frame._jdf.select(columns), rows.sparkSession)
        return selected
