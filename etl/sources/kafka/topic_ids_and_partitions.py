"""Ids and partition counts of topics, from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from ...checkpoints.checkpoint import Checkpoint
from ...launch.kafka_connections import Connection
from ...launch.sources import KafkaSource
from ...record.errors import LossError, NoAnswerError, StartError
from ...record.ready_query import IsEndReached
from ..recreated_source_check import Ids
from .connection import CachedConnectionOptions, closing_admin_client, connection_options

SECONDS = 20
"""Longest time for the brokers' answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's null Uuid: brokers before 2.8 have no topic ids (KIP-516)."""


def cluster_and_topic_ids(
    spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]
) -> Ids:
    """Return the ids of the cluster and of topics, which distinguish them from others of the same names.

    Parameters
    ----------
    spark
        Session whose class path has Kafka's client.
    connecting
        Options of :func:`etl.sources.kafka.connection.connection_options`.

    Returns
    -------
    Mapping
        Ids by object, without those that the brokers do not have.

    Raises
    ------
    NoAnswerError
        The brokers do not answer, or do not have a topic.
    """
    with closing_admin_client(spark, connecting, SECONDS) as (client, answer):
        known = answer(client.describeCluster().clusterId())
        ids = {} if known is None else {"cluster": str(known)}
        topics = _topic_descriptions(spark, sources, client, answer)
        ids |= {f"topic {name}": str(described.topicId()) for name, described in topics.items()}
    return {what: known for what, known in ids.items() if known != _NONE}


def _topic_descriptions(
    spark: SparkSession, sources: Sequence[KafkaSource], client: Any, answer: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return Kafka's description of each topic that some sources read, by name."""
    jvm: Any = spark._jvm
    names = [source.topic for source in sources if not source.is_pattern]
    patterns = [jvm.java.util.regex.Pattern.compile(s.topic) for s in sources if s.is_pattern]
    listed = answer(client.listTopics().names()).toArray() if patterns else ()
    # Match the complete name, as Spark's consumer does.
    names += [name for name in listed if any(p.matcher(name).matches() for p in patterns)]
    return dict(answer(client.describeTopics(names).allTopicNames())) if names else {}


def current_end_offsets(
    spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """Return the end of each partition that some sources read, as a reader of committed records sees it.

    Parameters
    ----------
    spark, sources, connecting
        As in :func:`cluster_and_topic_ids`.

    Returns
    -------
    dict
        Offsets in the form of Spark's log: ``{topic: {partition: offset}}``.

    Raises
    ------
    NoAnswerError
        As in :func:`cluster_and_topic_ids`.
    """
    jvm: Any = spark._jvm
    kafka = jvm.org.apache.kafka
    only = {source.topic: source.reading_options.partitions for source in sources}
    with closing_admin_client(spark, connecting, SECONDS) as (client, answer):
        specs = {
            kafka.common.TopicPartition(name, part.partition()): kafka.clients.admin.OffsetSpec.latest()
            for name, described in _topic_descriptions(spark, sources, client, answer).items()
            for part in described.partitions()
            if part.partition() in (only.get(name) or (part.partition(),))
        }
        committed = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.READ_COMMITTED)
        offsets: dict[str, dict[str, int]] = {}
        for part, info in dict(answer(client.listOffsets(specs, committed).all())).items():
            offsets.setdefault(part.topic(), {})[str(part.partition())] = int(info.offset())
    return offsets


def checker_of_bounded_run_end(
    spark: SparkSession, sources: Sequence[KafkaSource], connection: Connection, checkpoint: Checkpoint
) -> IsEndReached:
    """Return the check of the end of a bounded run, which is fixed at the ends that the topics have now.

    Parameters
    ----------
    connection
        As in :func:`check_unlisted_partitions_and_return_checker`.
    checkpoint
        Checkpoint of the query, at the leg's position.

    Raises
    ------
    NoAnswerError, StartError
        The brokers do not answer; the login data cannot be read.
    """
    ends = current_end_offsets(spark, sources, connection_options(connection))

    def is_end_reached(batch: int) -> bool:
        begin = checkpoint.batch_start_offset(spark, batch)
        # Without a batch, its start is not yet in the checkpoint, where the next run needs it.
        return begin is not None and all(
            begin.get(topic, {}).get(part, 0) >= end
            for topic, parts in ends.items()
            for part, end in parts.items()
        )

    return is_end_reached


def partition_count(spark: SparkSession, topic: str, connecting: Mapping[str, str]) -> int:
    """Return the number of partitions of a topic.

    Parameters
    ----------
    spark, connecting
        As in :func:`cluster_and_topic_ids`.

    Raises
    ------
    NoAnswerError
        The brokers do not answer, or do not have the topic.
    """
    with closing_admin_client(spark, connecting, SECONDS) as (client, answer):
        return int(answer(client.describeTopics([topic]).allTopicNames())[topic].partitions().size())


def check_unlisted_partitions_and_return_checker(
    spark: SparkSession, source: KafkaSource, connection: Connection
) -> Callable[[], None] | None:
    """Check that each partition of a topic that several jobs share is in a list, and return the check for later repetition.

    Parameters
    ----------
    source
        Topic with its list of partitions.
    connection
        Connection after :func:`etl.sources.kafka.connection.apply_bind_options`.

    Returns
    -------
    Callable or None
        Repeats the check; raises LossError, or NoAnswerError if the brokers do not answer. None if the complete topic is read.

    Raises
    ------
    StartError
        The topic has partitions that no list has, the brokers do not answer, or as in
        :func:`etl.sources.kafka.connection.bootstrap_servers`.
    """
    known = source.reading_options.partition_count
    if source.reading_options.partitions is None or known is None:
        return None
    # Cached: a running job checks every minute, and does not ask AWS for the brokers again until they refuse.
    entry = CachedConnectionOptions(connection)
    entry.cached_or_read_options()

    def raise_if_partitions_added() -> None:
        number = entry.ask_brokers(lambda options: partition_count(spark, source.topic, options))
        if number > known:
            new = ", ".join(map(str, range(known, number)))
            raise LossError(
                f"topic {source.topic} has {number} partitions, but the jobs that share it were given only "
                f"{known}: no job reads {new}. Make new lists with `millrace split JOB --env ENV --jobs N`; "
                f"jobs with `start: earliest` then read {new} from the beginning, and no record lands twice"
            )

    try:
        raise_if_partitions_added()
    except (LossError, NoAnswerError) as error:
        raise StartError(f"stream {source.name}: {error}") from error
    return raise_if_partitions_added
