"""Commits of a table by the batches of queries, protected from overlap with a second writer.

Each commit of a query names its batch: the id of the checkpoint (``run``) and Spark's batch number. The data and
these names are one transaction. So the newest commit of a run shows whether the current batch was written before,
without reading a row: compaction, replays and other queries in between do not matter.

A commit is validated against the snapshot that its look-up read (``NoRowsSinceSnapshot``). If another writer has added rows since,
Iceberg refuses it, and the look-up is repeated. A rival (another process on the same checkpoint) is refused for good, and so
is a job that writes what an older one writes from the same source.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from ..record.errors import ConflictError, LeaseLostError
from ..record.tables import Table
from .duplicate_look_up_bounds import (
    DuplicateLookUp,
    LookUps,
    RecordOutsideBoundError,
    RowsAddedByCommit,
    TableHistory,
)
from .snapshot_history import commit_time, snapshot_and_earlier

RUN, BATCH, WRITER, NOTHING_LATER = "millrace.run", "millrace.batch-id", "millrace.writer", "millrace.alone"
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
class NoRowsSinceSnapshot:
    """Condition of a commit: it fails if rows were added since a snapshot.

    Attributes
    ----------
    base
        Id of the snapshot; None for a table without one.
    properties
        Properties for the commit.
    exclusive
        True to refuse such a commit; false for a table into which several queries land side by side.
    """

    base: int | None
    properties: Mapping[str, str]
    exclusive: bool


@dataclass
class TableCommits:
    """Commits of one query to one table, in one process."""

    table: Table
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _first: int | None = field(default=0, repr=False)
    """Snapshot at the first look; 0 before it."""
    _shared: bool = field(default=False, repr=False)

    def write_with_look_ups(
        self,
        spark: SparkSession,
        batch: BatchId,
        look_ups: LookUps,
        attempt: Callable[[DuplicateLookUp, NoRowsSinceSnapshot], Result],
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Result:
        """Write a batch with the first look-up whose bound holds; repeat it if others have added rows meanwhile.

        If these are batches of another query (such as of jobs that share a topic), they never overlap this query's batches
        but would refuse its commits repeatedly. From then on, the history is checked after each commit instead.

        Parameters
        ----------
        spark
            Session with the table's catalog.
        attempt
            Makes one attempt: a complete new action.
        properties
            Further properties of the commit, stored in the table's history (``snapshot.summary()``).

        Raises
        ------
        LeaseLostError
            Another process writes batches of the same checkpoint.
        ConflictError
            Others committed during each of the ``MOST_ATTEMPTS`` attempts.
        RecordOutsideBoundError
            No bound holds.
        """
        refused: Exception = RecordOutsideBoundError(
            f"table {self.table}: internal error: the batch was not compared with any earlier rows, so "
            "nothing was committed"
        )
        for _ in range(MOST_ATTEMPTS):
            history = self.read_history(spark, batch)
            conflicting = history.others if isinstance(refused, ConflictError) else ()
            self._shared = self._shared or any(other.run for other in conflicting)
            for look_up in look_ups(history):
                named = self._commit_properties(batch, nothing_later=look_up.nothing_later)
                fence = NoRowsSinceSnapshot(history.base, {**properties, **named}, exclusive=not self._shared)
                try:
                    done = attempt(replace(look_up, commits=history.same_batch), fence)
                except RecordOutsideBoundError as error:
                    refused = error
                except ConflictError as error:
                    refused = error
                    break
                else:
                    if self._shared:
                        self._check_no_rival_since(spark, batch, history.base)
                    return done
            else:
                break
        raise refused

    def _commit_properties(self, batch: BatchId, *, nothing_later: bool) -> dict[str, str]:
        """Return the properties by which a commit names its batch."""
        named = {RUN: batch.run, BATCH: str(batch.number), WRITER: self.writer}
        if batch.source:
            named |= {SOURCE: batch.source, CREATED: str(batch.created)}
        return named | ({NOTHING_LATER: "true"} if nothing_later else {})

    def _check_no_rival_since(self, spark: SparkSession, batch: BatchId, base: int | None) -> None:
        """Raise if a rival committed between the look-up and this commit, which had no fence."""
        metadata = self.table.load_java_table(spark)
        for snapshot in snapshot_and_earlier(metadata, metadata.currentSnapshot()):
            if int(snapshot.snapshotId()) == base:
                return
            summary = snapshot.summary()
            if summary.get(RUN) == batch.run and summary.get(WRITER) != self.writer:
                raise self._rival_error(summary)

    def _rival_error(self, summary: Any) -> LeaseLostError:
        return LeaseLostError(
            f"table {self.table}: another process committed batch {summary.get(BATCH)} of the same "
            "checkpoint after this batch began, so this run ends; only one run may use a checkpoint"
        )

    def _raise_if_other_job_owns_table(self, batch: BatchId, summary: Any) -> None:
        """Raise if a commit is of another job that owns this table: the one with the older checkpoint continues."""
        if not batch.source or summary.get(SOURCE) != batch.source:
            return
        # Routes of a query share its checkpoint.
        owner, own = summary.get(RUN).partition("/")[0], batch.run.partition("/")[0]
        if (int(summary.get(CREATED)), owner) < (batch.created, own):
            raise LeaseLostError(
                f"table {self.table}: another job writes it from the same source, with the older checkpoint "
                f"{owner}. Only one job may write a table from one source: stop one of the two "
                "(docs/how-to/rename-and-remove.md)"
            )

    def read_history(self, spark: SparkSession, batch: BatchId) -> TableHistory:
        """Read the table's history back to the run's last commit before a batch.

        Raises
        ------
        LeaseLostError
            Another process has committed to the same checkpoint since this one started, or another job with an older
            checkpoint has written records of the same source.
        """
        metadata = self.table.load_java_table(spark)
        newest = metadata.currentSnapshot()
        base = None if newest is None else int(newest.snapshotId())
        begun = self._first == 0
        if begun:
            self._first = base
        same_batch: list[RowsAddedByCommit] = []
        others: list[RowsAddedByCommit] = []
        nothing_later, incomplete = False, True
        for snapshot in islice(snapshot_and_earlier(metadata, newest), MOST_COMMITS):
            summary, added = snapshot.summary(), _rows_added_by(snapshot)
            begun = begun or added.snapshot == self._first or summary.get(WRITER) == self.writer
            if summary.get(RUN) == batch.run:
                if not begun:
                    raise self._rival_error(summary)
                number = int(summary.get(BATCH))
                if number != batch.number:
                    incomplete = number > batch.number
                    nothing_later = not incomplete and summary.get(NOTHING_LATER) == "true"
                    break
                same_batch.append(added)
            else:
                if not begun:
                    self._raise_if_other_job_owns_table(batch, summary)
                if int(summary.get("added-records") or 0) and snapshot.operation() != "replace":
                    others.append(added)
        return TableHistory(
            spark,
            self.table,
            base,
            None if newest is None else commit_time(newest),
            newest is None or newest.summary().get("total-records") == "0",
            tuple(same_batch),
            tuple(others),
            nothing_later,
            incomplete,
        )


def _rows_added_by(snapshot: Any) -> RowsAddedByCommit:
    parent = snapshot.parentId()
    return RowsAddedByCommit(
        int(snapshot.snapshotId()),
        None if parent is None else int(parent),
        commit_time(snapshot),
        snapshot.operation() == "append",
        snapshot.summary().get(RUN),
    )
