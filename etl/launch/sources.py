"""Sources in a launch document; :mod:`etl.sources` has a folder for each kind, which reads."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from .engine_interface_and_registry import Engine
    from .settings import JobSettings


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

    KINDS: ClassVar[dict[str, type[Source]]] = {}
    MODULE = "..sources.{kind}.source"
    """Module with its ``Reader``: see :class:`etl.sources.base.SourceReader`."""
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
    def physical_name(self) -> str:
        """Name of the stream or topic at its service."""

    @property
    def leg_grouping_key(self) -> tuple[str, ...]:
        """Key of its leg: sources of a query with the same key share one line of Spark's offset log."""
        return (self.name,)

    @property
    def name_in_checkpoint_manifest(self) -> str | None:
        """Name in the manifest among the sources of its leg; None for a source that is always alone."""
        return None

    @property
    def assigned_partitions(self) -> tuple[int, ...] | None:
        """Partitions that it reads, if other jobs may read the rest; None for all."""
        return None

    @property
    def null_payload_deletes(self) -> bool:
        """True if a record without a payload deletes the record with its key."""
        return False

    @property
    def partition_record_limit(self) -> int | None:
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
    def stream_or_cluster_of_positions(self, job: JobSettings) -> str:
        """Return the stream, topic or connection to which a checkpoint's positions belong, for manifests."""

    def connector_name(self, engine: Engine, spark: str) -> str:
        """Return the name of the connector that reads it; no other connector reads its positions.

        Parameters
        ----------
        spark
            Version of Spark that runs the job.
        """
        return self.kind

    def starting_at_beginning(self, limit: int, partitions: int, of: int) -> Self | None:
        """Return this source with a start at its beginning, for a measurement; None if that is not possible.

        Parameters
        ----------
        limit
            Most records of a batch.
        partitions, of
            Number of its partitions to read, and in total.
        """
        return None


@dataclass(frozen=True)
class KafkaReadingOptions:
    """Reading options of a topic, for queries that configure more than its name.

    Attributes
    ----------
    pattern
        True if ``topic`` is a regular expression (Java's), for all topics whose complete name it matches.
    partitions
        Only these partitions of the topic; ``None`` for all, including later ones.
    partition_count
        Number of partitions that the lists of ``partitions`` cover; a topic with more is refused.
    min_records_per_batch, max_delay_seconds
        A batch waits for this many records, or for this long.
    start_offsets
        Start offset by partition, instead of the source's ``start``.
    headers
        True if records keep their headers.
    group_id_prefix
        Prefix of the names of its consumer groups; ``None`` for Spark's own.
    lag_group
        Consumer group to which the ends of committed batches are written, for tools that show the lag.
    null_payload
        Meaning of a record without a payload: bad data, or the delete of the record with its key.
    min_partitions
        Spark's ``minPartitions``, instead of the tasks into which the plan divides a batch.
    """

    pattern: bool = False
    partitions: tuple[int, ...] | None = None
    partition_count: int | None = None
    min_records_per_batch: int | None = None
    max_delay_seconds: float | None = None
    start_offsets: Mapping[str, int] | None = None
    headers: bool = True
    group_id_prefix: str | None = None
    lag_group: str | None = None
    null_payload: Literal["dead_letter", "delete"] = "dead_letter"
    min_partitions: int | None = None


@dataclass(frozen=True)
class KafkaSource(Source):
    """A Kafka topic as the source of a query; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    reading
        ``None`` for the defaults: the complete topic, with headers, as soon as there are records.
    """

    name: str
    topic: str
    connection: str
    start: str
    records_per_batch: int
    retention_seconds: int
    reading: KafkaReadingOptions | None = None
    kind: Literal["kafka"] = "kafka"

    COUNTED = True

    @property
    def physical_name(self) -> str:
        """The topic, or the pattern."""
        return self.topic

    @property
    def leg_grouping_key(self) -> tuple[str, ...]:
        """Connection; its topics are read together, so that one can be added (to Spark a partition). A pattern is separate."""
        return (self.connection, self.topic if self.is_pattern else "")

    @property
    def name_in_checkpoint_manifest(self) -> str:
        """The topic."""
        return self.topic

    @property
    def reading_options(self) -> KafkaReadingOptions:
        """Reading options, with defaults."""
        return self.reading or KafkaReadingOptions()

    @property
    def is_pattern(self) -> bool:
        """True if it reads all topics that a regular expression matches."""
        return self.reading_options.pattern

    @property
    def assigned_partitions(self) -> tuple[int, ...] | None:
        """Partitions of the topic, if they are listed."""
        return self.reading_options.partitions

    @property
    def null_payload_deletes(self) -> bool:
        """True if a record without a payload is a delete."""
        return self.reading_options.null_payload == "delete"

    def offsets_by_partition(self, offset: Any) -> dict[str, int]:
        """Return offsets by partition of its topic; for a pattern by ``topic/partition``.

        Parameters
        ----------
        offset
            ``{topic: {partition: offset}}``; other topics are left out.
        """
        if self.is_pattern:
            return {
                f"{topic}/{p}": at for topic, partitions in offset.items() for p, at in partitions.items()
            }
        return dict(offset.get(self.topic, {}))

    def stream_or_cluster_of_positions(self, job: JobSettings) -> str:
        """Return the name of the cluster; for one that is known by its brokers only, that of the connection."""
        return job.connections[self.connection].cluster or self.connection

    def starting_at_beginning(self, limit: int, partitions: int, of: int) -> KafkaSource:
        """Return the same topic from its beginning, by a list of partitions."""
        reading = dataclasses.replace(
            self.reading_options,
            pattern=False,
            partitions=tuple(range(partitions)),
            partition_count=of,
            min_records_per_batch=None,
            max_delay_seconds=None,
            start_offsets=None,
        )
        return dataclasses.replace(self, start="earliest", records_per_batch=limit, reading=reading)


@dataclass(frozen=True)
class KinesisSource(Source):
    """A Kinesis stream as the source of a query.

    Attributes
    ----------
    stream
        The stream's own name.
    start
        Start of a query without a checkpoint: ``earliest``, ``latest`` or a time in ISO 8601, UTC.
    records_per_shard
        Limit for one shard and batch, for the plan's number of shards.
    fetch_seconds
        Longest time one batch reads from one shard.
    retention_seconds
        Retention of the stream in seconds; no older record can be read again.
    consumer
        Name of the query's own fan-out consumer; ``None`` to share a shard's throughput with other readers.
    role
        ARN of the role to assume for a stream of another account.
    records_per_batch
        Limit for a batch, divided by the number of shards at run time; ``None``
        keeps ``records_per_shard``.
    """

    name: str
    stream: str
    region: str
    start: str
    records_per_shard: int
    fetch_seconds: float
    retention_seconds: int
    consumer: str | None = None
    role: str | None = None
    records_per_batch: int | None = None
    kind: Literal["kinesis"] = "kinesis"

    REPLAYS = False

    @property
    def physical_name(self) -> str:
        """The stream."""
        return self.stream

    @property
    def partition_record_limit(self) -> int:
        """Limit of a shard."""
        return self.records_per_shard

    def stream_or_cluster_of_positions(self, job: JobSettings) -> str:
        """Return region and stream."""
        return f"{self.region}/{self.stream}"

    def connector_name(self, engine: Engine, spark: str) -> str:
        """Return the engine's connector: each has its own form of positions."""
        return engine.kinesis_format(spark)


Source.KINDS.update(kinesis=KinesisSource, kafka=KafkaSource)


def group_sources_into_legs(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
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
        legs.setdefault((source.kind, *source.leg_grouping_key), []).append(source)
    return tuple(tuple(sorted(legs[key], key=lambda source: source.physical_name)) for key in sorted(legs))


MOST_RECORDS, MOST_READERS = 100, 8
"""Most records, and most partitions, of a task that reads a batch of few records. A task costs what a thousand small
records do; of the largest ones, of a MiB, a hundred take a second."""


def reading_and_shuffled_tasks(
    records: float, partitions: int, planned: int | None
) -> tuple[int, int | None]:
    """Return the tasks that read a batch, and those behind a shuffle; None without one.

    Spark makes a task for each partition, and ``minPartitions`` splits each into a whole number of parts: three cannot become four, nor
    five three. A shuffle makes as many as the plan's.

    Parameters
    ----------
    partitions
        Those with records, before they are split.
    planned
        Tasks into which the plan divides a batch, and ``minPartitions``; None for those of the source.
    """
    tasks = min(partitions, max(1, ceil(records / MOST_RECORDS), ceil(partitions / MOST_READERS)))
    if planned is None or tasks == 0:
        return tasks, None
    if tasks == partitions and planned % partitions == 0:
        return planned, None
    return tasks, planned if planned < tasks or tasks == partitions else None
