"""What a table's commits say about the batches of a query, and commits that a second writer cannot overlap.

Each commit of a query names its batch: the id of the checkpoint (``run``) and Spark's number. The data and
these names are one transaction. So the newest commit of a run tells whether the current batch was written before,
without a look at a row: compaction, replays and other queries in between do not matter.

A commit is validated against the snapshot that its look-up read (``CommitFence``). Where somebody has added rows since,
Iceberg refuses it, and the batch is looked up again. A rival, another process on the same checkpoint, is refused for good.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from .errors import ConflictError, LeaseLostError
from .tables import Table

RUN, BATCH, WRITER, ALONE = "millrace.run", "millrace.batch-id", "millrace.writer", "millrace.alone"
"""Properties of a commit: checkpoint, number of the batch, process, and whether no later batch can be in the table."""

MOST_COMMITS = 500
"""How far back a run's last commit is looked for: each is a call or two into the JVM."""

MOST_ATTEMPTS = 5
"""How often a batch is written in a row while others commit in between."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class BatchId:
    """A batch of one checkpoint.

    Attributes
    ----------
    run
        Id of the checkpoint, and the route where a query has several; a reset checkpoint has another one.
    number
        Spark's.
    """

    run: str
    number: int


@dataclass(frozen=True)
class AddedRows:
    """Rows that one commit added to a table.

    Attributes
    ----------
    snapshot, parent
        Ids; ``parent`` is None for a table's first commit.
    at
        When it was committed, by the clock of who did.
    whole
        Whether the commit only added rows: of one that also replaced some, Iceberg does not tell the added ones.
    run
        Id of the checkpoint whose batch it is; None for a replay, a backfill and the like.
    """

    snapshot: int
    parent: int | None
    at: datetime
    whole: bool
    run: str | None

    def rows(self, spark: SparkSession, table: Table) -> DataFrame:
        """All columns of the rows, whatever compaction has made of their files since."""
        if self.parent is None:
            return spark.sql(f"SELECT * FROM {table} VERSION AS OF {self.snapshot}")  # noqa: S608 - plain names, see Table
        return (
            spark.read.option("start-snapshot-id", str(self.parent))
            .option("end-snapshot-id", str(self.snapshot))
            .table(str(table))
        )


@dataclass(frozen=True)
class CommitFence:
    """Refuses a commit where rows were added since a snapshot.

    Attributes
    ----------
    base
        The snapshot; None for a table without one.
    properties
        That the commit is to have.
    shut
        Whether it refuses anything: a table that several queries land into takes their commits side by side.
    """

    base: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    shut: bool = True


@dataclass(frozen=True)
class History:
    """What is known of a table before a batch is written.

    Attributes
    ----------
    base
        Id of its newest snapshot.
    at
        When that was committed.
    empty
        Whether the table has no row.
    again
        Commits of this same batch.
    others
        Commits of others since the run's last one.
    alone
        Whether the run's last commit is known, and no row of a later batch was in the table then.
    lost
        Whether the run's last commit is not to be found, or is of a later batch: the checkpoint was put back. Then others
        may have written what is not among ``others``.
    """

    base: int | None
    at: datetime | None
    empty: bool
    again: tuple[AddedRows, ...]
    others: tuple[AddedRows, ...]
    alone: bool
    lost: bool


@dataclass
class OtherWriters:
    """When others than a run have written to a table last, as far as a batch of the run may be among it."""

    _known: bool = field(default=False, repr=False)
    _until: datetime | None = field(default=None, repr=False)

    def latest_commit(self, history: History) -> datetime | None:
        """The moment; None for never.

        Parameters
        ----------
        history
            Of the table, before a batch.
        """
        if history.empty:
            self._known, self._until = True, None
        elif not self._known or history.lost:
            self._known = True
            self._until = None if history.alone else history.at
        times = [other.at for other in history.others]
        if self._until is not None:
            times.append(self._until)
        self._until = max(times, default=None)
        return self._until


@dataclass
class Commits:
    """The commits of one query to one table, in one process."""

    table: Table
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _first: int | None = field(default=None, repr=False)
    _looked: bool = field(default=False, repr=False)
    _shared: bool = field(default=False, repr=False)

    def write(
        self, spark: SparkSession, batch: BatchId | None, attempt: Callable[[History], Result]
    ) -> Result:
        """Write a batch; again, with a new look at the table, where others have added rows meanwhile.

        Where those were batches of another query, as of jobs that share a topic out, such commits never meet ours, and would
        refuse them again and again: from then on the history is looked at behind each commit in place of that.

        Parameters
        ----------
        spark
            With the table's catalog.
        batch
            None where its checkpoint is unknown.
        attempt
            Looks up and commits with :meth:`fence`.

        Raises
        ------
        LeaseLostError
            Another process writes the batches of the same checkpoint.
        ConflictError
            Others committed during each of ``MOST_ATTEMPTS`` attempts.
        """
        refused: ConflictError | None = None
        for _ in range(MOST_ATTEMPTS):
            history = self.read_history(spark, batch)
            self._shared = self._shared or (refused is not None and any(o.run for o in history.others))
            try:
                done = attempt(history)
            except ConflictError as error:
                refused = error
                continue
            if self._shared and batch is not None:
                self._check_since(spark, batch, history.base)
            return done
        assert refused is not None
        raise refused

    def _check_since(self, spark: SparkSession, batch: BatchId, base: int | None) -> None:
        """Find a rival's commit between a look-up and ours, which nothing has refused."""
        metadata = self.table.metadata(spark)
        snapshot = metadata.currentSnapshot()
        while snapshot is not None and int(snapshot.snapshotId()) != base:
            summary, parent = snapshot.summary(), snapshot.parentId()
            if summary.get(RUN) == batch.run and summary.get(WRITER) != self.writer:
                raise self._rival(summary)
            snapshot = None if parent is None else metadata.snapshot(parent)

    def _rival(self, summary: Any) -> LeaseLostError:
        return LeaseLostError(
            f"table {self.table}: another process has committed batch {summary.get(BATCH)} of the same checkpoint since "
            "this one began"
        )

    def fence(self, history: History, batch: BatchId | None, *, alone: bool) -> CommitFence:
        """What a batch is committed with.

        Parameters
        ----------
        history
            That the look-up rests on.
        batch
            None where its checkpoint is unknown.
        alone
            Whether no row of a later batch can be in the table.
        """
        if batch is None:
            return CommitFence(history.base, shut=not self._shared)
        told = {RUN: batch.run, BATCH: str(batch.number), WRITER: self.writer}
        return CommitFence(history.base, told | ({ALONE: "true"} if alone else {}), shut=not self._shared)

    def read_history(self, spark: SparkSession, batch: BatchId | None) -> History:
        """Read the table's history back to the run's last commit before a batch.

        Raises
        ------
        LeaseLostError
            Another process has committed to the same checkpoint since this one began.
        """
        metadata = self.table.metadata(spark)
        newest = metadata.currentSnapshot()
        begun = not self._looked
        if begun:
            self._first = None if newest is None else int(newest.snapshotId())
            self._looked = True
        again: list[AddedRows] = []
        others: list[AddedRows] = []
        alone, lost = False, True
        snapshot, count = newest, 0
        while snapshot is not None and batch is not None:
            summary, added = snapshot.summary(), _added(snapshot)
            begun = begun or added.snapshot == self._first or summary.get(WRITER) == self.writer
            count += 1
            if summary.get(RUN) == batch.run:
                if not begun:
                    raise self._rival(summary)
                number = int(summary.get(BATCH))
                if number != batch.number:
                    lost = number > batch.number
                    alone = not lost and summary.get(ALONE) == "true"
                    break
                again.append(added)
            elif int(summary.get("added-records") or 0) and snapshot.operation() != "replace":
                others.append(added)
            if count == MOST_COMMITS:
                break
            snapshot = metadata.snapshot(added.parent) if added.parent is not None else None
        return History(
            None if newest is None else int(newest.snapshotId()),
            None if newest is None else _moment(newest),
            newest is None or newest.summary().get("total-records") == "0",
            tuple(again),
            tuple(others),
            alone,
            lost,
        )


def _added(snapshot: Any) -> AddedRows:
    parent = snapshot.parentId()
    return AddedRows(
        int(snapshot.snapshotId()),
        None if parent is None else int(parent),
        _moment(snapshot),
        snapshot.operation() == "append",
        snapshot.summary().get(RUN),
    )


def _moment(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=UTC)
