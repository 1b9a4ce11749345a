"""Derive query: good records of a landing table, through enrichment and transform, into a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from math import ceil
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..checkpoints.checkpoint import Checkpoint
from ..commits.duplicate_look_up_bounds import (
    CommitTimeOfOtherWriters,
    DuplicateLookUp,
    TableHistory,
    older_than_condition,
    whole_table_look_up,
)
from ..commits.snapshot_history import (
    ARRIVALS,
    commit_time,
    count_added_files,
    snapshot_and_earlier,
    snapshots_of_batch,
)
from ..launch.settings import DeriveSettings
from ..record import batch_accounts
from ..record.batch_accounts import BatchAccounts, EventReporter, ObservedFigures, row_count_aggregate
from ..record.envelope import (
    IDENTITY,
    datetime_of_micros,
)
from ..record.tables import Table
from ..sinks.base import RowOrderLister, Sink, batch_identity, raise_on_refused_rows
from ..sinks.delivery.kept_deletes import KeptDeletes
from ..sinks.delivery.python_task_writes import CountedRows
from ..sinks.delivery.row_version_history import delete_versions_of_every_key
from ..sinks.iceberg import count_read_tasks
from ..sinks.refused_rows_dead_letters import DeadLetterTable
from . import change_order
from .transform import EnrichThenTransform, good_records

ROWS_PER_TASK, BYTES_PER_TASK = 10_000, 16 * 1024**2
"""Rows of a batch that are worth a task of their own, and bytes of their files: a smaller one takes longer to start than it saves."""

_FILE_OPEN_COST = 128 * 1024**2
"""Bytes that Iceberg counts for a file at least: as many as it gives a task. With its own 4 MiB, it reads 32 landed files in one
task, and a job's other cores are idle."""

SLACKS = (timedelta(seconds=1), timedelta(hours=1))
"""Subtracted from a bound, in turn: clocks of two drivers or two land queries mostly differ by less than the first. With the
second alone, each batch of the hour after another writer's commit opens the sink's rows of an hour."""


def stream_landing_table(
    spark: SparkSession, table: Table, most: int | None = None, *, deletes: bool = False
) -> DataFrame:
    """Open a landing table as a stream of its good records.

    A batch is a fixed range of the table's snapshots: a replay holds the same
    records. Compaction and deletes (maintenance, redaction) add no records to it.

    Parameters
    ----------
    spark
        Session with the table's catalog.
    most
        Most rows in a batch, by complete files; None for all.
    deletes
        As in :func:`good_records`.
    """
    reader = (
        spark.readStream.format("iceberg")
        .option("streaming-skip-overwrite-snapshots", "true")
        .option("streaming-skip-delete-snapshots", "true")
        .option("file-open-cost", str(_FILE_OPEN_COST))
    )
    if most is not None:
        reader = reader.option("streaming-max-rows-per-micro-batch", str(most))
    return good_records(reader.table(str(table)), deletes=deletes)


def earliest_landing_time(landing: Any, start: Any) -> datetime | None:
    """Return a time before which no record of a batch was landed.

    Records of a snapshot were landed after the commit of the append before it,
    as one query lands them, a batch at a time.

    Parameters
    ----------
    landing
        The landing table, as Iceberg's Java object.
    start
        Iceberg's streaming offset at which the batch begins.

    Returns
    -------
    datetime or None
        None if the table's snapshot has expired, the batch begins with the table's first append, or it reads all files of a
        snapshot (:mod:`etl.checkpoints.derive_start_after_expiry`).
    """
    if not start or start["scan_all_files"]:
        return None
    begin = landing.snapshot(int(start["snapshot_id"]))
    for snapshot in snapshot_and_earlier(landing, begin):
        unread = snapshot is begin and start["position"] < count_added_files(snapshot)
        if snapshot.operation() == "append" and not unread:
            return commit_time(snapshot)
    return None


CommitSummary = Any
"""Summary of a commit, as a Java map of texts."""


def in_tasks_for_rows(batch: DataFrame, commits: Sequence[CommitSummary], planned: int) -> DataFrame:
    """Read a batch in as many tasks as its rows are worth, up to one for each core.

    Parameters
    ----------
    batch
        Rows with an identity, of which each file is a task.
    commits
        The commits that added them; empty where unknown.
    planned
        Tasks over which the rows of fewer files are spread, which costs a shuffle.
    """
    most = max(planned, batch.sparkSession.sparkContext.defaultParallelism)
    if commits:
        rows, size = (
            sum(int(each.getOrDefault(name, "0")) for each in commits)
            for name in ("added-records", "added-files-size")
        )
        most = max(1, min(most, max(ceil(rows / ROWS_PER_TASK), ceil(size / BYTES_PER_TASK))))
    spread = min(planned, most)
    if spread > 1 and count_read_tasks(batch) < spread:
        return batch.repartition(spread, "_id")
    return batch.coalesce(most)


def rows_of_backfilled_arrivals(commits: Sequence[CommitSummary]) -> Column | None:
    """Return the condition for a sink's rows of the times that backfills among the commits name; None for no backfill."""
    named = [each.get(ARRIVALS) for each in commits]
    ranges = [tuple(map(int, arrivals.split())) for arrivals in named if arrivals is not None]
    if not ranges:
        return None
    if not all(ranges):
        return F.lit(True)
    first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
    return F.col("_arrived_at").between(*(F.lit(datetime_of_micros(end)) for end in (first, last)))


@dataclass
class DeriveBatchWriter:
    """Writer of each batch of a derive query; called by ``foreachBatch``.

    A batch is a fixed range of the landing table's snapshots. Rows of it that a lake table holds, other than from this run, were
    written by another checkpoint or a backfill from records that had landed by then: a batch of later records
    needs no look-up. Records that a backfill landed are looked up by their arrival: they may have been derived before the
    landing table lost them.

    Parameters
    ----------
    landing
        Table that it reads.
    letters
        Table for refused rows; None if the sink takes every row.
    """

    settings: DeriveSettings
    landing: Table
    compose: EnrichThenTransform
    sink: Sink
    letters: DeadLetterTable | None
    checkpoint: Checkpoint
    report: EventReporter
    _others: CommitTimeOfOtherWriters = field(
        default_factory=CommitTimeOfOtherWriters, init=False, repr=False
    )

    @cached_property
    def _kept_deletes(self) -> KeptDeletes:
        return KeptDeletes(f"{self.checkpoint.location}/deletes")

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            Good records of the landing table, or rows of a query with state.
        """
        begun = batch_accounts.utc_now()
        # Of state, each row is a result, and enrichment alone follows. A sink that is asked again reads results from a cache, below
        # which nothing is counted a second time.
        stateful = self.settings.state is not None
        read = CountedRows(self.sink, row_count_aggregate("read"))
        lanes = ObservedFigures(F.expr("count_if(_lanes) AS unordered"))
        backfilled = None
        if not stateful:
            commits = self._commits_of_batch(batch.sparkSession, batch_id)
            batch = in_tasks_for_rows(batch, commits, self.settings.tasks)
            backfilled = rows_of_backfilled_arrivals(commits)
        if backfilled is not None:
            # A record that landed, was lost and landed again may be in one batch.
            batch = batch.dropDuplicates([*IDENTITY])
        look_ups = partial(self._look_ups_with_backfills, batch_id, backfilled)
        place = replace(
            batch_identity(batch.sparkSession, self.checkpoint, batch_id, look_ups=look_ups),
            landed_again=backfilled is not None,
        )

        def derived_rows() -> DataFrame:
            return self.compose(batch if stateful else read.observe(batch))

        refuse = raise_on_refused_rows if self.letters is None else self.letters.refused_row_handler(place)
        unordered: dict[str, int] = {}
        if self.settings.latest_by:
            # Read for its deletes and for the sink.
            rows, truncates = self.compose(read.observe(batch), lanes.observe), []
            if self.compose.history:
                rows = rows.unionByName(
                    delete_versions_of_every_key(change_order.positions_of_truncates(batch), rows.schema)
                )
            else:
                truncates = change_order.orders_of_truncates(batch)
                rows = change_order.rows_and_deletes_after_truncates(
                    self._kept_deletes.without_rows_older_than_deletes(rows), truncates, self.sink
                )
            rows = rows.persist()
            try:
                if not self.compose.history:
                    place = replace(place, rows=self._kept_deletes.keep_deletes_of(rows, truncates))
                inside = lanes.values()["unordered"]
                done = self.sink.write(rows, place, refuse, lambda: rows)
                if truncates and not isinstance(self.sink, RowOrderLister):
                    refuse(change_order.dead_letters_of_truncates(batch))
                    offered, refused = ((n or 0) + len(truncates) for n in (done.offered, done.refused))
                    done = replace(done, offered=offered, refused=refused)
                # The lanes of changes are no partitions.
                beside = 0 if change_order.is_change_table(batch) else done.unordered
                unordered = {"unordered": inside + beside}
            finally:
                rows.unpersist()
        else:
            done = self.sink.write(derived_rows(), place, refuse, derived_rows)
        balance = BatchAccounts(
            done.offered if stateful else read.values_after_write(done).get("read"),
            done.offered,
            done.written,
            refused=done.refused,
        )
        self.report.emit(
            "batch",
            query=self.settings.name,
            batch=batch_id,
            **balance.event_fields(),
            **unordered,
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )

    def _commits_of_batch(self, spark: SparkSession, batch_id: int) -> list[CommitSummary]:
        """Return what the commits of a batch's rows say of themselves; empty where unknown."""
        start, end = (
            self.checkpoint.batch_start_offset(spark, batch_id),
            self.checkpoint.batch_end_offset(spark, batch_id),
        )
        if not end or (start or end)["scan_all_files"]:
            return []
        landing = self.landing.load_java_table(spark)
        return [one.summary() for one in snapshots_of_batch(landing, start, end)]

    def _look_ups_with_backfills(
        self, batch_id: int, backfilled: Column | None, history: TableHistory
    ) -> list[DuplicateLookUp]:
        usual = self._look_ups(batch_id, history)
        if backfilled is None:
            return usual
        return [replace(one, rows=backfilled if one.rows is None else one.rows | backfilled) for one in usual]

    def _look_ups(self, batch_id: int, history: TableHistory) -> list[DuplicateLookUp]:
        others = self._others.latest_commit_time(history)
        if others is None:
            return [DuplicateLookUp(nothing_later=True)]
        start = self.checkpoint.batch_start_offset(history.spark, batch_id)
        since = earliest_landing_time(self.landing.load_java_table(history.spark), start)
        if since is None:
            return [whole_table_look_up()]
        state = self.settings.state
        joined = state is not None and state.join is not None
        # The second stream of a join has its own position.
        if not joined and since - SLACKS[-1] > others:
            return [
                DuplicateLookUp(None, older_than_condition("_landed_at", others), nothing_later=True),
                whole_table_look_up(),
            ]
        look_ups = []
        for slack in SLACKS[-1:] if joined else SLACKS:
            outside = older_than_condition("_landed_at", since - slack)
            if joined:
                # A joined row has the landing time of its first record, which may have waited in the state for the second; a
                # row of the second stream alone has none.
                outside |= F.col("_landed_at").isNull()
            look_ups.append(DuplicateLookUp(F.col("_landed_at") >= F.lit(since - slack), outside))
        return [*look_ups, whole_table_look_up()]
