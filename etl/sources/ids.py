"""Ids that tell a source from another of the same name: of a Kafka cluster and its topics, of a Kinesis stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from etl.errors import StartError, UnansweredError, describe
from etl.settings import KafkaSource, KinesisSource
from etl.sources import kafka, kinesis
from etl.sources.asking import asking

SECONDS = 20
"""Longest that the brokers may take to answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's Uuid of nothing: brokers before 2.8 have no ids of topics (KIP-516)."""

Ids = Mapping[str, str]
"""What an id is of, as messages name it, to the id."""


def of_topics(spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]) -> Ids:
    """Ask the brokers for the ids of their cluster and of topics, by Kafka's own client in the JVM.

    Parameters
    ----------
    spark
        Whose class path has the client.
    sources
        Of one connection.
    connecting
        Options of :func:`etl.sources.kafka.connecting`.

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
        admin = kafka.admin(spark, connecting, SECONDS)
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


def of_stream(source: KinesisSource, endpoint: str | None, *, client: Any = None) -> Ids:
    """Ask a stream when it was made: no two of one name were made in the same second.

    Parameters
    ----------
    source
        What is read.
    endpoint
        Another endpoint than the region's own.
    client
        A boto3 ``kinesis`` client; left out, one is made.

    Returns
    -------
    Mapping
        Nothing where the role may not ask (``kinesis:DescribeStreamSummary``), as one of another account may not.

    Raises
    ------
    UnansweredError
        It does not answer, or there is none.
    """
    try:
        with asking(f"stream {source.stream}"):
            found = (client or kinesis.api_client(source, endpoint)).describe_stream_summary(
                StreamName=source.stream
            )
    except StartError as error:
        response = getattr(error.__cause__, "response", None) or {}
        if response.get("Error", {}).get("Code") == "AccessDeniedException":
            return {}
        raise UnansweredError(str(error)) from error
    made = found["StreamDescriptionSummary"]["StreamCreationTimestamp"].astimezone(UTC)
    return {f"stream {source.stream}": made.replace(microsecond=0).isoformat()}
