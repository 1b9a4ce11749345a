"""Commits of a table by the batches of queries, protected from overlap with a second writer.

Each commit of a query names its batch: the id of the checkpoint (``run``) and Spark's batch number. The data and
these names are one transaction. So the newest commit of a run shows whether the current batch was written before,
without reading a row: compaction, replays and other queries in between do not matter.

A commit is validated against the snapshot that its look-up read (``CommitFence``). If another writer has added rows since,
Iceberg refuses it, and the look-up is repeated. A rival (another process on the same checkpoint) is refused for good, and so
is a job that writes what an older one writes from the same source.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from .errors import ConflictError, LeaseLostError
from .tables import Table

RUN, BATCH, WRITER, ALONE = "millrace.run", "millrace.batch-id", "millrace.writer", "millrace.alone"
"""Properties of a commit: checkpoint, batch number, process, and a flag that no later batch can be in the table."""

SOURCE, CREATED = "millrace.source", "millrace.created"
"""Properties of a commit: :func:`source_digest`, and the time at which the checkpoint was made."""

MOST_COMMITS = 500
"""Most commits that are searched for a run's last one: each takes one or two calls into the JVM."""

MOST_ATTEMPTS = 5
"""Most attempts to write a batch while others commit in between."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class BatchId:
    """A batch of one checkpoint.

    Attributes
    ----------
    run
        Id of the checkpoint, with the route if a query has several; a reset checkpoint has a new id.
    number
        Spark's batch number.
    source
        :func:`source_digest` of what the query reads; empty if it is not compared.
    created
        Time at which the checkpoint was made, in whole seconds since 1970.
    """

    run: str
    number: int
    source: str = field(default="", compare=False)
    created: int = field(default=0, compare=False)


def source_digest(parts: Any) -> str:
    """Return a short name of what a query reads, the same in every job that reads it.

    Parameters
    ----------
    parts
        Names of its sources with their partitions, in a fixed order; written as JSON.
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class AddedRows:
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
class CommitFence:
    """Condition of a commit: it fails if rows were added since a snapshot.

    Attributes
    ----------
    base
        Id of the snapshot; None for a table without one.
    properties
        Properties for the commit.
    shut
        True to refuse such a commit; false for a table into which several queries land side by side.
    """

    base: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    shut: bool = True


@dataclass(frozen=True)
class History:
    """Known commits and rows of a table before a batch is written.

    Attributes
    ----------
    base
        Id of its newest snapshot.
    at
        Time of its commit.
    empty
        True if the table has no row.
    again
        Commits of this same batch.
    others
        Commits of other writers since the run's last one.
    alone
        True if the run's last commit is known, and no row of a later batch was in the table then.
    lost
        True if the run's last commit is not found, or is of a later batch because the checkpoint was restored. Then other
        writers may have written rows that are not in ``others``.
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
    """Last commit time of other writers to a table, as far as it may contain a batch of the run."""

    _known: bool = field(default=False, repr=False)
    _until: datetime | None = field(default=None, repr=False)

    def latest_commit(self, history: History) -> datetime | None:
        """Return that time; None if there is no such commit.

        Parameters
        ----------
        history
            History of the table, before a batch.
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
    """Commits of one query to one table, in one process."""

    table: Table
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _first: int | None = field(default=None, repr=False)
    _looked: bool = field(default=False, repr=False)
    _shared: bool = field(default=False, repr=False)

    def write(
        self, spark: SparkSession, batch: BatchId | None, attempt: Callable[[History], Result]
    ) -> Result:
        """Write a batch; repeat it with a new look-up if others have added rows meanwhile.

        If these are batches of another query (such as of jobs that share a topic), they never overlap this query's batches
        but would refuse its commits repeatedly. From then on, the history is checked after each commit instead.

        Parameters
        ----------
        spark
            Session with the table's catalog.
        batch
            The batch; None if its checkpoint is unknown.
        attempt
            Looks the batch up and commits it with :meth:`fence`.

        Raises
        ------
        LeaseLostError
            Another process writes batches of the same checkpoint.
        ConflictError
            Others committed during each of the ``MOST_ATTEMPTS`` attempts.
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
        """Raise if a rival committed between the look-up and this commit, which had no fence."""
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

    def _check_owner(self, batch: BatchId, summary: Any) -> None:
        """Raise if a commit is of another job that owns this table: the one with the older checkpoint continues."""
        if not batch.source or summary.get(SOURCE) != batch.source:
            return
        # Routes of a query share its checkpoint.
        owner, own = summary.get(RUN).partition("/")[0], batch.run.partition("/")[0]
        if (int(summary.get(CREATED)), owner) < (batch.created, own):
            raise LeaseLostError(
                f"table {self.table}: another job writes it from the same source, on the older checkpoint {owner}: one job at "
                "a time does; stop one of the two, and see docs/how-to/rename-and-remove.md"
            )

    def fence(self, history: History, batch: BatchId | None, *, alone: bool) -> CommitFence:
        """Return the fence for the commit of a batch.

        Parameters
        ----------
        history
            History on which the look-up is based.
        batch
            The batch; None if its checkpoint is unknown.
        alone
            True if no row of a later batch can be in the table.
        """
        if batch is None:
            return CommitFence(history.base, shut=not self._shared)
        told = {RUN: batch.run, BATCH: str(batch.number), WRITER: self.writer}
        if batch.source:
            told |= {SOURCE: batch.source, CREATED: str(batch.created)}
        return CommitFence(history.base, told | ({ALONE: "true"} if alone else {}), shut=not self._shared)

    def read_history(self, spark: SparkSession, batch: BatchId | None) -> History:
        """Read the table's history back to the run's last commit before a batch.

        Raises
        ------
        LeaseLostError
            Another process has committed to the same checkpoint since this one started, or another job with an older
            checkpoint has written records of the same source.
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
            else:
                if not begun:
                    self._check_owner(batch, summary)
                if int(summary.get("added-records") or 0) and snapshot.operation() != "replace":
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
