"""Derive query: good records of a landing table, through enrichment and transform, into a sink."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampType

from ..checkpoints.checkpoint import Checkpoint
from ..commits.duplicate_look_up_bounds import (
    CommitTimeOfOtherWriters,
    DuplicateLookUp,
    TableHistory,
    older_than_condition,
    whole_table_look_up,
)
from ..commits.snapshot_history import commit_time, count_added_files, snapshot_and_earlier
from ..formats.changes.decoder import TRUNCATE
from ..formats.decoding.decoder_output_and_checks import reasons_type_not_storable
from ..formats.decoding.decoder_per_topic import DELETE, rows_of_route
from ..launch import typed_json
from ..launch.settings import DeriveSettings
from ..record import batch_accounts
from ..record.batch_accounts import BatchAccounts, EventReporter, ObservedFigures, row_count_aggregate
from ..record.envelope import CARRIED, time_column_outside_generated_code
from ..record.errors import StartError, describe_error
from ..record.tables import Table
from ..sinks.base import DELETED, RowOrderLister, Sink, batch_identity, raise_on_refused_rows
from ..sinks.delivery.kept_deletes import KeptDeletes
from ..sinks.delivery.keyed_rows import newest_of_each_key
from ..sinks.delivery.python_task_writes import CountedRows
from ..sinks.delivery.record_order import POSITION, with_position_struct
from ..sinks.delivery.row_version_history import delete_versions_of_every_key, versions_of_changes
from ..sinks.refused_rows_dead_letters import DeadLetterTable
from . import change_order
from .enrich import ReferenceTable

Transform = Callable[[DataFrame], DataFrame]

ROWS_PER_BATCH = 1_000_000
"""Most rows of a batch from the landing table, by complete files: limits the first batch after a pause."""

SLACKS = (timedelta(seconds=1), timedelta(hours=1))
"""Subtracted from a bound, in turn: clocks of two drivers or two land queries mostly differ by less than the first. With the
second alone, each batch of the hour after another writer's commit opens the sink's rows of an hour."""

RESERVED = ("_written_at", "_attempt", "_refused", "_known", "_known_hash")
"""Columns that sinks add to rows."""

_TYPES = {
    "_id": StringType(),
    "_source": StringType(),
    "_arrived_at": TimestampType(),
    "_landed_at": TimestampType(),
    "_position": POSITION,
}

DEAD_LETTER = ("_bytes", "_stage", "_error")


def load_transform(name: str | None) -> Transform:
    """Find a transform by name.

    Parameters
    ----------
    name
        ``package.module:function``; None for none.

    Raises
    ------
    StartError
        The transform cannot be imported.
    """
    if name is None:
        return lambda rows: rows
    try:
        found: Transform = typed_json.import_object(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise StartError(f"transform {name}: {error}") from error
    return found


def good_records(landing: DataFrame, *, deletes: bool = False) -> DataFrame:
    """Return the rows of a landing table without dead letters and their columns.

    Parameters
    ----------
    deletes
        True to include records that delete, marked by :data:`~etl.sinks.base.DELETED`; otherwise they are left out.
    """
    if not deletes:
        return landing.where("_error IS NULL AND _stage IS NULL").drop(*DEAD_LETTER)
    # Truncates too, of which DeriveBatchWriter knows.
    good = landing.where(f"_error IS NULL AND coalesce(_stage, '{DELETE}') IN ('{DELETE}', '{TRUNCATE}')")
    good = good.withColumn(DELETED, F.col("_stage").eqNullSafe(DELETE))
    return good.drop(*DEAD_LETTER)


def stream_landing_table(
    spark: SparkSession, table: Table, most: int | None = ROWS_PER_BATCH, *, deletes: bool = False
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
    )
    if most is not None:
        reader = reader.option("streaming-max-rows-per-micro-batch", str(most))
    return good_records(reader.table(str(table)), deletes=deletes)


INPUT_COLUMNS = "; the columns of its input are "
"""Before the columns of a failed transform's input, which differ by query."""


@contextmanager
def name_transform_in_errors(name: str, rows: DataFrame) -> Iterator[None]:
    """Name the failed transform, its line and its input columns: at a start, before a batch could fail.

    Parameters
    ----------
    name
        ``module:function``.
    rows
        Input of the transform.

    Raises
    ------
    StartError
        The transform raised an error.
    """
    try:
        yield
    except StartError:
        raise
    except Exception as error:  # any error of a user's function
        file = f"{name.partition(':')[0].replace('.', '/')}.py"
        lines = [
            each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith(file)
        ]
        where = f", {file}:{lines[-1]}" if lines else ""
        reason = describe_error(error).partition("\n")[0]
        raise StartError(
            f"transform {name}{where}: {reason}{INPUT_COLUMNS}{', '.join(rows.columns)}"
        ) from error


@dataclass(frozen=True)
class EnrichThenTransform:
    """Enrichment and transform as one function, from good records to rows of the sink.

    It takes a static or a streaming DataFrame, so a query with state can be
    built before ``foreachBatch``.

    Attributes
    ----------
    carries
        Envelope columns that the transform keeps.
    latest_by
        Columns that identify a row, of which the last record is kept; empty where each record is a row.
    latest_order
        Column that says which record is the last, before their positions; None for none.
    history
        Whether every version of a row is kept, and not the last record only.
    """

    references: tuple[ReferenceTable, ...]
    transform: Transform
    name: str
    carries: tuple[str, ...] = CARRIED
    latest_by: tuple[str, ...] = ()
    latest_order: str | None = None
    history: bool = False

    def __call__(
        self, rows: DataFrame, observe: Callable[[DataFrame], DataFrame] = lambda rows: rows
    ) -> DataFrame:
        """Enrich, transform, and add ``_written_at``.

        Parameters
        ----------
        observe
            Counts the last records of each key, with ``_lanes``.

        Raises
        ------
        StartError
            The transform drops or changes a column that identity or latency needs, uses a reserved one, or has columns
            that no sink can hold.
        """
        changes = bool(self.latest_by) and change_order.is_change_table(rows)
        if self.latest_by:
            rows = with_position_struct(rows)
        if changes:
            rows = change_order.rows_and_deletes_of_changes(rows)
        elif self.history:
            raise StartError(
                "history: true needs a landing table that holds changes of a database, and this one does not"
            )
        for reference in self.references:
            rows = reference.with_joined_columns(rows, reference.current_rows(rows))
        out = self.transform(rows)
        if not isinstance(out, DataFrame):
            raise StartError(
                f"transform {self.name} must return a DataFrame, but returned {type(out).__name__}"
            )
        carries = ("_position", DELETED) if self.latest_by else self.carries
        lost = [c for c in carries if c not in out.columns]
        if lost:
            whole = ", ".join(carries) if self.latest_by else "millrace.etl.record.envelope.CARRIED"
            raise StartError(
                f"transform {self.name}: its result lacks the columns {', '.join(lost)}; keep {whole} in "
                "its select"
            )
        kinds = {f.name: f.dataType for f in out.schema.fields}
        retyped = [c for c in carries if c in _TYPES and kinds[c].simpleString() != _TYPES[c].simpleString()]
        if retyped:
            told = ", ".join(f"{c} {_TYPES[c].simpleString()}" for c in retyped)
            raise StartError(
                f"transform {self.name}: its result must have the columns {told}; do not change their types"
            )
        reserved = RESERVED if self.latest_by else (*RESERVED, DELETED)
        if taken := [c for c in reserved if c in kinds]:
            raise StartError(
                f"transform {self.name}: column {', '.join(taken)} is reserved for the sink; rename it"
            )
        if wrong := "; ".join(reasons_type_not_storable(out.schema)):
            raise StartError(f"transform {self.name}: no sink can store its result: {wrong}")
        if self.latest_by:
            last = (
                versions_of_changes(out, self.latest_by, self.name)
                if self.history
                else newest_of_each_key(out, self.latest_by, self.name, self.latest_order)
            )
            # The lanes of changes are no partitions.
            out = observe(last.withColumn("_lanes", F.lit(False)) if changes else last).drop("_lanes")
        # For a stream Spark fixes the time of each batch; a literal would be the time of the start.
        written = (
            F.current_timestamp()
            if out.isStreaming
            else time_column_outside_generated_code(batch_accounts.utc_now(), "_id = ''")
        )
        return out.withColumn("_written_at", written)

    def checked_sink_schema(
        self, spark: SparkSession, landing: Table, route: str | None = None
    ) -> StructType:
        """Return the columns of the sink; finds errors in the transform before the stream starts."""
        rows = good_records(spark.table(str(landing)).limit(0), deletes=bool(self.latest_by))
        given = rows_of_route(rows, route, str(landing))
        with name_transform_in_errors(self.name, given):
            return self(given).schema


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


@dataclass
class DeriveBatchWriter:
    """Writer of each batch of a derive query; called by ``foreachBatch``.

    A batch is a fixed range of the landing table's snapshots. Rows of it that a lake table holds, other than from this run, were
    written by another checkpoint or a backfill from records that had landed by then: a batch of later records
    needs no look-up.

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
        read = CountedRows(self.sink, row_count_aggregate("read"))
        lanes = ObservedFigures(F.expr("count_if(_lanes) AS unordered"))
        look_ups = partial(self._look_ups, batch_id)
        place = batch_identity(batch.sparkSession, self.checkpoint, batch_id, look_ups=look_ups)

        def derived_rows() -> DataFrame:
            return self.compose(read.observe(batch))

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
            read.values_after_write(done).get("read"), done.offered, done.written, refused=done.refused
        )
        self.report.emit(
            "batch",
            query=self.settings.name,
            batch=batch_id,
            **balance.event_fields(),
            **unordered,
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )

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
