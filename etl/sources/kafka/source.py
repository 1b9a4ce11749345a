"""Kafka topic as the source of a query, and the methods that read it."""

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
from .bounded_record_times import with_bounded_times
from .connection import BoundConnection


@dataclass(frozen=True)
class KafkaReading:
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
    """A Kafka topic as the source of a query; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    reading
        ``None`` for the defaults: the complete topic, with headers, as soon as there are records.
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
        """Connection; its topics are read together, so that one can be added (to Spark a partition). A pattern is separate."""
        return (self.connection, self.topic if self.is_pattern else "")

    @property
    def manifest_name(self) -> str:
        """The topic."""
        return self.topic

    @property
    def read_as(self) -> KafkaReading:
        """Reading options, with defaults."""
        return self.reading or KafkaReading()

    @property
    def is_pattern(self) -> bool:
        """True if it reads all topics that a regular expression matches."""
        return self.read_as.pattern

    @property
    def null_payload_deletes(self) -> bool:
        """True if a record without a payload is a delete."""
        return self.read_as.null_payload == "delete"

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

    def position_owner(self, job: JobSettings) -> str:
        """Return the name of the cluster; for one that is known by its brokers only, that of the connection."""
        return job.connections[self.connection].cluster or self.connection

    def bound_connection(self, job: JobSettings, binds: Mapping[str, str]) -> BoundConnection:
        """Return its connection, with the values of ``--bind``.

        Raises
        ------
        StartError
            A bound value is invalid.
        """
        return connection.bind(self.connection, job.connections[self.connection], binds)

    def open(self, leg: Sequence[KafkaSource], context: SourceContext) -> Leg:
        """Sign in, and check that the lists of partitions are complete."""
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
        """Return the ids of the cluster and of the topics."""
        # Cached: a running job does not ask AWS for the brokers again.
        entry = connection.CachedOptions(self.bound_connection(job, binds))

        def ask() -> Ids:
            return entry.ask_brokers(lambda options: topic_state.identifiers(spark, leg, options))

        streams = {
            each.name: (manifest.sinks_of_stream(query, each.name), None if each.is_pattern else each.topic)
            for each in leg
        }
        return Identity(self.position_owner(job), ask, streams)

    @classmethod
    def with_batch_handlers(
        cls,
        query: Query,
        job: JobSettings,
        settings: QuerySettings,
        binds: Mapping[str, str],
        report: Reporter,
    ) -> Query:
        """Limit record times, whatever producers wrote."""
        return with_bounded_times(cls, query, job, settings, binds, report)

    def commit_listener(
        self, spark: SparkSession, job: JobSettings, query: str, binds: Mapping[str, str], report: Reporter
    ) -> Follower | None:
        """Return the writer of committed batches' ends to a consumer group, for tools that show the lag."""
        if not self.read_as.lag_group:
            return None
        return commit_offsets.open_group_writer(spark, query, self, self.bound_connection(job, binds), report)

    def backfill(self, job: JobSettings, query: str, binds: Mapping[str, str]) -> Parts:
        """Return the reader of a range of the times that producers wrote."""
        return read_topic_range(self, self.bound_connection(job, binds))

    def from_start(self, limit: int, partitions: int, of: int) -> KafkaSource:
        """Return the same topic from its beginning, by a list of partitions."""
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
