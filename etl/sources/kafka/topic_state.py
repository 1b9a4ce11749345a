"""Ids and partition counts of topics, from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from ...launch.connections import Connection
from ...launch.sources import KafkaSource
from ...record.errors import LossError, NoAnswerError, StartError
from ..identity_check import Ids
from .connection import CachedOptions, admin

SECONDS = 20
"""Longest time for the brokers' answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's null Uuid: brokers before 2.8 have no topic ids (KIP-516)."""


def identifiers(spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]) -> Ids:
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
    jvm: Any = spark._jvm
    names = [source.topic for source in sources if not source.is_pattern]
    patterns = [jvm.java.util.regex.Pattern.compile(s.topic) for s in sources if s.is_pattern]
    with admin(spark, connecting, SECONDS) as (client, answer):
        known = answer(client.describeCluster().clusterId())
        found = {} if known is None else {"cluster": str(known)}
        described = answer(client.describeTopics(names).allTopicNames()) if names else {}
        found |= {f"topic {name}": str(described[name].topicId()) for name in names}
        listed = answer(client.listTopics().listings()).toArray() if patterns else ()
        # Match the complete name, as Spark's consumer does.
        matching = (topic for topic in listed if any(p.matcher(topic.name()).matches() for p in patterns))
        found |= {f"topic {topic.name()}": str(topic.topicId()) for topic in matching}
    return {what: known for what, known in found.items() if known != _NONE}


def partition_count(spark: SparkSession, topic: str, connecting: Mapping[str, str]) -> int:
    """Return the number of partitions of a topic.

    Parameters
    ----------
    spark, connecting
        As in :func:`identifiers`.

    Raises
    ------
    NoAnswerError
        The brokers do not answer, or do not have the topic.
    """
    with admin(spark, connecting, SECONDS) as (client, answer):
        return int(answer(client.describeTopics([topic]).allTopicNames())[topic].partitions().size())


def watch_partitions(
    spark: SparkSession, source: KafkaSource, connection: Connection
) -> Callable[[], None] | None:
    """Compare the partitions of a topic that several jobs share with their lists: no job reads a partition in no list.

    Parameters
    ----------
    source
        Topic with its list of partitions.
    connection
        Connection after :func:`etl.sources.kafka.connection.bind`.

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
    known = source.read_as.partition_count
    if source.read_as.partitions is None or known is None:
        return None
    # Cached: a running job checks every minute, and does not ask AWS for the brokers again until they refuse.
    entry = CachedOptions(connection)
    entry.options()

    def look() -> None:
        found = entry.ask_brokers(lambda options: partition_count(spark, source.topic, options))
        if found > known:
            new = ", ".join(map(str, range(known, found)))
            raise LossError(
                f"topic {source.topic} has {found} partitions, but the jobs that share it know only {known}: no job "
                f"reads {new}. Make new lists with `millrace split JOB --env ENV --jobs N`; jobs with `start: "
                f"earliest` then read {new} from the beginning, and no record lands twice"
            )

    try:
        look()
    except (LossError, NoAnswerError) as error:
        raise StartError(f"stream {source.name}: {error}") from error
    return look
