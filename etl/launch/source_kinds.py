"""Registry of the sources that a launch document may name; each is imported when a query reads it."""

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
"""Class of each source's settings, by ``kind``: a frozen dataclass whose fields are the keys of the launch document."""


class Source(ABC):
    """Settings of a source in a launch document; :mod:`etl.launch.typed_json` reads the class of its ``kind``.

    Attributes
    ----------
    name
        Name of the stream in the environment; rows of a landing table have it as ``_source``.
    start
        Start of a query without a checkpoint: ``earliest``, ``latest`` or a time in ISO 8601, UTC.
    retention_seconds
        Retention of the source in seconds; no older record can be replayed.
    """

    KINDS = SOURCES
    REPLAYS = True
    """True if a repeated batch holds the same records; otherwise the source's leg has a guard."""
    COUNTED = False
    """True if its offsets are numbers by topic and partition, and Spark's progress has the newest ones."""

    kind: str
    name: str
    start: str
    retention_seconds: int

    @property
    @abstractmethod
    def own_name(self) -> str:
        """Name of the stream or topic at its service."""

    @property
    def leg(self) -> tuple[str, ...]:
        """Key of its leg: sources of a query with the same key share one line of Spark's offset log."""
        return (self.name,)

    @property
    def manifest_name(self) -> str | None:
        """Name in the manifest among the sources of its leg; None for a source that is always alone."""
        return None

    @property
    def null_payload_deletes(self) -> bool:
        """True if a record without a payload deletes the record with its key."""
        return False

    @property
    def partition_limit(self) -> int | None:
        """Most records of one partition in a batch; None if only the complete batch has a limit."""
        return None

    def offsets_by_partition(self, offset: Any) -> dict[str, int] | None:
        """Return offsets by partition, as ``_shard`` in the envelope names it; None if positions are no numbers.

        Parameters
        ----------
        offset
            A line of Spark's offset log, decoded from JSON.
        """
        return None

    @abstractmethod
    def origin(self, job: JobSettings) -> str:
        """Return the stream, topic or connection to which a checkpoint's positions belong, for manifests."""

    def connector(self, engine: Engine, spark: str) -> str:
        """Return the name of the connector that reads it; no other connector reads its positions.

        Parameters
        ----------
        spark
            Version of Spark that runs the job.
        """
        return self.kind

    @abstractmethod
    def open(self, leg: Sequence[Self], context: SourceContext) -> Leg:
        """Open the source together with the others of its leg.

        Parameters
        ----------
        leg
            Sources of the leg, this one first.

        Raises
        ------
        StartError
            The job lacks a setting that the source needs, or access is denied.
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
        """Return the ids that distinguish its leg from others of the same names."""

    @classmethod
    def with_batch_handlers(
        cls,
        query: Query,
        job: JobSettings,  # noqa: ARG003 - for those that have something to do, here and below
        settings: QuerySettings,  # noqa: ARG003
        binds: Mapping[str, str],  # noqa: ARG003
        report: Reporter,  # noqa: ARG003
    ) -> Query:
        """Add the handlers that sources of this kind need around each batch."""
        return query

    def commit_follower(
        self,
        spark: SparkSession,
        job: JobSettings,
        query: str,
        binds: Mapping[str, str],
        report: Reporter,
    ) -> Follower | None:
        """Return the follower that is notified of each batch after its commit; None for none.

        Raises
        ------
        StartError
            The follower's target cannot be found.
        """
        return None

    @abstractmethod
    def backfill(self, job: JobSettings, query: str, binds: Mapping[str, str]) -> Parts:
        """Return the reader of a range of time.

        Raises
        ------
        StartError
            The source cannot be read by time.
        """

    def from_start(self, limit: int, partitions: int, of: int) -> Self | None:
        """Return this source with a start at its beginning, for a measurement; None if that is not possible.

        Parameters
        ----------
        limit
            Most records of a batch.
        partitions, of
            Number of its partitions to read, and in total.
        """
        return None


def group_sources(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
    """Group the sources of a query into legs, in an order that does not depend on the file's.

    Parameters
    ----------
    sources
        In any order, each once.

    Returns
    -------
    tuple
        By kind, then by the key of the leg; the sources of a leg by their own names.
    """
    legs: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        legs.setdefault((source.kind, *source.leg), []).append(source)
    return tuple(tuple(sorted(legs[key], key=lambda source: source.own_name)) for key in sorted(legs))
