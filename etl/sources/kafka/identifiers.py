"""Ids that tell topics from others of the same names: of a Kafka cluster and of its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from ...record.errors import UnansweredError, describe
from ..identity_check import Ids
from . import connection

if TYPE_CHECKING:
    from .source import KafkaSource

SECONDS = 20
"""Longest that the brokers may take to answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's Uuid of nothing: brokers before 2.8 have no ids of topics (KIP-516)."""


def of_topics(spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]) -> Ids:
    """Ask the brokers for the ids of their cluster and of topics, by Kafka's own client in the JVM.

    Parameters
    ----------
    spark
        Whose class path has the client.
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.

    Returns
    -------
    Mapping
        Without what the brokers, or an older client, do not tell.

    Raises
    ------
    UnansweredError
        They do not answer, or do not have a topic.
    """
    jvm: Any = spark._jvm
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    admin = None
    try:
        admin = connection.admin(spark, connecting, SECONDS)
        known = admin.describeCluster().clusterId().get(SECONDS, seconds)
        found = {} if known is None else {"cluster": str(known)}
        for name, topic in _topics(jvm, admin, sources, seconds).items():
            found[f"topic {name}"] = topic
        return {what: known for what, known in found.items() if known != _NONE}
    except Py4JJavaError as error:
        raise UnansweredError(describe(error)) from error
    except Py4JError as error:
        if "does not exist" not in str(error):
            raise UnansweredError(str(error)) from error
        return found  # a client before 3.1 has no ids of topics
    finally:
        if admin is not None:
            admin.close()


def _topics(jvm: Any, admin: Any, sources: Sequence[KafkaSource], seconds: Any) -> dict[str, str]:
    patterns = [source for source in sources if source.reading is not None and source.reading.pattern]
    names = [source.topic for source in sources if source not in patterns]
    found: dict[str, str] = {}
    if names:
        asked = jvm.java.util.ArrayList()
        for name in names:
            asked.add(name)
        described = admin.describeTopics(asked).allTopicNames().get(SECONDS, seconds)
        found |= {name: str(described.get(name).topicId()) for name in names}
    if patterns:
        listed = list(admin.listTopics().listings().get(SECONDS, seconds).toArray())
        for pattern in (jvm.java.util.regex.Pattern.compile(source.topic) for source in patterns):
            # Of the whole name, as Spark's consumer takes a pattern.
            matching = [topic for topic in listed if pattern.matcher(topic.name()).matches()]
            found |= {str(topic.name()): str(topic.topicId()) for topic in matching}
    return found
