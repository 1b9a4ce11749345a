"""The sources that a launch document may name, each with its settings, imported when a query reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..record.batch_accounts import Reporter
    from ..record.query import Query
    from ..sources.base import Follower, Identity, Leg, Parts, SourceContext
    from .engine import Engine
    from .settings import JobSettings, QuerySettings

SOURCES = {
    "kinesis": ".sources.kinesis.source:KinesisSource",
    "kafka": ".sources.kafka.source:KafkaSource",
}
"""By ``kind``, where its settings are: a frozen dataclass whose fields are the keys of the launch document."""


class Source(ABC):
    """What a query reads, as its launch document says it; :mod:`etl.launch.typed_json` reads the class of its ``kind``.

    Attributes
    ----------
    name
        Of the stream in the environment; rows of a landing table have it as ``_source``.
    start
        Where a query without a checkpoint begins: ``earliest``, ``latest`` or a moment in ISO 8601, UTC.
    retention_seconds
        How long the source keeps a record; no older one can come again.
    """

    KINDS = SOURCES
    REPLAYS = True
    """Whether a batch that comes again holds the same records; what does not brings a guard with its leg."""
    COUNTED = False
    """Whether its offsets are numbers by topic and partition, of which Spark's progress tells the newest, too."""

    kind: str
    name: str
    start: str
    retention_seconds: int

    @property
    @abstractmethod
    def own_name(self) -> str:
        """Of the stream or topic, where it is."""

    @property
    def leg(self) -> tuple[str, ...]:
        """Sources of a query that are alike in this are one leg: a line of Spark's offset log."""
        return (self.name,)

    @property
    def manifest_name(self) -> str | None:
        """Name by which the manifest lists it among the sources of its leg; None for one that is always alone."""
        return None

    @property
    def null_payload_deletes(self) -> bool:
        """Whether a record without a payload deletes what has its key."""
        return False

    @property
    def partition_limit(self) -> int | None:
        """Most records that one partition gives a batch; None where the batch as a whole has a limit."""
        return None

    def offsets_by_partition(self, offset: Any) -> dict[str, int] | None:
        """Offsets by what the envelope's ``_shard`` calls a partition; None where positions are no numbers.

        Parameters
        ----------
        offset
            A line of Spark's offset log, decoded from JSON.
        """
        return None

    @abstractmethod
    def origin(self, job: JobSettings) -> str:
        """Name what a checkpoint's positions are of, as manifests do."""

    def connector(self, engine: Engine, spark: str) -> str:
        """Name what reads it, and writes positions that no other reads.

        Parameters
        ----------
        spark
            Release that runs the job.
        """
        return self.kind

    @abstractmethod
    def open(self, leg: Sequence[Self], context: SourceContext) -> Leg:
        """Make what reads it, together with the others of its leg.

        Parameters
        ----------
        leg
            Its sources, this one the first.

        Raises
        ------
        StartError
            The job lacks what it takes, or is not let in.
        """

    @abstractmethod
    def identity(
        self,
        leg: Sequence[Self],
        spark: SparkSession,
        job: JobSettings,
        query: QuerySettings,
        binds: Mapping[str, str],
    ) -> Identity:
        """What tells its leg from others of the same names."""

    @classmethod
    def with_batch_handlers(
        cls,
        query: Query,
        job: JobSettings,  # noqa: ARG003 - for those that have something to do, here and below
        settings: QuerySettings,  # noqa: ARG003
        binds: Mapping[str, str],  # noqa: ARG003
        report: Reporter,  # noqa: ARG003
    ) -> Query:
        """The query with what has to be done around each of its batches for sources of this kind."""
        return query

    def commit_follower(
        self,
        spark: SparkSession,
        job: JobSettings,
        query: str,
        binds: Mapping[str, str],
        report: Reporter,
    ) -> Follower | None:
        """What is told of each batch of the query after its commit; None for nothing.

        Raises
        ------
        StartError
            What it tells cannot be found.
        """
        return None

    @abstractmethod
    def backfill(self, job: JobSettings, query: str, binds: Mapping[str, str]) -> Parts:
        """What reads a range of time of it.

        Raises
        ------
        StartError
            It cannot be read by time.
        """

    def from_start(self, limit: int, partitions: int, of: int) -> Self | None:
        """The same from its beginning, to be measured; None where it cannot be read so.

        Parameters
        ----------
        limit
            Most records of a batch.
        partitions, of
            How many of its partitions are read, and how many it has.
        """
        return None


def group_sources(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
    """Put the sources of a query together into legs, in an order that does not depend on the file's.

    Parameters
    ----------
    sources
        In any order, each once.

    Returns
    -------
    tuple
        By kind, then by what its legs have in common; the sources of a leg by their own names.
    """
    legs: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        legs.setdefault((source.kind, *source.leg), []).append(source)
    return tuple(tuple(sorted(legs[key], key=lambda source: source.own_name)) for key in sorted(legs))
