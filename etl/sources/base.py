"""What a source opens into: legs, guards of those whose batches do not replay, identities, ranges of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..checkpoints.checkpoint import Checkpoint
from ..launch.launch_document import BackfillRequest
from ..launch.settings import JobSettings
from ..launch.source_kinds import Source
from ..metrics.output_queues import Pipe
from ..record.errors import LossError
from ..record.lookup_bounds import Bound
from ..record.tables import Table
from .arrival_ranges import Range
from .identity_check import Identity as Identity

Follower = Pipe[Mapping[str, Any]]
"""Takes the progress of each batch of a query."""

STEP = timedelta(hours=6)
"""Of arrival: what a backfill lands in one transaction."""


@dataclass(frozen=True)
class SourceContext:
    """Of the query that opens a leg.

    Attributes
    ----------
    query
        Its name.
    binds
        Names and values of ``--bind``.
    checkpoint
        The leg's place in the query's.
    table
        Where its records, or its dead letters, are landed.
    partitions
        Least number of tasks of a batch; None leaves it to the source.
    """

    spark: SparkSession
    job: JobSettings
    query: str
    binds: Mapping[str, str]
    checkpoint: Checkpoint
    table: Table
    partitions: int | None


def not_landed(positions: Mapping[str, str], tables: Sequence[Table]) -> LossError:
    """The error of a batch that begins behind records of which some are in none of the tables.

    Parameters
    ----------
    positions
        Stream and shard to the last record that was read.
    """
    listed = ", ".join(f"{shard} after {position}" for shard, position in sorted(positions.items()))
    names = ", ".join(dict.fromkeys(map(str, tables)))
    return LossError(
        f"this batch continues at {listed}, but some of these positions are not in {names}: the last records that a "
        "connector read were not landed. A new checkpoint reads the streams again, and lands what is missing once"
    )


@dataclass(frozen=True)
class Leg:
    """An opened leg: a line of the query's offset log.

    Attributes
    ----------
    open
        Gives the rows, in the envelope's shape; again after a :class:`etl.record.errors.RestartQueryError`, with limits and
        secrets of that moment.
    guard
        Of a leg whose batches do not replay; None where they are fixed ranges.
    watch
        Looks now and then whether all of it is read; see :class:`etl.record.query.Query`.
    """

    open: Callable[[], DataFrame]
    guard: LegGuard | None = None
    watch: Callable[[], None] | None = None


@dataclass(frozen=True)
class ReplayedLeg:
    """A leg whose batches are fixed ranges of what Spark's log has.

    Parameters
    ----------
    sources
        As :func:`etl.launch.source_kinds.group_sources` has them.
    checkpoint
        The leg's place in the query's.
    """

    sources: tuple[Source, ...]
    checkpoint: Checkpoint

    def offsets(self, spark: SparkSession, batch_id: int) -> tuple[Any, Any]:
        """Where a batch begins and ends, as Spark's log has it; None where unknown."""
        return self.checkpoint.start_of(spark, batch_id), self.checkpoint.end_of(spark, batch_id)


class LegGuard(ABC):
    """Looks before and after each batch of a leg that does not replay.

    Attributes
    ----------
    source
        What the leg reads.
    table
        Where it lands.
    """

    source: Source
    table: Table

    @property
    def same_identity_refusal(self) -> str | None:
        """Why records with one identity must not be numbered, as the error says; None numbers them by what is in them."""
        return None

    @property
    @abstractmethod
    def has_unreadable_positions(self) -> bool:
        """Whether a connector writes positions that cannot be read, after :meth:`check_before_batch`."""

    @abstractmethod
    def check_before_batch(self, spark: SparkSession, batch_id: int) -> Mapping[str, str]:
        """Check that nothing lies between what was landed and where the batch begins.

        Returns
        -------
        Mapping
            Shards and the positions that the look-up of this batch must find in the table.

        Raises
        ------
        LossError
            Records are gone unread, or the batch begins after a record that is not in the table.
        RestartQueryError
            The legs were opened with limits that no longer fit.
        NoAnswerError
            Nobody can tell now.
        """

    def skipped_records(self, spark: SparkSession) -> Iterator[DataFrame]:
        """Records that the connector will not hand over, in the envelope's shape, after :meth:`check_before_batch`."""
        yield from ()

    @abstractmethod
    def arrival_range_levels(self, begun: datetime) -> Iterator[tuple[Range, ...]]:
        """When records of the batch can have arrived, from the likeliest ranges to those of all that the source keeps.

        Who asks for the second one has found the first one wrong.

        Parameters
        ----------
        begun
            When the batch began.
        """

    @abstractmethod
    def count_held_positions(self, positions: Mapping[str, str]) -> Column | None:
        """Count, over the rows that the look-up reads, how many of these positions are there."""

    @abstractmethod
    def figures(self, suffix: str, where: str = "true") -> tuple[Column, ...]:
        """The oldest arrival, in microseconds since 1970, and the steps, of the records that a condition is true of.

        What is landed already is among them.

        Parameters
        ----------
        suffix
            Of the figures' names, ``oldest`` and ``steps``.
        where
            SQL.
        """

    @abstractmethod
    def landed(self, oldest: int | None, steps: str) -> None:
        """Hear when the records of a batch have arrived: the oldest, and in which steps; None where it had none."""


@dataclass(frozen=True)
class BackfillPart:
    """Records that go into the table in one transaction.

    Attributes
    ----------
    name
        For reports: a time, or a file.
    records
        In the envelope's shape.
    bound
        Where in the table they can be.
    around
        Gives those records again where Spark cannot read one for its time; None where it finds none of that kind.
    """

    name: str
    records: DataFrame
    bound: Bound
    around: Callable[[], DataFrame | None] | None = None


Parts = Callable[[SparkSession, BackfillRequest], Iterator[BackfillPart]]


def backfill_steps(
    request: BackfillRequest, step: timedelta = STEP, *, whole: bool = False
) -> Iterator[tuple[datetime, datetime]]:
    """The parts of a backfill's range of time: from each moment up to, not including, the other.

    Parameters
    ----------
    whole
        Whether they are cut at whole steps, UTC; otherwise from the beginning of the range on.
    """
    assert request.since is not None, "a stream or a landing table is read by time"
    assert request.until is not None, "a stream or a landing table is read by time"
    start, end = request.since.astimezone(UTC), request.until.astimezone(UTC)
    while start < end:
        past = (start - datetime.min.replace(tzinfo=UTC)) % step if whole else timedelta(0)
        border = min(start - past + step, end)
        yield start, border
        start = border


def arrived_between(since: datetime, until: datetime) -> Column:
    """Rows that arrived from a moment up to, not including, another."""
    return (F.col("_arrived_at") >= F.lit(since)) & (F.col("_arrived_at") < F.lit(until))
