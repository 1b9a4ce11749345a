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
    _cached: tuple[Any, Any] | None = field(default=None, repr=False)
    """The connection to the JVM, and the columns in that JVM."""

    def select_from(self, rows: DataFrame) -> DataFrame:
        """Select the columns from rows."""
        frame: Any = rows  # PySpark's types do not include its JVM objects
        gateway = rows.sparkSession.sparkContext._gateway
        if self._cached is None or self._cached[0] is not gateway:
            self._cached = gateway, frame._jcols(*self.columns())
        selected: DataFrame = type(frame)(frame._jdf.select(self._cached[1]), rows.sparkSession)
        return selected
