"""Rows of a table that may hold records of a batch: they are looked up before the batch is written.

The first attempt has a tight bound that the write checks, the last reads everything. Kinesis and derive queries have one in between
(``docs/design/landing.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..record.envelope import time_column_outside_generated_code
from ..record.errors import OWN_REPETITION
from ..record.tables import Table

OUTSIDE = f"{OWN_REPETITION}lies outside the bound of its batch"
"""Message of a task that fails because a bound does not hold; it is recognised in the driver's error."""


class RecordOutsideBoundError(Exception):
    """Error of a batch with a record outside the bound; nothing was committed."""


@dataclass(frozen=True)
class RowsAddedByCommit:
    """Rows that one commit added to a table.

    Attributes
    ----------
    snapshot, parent
        Ids; ``parent`` is None for a table's first commit.
    at
        Time of the commit, by the clock of its writer.
    whole
        True if the commit only added rows: if it also replaced some, Iceberg cannot return the added ones.
    run
        Id of the checkpoint whose batch it is; None for a replay, a backfill and similar commits.
    """

    snapshot: int
    parent: int | None
    at: datetime
    whole: bool
    run: str | None

    def rows(self, spark: SparkSession, table: Table) -> DataFrame:
        """Return all columns of the rows, also after compaction of their files."""
        if self.parent is None:
            return spark.sql(f"SELECT * FROM {table} VERSION AS OF {self.snapshot}")  # noqa: S608 - plain names, see Table
        return (
            spark.read.option("start-snapshot-id", str(self.parent))
            .option("end-snapshot-id", str(self.snapshot))
            .table(str(table))
        )


@dataclass(frozen=True)
class TableHistory:
    """Known commits and rows of a table before a batch is written.

    Attributes
    ----------
    base
        Id of its newest snapshot; None for a table without one.
    at
        Time of its commit.
    empty
        True if the table has no row.
    same_batch
        Commits of this same batch.
    others
        Commits of other writers since the run's last one.
    nothing_later
        True if the run's last commit is known, and no row of a later batch was in the table then.
    incomplete
        True if the run's last commit is not found, or is of a later batch because the checkpoint was restored. Then other
        writers may have written rows that are not in ``others``.
    """

    spark: SparkSession
    table: Table
    base: int | None
    at: datetime | None
    empty: bool
    same_batch: tuple[RowsAddedByCommit, ...]
    others: tuple[RowsAddedByCommit, ...]
    nothing_later: bool
    incomplete: bool


@dataclass(frozen=True)
class DuplicateLookUp:
    """Look-up of a batch's records in a table before they are written.

    Attributes
    ----------
    rows
        Condition for the rows of the table that can hold them; None if none can.
    outside
        Condition for records of the batch that other rows may hold: such a record fails the write. None for no record.
    nothing_later
        True if the table can hold no row of a later batch either; the commit records it.
    commits
        Commits whose rows are looked up as well.
    """

    rows: Column | None = None
    outside: Column | None = None
    nothing_later: bool = False
    commits: tuple[RowsAddedByCommit, ...] = ()

    def with_failure_outside_bound(self, batch: DataFrame) -> DataFrame:
        """Make a record outside the bound fail its task, before anything is committed."""
        if self.outside is None:
            return batch
        failing = F.expr(f"raise_error('{OUTSIDE}')")
        return batch.withColumn("_id", F.when(self.outside, failing).otherwise(F.col("_id")))


LookUps = Callable[[TableHistory], Iterable[DuplicateLookUp]]
"""Look-ups of a batch by a table's history, from the cheapest, whose bound may not hold, to one that cannot fail."""


def whole_table_look_up() -> DuplicateLookUp:
    """Return the look-up in the complete table."""
    return DuplicateLookUp(F.lit(True))


def older_than_condition(column: str, time: datetime) -> Column:
    """Return a condition: records with an earlier time in a column. The time is no part of Spark's generated code."""
    return F.col(column) < time_column_outside_generated_code(time, f"`{column}` IS NULL")


@dataclass
class CommitTimeOfOtherWriters:
    """Last commit time of other writers to a table, as far as it may contain a batch of the run."""

    _known: bool = False
    _until: datetime | None = None

    def latest_commit_time(self, history: TableHistory) -> datetime | None:
        """Return that time; None if there is no such commit.

        Parameters
        ----------
        history
            History of the table, before a batch.
        """
        if history.empty:
            self._until = None
        elif not self._known or history.incomplete:
            self._until = None if history.nothing_later else history.at
        self._known = True
        times = [other.at for other in history.others]
        self._until = max([*times, *([self._until] if self._until else [])], default=None)
        return self._until
