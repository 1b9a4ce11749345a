"""Guard of a Kinesis query: stops it where its connector may have skipped records.

The tasks of the connectors store their end positions in a file per shard, and the next batch begins
there without a check that the batch before landed as much. ``docs/kinesis.md``
describes how this and other behaviour can lose records, and the measure against each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...checkpoints.checkpoint import Checkpoint
from ...commits.duplicate_look_up_bounds import DuplicateLookUp
from ...launch.sources import KinesisSource
from ...record import batch_accounts
from ...record.errors import LossError, NoAnswerError, RestartQueryError, StartError
from ...record.tables import Table
from ..base import LegGuard, missing_records_error
from .closed_shards import SPLIT_AGGREGATE, Records, ShardPositions, to_envelope
from .duplicate_look_up_arrivals import Steps, look_up_of_arrivals, next_arrival_ranges

SLACK = timedelta(seconds=10)
"""Largest difference in age to the last batch's oldest record before the wider look-up is needed."""

STEP_SECONDS = 60.0
"""Width of a step. A literal in a filter is part of Spark's generated code, so each different one causes a compilation."""

TRIM_MARGIN = timedelta(minutes=10)
"""Records count as trimmed this long before their time: a check takes a while, and clocks differ."""

CLOCKS = timedelta(minutes=10)
"""Largest assumed difference between the clocks of a driver and of the checkpoint's file system."""

FURTHER = 5
"""Steps that a shard is first expected to advance in a batch; doubled after each batch with a record beyond them."""

RIGHT = 10
"""Batches in a row within their bound after which the expected steps are halved."""

FEWEST_IN_SET = 11
"""From this number of values Spark uses a set, with the same code for each (``spark.sql.optimizer.inSetConversionThreshold``)."""

Horizon = Callable[[Collection[str]], Mapping[str, str | None]]
"""Returns the sequence numbers of the oldest records that shards still have, by shard id; None for no record."""

_NOWHERE = ShardPositions.from_offset(None)


@dataclass
class KinesisLossGuard(LegGuard):
    """Guard of one Kinesis source; it checks before and after each batch of its query.

    Parameters
    ----------
    source
        Source of the query.
    table
        Table in which it lands.
    horizon
        Looks up oldest records in the stream; None if that is not possible.
    tails
        Reads the records that the connector skips between two entries of the offset log; None if it
        skips none.
    step_seconds
        Width of a step; bounds are rounded down to full steps.
    shards
        Number of open shards for which the query's limits were computed.
    count_shards
        Counts them again; None if the limits do not depend on it.
    oldest
        Arrival of the oldest record of this run's last batch.
    steps
        Steps in which its records arrived, minus :data:`SLACK`.
    further
        Steps that a shard is expected to advance in a batch.
    splits_aggregates
        True if the connector may end a batch inside an aggregate of Kinesis' producer library.
    ends_planned
        True if an entry of the offset log has the batch's end, as Spark intends; the engines' connectors write its start.
    """

    source: KinesisSource
    checkpoint: Checkpoint
    table: Table
    horizon: Horizon | None = None
    tails: Callable[[ShardPositions, ShardPositions], Iterator[Records]] | None = None
    step_seconds: float = STEP_SECONDS
    shards: int | None = None
    count_shards: Callable[[], int] | None = None
    oldest: datetime | None = field(default=None)
    steps: Collection[int] = ()
    further: int = FURTHER
    splits_aggregates: bool = False
    ends_planned: bool = False
    _right: int = field(default=0)
    _begun: datetime | None = field(default=None)
    """Time at which the current batch started."""
    _read_since: datetime | None = field(default=None)
    """New records of shards that had no unread ones in the last batch arrived after this time."""
    _not_before: dict[str, datetime] = field(default_factory=dict)
    """By shard: a time before which the record at its position did not arrive. It only increases, as does the position."""
    _batch: int | None = field(default=None)
    _entries: tuple[ShardPositions, ShardPositions] = field(default=(_NOWHERE, _NOWHERE))

    def look_ups(self, begun: datetime) -> Iterator[DuplicateLookUp]:
        """See :meth:`etl.sources.base.LegGuard.look_ups`.

        A shard is read forward, so a batch is seldom older than the one before, and mostly shortly after that one's
        records. The write itself checks this: a second read of a Kinesis batch would return other records.
        """
        self._begun = begun
        since = self.oldest or begun - timedelta(seconds=self.source.retention_seconds)
        recent: tuple[Steps, ...] = ((self._step_of_time(since - SLACK), None),)
        if self.steps and self._read_since is not None:
            likely = next_arrival_ranges(
                self.steps, self.further, self._step_of_time(self._read_since - SLACK)
            )
            if likely != recent:
                yield look_up_of_arrivals(self.source.name, likely, self._time_of_step)
                # While a backlog is read, batches go further than expected: each would look through everything.
                self.further, self._right = 2 * self.further, 0
        # Full steps: batches with the same bound share Spark's generated code.
        yield look_up_of_arrivals(self.source.name, recent, self._time_of_step)

    def _step_of_time(self, moment: datetime) -> int:
        return int(moment.timestamp() // self.step_seconds)

    def _time_of_step(self, step: int) -> datetime:
        return datetime.fromtimestamp(step * self.step_seconds, tz=UTC)

    @property
    def reason_to_refuse_same_identity(self) -> str | None:
        """Error text where records of an aggregate share its number, and each read may end at another of them."""
        return SPLIT_AGGREGATE if self.splits_aggregates else None

    def arrival_aggregates(self, suffix: str, where: str = "true") -> tuple[Column, ...]:
        """See :meth:`etl.sources.base.LegGuard.arrival_aggregates`.

        The next batch continues after the last record of each shard, which may have landed already.
        """
        micros = f"CASE WHEN {where} THEN unix_micros(_arrived_at) END"
        slack, step = (round(seconds * 1e6) for seconds in (SLACK.total_seconds(), self.step_seconds))
        step_of = f"CAST(floor(({micros} - {slack}) / {step}) AS BIGINT)"
        return (
            F.expr(f"min({micros}) AS oldest{suffix}"),
            # At most one per record of the batch; mostly a handful. As text, which an observed figure can be.
            F.expr(f"concat_ws(' ', collect_set(CAST({step_of} AS STRING))) AS steps{suffix}"),
        )

    def store_arrivals_of_landed_batch(self, oldest: int | None, steps: str) -> None:
        """Take the oldest arrival and the steps of a landed batch; ``oldest`` is None for an empty one."""
        if oldest is None:
            return
        self.oldest = datetime.fromtimestamp(oldest / 1e6, tz=UTC)
        self.steps, self._read_since = {int(step) for step in steps.split()}, self._begun
        self._right += 1
        if self._right == RIGHT:
            self.further, self._right = max(FURTHER, self.further // 2), 0

    def checked_positions_before_batch(self, spark: SparkSession, batch_id: int) -> Mapping[str, str]:
        """Check, see :meth:`etl.sources.base.LegGuard.checked_positions_before_batch`; reopen the stream if its number of shards changed."""
        here = self._start_positions(spark, batch_id)
        follows = self._batch is not None and self._batch == batch_id - 1
        earlier = self._entries[1] if follows else self._start_positions(spark, batch_id - 1)
        moved = here.shards_advanced_since(earlier)
        self._entries = (earlier, here)
        self._reopen_if_shard_count_changed()
        first_of_run = self._batch is None
        self._batch = batch_id
        retained = timedelta(seconds=self.source.retention_seconds) - TRIM_MARGIN
        if first_of_run:
            committed = self.checkpoint.commit_time(spark, batch_id - 1) if batch_id else None
            recent = committed is not None and batch_accounts.utc_now() - committed < retained
            # A shard at its last record has lost nothing, if the last batch is recent.
            self._fail_if_records_expired(moved if recent else here.read)
            self._check_last_batch_landed(spark, batch_id, moved)
            return {}
        if self.oldest is not None:
            # These shards are at records of the last batch.
            before = self._not_before
            self._not_before = before | {s: max(self.oldest, before.get(s, self.oldest)) for s in moved}
        if self.oldest is not None and batch_accounts.utc_now() - self.oldest > retained:
            self._fail_if_records_expired(
                self._shards_with_old_last_record(spark, here.read, batch_accounts.utc_now() - retained)
            )
        return moved

    def skipped_records(self, spark: SparkSession) -> Iterator[DataFrame]:
        """Yield the records of closed shards."""
        if self.tails is not None and self._entries[0].shards_read != self._entries[1].shards_read:
            for page in self.tails(*self._entries):
                yield to_envelope(spark, self.source, page)

    @property
    def has_unreadable_positions(self) -> bool:
        """True if the connector writes positions that cannot be read; known after :meth:`checked_positions_before_batch`."""
        return not all(entry.known for entry in self._entries)

    def has_landed_up_to(
        self, spark: SparkSession, batch_id: int, ends: Mapping[str, tuple[str, datetime]]
    ) -> bool:
        """Check that the batches before one have landed the records of some positions, and so all before them.

        Parameters
        ----------
        ends
            Sequence number and arrival of a record, by shard.
        """
        here = self._start_positions(spark, batch_id)
        rest = {
            at: arrived
            for shard, (at, arrived) in ends.items()
            if shard not in here.ended and int(here.read.get(shard, -1)) < int(at)
        }
        if not rest:
            return True
        # An engine's connector writes where a batch ends only when it plans the next one, which needs new records.
        rows = spark.table(str(self.table)).where(F.col("_source") == self.source.name)
        since = min(rest.values()) - SLACK
        return (
            rest.keys()
            <= _arrivals_at_positions(rows.where(F.col("_arrived_at") >= F.lit(since)), rest).keys()
        )

    def _start_positions(self, spark: SparkSession, batch: int) -> ShardPositions:
        """Return the positions at the start of a batch."""
        entry = batch - 1 if self.ends_planned else batch
        try:
            return ShardPositions.from_offset(
                self.checkpoint.batch_end_offset(spark, entry) if entry >= 0 else None
            )
        except OSError:
            raise
        except ValueError:
            return ShardPositions(frozenset(), {}, frozenset(), known=False)

    def _reopen_if_shard_count_changed(self) -> None:
        """Check the limits after a reshard, which the offset log shows: only then is the stream called."""
        before, here = self._entries
        if self.count_shards is None or not before.shards or before.shards_read == here.shards_read:
            return
        try:
            count = self.count_shards()
        except StartError as error:
            # An error of the start only at the start: this query runs, and may repeat the call.
            raise NoAnswerError(str(error)) from error
        if count != self.shards:
            raise RestartQueryError(
                f"stream {self.source.stream} now has {count} shards (before: {self.shards}); the query "
                f"restarts by itself with limits for {count} shards"
            )

    def held_position_count_aggregate(self, positions: Mapping[str, str]) -> Column | None:
        """Return the aggregate that counts, over the rows of the look-up, how many of these positions are present."""
        if not positions:
            return None
        # A set is passed outside Spark's generated code, which is then the same for every batch; as text it
        # is one call into the JVM. Names of streams and numbers contain no quotes.
        # The identity of the record, and that of the first record in it if it was an aggregate.
        wanted = [
            f"{self.source.stream}/{p}{first}" for p in sorted(positions.values()) for first in ("", "/1")
        ]
        wanted += [str(n) for n in range(FEWEST_IN_SET - len(wanted))]
        # As a set: if executors are lost, rows of the look-up are counted more than once.
        condition = f"CASE WHEN _id IN ({', '.join(map(_quote_for_sql, wanted))}) THEN substring_index(_id, '/', 2) END"
        return F.expr(f"size(collect_set({condition}))")

    def _check_last_batch_landed(
        self, spark: SparkSession, batch_id: int, positions: Mapping[str, str]
    ) -> None:
        """Check, at the start of a run, that the last records of the last batch have landed; their arrival bounds the look-up."""
        if not positions:
            return
        rows = spark.table(str(self.table)).where(F.col("_source") == self.source.name)
        # Rows of the last batch were landed after the commit of the batch before, and the files' metadata has the landing
        # times. The complete table is searched only for rows that another checkpoint landed long ago.
        earlier = self.checkpoint.commit_time(spark, batch_id - 2) if batch_id > 1 else None
        recent = [] if earlier is None else [rows.where(F.col("_landed_at") >= F.lit(earlier - CLOCKS))]
        missing = dict(positions)
        for looked_up in (*recent, rows):
            arrivals = _arrivals_at_positions(looked_up, positions.values())
            missing = {k: v for k, v in positions.items() if v not in arrivals}
            if not missing:
                arrived = {k: arrivals[p] for k, p in positions.items()}
                self._not_before |= arrived
                self.oldest = min(arrived.values())
                self.steps = {self._step_of_time(at - SLACK) for at in arrived.values()}
                self._read_since = None if earlier is None else earlier - CLOCKS
                return
        raise missing_records_error(
            {f"{self.source.name}/{shard}": at for shard, at in missing.items()}, [self.table]
        )

    def _shards_with_old_last_record(
        self, spark: SparkSession, positions: Mapping[str, str], threshold: datetime
    ) -> Mapping[str, str]:
        """Return the shards whose last record, by the table, arrived before a time; the others need no check of the stream.

        A record that is found to be young is not looked up again until it can be old.
        """
        unsure = {s: p for s, p in positions.items() if self._not_before.get(s, threshold) <= threshold}
        if self.horizon is None or not unsure:
            return {}
        young = threshold + TRIM_MARGIN
        rows = spark.table(str(self.table)).where(F.col("_source") == self.source.name)
        arrivals = _arrivals_at_positions(rows.where(F.col("_arrived_at") < F.lit(young)), unsure.values())
        # Shards that did not advance in this run: their times are unknown, and their records may be deleted dead letters.
        strange = {s: p for s, p in unsure.items() if p not in arrivals and s not in self._not_before}
        anywhere = _arrivals_at_positions(rows, strange.values()) if strange else {}
        missing = {s: p for s, p in strange.items() if p not in anywhere}
        arrivals |= anywhere
        self._not_before |= {s: arrivals.get(p, young) for s, p in unsure.items() if s not in missing}
        return {s: p for s, p in unsure.items() if s in missing or self._not_before[s] <= threshold}

    def _fail_if_records_expired(self, positions: Mapping[str, str]) -> None:
        if self.horizon is None or not positions:
            return
        oldest = self.horizon(positions)
        trimmed = {s: o for s, o in oldest.items() if o is None or int(o) > int(positions[s])}
        if trimmed:
            listed = ", ".join(
                f"{shard} continues after {positions[shard]}, its oldest record is {first or 'none'}"
                for shard, first in sorted(trimmed.items())
            )
            raise LossError(
                f"stream {self.source.stream}: records are older than its retention of "
                f"{self.source.retention_seconds} s and were perhaps never read: {listed}. A new checkpoint "
                "(`millrace checkpoint reset`) reads what the stream still has, and lands nothing twice"
            )


def _arrivals_at_positions(rows: DataFrame, positions: Collection[str]) -> dict[str, datetime]:
    """Return the arrival times of the records at some positions, for those that exist."""
    wanted = ", ".join(_quote_for_sql(position) for position in sorted(positions))
    arrived = F.expr("min(unix_micros(_arrived_at)) AS at")
    arrivals = rows.where(F.expr(f"_position IN ({wanted})")).groupBy("_position").agg(arrived).collect()
    return {row["_position"]: datetime.fromtimestamp(row["at"] / 1e6, tz=UTC) for row in arrivals}


def _quote_for_sql(text: str) -> str:
    """Quote a text for SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
