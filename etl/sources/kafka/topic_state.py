"""What the brokers say of topics: their ids, and how many partitions they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from ...launch.connections import Connection
from ...record.errors import LossError, NoAnswerError, StartError
from ..identity_check import Ids
from .connection import CachedOptions, admin

if TYPE_CHECKING:
    from .source import KafkaSource

SECONDS = 20
"""Longest that the brokers may take to answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's Uuid of nothing: brokers before 2.8 have no ids of topics (KIP-516)."""


def identifiers(spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]) -> Ids:
    """Ask the brokers for the ids of their cluster and of topics, which tell them from others of the same names.

    Parameters
    ----------
    spark
        Whose class path has Kafka's client.
    connecting
        Options of :func:`etl.sources.kafka.connection.connection_options`.

    Returns
    -------
    Mapping
        Without what the brokers do not tell.

    Raises
    ------
    NoAnswerError
        They do not answer, or do not have a topic.
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
        # Of the whole name, as Spark's consumer takes a pattern.
        matching = (topic for topic in listed if any(p.matcher(topic.name()).matches() for p in patterns))
        found |= {f"topic {topic.name()}": str(topic.topicId()) for topic in matching}
    return {what: known for what, known in found.items() if known != _NONE}


def partition_count(spark: SparkSession, topic: str, connecting: Mapping[str, str]) -> int:
    """Ask the brokers for the number of partitions of a topic.

    Parameters
    ----------
    spark, connecting
        As for :func:`identifiers`.

    Raises
    ------
    NoAnswerError
        They do not answer, or do not have the topic.
    """
    with admin(spark, connecting, SECONDS) as (client, answer):
        return int(answer(client.describeTopics([topic]).allTopicNames())[topic].partitions().size())


def watch_partitions(
    spark: SparkSession, source: KafkaSource, connection: Connection
) -> Callable[[], None] | None:
    """Compare a topic that several jobs share out with what their lists know: a partition in no list is read by nobody.

    Parameters
    ----------
    source
        What is read.
    connection
        After :func:`etl.sources.kafka.connection.bind`.

    Returns
    -------
    Callable or None
        Looks again, and raises LossError, or NoAnswerError where nobody knows now; None where the source is read whole.

    Raises
    ------
    StartError
        The topic has partitions that no list knows, nobody knows, or as of
        :func:`etl.sources.kafka.connection.bootstrap_servers`.
    """
    known = source.read_as.partition_count
    if source.read_as.partitions is None or known is None:
        return None
    # Once: who runs looks every minute, and needs AWS itself for that no more, until the brokers refuse.
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
