"""End of a topic: its offsets, and the messages of a batch that it holds already."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...sources.kafka.range_reader import KafkaRangeReader, Partition

Edges = dict[Partition, tuple[int, int]]
"""Offsets of the oldest message and of the next one, by partition."""

ID_HEADER, SOURCE_HEADER, BATCH_HEADER = "millrace-id", "millrace-source", "millrace-batch"
"""Headers of a message: the identity of its row, and the batch that wrote it."""

ORDER_HEADER = "millrace-order"
"""Header with the order of the last record of a key: of two messages of a key a reader keeps the later one."""

QUIET_SECONDS, LONGEST_SECONDS = 2.0, 30.0
"""Seconds without a new message, after which all messages of an earlier process have arrived (its producers
wait 20 ms for more); and the longest wait, if others write the topic all the time."""

QUIET_AFTER_FAILURE_SECONDS = 31.0
"""The same after a failed attempt of this process: executors keep their producers, which go on sending what they hold, and a
producer waits 30 s for a broker's answer (Kafka's ``request.timeout.ms``), or seconds until its quota lets it send."""

DELIVERY_SECONDS = 180
"""Longest time in which a producer retries a message before it gives it up, and the batch fails."""

PATIENCE_SECONDS = 180
"""Longest time in which the brokers are asked for the end of a topic."""


@dataclass(frozen=True)
class TopicTail:
    """Part of a topic after some offsets.

    Parameters
    ----------
    connecting
        Options of :func:`etl.sources.kafka.connection.connection_options`.
    failed_at
        When an attempt of this process to write the topic failed last, by :func:`time.monotonic`; None if none did.
    """

    topic: str
    connecting: Mapping[str, str]
    failed_at: Callable[[], float | None] = lambda: None

    def next_offsets(self, spark: SparkSession) -> dict[str, int]:
        """Return the offset of the next message, by partition.

        Raises
        ------
        NoAnswerError
            The brokers do not answer.
        """
        with self._range_reader(spark).closing_consumer() as consumer:
            return {str(p): end for (_, p), (_, end) in self._first_and_next_offsets(spark, consumer).items()}

    def identities_in_topic(
        self, spark: SparkSession, batch: str, since: Mapping[str, int]
    ) -> DataFrame | None:
        """Return the identities of a batch's messages that the topic holds.

        Parameters
        ----------
        batch
            Name of the batch.
        since
            Result of :meth:`next_offsets` before any of them was written.

        Returns
        -------
        DataFrame or None
            ``_id`` and ``_source`` (empty for a result of many records); None if nothing was written since.

        Raises
        ------
        NoAnswerError
            The brokers do not answer.
        """
        with self._range_reader(spark).closing_consumer() as consumer:
            edges = _ends_once_equal(lambda: self._first_and_next_offsets(spark, consumer), self.failed_at())
        ranges = {
            place: (start, end)
            for place, (first, end) in edges.items()
            if (start := _first_offset_to_read(first, since.get(str(place[1])), end)) < end
        }
        if not ranges:
            return None
        return (
            self._range_reader(spark)
            .read_range(ranges)
            .where(_header_text_column(BATCH_HEADER) == batch)
            .select(
                _header_text_column(ID_HEADER).alias("_id"),
                _header_text_column(SOURCE_HEADER).alias("_source"),
            )
        )

    def _range_reader(self, spark: SparkSession) -> KafkaRangeReader:
        # Messages that have expired meanwhile cannot be found.
        options = {"failOnDataLoss": "false", "includeHeaders": "true"}
        options["kafka.isolation.level"] = "read_uncommitted"
        return KafkaRangeReader(spark, self.connecting, options, PATIENCE_SECONDS)

    def _first_and_next_offsets(self, spark: SparkSession, consumer: Any) -> Edges:
        reader = self._range_reader(spark)
        return reader.oldest_and_next_offsets(consumer, reader.partitions(consumer, self.topic))


def _first_offset_to_read(first: int, since: int | None, end: int) -> int:
    """Return the first offset to read: for a new partition, or a topic that was made again, that of its first message."""
    return first if since is None or since > end else max(first, since)


def _ends_once_equal(ask_ends: Callable[[], Edges], failed_at: float | None) -> Edges:
    """Return the ends of a topic after some time without new messages, or when no producer has any left.

    Brokers that stood still append what waits in their sockets only after they have answered, so the time begins with that answer.
    """
    begun = time.monotonic()
    last, quiet_since = ask_ends(), time.monotonic()
    quiet, until = QUIET_SECONDS, quiet_since + LONGEST_SECONDS
    if failed_at is not None and failed_at + DELIVERY_SECONDS > begun:
        quiet, until = QUIET_AFTER_FAILURE_SECONDS, failed_at + DELIVERY_SECONDS
    until = max(until, quiet_since + QUIET_SECONDS)
    while (asked := time.monotonic()) - quiet_since < quiet and asked < until:
        time.sleep(0.2)
        asked, edges = time.monotonic(), ask_ends()
        stood_still = time.monotonic() - asked > QUIET_SECONDS
        if edges != last or stood_still:
            last, quiet_since = edges, time.monotonic()
        if stood_still:
            until = max(until, quiet_since + QUIET_SECONDS)
    return last


def _header_text_column(name: str) -> Column:
    """Return the text of a message's header; empty if it has no header of the name."""
    return F.expr(f"cast(try_element_at(filter(headers, h -> h.key = '{name}'), 1).value AS string)")
