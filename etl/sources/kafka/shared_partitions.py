"""Watches topics that several jobs share out: a partition that is in no list would be read by nobody, in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ...launch.connections import Connection
from ...record.errors import LossError, StartError, UnansweredError, describe
from .connection import Entry
from .connection import admin as admin_client

if TYPE_CHECKING:
    from .source import KafkaSource

SECONDS = 20
"""Longest that the brokers may take to answer."""


def count(spark: SparkSession, topic: str, connecting: Mapping[str, str]) -> int:
    """Ask the brokers for the number of partitions of a topic, by Kafka's own client in the JVM.

    Parameters
    ----------
    spark
        Whose class path has the client.
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.

    Raises
    ------
    UnansweredError
        They do not answer, or do not have the topic.
    """
    jvm: Any = spark._jvm
    asked = jvm.java.util.ArrayList()
    asked.add(topic)
    admin = None
    try:
        admin = admin_client(spark, connecting, SECONDS)
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        found = admin.describeTopics(asked).allTopicNames().get(SECONDS, seconds)
        return int(found.get(topic).partitions().size())
    except Py4JJavaError as error:
        raise UnansweredError(describe(error)) from error
    finally:
        if admin is not None:
            admin.close()


@dataclass(frozen=True)
class Watch:
    """Compares a topic with what the lists of all jobs know of it.

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
        reading = self.source.reading
        assert reading is not None, f"{self.source.name}: read whole"
        assert reading.partition_count is not None, f"{self.source.name}: lists of nobody knows how many"
        found, known = self.ask(), reading.partition_count
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
    if source.reading is None or source.reading.partitions is None:
        return None
    # Once: who runs looks every minute, and needs AWS itself for that no more, until the brokers refuse.
    entry = Entry(connection)
    entry.options()
    return Watch(source, lambda: entry.ask(lambda options: count(spark, source.topic, options)))
