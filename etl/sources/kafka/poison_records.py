"""Reads Kafka batches that Spark cannot read: with records whose time in milliseconds overflows in microseconds.

Spark's Kafka source converts the time of each record before anybody else sees it, and fails the task where that overflows;
interceptors and other deserialisers it refuses. So a batch that failed for it is read around such records, by Spark, as
static ranges of offsets, and the records themselves by Kafka's own consumer on the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...record.envelope import HEADERS, TIME_HEADER
from ...record.errors import UnansweredError, describe, whole_text
from ..offset_ranges import Partition, Ranges, offsets_json, split, turns

LATEST = (2**63 - 1) // 1000
"""Milliseconds; one more overflows in the microseconds of Spark's timestamps, and so does what is before its negative."""


CHUNK_BYTES = 8 << 20
"""So much of what the driver reads is in its memory, before the executors have it."""

POLL_RECORDS = 2000
SECONDS = 60
"""Longest that the brokers may give nothing while there is something to be read."""

_RECORDS = (
    f"key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp LONG, headers {HEADERS}"
)

_TIMES = re.compile(r"offset = (\d+), \w+ = (-?\d+), serialized key size")
"""In Kafka's text of a record; a header of that text names one record too many, which is then looked at."""


def is_overflow(error: BaseException | None) -> bool:
    """Whether a batch failed for the time of one of its records."""
    while error is not None:
        text = whole_text(error)
        if "long overflow" in text and "KafkaRecordToRowConverter" in text:
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True)
class Reader:
    """Reads ranges of offsets around records whose times overflow.

    Parameters
    ----------
    connecting
        Options of :func:`etl.sources.kafka.connection.connecting`.
    options
        More of Spark's Kafka source, such as ``minPartitions``.
    headers
        Whether records keep theirs.
    """

    spark: SparkSession
    connecting: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    headers: bool = True

    def overflowing(self, ranges: Ranges, *, thorough: bool) -> Mapping[Partition, Sequence[int]]:
        """Find the records whose times overflow.

        Parameters
        ----------
        thorough
            Whether to look at each record, as is needed for times before 290,000 BC; otherwise the brokers' index of
            times says where the first one with too late a time is.

        Returns
        -------
        Mapping
            Their offsets in order, by partition; only of partitions that have some.

        Raises
        ------
        UnansweredError
            The brokers do not answer.
        """
        with self._consumer() as consumer:
            return self._overflowing(consumer, ranges, thorough=thorough)

    def partitions(self, topic: str, *, pattern: bool, only: Sequence[int] | None) -> Sequence[Partition]:
        """Ask for the partitions of what a query reads.

        Parameters
        ----------
        topic
            Its name, or the regular expression that whole names match.
        pattern
            Which of the two.
        only
            Numbers; None for all.

        Raises
        ------
        UnansweredError
            The brokers do not answer, or have no such topic.
        """
        jvm: Any = self.spark._jvm
        with self._consumer() as consumer:
            wait = jvm.java.time.Duration.ofSeconds(SECONDS)
            there = {str(e.getKey()): len(e.getValue()) for e in consumer.listTopics(wait).entrySet()}
        matches = jvm.java.util.regex.Pattern.matches if pattern else str.__eq__
        found = [(name, n) for name, count in there.items() if matches(topic, name) for n in range(count)]
        chosen = sorted(place for place in found if only is None or place[1] in only)
        if not chosen:
            raise UnansweredError(f"there is no topic {topic}")
        return chosen

    def between(self, places: Sequence[Partition], since: int, until: int, latest: int) -> Ranges:
        """Find the offsets of a range of time, by the times of single records.

        The brokers' index of times knows a partition's *first* record from a moment on, which may be one that claims to be
        of a year far ahead: everything behind it would be left out. So times from ``latest`` on count for none.

        Parameters
        ----------
        places
            Partitions.
        since, until
            Milliseconds since 1970; the order of times may be disturbed by less than what the caller adds.
        latest
            Times from then on, or before 1970, are no record's own.

        Returns
        -------
        Ranges
            Without the partitions that hold nothing.

        Raises
        ------
        UnansweredError
            The brokers do not answer.
        """
        jvm: Any = self.spark._jvm
        with self._consumer() as consumer:
            asked = jvm.java.util.ArrayList()
            for topic, number in places:
                asked.add(jvm.org.apache.kafka.common.TopicPartition(topic, number))
            wait = jvm.java.time.Duration.ofSeconds(SECONDS)
            begins, ends = (
                {
                    (str(e.getKey().topic()), int(e.getKey().partition())): int(e.getValue())
                    for e in found.entrySet()
                }
                for found in (consumer.beginningOffsets(asked, wait), consumer.endOffsets(asked, wait))
            )
            found = {}
            for place in places:
                first = self._from(consumer, place, (begins[place], ends[place]), since, latest)
                end = self._from(consumer, place, (first, ends[place]), until, latest)
                if first < end:
                    found[place] = (first, end)
            return found

    def _from(
        self, consumer: Any, place: Partition, within: tuple[int, int], moment: int, latest: int
    ) -> int:
        """The first offset of records from a moment on, by bisection."""
        low, high = within
        while low < high:
            middle = (low + high) // 2
            at = self._time_after(consumer, place, (middle, high), latest)
            if at is not None and at < moment:
                low = middle + 1
            else:
                high = middle
        return low

    def _time_after(
        self, consumer: Any, place: Partition, within: tuple[int, int], latest: int
    ) -> int | None:
        """The time of the first record of a range that has one of its own."""
        for _, records in self._polled(consumer, {place: within}):
            for record in records:
                if int(record.offset()) >= within[1]:
                    return None
                if 0 <= (at := int(record.timestamp())) < latest:
                    return at
        return None

    def around(self, ranges: Ranges, odd: Mapping[Partition, Sequence[int]]) -> DataFrame:
        """Read a batch in spite of some records.

        Parameters
        ----------
        ranges
            Of the batch; at least one.
        odd
            As of :meth:`overflowing`.

        Returns
        -------
        DataFrame
            Columns of Spark's Kafka source. The odd records have no ``timestamp``, and their time in the last header.

        Raises
        ------
        UnansweredError
            The brokers do not answer.
        """
        clean, rest = split(ranges, odd)
        parts = [self._static(turn) for turn in turns(clean)]
        if rest:
            with self._consumer() as consumer:
                parts += self._read_here(consumer, rest)
        return reduce(lambda a, b: a.unionByName(b), parts)

    def _static(self, ranges: Ranges) -> DataFrame:
        """One range of some partitions, as Spark reads it."""
        chosen: dict[str, dict[str, tuple[int, int]]] = {}
        for (topic, partition), offsets in ranges.items():
            chosen.setdefault(topic, {})[str(partition)] = offsets
        rows = (
            self.spark.read.format("kafka")
            .options(**{"kafka.isolation.level": "read_committed", **self.options, **self.connecting})
            .option("assign", json.dumps({t: [int(p) for p in found] for t, found in chosen.items()}))
            .option("startingOffsets", offsets_json(chosen, 0))
            .option("endingOffsets", offsets_json(chosen, 1))
            .option("failOnDataLoss", "true")
            .option("includeHeaders", str(self.headers).lower())
            .load()
        )
        headers = F.col("headers") if self.headers else F.lit(None)
        others = ("key", "value", "topic", "partition", "offset", "timestamp")
        return rows.select(*others, headers.cast(HEADERS).alias("headers"))

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        jvm: Any = self.spark._jvm
        properties = jvm.java.util.HashMap()
        for name, value in self.connecting.items():
            properties.put(name.removeprefix("kafka."), value)
        # No group: nothing is committed, and no ACL asked.
        properties.put("enable.auto.commit", "false")
        properties.put("auto.offset.reset", "none")
        properties.put("isolation.level", "read_committed")
        properties.put("max.poll.records", str(POLL_RECORDS))
        properties.put("fetch.max.bytes", str(CHUNK_BYTES))
        as_bytes = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
        consumer = None
        try:
            consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties, as_bytes(), as_bytes())
            yield consumer
        except Py4JJavaError as error:
            raise UnansweredError(describe(error)) from error
        finally:
            if consumer is not None:
                consumer.close()

    def _overflowing(
        self, consumer: Any, ranges: Ranges, *, thorough: bool
    ) -> Mapping[Partition, Sequence[int]]:
        """Offsets of records whose time overflows, by partition, in order."""
        first = {} if thorough else self._first_too_late(consumer, ranges)
        suspected = {
            p: (max(begin, first.get(p, begin)), end)
            for p, (begin, end) in ranges.items()
            if thorough or (p in first and first[p] < end)
        }
        odd: dict[Partition, list[int]] = {}
        for place, records in self._polled(consumer, suspected):
            end = suspected[place][1]
            for offset, at in _TIMES.findall(str(self._text(records))):
                if abs(int(at)) > LATEST and int(offset) < end and _find(records, int(offset)) is not None:
                    odd.setdefault(place, []).append(int(offset))
        return {place: sorted(set(offsets)) for place, offsets in odd.items()}

    def _text(self, records: Any) -> Any:
        # One call for a page, and none for each record.
        jvm: Any = self.spark._jvm
        return jvm.java.util.Objects.toString(records)

    def _first_too_late(self, consumer: Any, ranges: Ranges) -> Mapping[Partition, int]:
        """The first record of each partition, from its beginning on, with too late a time."""
        jvm: Any = self.spark._jvm
        asked = jvm.java.util.HashMap()
        for topic, partition in ranges:
            asked.put(jvm.org.apache.kafka.common.TopicPartition(topic, partition), LATEST + 1)
        found = consumer.offsetsForTimes(asked, jvm.java.time.Duration.ofSeconds(SECONDS))
        answers = {
            (str(e.getKey().topic()), int(e.getKey().partition())): e.getValue() for e in found.entrySet()
        }
        return {place: int(answer.offset()) for place, answer in answers.items() if answer is not None}

    def _polled(self, consumer: Any, ranges: Ranges) -> Iterator[tuple[Partition, Any]]:
        """Pages of records, which may go a little further than the range, partition by partition."""
        jvm: Any = self.spark._jvm
        for (topic, partition), (begin, end) in ranges.items():
            place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            assigned = jvm.java.util.ArrayList()
            assigned.add(place)
            consumer.assign(assigned)
            consumer.seek(place, begin)
            while (before := int(consumer.position(place))) < end:
                records = consumer.poll(jvm.java.time.Duration.ofSeconds(SECONDS)).records(place)
                if int(consumer.position(place)) == before:
                    raise UnansweredError(
                        f"{topic}/{partition}: nothing after offset {before} for {SECONDS} s"
                    )
                if records.size():
                    yield (topic, partition), records

    def _read_here(
        self, consumer: Any, ranges: Mapping[Partition, Sequence[tuple[int, int]]]
    ) -> list[DataFrame]:
        """Read some ranges by the driver and hand the records over to the executors, a chunk at a time."""
        chunks: list[DataFrame] = []
        rows: list[tuple[Any, ...]] = []
        size = 0
        for place, parts in ranges.items():
            for part in parts:
                for _, records in self._polled(consumer, {place: part}):
                    for record in records:
                        if int(record.offset()) >= part[1]:
                            break
                        rows.append(self._row(record))
                        size += sum(len(each) for each in rows[-1][:2] if each is not None)
                        if size > CHUNK_BYTES or len(rows) >= 10 * POLL_RECORDS:
                            chunks.append(self._chunk(rows))
                            rows, size = [], 0
        return [*chunks, *([self._chunk(rows)] if rows else [])]

    def _chunk(self, rows: list[tuple[Any, ...]]) -> DataFrame:
        # Milliseconds become a time in the JVM, which has more years than Python.
        made = self.spark.createDataFrame(rows, _RECORDS, verifySchema=False)
        made = made.withColumn("timestamp", F.expr("timestamp_millis(timestamp)"))
        # Otherwise its rows stay in the plan, and so with the driver.
        return made.localCheckpoint()

    def _row(self, record: Any) -> tuple[Any, ...]:
        headers = (
            [(str(h.key()), _bytes(h.value())) for h in record.headers().toArray()] if self.headers else []
        )
        at = int(record.timestamp())
        overflows = abs(at) > LATEST
        if overflows:
            headers.append((TIME_HEADER, bytearray(str(at).encode())))
        return (
            _bytes(record.key()),
            _bytes(record.value()),
            str(record.topic()),
            int(record.partition()),
            int(record.offset()),
            None if overflows else at,
            headers or None,
        )


def _find(records: Any, offset: int) -> Any:
    """A record of a page whose time overflows, by its offset; None where there is none."""
    low, high = 0, int(records.size())
    while low < high:
        middle = (low + high) // 2
        record = records.get(middle)
        at = int(record.offset())
        if at == offset:
            return record if abs(int(record.timestamp())) > LATEST else None
        low, high = (middle + 1, high) if at < offset else (low, middle)
    return None


def _bytes(value: Any) -> bytearray | None:
    return None if value is None else bytearray(value)
