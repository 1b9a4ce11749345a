"""Common parts of sources: opened legs, guards of legs that do not replay, identities, ranges of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..checkpoints.checkpoint import Checkpoint
from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from ..launch import typed_json
from ..launch.entry_script_arguments import BackfillRequest
from ..launch.settings import QuerySettings
from ..launch.sources import Source
from ..metrics.background_writer import BackgroundWriter
from ..record.errors import LossError
from ..record.job_run_context import JobRun
from ..record.ready_query import IsEndReached, ReadyQuery
from ..record.tables import Table
from .recreated_source_check import LegIdentity as LegIdentity

Follower = BackgroundWriter[Mapping[str, Any]]
"""Queue for the progress of each batch of a query."""

STEP = timedelta(hours=6)
"""Range of arrival time that a backfill lands in one transaction."""


@dataclass(frozen=True)
class SourceContext:
    """Context of the query that opens a leg.

    Attributes
    ----------
    checkpoint
        Checkpoint of the query, at the leg's position.
    table
        Table in which its records, or its dead letters, are landed.
    partitions
        Fewest tasks of a batch; None lets the source decide.
    """

    run: JobRun
    checkpoint: Checkpoint
    table: Table
    partitions: int | None


def missing_records_error(positions: Mapping[str, str], tables: Sequence[Table]) -> LossError:
    """Return the error of a batch that begins after records of which some are in none of the tables.

    Parameters
    ----------
    positions
        Last record that was read, by stream and shard.
    """
    listed = ", ".join(f"{shard} after {position}" for shard, position in sorted(positions.items()))
    names = ", ".join(dict.fromkeys(map(str, tables)))
    return LossError(
        f"this batch continues at {listed}, but some of these positions are not in {names}: the last records "
        "that the connector read were not landed. Give the query a new checkpoint (`millrace checkpoint "
        "reset`): it reads the streams again, and lands what is missing once"
    )


@dataclass(frozen=True)
class Leg:
    """Opened leg: one line of the query's offset log.

    Attributes
    ----------
    open
        Returns the rows, in the envelope's shape, with current limits and secrets.
    guard
        Guard of a leg whose batches do not replay; None if they are fixed ranges.
    watch
        Checks at intervals that the complete leg is read; see :class:`etl.record.ready_query.ReadyQuery`.
    determine_end
        Fixes the end of a bounded run; see :class:`etl.record.ready_query.ReadyQuery`.
    """

    open: Callable[[], DataFrame]
    guard: LegGuard | None = None
    watch: Callable[[], None] | None = None
    determine_end: Callable[[], IsEndReached] | None = None


@dataclass(frozen=True)
class ReplayedLeg:
    """Leg whose batches are fixed ranges, recorded in Spark's log.

    Parameters
    ----------
    sources
        Sources of the leg, from :func:`etl.launch.sources.group_sources_into_legs`.
    checkpoint
        Checkpoint of the query, at the leg's position.
    """

    sources: tuple[Source, ...]
    checkpoint: Checkpoint


class LegGuard(ABC):
    """Guard of a leg that does not replay; it checks the source before and after each batch.

    Attributes
    ----------
    source
        Source of the leg.
    table
        Table in which it lands.
    """

    source: Source
    table: Table

    @property
    def reason_to_refuse_same_identity(self) -> str | None:
        """Error text if records with one identity must not be numbered; None to number them by their content."""
        return None

    @property
    @abstractmethod
    def has_unreadable_positions(self) -> bool:
        """True if a connector writes positions that cannot be read; known after :meth:`checked_positions_before_batch`."""

    @abstractmethod
    def checked_positions_before_batch(self, spark: SparkSession, batch_id: int) -> Mapping[str, str]:
        """Check that no record is between those that were landed and the start of the batch.

        Returns
        -------
        Mapping
            Positions by shard that the look-up of this batch must find in the table.

        Raises
        ------
        LossError
            Records were lost unread, or the batch begins after a record that is not in the table.
        RestartQueryError
            The limits with which the legs were opened no longer fit.
        NoAnswerError
            The source does not answer at present.
        """

    def skipped_records(self, spark: SparkSession) -> Iterator[DataFrame]:
        """Yield records that the connector will skip, in the envelope's shape, after :meth:`checked_positions_before_batch`."""
        yield from ()

    @abstractmethod
    def look_ups(self, begun: datetime) -> Iterator[DuplicateLookUp]:
        """Yield look-ups of the batch's records among the rows of this source, the tightest first.

        The caller takes the next one only if a record was outside the one before.

        Parameters
        ----------
        begun
            Time at which the batch started.
        """

    @abstractmethod
    def held_position_count_aggregate(self, positions: Mapping[str, str]) -> Column | None:
        """Return the aggregate that counts, over the rows of the look-up, how many of these positions are present."""

    @abstractmethod
    def arrival_aggregates(self, suffix: str, where: str = "true") -> tuple[Column, ...]:
        """Return aggregates of the oldest arrival, in microseconds since 1970, and the steps, of records that meet a condition.

        Records that have landed already are included.

        Parameters
        ----------
        suffix
            Suffix of the figures' names, ``oldest`` and ``steps``.
        where
            Condition in SQL.
        """

    @abstractmethod
    def store_arrivals_of_landed_batch(self, oldest: int | None, steps: str) -> None:
        """Take the oldest arrival and the steps of a landed batch; ``oldest`` is None for an empty one."""


@dataclass(frozen=True)
class BackfillPart:
    """Records that are landed in one transaction.

    Attributes
    ----------
    name
        Name for reports: a time, or a file.
    records
        Rows in the envelope's shape.
    bound
        Rows of the table that can hold them.
    around
        Returns those records again if Spark cannot read one because of its time; None if there is no such record.
    """

    name: str
    records: DataFrame
    bound: DuplicateLookUp
    around: Callable[[], DataFrame | None] | None = None


Parts = Callable[[SparkSession, BackfillRequest], Iterator[BackfillPart]]


def backfill_time_steps(
    request: BackfillRequest, step: timedelta = STEP, *, whole: bool = False
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the steps of a backfill's range of time: start, and end (excluded).

    Parameters
    ----------
    whole
        True to cut at multiples of the step, UTC; false to start with the range.
    """
    assert request.since is not None, "a stream or a landing table is read by time"
    assert request.until is not None, "a stream or a landing table is read by time"
    start, end = request.since.astimezone(UTC), request.until.astimezone(UTC)
    while start < end:
        past = (start - datetime.min.replace(tzinfo=UTC)) % step if whole else timedelta(0)
        border = min(start - past + step, end)
        yield start, border
        start = border


def arrived_between_condition(since: datetime, until: datetime) -> Column:
    """Return a condition: rows arrived from a time to another one, which is excluded."""
    return (F.col("_arrived_at") >= F.lit(since)) & (F.col("_arrived_at") < F.lit(until))


Kind = TypeVar("Kind", bound=Source)


@dataclass(frozen=True)
class SourceReader(ABC, Generic[Kind]):
    """Reader of a leg's sources.

    Attributes
    ----------
    leg
        Sources of the leg.
    """

    leg: Sequence[Kind]

    @property
    def source(self) -> Kind:
        """The first source of the leg."""
        return self.leg[0]

    @abstractmethod
    def open(self, context: SourceContext) -> Leg:
        """Open the source together with the others of its leg.

        Raises
        ------
        StartError
            The job lacks a setting that the source needs, or access is denied.
        """

    @abstractmethod
    def leg_identity(self, run: JobRun, query: QuerySettings) -> LegIdentity:
        """Return the ids that distinguish its leg from others of the same names."""

    def with_batch_handlers(self, run: JobRun, query: ReadyQuery, settings: QuerySettings) -> ReadyQuery:
        """Add the handlers that sources of this kind need around each batch."""
        return query

    def commit_listener(self, run: JobRun, query: str) -> Follower | None:
        """Return the follower that is notified of each batch after its commit; None for none.

        Raises
        ------
        StartError
            The follower's target cannot be found.
        """
        return None

    @abstractmethod
    def backfill_reader(self, run: JobRun, query: str) -> Parts:
        """Return the reader of a range of time.

        Raises
        ------
        StartError
            The source cannot be read by time.
        """


def reader_of(leg: Sequence[Source]) -> SourceReader[Source]:
    """Return the reader of a leg, which the module of its kind has."""
    reader: SourceReader[Source] = typed_json.import_module_of(leg[0]).Reader(leg)
    return reader
