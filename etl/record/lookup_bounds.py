"""Bounds of the rows of a table that may hold records of a batch, and look-ups before the write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .commits import History
from .envelope import timestamp_literal
from .tables import Table

OUTSIDE = "millrace: a record lies outside the bound of its batch"
"""Message of a task that fails because a bound does not hold; it is recognised in the driver's error."""

Result = TypeVar("Result")
Limit = TypeVar("Limit")


class OutsideBoundError(Exception):
    """Error of a batch with a record outside the bound; nothing was committed."""


@dataclass(frozen=True)
class Bound:
    """Bound of the table's rows that can hold a record of the batch: the others are not read.

    Attributes
    ----------
    rows
        Condition on the table; None for all rows.
    column, minimum
        Set if the condition is only likely: no record of the batch may have a
        smaller value in this column; the write fails if one has.
    outside
        Condition for records outside the bound, instead of that comparison; ``column`` fails for them.
    """

    rows: Column | None = None
    column: str | None = None
    minimum: datetime | None = None
    outside: Column | None = None

    @classmethod
    def since(cls, column: str, minimum: datetime) -> Bound:
        """Return a bound of rows from a time on, checked inside the write."""
        return cls(F.col(column) >= F.lit(minimum), column, minimum)

    def guard(self, batch: DataFrame) -> DataFrame:
        """Make a record outside the bound fail its task, before anything is committed."""
        if self.column is None:
            return batch
        value = F.col(self.column)
        outside = self.outside
        if outside is None:
            assert self.minimum is not None, f"{self.column}: neither a minimum nor what lies outside"
            outside = value < timestamp_literal(self.minimum, f"`{self.column}` IS NULL")
        failing = F.expr(f"raise_error('{OUTSIDE}')")
        return batch.withColumn(self.column, F.when(outside, failing).otherwise(value))


EVERYTHING = Bound()
"""No bound: the complete table is read."""


class LookUpStep(NamedTuple):
    """Look-up of a batch's records in a table before they are written.

    Attributes
    ----------
    bound
        Rows that can hold them; None if there can be none.
    alone
        True if the table can hold no row of a later batch either; the commit records it.
    """

    bound: Bound | None
    alone: bool


LookUp = Callable[[SparkSession, Table, History], Iterable[LookUpStep]]
"""Look-ups of a batch by a table's history, from the cheapest, whose bound may not hold, to one that cannot fail."""


def write_with_first_valid_bound(bounds: Iterable[Limit], write: Callable[[Limit], Result]) -> Result:
    """Write with the first bound that holds; each attempt is a complete new action.

    Parameters
    ----------
    bounds
        Bounds from the tightest, which is cheap, to one that cannot fail.
    write
        Makes one attempt.

    Raises
    ------
    OutsideBoundError
        No bound holds.
    """
    refused: OutsideBoundError | None = None
    for bound in bounds:
        try:
            return write(bound)
        except OutsideBoundError as error:
            refused = error
    raise refused or ValueError("no bound was given")
