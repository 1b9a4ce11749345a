"""Progress of a query on a topic as offsets of a consumer group, for ordinary monitoring tools.

Spark keeps its offsets in the checkpoint and commits none, so Kafka's own tools show no reader. The end of each
committed batch is written to a group; nothing is ever read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ...launch.sources import KafkaSource
from ...metrics.background_writer import BackgroundWriter
from ...record.errors import NoAnswerError
from ...record.job_run_context import JobRun
from . import connection

GATHER_SECONDS = 15.0
"""Shortest time between two writes, each of which signs in; a write has the newest offsets of the batches in between."""

PATIENCE_SECONDS = 20
"""Longest time for the brokers' answer."""

Progress = Mapping[str, Any]
"""Spark's progress of one trigger (``StreamingQueryProgress`` as JSON)."""


@dataclass
class ConsumerGroupWriter:
    """Writer of one query's offsets to a consumer group.

    Parameters
    ----------
    spark
        Session whose class path has Kafka's client.
    source
        The topic, or the topics of its pattern.
    entry
        Options of the brokers.
    failed
        Called for the first error, and again only after a successful write.
    """

    spark: SparkSession
    name: str
    source: KafkaSource
    entry: connection.CachedConnectionOptions
    failed: Callable[[str], None]
    _told: bool = field(default=False, init=False)

    def write(self, ended: Sequence[Progress]) -> None:
        """Write the end of the last of some batches.

        Raises
        ------
        OSError
            The brokers do not answer, or refuse; the next write includes this one's offsets.
        """
        offsets = end_offsets_of_batch(self.source, ended[-1])
        if not offsets:
            return
        try:
            self.entry.ask_brokers(partial(self._alter_group_offsets, offsets))
        except (NoAnswerError, Py4JError) as error:  # Py4JError: the JVM has ended
            if isinstance(error, NoAnswerError) and not self._told:
                self._told = True
                self.failed(str(error))
            raise OSError(
                f"consumer group {self.name}: the offsets of the batch cannot be written to the Kafka cluster"
            ) from error
        self._told = False

    def _alter_group_offsets(
        self, offsets: Mapping[tuple[str, int], int], connecting: Mapping[str, str]
    ) -> None:
        jvm: Any = self.spark._jvm
        place = jvm.org.apache.kafka.common.TopicPartition
        end = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        places = {place(*partition): end(offset) for partition, offset in offsets.items()}
        with connection.closing_admin_client(self.spark, connecting, PATIENCE_SECONDS) as (client, answer):
            answer(client.alterConsumerGroupOffsets(self.name, places).all())


def end_offsets_of_batch(source: KafkaSource, progress: Progress) -> dict[tuple[str, int], int]:
    """Return the end of a batch in a query's topic, or the topics of its pattern, by topic and partition."""
    return {
        (topic, int(partition)): int(offset)
        for each in progress.get("sources", ())
        if isinstance(each.get("endOffset"), dict)  # else nothing was read yet
        for topic, partitions in each["endOffset"].items()
        if source.is_pattern or topic == source.topic
        for partition, offset in partitions.items()
    }


def open_consumer_group_writer(run: JobRun, query: str, source: KafkaSource) -> BackgroundWriter[Progress]:
    """Open the follower of a query whose topic has a ``lag_group``.

    Parameters
    ----------
    source
        The topic, with a ``lag_group``; an event tells if the brokers refuse to store its offsets.

    Raises
    ------
    StartError
        No such cluster (:func:`etl.sources.kafka.connection.bootstrap_servers`).
    """
    name = source.reading_options.lag_group or ""

    def report_unwritten_lag(error: str) -> None:
        run.report.emit("lag_unwritten", query=query, group=name, error=error)

    entry = connection.CachedConnectionOptions(connection.connection_of_topic(source, run))
    entry.cached_or_read_options()
    group = ConsumerGroupWriter(run.spark, name, source, entry, report_unwritten_lag)
    return BackgroundWriter(f"lag-{query}", group.write, gather_seconds=GATHER_SECONDS)
