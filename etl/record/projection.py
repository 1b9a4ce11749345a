"""Columns of a select, handed to Spark once for all batches.

PySpark hands each column over by calls of its own into the JVM, and builds each expression by more of them. For a batch of
few records that takes longer than the records do; what is the same for every batch is therefore kept as the JVM has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame


@dataclass
class Projection:
    """A select that many batches have in common.

    Parameters
    ----------
    columns
        Makes the columns, the first time they are wanted: PySpark can make none before there is a session.
    """

    columns: Callable[[], Iterable[Column | str]]
    _taken: tuple[Any, Any] | None = field(default=None, repr=False)
    """The connection to the JVM, and the columns as that JVM has them."""

    def of(self, rows: DataFrame) -> DataFrame:
        """Select the columns out of some rows."""
        frame: Any = rows  # what PySpark keeps of the JVM is not in its types
        gateway = rows.sparkSession.sparkContext._gateway
        if self._taken is None or self._taken[0] is not gateway:
            self._taken = gateway, frame._jcols(*self.columns())
        made: DataFrame = type(frame)(frame._jdf.select(self._taken[1]), rows.sparkSession)
        return made
