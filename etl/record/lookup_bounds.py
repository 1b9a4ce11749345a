"""Where in a table records of a batch can be, and ways to look for them before they are written."""

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
"""What a task fails with when a bound does not hold; found again in the driver's error."""

Result = TypeVar("Result")
Limit = TypeVar("Limit")


class OutsideBoundError(Exception):
    """A record of the batch lies outside the bound; nothing was committed."""


@dataclass(frozen=True)
class Bound:
    """Which rows of the table can hold a record of the batch: the others are not read.

    Attributes
    ----------
    rows
        Condition on the table; None for all of it.
    column, minimum
        Where the condition is only likely: no record of the batch may have a
        smaller value in this column, and the write fails when one has.
    outside
        In place of that comparison, which records lie outside; ``column`` fails for them.
    """

    rows: Column | None = None
    column: str | None = None
    minimum: datetime | None = None
    outside: Column | None = None

    @classmethod
    def since(cls, column: str, minimum: datetime) -> Bound:
        """Rows from a moment on, checked inside the write."""
        return cls(F.col(column) >= F.lit(minimum), column, minimum)

    def guard(self, batch: DataFrame) -> DataFrame:
        """Make a record that lies outside fail its task, before anything is committed."""
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
"""No bound: the whole table is looked at."""


class LookUpStep(NamedTuple):
    """A way to look for records of a batch in a table before they are written.

    Attributes
    ----------
    bound
        Where they can be; None where none can be there.
    alone
        Whether no row of a later batch can be there either, which the commit then says.
    """

    bound: Bound | None
    alone: bool


LookUp = Callable[[SparkSession, Table, History], Iterable[LookUpStep]]
"""Ways to look a batch up in a table of some history, from the cheapest, whose bound may not hold, to one that cannot fail."""


def write_with_first_valid_bound(bounds: Iterable[Limit], write: Callable[[Limit], Result]) -> Result:
    """Write with the first bound that holds; each attempt is a whole new action.

    Parameters
    ----------
    bounds
        From the tightest, which is cheap, to one that cannot fail.
    write
        One attempt.

    Raises
    ------
    OutsideBoundError
        None of them holds.
    """
    refused: OutsideBoundError | None = None
    for bound in bounds:
        try:
            return write(bound)
        except OutsideBoundError as error:
            refused = error
    raise refused or ValueError("no bound was given")
