"""Whether a topic turns away records of a time that no producer can mean, as its settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ...record.errors import describe
from . import connection

AFTER, DIFFERENCE, TYPE = (
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
)
"""Settings of a topic: of Kafka 3.6 and later (KIP-937), of any before, and whose time a record has."""

BY_BROKER = "LogAppendTime"

LONGEST_MS = 7 * 86_400_000
"""A limit above this is none to a job: what its producers write would be ahead by so much."""

SECONDS = 15


def unlimited(spark: SparkSession, topics: Sequence[str], connecting: Mapping[str, str]) -> Mapping[str, str]:
    """Ask the brokers which topics take records of any time.

    Parameters
    ----------
    spark
        Whose class path has Kafka's client.
    topics
        Their names.
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.

    Returns
    -------
    Mapping
        Topic to what its settings lack, or to why nobody knows; nothing stops for it.
    """
    jvm: Any = spark._jvm
    config = jvm.org.apache.kafka.common.config
    kind = getattr(config.ConfigResource, "Type").TOPIC  # noqa: B009 - mypy takes it for Python's own
    admin = None
    try:
        admin = connection.admin(spark, connecting, SECONDS)
        asked = jvm.java.util.ArrayList()
        for topic in topics:
            asked.add(config.ConfigResource(kind, topic))
        wait = jvm.java.util.concurrent.TimeUnit.SECONDS
        found = {}
        for answer in admin.describeConfigs(asked).all().get(SECONDS, wait).entrySet():
            entries = {name: answer.getValue().get(name) for name in (AFTER, DIFFERENCE, TYPE)}
            held = {name: str(entry.value()) for name, entry in entries.items() if entry is not None}
            if (missing := lacking(held)) is not None:
                found[str(answer.getKey().name())] = missing
        return found
    except Py4JJavaError as error:
        return dict.fromkeys(topics, f"unknown: {describe(error)}")
    finally:
        if admin is not None:
            admin.close()


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
