"""Kafka topic as the source of a query, and the methods that read it."""

from __future__ import annotations

from functools import partial

from ...checkpoints import manifest
from ...launch.settings import QuerySettings
from ...launch.sources import KafkaSource
from ...record.job_run_context import JobRun
from ...record.ready_query import ReadyQuery
from ..base import Follower, Leg, Parts, SourceContext, SourceReader
from ..recreated_source_check import LegIdentity
from . import commit_offsets, connection, topic_ids_and_partitions, topic_stream
from .backfill import topic_range_reader
from .connection import connection_of_topic
from .overflowing_record_times import query_with_bounded_times


class Reader(SourceReader[KafkaSource]):
    """Reader of the topics of a leg."""

    def open(self, context: SourceContext) -> Leg:
        """Sign in, and check that the lists of partitions are complete."""
        spark = context.run.spark
        reached = connection.with_resolved_brokers(connection_of_topic(self.source, context.run))
        connection.check_kafka_sign_in(spark, reached)
        watch = topic_ids_and_partitions.check_unlisted_partitions_and_return_checker(
            spark, self.source, reached
        )
        opened = partial(
            topic_stream.open_topic_stream, spark, self.leg, reached, partitions=context.partitions
        )
        determine_end = partial(
            topic_ids_and_partitions.checker_of_bounded_run_end, spark, self.leg, reached, context.checkpoint
        )
        return Leg(opened, watch=watch, determine_end=determine_end)

    def leg_identity(self, run: JobRun, query: QuerySettings) -> LegIdentity:
        """Return the ids of the cluster and of the topics."""
        # Cached: a running job does not ask AWS for the brokers again.
        entry = connection.CachedConnectionOptions(connection_of_topic(self.source, run))
        ids = partial(topic_ids_and_partitions.cluster_and_topic_ids, run.spark, self.leg)
        streams = {
            each.name: (
                manifest.describe_sinks_of_stream(query, each.name),
                None if each.is_pattern else each.topic,
            )
            for each in self.leg
        }
        return LegIdentity(
            self.source.stream_or_cluster_of_positions(run.job), partial(entry.ask_brokers, ids), streams
        )

    def with_batch_handlers(self, run: JobRun, query: ReadyQuery, settings: QuerySettings) -> ReadyQuery:
        """Limit record times, whatever producers wrote."""
        return query_with_bounded_times(run, query, settings)

    def commit_listener(self, run: JobRun, query: str) -> Follower | None:
        """Return the writer of committed batches' ends to a consumer group, for tools that show the lag."""
        if not self.source.reading_options.lag_group:
            return None
        return commit_offsets.open_consumer_group_writer(run, query, self.source)

    def backfill_reader(self, run: JobRun, query: str) -> Parts:
        """Return the reader of a range of the times that producers wrote."""
        return topic_range_reader(self.source, connection_of_topic(self.source, run))
