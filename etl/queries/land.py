"""Land query: every record of a source, good or bad, into one append-only table, in one action per batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..checkpoints.checkpoint import Checkpoint
from ..commits.commit_batch_once import NoRowsSinceSnapshot, TableCommits
from ..commits.duplicate_look_up_bounds import DuplicateLookUp, TableHistory
from ..formats.base import UNCERTAIN, Decoder
from ..formats.decoding import data_rules
from ..launch.settings import LandSettings
from ..record import batch_accounts, envelope
from ..record.batch_accounts import EventReporter, ObservedFigures, landing_event_fields, row_count_aggregate
from ..record.column_expression_cache import CachedSelect
from ..record.errors import LossError
from ..record.tables import with_all_fields_nullable
from ..sinks.iceberg import AppendResult, IcebergSink
from ..sources.batch_offsets import BatchOffsets, read_in_planned_tasks
from ..sources.source_union import LegGuards, Positions, batch_offsets_of_legs
from .offsets_already_in_table import OffsetOverlap, overlap_with_landing_table
from .try_quick_decoding_first import MOST_RECORDS_OF_STREAMS, QuickDecodingFirstWriter, has_few_records

MOST_READS = 3
"""Most reads in a row of a batch that does not replay, if a part of it had to be read again each time."""

_CONTENT = "_content"
"""Column of the payload beside the decoded fields, until each record has a unique identity."""


def landing_table_schema(schema: StructType) -> StructType:
    """Return the columns of a landing table for records of a schema."""
    return StructType(
        [
            *envelope.SCHEMA.fields,
            StructField("_hash", LongType()),
            StructField("_landed_at", TimestampType()),
            *with_all_fields_nullable(schema).fields,
            StructField("_bytes", BinaryType()),
            StructField("_stage", StringType()),
            StructField("_error", StringType()),
        ]
    )


@dataclass
class LandBatchWriter:
    """Writer of each batch of a land query; called by ``foreachBatch``.

    Attributes
    ----------
    guards
        Guards of its legs.
    """

    settings: LandSettings
    decoder: Decoder
    sink: IcebergSink
    checkpoint: Checkpoint
    report: EventReporter
    guards: LegGuards
    _positions_unreadable: bool = False
    _commits: TableCommits = field(init=False, repr=False)
    _overlap: OffsetOverlap = field(init=False, repr=False)
    _identified: CachedSelect | None = field(default=None, repr=False)
    _last_count: int | None = field(default=None, repr=False)
    """Records of the last batch."""
    _quick_first: QuickDecodingFirstWriter = field(default_factory=QuickDecodingFirstWriter, repr=False)

    def __post_init__(self) -> None:
        self._commits = TableCommits(self.sink.table)
        self._overlap = overlap_with_landing_table(
            source.name for leg in self.guards.replayed for source in leg.sources
        )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Land a batch and report its accounts.

        Parameters
        ----------
        batch
            Rows in the envelope's shape.
        batch_id
            Spark's id; it identifies the content of the batch only for legs that replay.

        Raises
        ------
        LossError
            Records were lost unread, or may have been.
        """
        spark, streams = batch.sparkSession, self.guards.streams
        positions = [guard.checked_positions_before_batch(spark, batch_id) for guard in streams]
        if not self._positions_unreadable and any(guard.has_unreadable_positions for guard in streams):
            self._positions_unreadable = True
            self.report.emit("positions_unreadable", query=self.settings.name, batch=batch_id)
        for guard in streams:
            for rows in guard.skipped_records(spark):
                self._land_batch(rows, batch_id, [])
        figures = self._land_batch(batch, batch_id, positions)
        # Not before: parts and repeated reads of the batch are looked up, and their positions found, as the batch is.
        self.guards.store_arrivals_of_landed_batch(figures)

    def _land_batch(self, batch: DataFrame, batch_id: int, positions: Positions) -> Mapping[str, Any]:
        spark = batch.sparkSession
        which = self.checkpoint.batch_id(spark, batch_id)
        offsets = (
            batch_offsets_of_legs(spark, self.guards.replayed, batch_id) if self.guards.replayed else None
        )
        if not self.guards.streams:
            batch = read_in_planned_tasks(batch, offsets, self.settings.repartition)
        # An identity that the table holds more than once looks like a second read, unless the count is distinct.
        for distinct in (False, *[True] * (MOST_READS - 1)):
            begun = batch_accounts.utc_now()
            look_ups = partial(self._look_ups, offsets, begun)
            write = partial(self._write_attempt, batch, offsets, positions, distinct)
            done = self._commits.write_with_look_ups(spark, which, look_ups, write)
            self._last_count = done.offered
            self._report_batch(done, batch_id, begun)
            self.guards.check_expected_positions_found(positions, done.held)
            # A count of the records that were read is there for legs that do not replay.
            if done.figures.get("read", done.offered) == done.offered:
                return done.figures
            # The first and the repeated read end at different records; the connector continues after
            # the later end. Everything is read again, and records that have landed are not landed twice.
            self.report.emit("read_twice", query=self.settings.name, batch=batch_id)
        raise LossError(
            f"query {self.settings.name}, batch {batch_id}: executors were lost in each of {MOST_READS} reads of the "
            "batch, so it is not committed; start the job again, and the batch is read again"
        )

    def _report_batch(self, landed: AppendResult, batch_id: int, begun: datetime) -> None:
        oldest = landed.figures["oldest"]
        fields = {
            **landing_event_fields(landed.offered, landed.written, landed.figures["bad"]),
            **data_rules.rules_field_of_accounts(landed.figures),
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now(), oldest),
        }
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _look_ups(
        self, offsets: BatchOffsets | None, begun: datetime, history: TableHistory
    ) -> Iterable[DuplicateLookUp]:
        # Before a batch is read, nothing is known of the legs that do not replay.
        replayed = (
            self._overlap.look_up_of_batch(offsets, history) if self.guards.replayed else DuplicateLookUp()
        )
        return self.guards.look_ups(begun, replayed) if self.guards.streams else [replayed]

    def _write_attempt(
        self,
        batch: DataFrame,
        offsets: BatchOffsets | None,
        positions: Positions,
        distinct: bool,
        look_up: DuplicateLookUp,
        fence: NoRowsSinceSnapshot,
    ) -> AppendResult:
        append = partial(self._append_decoded_rows, positions, distinct, look_up, fence)
        if not self.guards.streams:
            stamped = envelope.with_hash_and_landing_time(batch)
            few = has_few_records(offsets)
            return self._quick_first.write(self.decoder, few, lambda by: append(by.decode(stamped)))

        def append_with_unique_ids(decoder: Decoder) -> AppendResult:
            # Sources that replay return the same records in a second read; these do not.
            read = ObservedFigures(row_count_aggregate("read"))
            return append(self._decode_with_unique_ids(decoder, batch, read), read)

        few = self._last_count is not None and self._last_count <= MOST_RECORDS_OF_STREAMS
        return self._quick_first.write(self.decoder, few, append_with_unique_ids, marking=True)

    def _append_decoded_rows(
        self,
        positions: Positions,
        distinct: bool,
        look_up: DuplicateLookUp,
        fence: NoRowsSinceSnapshot,
        rows: DataFrame,
        read: ObservedFigures | None = None,
    ) -> AppendResult:
        return self.sink.append(
            rows,
            look_up,
            F.expr("count(_error) AS bad"),
            F.expr("min(unix_micros(_arrived_at)) AS oldest"),
            *data_rules.broken_rule_count_aggregates(self.settings.routes),
            of_offered=self.guards.arrival_aggregates(),
            held=self.guards.held_position_count_aggregate(positions),
            observed_elsewhere=[read] if read else (),
            fence=fence,
            distinct=distinct,
            tasks=self.settings.repartition,
        )

    def _decode_with_unique_ids(self, decoder: Decoder, batch: DataFrame, read: ObservedFigures) -> DataFrame:
        """Read and decode a batch that does not replay, and make the identity of each record unique.

        Records are decoded in the tasks that read them, as a shard needs longer to deliver its records than decoding
        takes. The shuffle by identity then spreads the writes of few shards. It also separates the reading
        from the writing stage: if an executor is lost in between, its shards are read again up to another end,
        although some writes are done already. So records are counted on both sides: the two numbers are
        equal exactly if no shard with records was read twice.

        A record of which the decoder is not certain fails the write behind the shuffle: a task that went on reading would
        store a position after the attempt.
        """
        kept = envelope.with_hash_and_landing_time(batch, F.col("payload").alias(_CONTENT))
        decoded = decoder.decode_and_observe(kept, lambda rows, _: read.observe(rows))
        # Not the session's number of shuffle partitions: 200 by default, and each would be a file.
        tasks = self.settings.repartition or batch.sparkSession.sparkContext.defaultParallelism
        spread = decoded.repartition(tasks, "_id")
        if self._identified is None:
            others = [F.col(f"`{name}`") for name in decoded.columns if name not in ("_id", _CONTENT)]
            refusals = (guard.reason_to_refuse_same_identity for guard in self.guards.streams)
            refused = next(filter(None, refusals), None)
            uncertain = F.col("_stage").eqNullSafe(UNCERTAIN)
            self._identified = CachedSelect(
                lambda: [
                    F.when(uncertain, F.raise_error(F.lit(UNCERTAIN)))
                    .otherwise(
                        _identity_with_repetition_number()
                        if refused is None
                        else _identity_or_failure_if_repeated(refused)
                    )
                    .alias("_id"),
                    *others,
                ]
            )
        return self._identified.select_from(spread)


def _window_of_same_record() -> WindowSpec:
    # The hash comes first in the sort: texts with long common prefixes are slow to compare.
    return Window.partitionBy(F.xxhash64("_id"), "_id").orderBy("_key", _CONTENT)


def _identity_with_repetition_number() -> Column:
    # Records of an aggregate, for example, share its sequence number and are all in one batch. They are numbered by their
    # content, so each has the same identity in every replay.
    place = F.row_number().over(_window_of_same_record())
    return F.when((place == 1) & _last_repetition_condition(), F.col("_id")).otherwise(
        F.concat_ws("/", "_id", place)
    )


def _identity_or_failure_if_repeated(refused: str) -> Column:
    which = F.concat(
        F.lit(refused), "_id", F.date_format("_arrived_at", "', arrived 'yyyy-MM-dd'T'HH:mm:ss'Z'")
    )
    failing = F.raise_error(which).cast("string")
    return F.when(_last_repetition_condition(), F.col("_id")).otherwise(failing)


def _last_repetition_condition() -> Column:
    return F.lead("_source").over(_window_of_same_record()).isNull()
