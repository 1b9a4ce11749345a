"""What the brokers say of topics: their ids, whether they turn odd times away, and how many partitions they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from ...launch.connections import Connection
from ...record.errors import LossError, StartError, UnansweredError
from ..identity_check import Ids
from .connection import Entry, admin

if TYPE_CHECKING:
    from .source import KafkaSource

SECONDS = 20
"""Longest that the brokers may take to answer."""

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's Uuid of nothing: brokers before 2.8 have no ids of topics (KIP-516)."""

AFTER, DIFFERENCE, TYPE = (
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
)
"""Settings of a topic: of Kafka 3.6 and later (KIP-937), of any before, and whose time a record has."""

BY_BROKER = "LogAppendTime"

LONGEST_MS = 7 * 86_400_000
"""A limit above this is none to a job: what its producers write would be ahead by so much."""


def identifiers(spark: SparkSession, sources: Sequence[KafkaSource], connecting: Mapping[str, str]) -> Ids:
    """Ask the brokers for the ids of their cluster and of topics, which tell them from others of the same names.

    Parameters
    ----------
    spark
        Whose class path has Kafka's client.
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.

    Returns
    -------
    Mapping
        Without what the brokers do not tell.

    Raises
    ------
    UnansweredError
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


def unlimited(spark: SparkSession, topics: Sequence[str], connecting: Mapping[str, str]) -> Mapping[str, str]:
    """Ask the brokers which topics take records of a time that no producer can mean.

    Parameters
    ----------
    spark, connecting
        As for :func:`identifiers`.
    topics
        Their names.

    Returns
    -------
    Mapping
        Topic to what its settings lack, or to why nobody knows; nothing stops for it.
    """
    jvm: Any = spark._jvm
    resource = jvm.org.apache.kafka.common.config.ConfigResource
    kind = getattr(resource, "Type").TOPIC  # noqa: B009 - mypy takes it for Python's own
    found = {}
    try:
        with admin(spark, connecting, SECONDS) as (client, answer):
            asked = client.describeConfigs([resource(kind, topic) for topic in topics])
            for told in answer(asked.all()).entrySet():
                entries = {name: told.getValue().get(name) for name in (AFTER, DIFFERENCE, TYPE)}
                held = {name: str(entry.value()) for name, entry in entries.items() if entry is not None}
                if (missing := lacking(held)) is not None:
                    found[str(told.getKey().name())] = missing
    except UnansweredError as error:
        return dict.fromkeys(topics, f"unknown: {error}")
    return found


def lacking(settings: Mapping[str, str]) -> str | None:
    """The setting that a topic lacks; None where brokers turn away, or overwrite, times far ahead.

    Examples
    --------
    >>> lacking({"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "9223372036854775807"})
    'message.timestamp.after.max.ms'
    >>> lacking({"message.timestamp.type": "LogAppendTime"})
    """
    if settings.get(TYPE) == BY_BROKER:
        return None
    name = AFTER if AFTER in settings else DIFFERENCE
    return None if int(settings.get(name, 2**63 - 1)) <= LONGEST_MS else name


def count(spark: SparkSession, topic: str, connecting: Mapping[str, str]) -> int:
    """Ask the brokers for the number of partitions of a topic.

    Parameters
    ----------
    spark, connecting
        As for :func:`identifiers`.

    Raises
    ------
    UnansweredError
        They do not answer, or do not have the topic.
    """
    with admin(spark, connecting, SECONDS) as (client, answer):
        return int(answer(client.describeTopics([topic]).allTopicNames())[topic].partitions().size())


@dataclass(frozen=True)
class Watch:
    """Compares a topic that several jobs share out with what their lists know: a partition in no list is read by nobody.

    Parameters
    ----------
    source
        With ``reading.partitions`` and ``reading.partition_count``.
    ask
        Gives the number of partitions, or raises :class:`UnansweredError`.
    """

    source: KafkaSource
    ask: Callable[[], int]

    def __call__(self) -> None:
        """Look once.

        Raises
        ------
        LossError
            The topic has partitions that no list knows.
        UnansweredError
            Nobody knows now.
        """
        found, known = self.ask(), self.source.read_as.partition_count
        assert known is not None, f"{self.source.name}: lists of nobody knows how many"
        if found > known:
            new = ", ".join(map(str, range(known, found)))
            raise LossError(
                f"topic {self.source.topic} has {found} partitions, and the lists of the jobs that share it out know "
                f"{known}: nobody reads {new}. `millrace split JOB --env ENV --jobs N` makes new lists, and jobs "
                f"with start: earliest read {new} from the beginning; what the others have landed stays landed once"
            )

    def at_start(self) -> None:
        """Look before the first record is read.

        Raises
        ------
        StartError
            As of :meth:`__call__`, and where nobody knows.
        """
        try:
            self()
        except (LossError, UnansweredError) as error:
            raise StartError(f"stream {self.source.name}: {error}") from error


def watch(spark: SparkSession, source: KafkaSource, connection: Connection) -> Watch | None:
    """Make the watch of a topic; None where the source is read whole.

    Parameters
    ----------
    source
        What is read.
    connection
        After :func:`etl.sources.kafka.connection.bind`.

    Raises
    ------
    StartError
        As of :func:`etl.sources.kafka.connection.bootstrap_servers`.
    """
    if source.read_as.partitions is None:
        return None
    # Once: who runs looks every minute, and needs AWS itself for that no more, until the brokers refuse.
    entry = Entry(connection)
    entry.options()
    return Watch(source, lambda: entry.ask(lambda options: count(spark, source.topic, options)))
