"""The end of a topic: where it is, and which messages of a batch stand there already."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...record.errors import SinkError

ID_HEADER, SOURCE_HEADER, BATCH_HEADER = "millrace-id", "millrace-source", "millrace-batch"
"""Of a message: the identity of its row, and the batch by which it was written."""

QUIET_SECONDS, LONGEST_SECONDS = 2.0, 30.0
"""Without a new message, after which those of an attempt that failed in this process have all arrived (its producers
wait 20 ms for more); and the longest wait, where others write the topic all the time."""

PATIENCE_MILLISECONDS = 180_000
"""How long the brokers are asked for the end of a topic."""

_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


@dataclass(frozen=True)
class Tail:
    """A topic, from a point on.

    Parameters
    ----------
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.
    """

    topic: str
    connecting: Mapping[str, str]

    def end(self, spark: SparkSession) -> dict[str, int]:
        """Offset of the next message, by partition.

        Raises
        ------
        SinkError
            The brokers do not answer.
        """
        with self._asked(spark) as asked:
            return asked.last()

    def held(self, spark: SparkSession, since: Mapping[str, int], batch: str) -> DataFrame | None:
        """Identities of a batch's messages that the topic holds; persisted, for the caller to give back.

        Parameters
        ----------
        since
            What :meth:`end` said before any of them was written.
        batch
            Name of the batch.

        Returns
        -------
        DataFrame or None
            ``_id`` and ``_source`` (empty for a result of many records); None where it holds none.

        Raises
        ------
        SinkError
            The brokers do not answer.
        """
        ranges = self._ranges(spark, since)
        if not ranges:
            return None
        partitions, starts, ends = (
            json.dumps({self.topic: value})
            for value in (
                [int(p) for p in ranges],
                {p: start for p, (start, _) in ranges.items()},
                {p: end for p, (_, end) in ranges.items()},
            )
        )
        messages = (
            spark.read.format("kafka")
            .options(**self.connecting, assign=partitions, startingOffsets=starts, endingOffsets=ends)
            # What the topic has forgotten meanwhile cannot be found in it.
            .options(includeHeaders="true", failOnDataLoss="false")
            .load()
        )
        found = (
            messages.where(_header(BATCH_HEADER) == batch)
            .select(_header(ID_HEADER).alias("_id"), _header(SOURCE_HEADER).alias("_source"))
            .persist()
        )
        if found.isEmpty():
            found.unpersist()
            return None
        return found

    def _ranges(self, spark: SparkSession, since: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """From where to where each partition is read; those without a message are left out."""
        with self._asked(spark) as asked:
            first, last = asked.first(), _settled(asked)
        return {
            partition: (start, end)
            for partition, end in last.items()
            if (start := _start(first[partition], since.get(partition), end)) < end
        }

    @contextmanager
    def _asked(self, spark: SparkSession) -> Iterator[_Asked]:
        jvm: Any = spark._jvm
        settings = jvm.java.util.Properties()
        for name, value in self.connecting.items():
            settings.put(name.removeprefix("kafka."), value)
        settings.put("key.deserializer", _BYTES)
        settings.put("value.deserializer", _BYTES)
        settings.put("default.api.timeout.ms", str(PATIENCE_MILLISECONDS))
        consumer = None
        try:
            consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
            yield _Asked(self.topic, consumer, jvm)
        except Py4JJavaError as error:
            raise SinkError(
                f"Kafka topic {self.topic}, its end: {error.java_exception.toString()}"
            ) from error
        finally:
            if consumer is not None:
                consumer.close()


@dataclass(frozen=True)
class _Asked:
    """A consumer that reads nothing."""

    topic: str
    consumer: Any
    jvm: Any

    def first(self) -> dict[str, int]:
        """Offset of the oldest message, by partition."""
        return self._offsets(self.consumer.beginningOffsets)

    def last(self) -> dict[str, int]:
        """Offset of the next message, by partition."""
        return self._offsets(self.consumer.endOffsets)

    def _offsets(self, ask: Any) -> dict[str, int]:
        wanted = self.jvm.java.util.ArrayList()
        for info in self.consumer.partitionsFor(self.topic) or ():
            wanted.add(self.jvm.org.apache.kafka.common.TopicPartition(self.topic, info.partition()))
        told = ask(wanted)
        return {str(each.partition()): int(told.get(each)) for each in wanted}


def _start(first: int, since: int | None, end: int) -> int:
    """From where a partition is read: a new one, and one of a topic that was made anew, from its first message."""
    return first if since is None or since > end else max(first, since)


def _settled(asked: _Asked) -> dict[str, int]:
    """The end, when nothing has come for a while."""
    begun = quiet_since = time.monotonic()
    last = asked.last()
    while (now := time.monotonic()) - quiet_since < QUIET_SECONDS and now - begun < LONGEST_SECONDS:
        time.sleep(0.2)
        found = asked.last()
        if found != last:
            last, quiet_since = found, time.monotonic()
    return last


def _header(name: str) -> Column:
    """Text of a message's header; empty where it has none of the name."""
    return F.expr(f"cast(try_element_at(filter(headers, h -> h.key = '{name}'), 1).value AS string)")
