"""A Kafka topic as a query reads it, and what reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pyspark.sql import SparkSession

from ...checkpoints import manifest
from ...launch.settings import JobSettings, QuerySettings
from ...launch.source_kinds import Source
from ...record.batch_accounts import Reporter
from ...record.query import Query
from ..base import Follower, Leg, Parts, SourceContext
from ..identity_check import Identity, Ids
from . import commit_offsets, connection, topic_state, topics
from .backfill import read_topic_range
from .connection import BoundConnection
from .record_times import with_bounded_times


@dataclass(frozen=True)
class KafkaReading:
    """How a topic is read, where a query says more than its name.

    Attributes
    ----------
    pattern
        Whether ``topic`` is a regular expression (Java's), for all topics whose whole name it matches.
    partitions
        Only these of the topic; ``None`` for all, also those of later.
    partition_count
        Partitions that the topic has as far as the lists of ``partitions`` know; a topic with more is refused.
    min_records_per_batch, max_delay_seconds
        A batch waits until so many records are there, or so long.
    start_offsets
        Partition to offset, in place of the source's ``start``.
    headers
        Whether records keep theirs.
    group_id_prefix
        What the names of its consumer groups begin with; ``None`` for Spark's own.
    lag_group
        Consumer group to which the ends of committed batches are written, for tools that show the lag.
    null_payload
        What a record without a payload is: bad data, or the delete of what has its key.
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


@dataclass(frozen=True)
class KafkaSource(Source):
    """A Kafka topic as a query reads it; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    reading
        ``None`` for a topic that is read whole, with headers, as soon as there are records.
    """

    kind: Literal["kafka"]
    name: str
    topic: str
    connection: str
    start: str
    records_per_batch: int
    retention_seconds: int
    reading: KafkaReading | None = None

    COUNTED = True

    @property
    def own_name(self) -> str:
        """The topic, or the pattern."""
        return self.topic

    @property
    def leg(self) -> tuple[str, ...]:
        """Topics of one connection are read together, so that one can be added: to Spark it is a new partition. A pattern is not."""
        return (self.connection, self.topic if self.is_pattern else "")

    @property
    def manifest_name(self) -> str:
        """The topic."""
        return self.topic

    @property
    def read_as(self) -> KafkaReading:
        """How it is read, where nothing is said as it comes."""
        return self.reading or KafkaReading()

    @property
    def is_pattern(self) -> bool:
        """Whether it is all topics that a regular expression matches."""
        return self.read_as.pattern

    @property
    def null_payload_deletes(self) -> bool:
        """Whether records without a payload are taken for that."""
        return self.read_as.null_payload == "delete"

    def offsets_by_partition(self, offset: Any) -> dict[str, int]:
        """Of its topic by partition; of a pattern's topics by ``topic/partition``.

        Parameters
        ----------
        offset
            ``{topic: {partition: offset}}``; topics that are not its own are left out.
        """
        if self.is_pattern:
            return {
                f"{topic}/{p}": at for topic, partitions in offset.items() for p, at in partitions.items()
            }
        return dict(offset.get(self.topic, {}))

    def origin(self, job: JobSettings) -> str:
        """The cluster; of one that is known by its brokers alone, the connection."""
        return job.connections[self.connection].cluster or self.connection

    def bound_connection(self, job: JobSettings, binds: Mapping[str, str]) -> BoundConnection:
        """Its connection, with what was given by ``--bind``.

        Raises
        ------
        StartError
            What was given does not exist.
        """
        return connection.bind(self.connection, job.connections[self.connection], binds)

    def open(self, leg: Sequence[KafkaSource], context: SourceContext) -> Leg:
        """Sign in, and look whether lists of partitions leave one out."""
        reached = connection.with_resolved_brokers(self.bound_connection(context.job, context.binds))
        connection.sign_in(context.spark, reached)
        watch = topic_state.watch_partitions(context.spark, self, reached)
        opened = partial(topics.read, context.spark, leg, reached, partitions=context.partitions)
        return Leg(opened, watch=watch)

    def identity(
        self,
        leg: Sequence[KafkaSource],
        spark: SparkSession,
        job: JobSettings,
        query: QuerySettings,
        binds: Mapping[str, str],
    ) -> Identity:
        """Ids of the cluster and of the topics."""
        # Once: who runs needs AWS itself for that no more.
        entry = connection.CachedOptions(self.bound_connection(job, binds))

        def ask() -> Ids:
            return entry.ask_brokers(lambda options: topic_state.identifiers(spark, leg, options))

        streams = {
            each.name: (manifest.sinks_of_stream(query, each.name), None if each.is_pattern else each.topic)
            for each in leg
        }
        return Identity(self.origin(job), ask, streams)

    @classmethod
    def with_batch_handlers(
        cls,
        query: Query,
        job: JobSettings,
        settings: QuerySettings,
        binds: Mapping[str, str],
        report: Reporter,
    ) -> Query:
        """With times within bounds, whatever producers wrote."""
        return with_bounded_times(cls, query, job, settings, binds, report)

    def commit_follower(
        self, spark: SparkSession, job: JobSettings, query: str, binds: Mapping[str, str], report: Reporter
    ) -> Follower | None:
        """What writes the ends of committed batches to a consumer group, for tools that show the lag."""
        if not self.read_as.lag_group:
            return None
        return commit_offsets.group(spark, query, self, self.bound_connection(job, binds), report)

    def backfill(self, job: JobSettings, query: str, binds: Mapping[str, str]) -> Parts:
        """By the times that its producers wrote."""
        return read_topic_range(self, self.bound_connection(job, binds))

    def from_start(self, limit: int, partitions: int, of: int) -> KafkaSource:
        """By a list of partitions."""
        reading = dataclasses.replace(
            self.read_as,
            pattern=False,
            partitions=tuple(range(partitions)),
            partition_count=of,
            min_records_per_batch=None,
            max_delay_seconds=None,
            start_offsets=None,
        )
        return dataclasses.replace(self, start="earliest", records_per_batch=limit, reading=reading)
