"""Reader of offset ranges as batches, also around records that Spark cannot read because their times overflow in microseconds.

Spark's Kafka source converts the time of each record before any other code sees it, and fails the task on an overflow;
it does not allow interceptors and other deserialisers. So a batch that failed in this way is read around such records:
by Spark, as static ranges of offsets, and the records themselves by Kafka's own consumer on the driver.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...record.envelope import HEADERS, TIME_HEADER
from ...record.errors import NoAnswerError, full_error_text
from ..source_union import union_of_legs
from .connection import client_properties, closing_client

LATEST = (2**63 - 1) // 1000
"""Largest time in milliseconds: larger ones overflow in Spark's timestamps (microseconds), and so do those below its negative."""

MOST_RANGES = 16
"""Most ranges that Spark reads of a partition; smaller ranges between unreadable records are read with these."""

CHUNK_BYTES = 8 << 20
"""Bytes that the driver reads into its memory before it sends them to the executors."""

POLL_RECORDS = 2000
SECONDS = 60

Partition = tuple[str, int]

Ranges = Mapping[Partition, tuple[int, int]]
"""Offsets by topic and partition: start, and end (excluded)."""

_RECORDS = (
    f"key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp LONG, headers {HEADERS}"
)

_TIMES = re.compile(r"offset = (\d+), \w+ = (-?\d+), serialized key size")
"""Pattern for Kafka's text of a record. A header with such a text yields one record too many, which is then checked."""


def is_time_overflow(error: BaseException | None) -> bool:
    """Check that a batch failed because of the time of one of its records."""
    while error is not None:
        text = full_error_text(error)
        if "long overflow" in text and "KafkaRecordToRowConverter" in text:
            return True
        error = error.__cause__
    return False


def split_ranges_around_unreadable(
    ranges: Ranges, odd: Mapping[Partition, Sequence[int]]
) -> tuple[dict[Partition, list[tuple[int, int]]], dict[Partition, list[tuple[int, int]]]]:
    """Split a batch into ranges without unreadable records, at most ``MOST_RANGES`` of a partition, and the rest.

    Parameters
    ----------
    odd
        Offsets to leave out, in order.

    Examples
    --------
    >>> split_ranges_around_unreadable({("t", 0): (5, 9)}, {("t", 0): [6]})
    ({('t', 0): [(5, 6), (7, 9)]}, {('t', 0): [(6, 7)]})
    """
    clean: dict[Partition, list[tuple[int, int]]] = {}
    rest: dict[Partition, list[tuple[int, int]]] = {}
    for place, (begin, end) in ranges.items():
        edges = [begin - 1, *odd.get(place, ()), end]
        gaps = [(a + 1, b) for a, b in pairwise(edges) if a + 1 < b]
        longest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_RANGES])
        if longest:
            clean[place] = longest
        edges = [begin, *(edge for gap in longest for edge in gap), end]
        left = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        if left:
            rest[place] = left
    return clean, rest


@dataclass(frozen=True)
class KafkaRangeReader:
    """Reader of offset ranges and of partition offsets.

    Parameters
    ----------
    connecting
        Options of :func:`etl.sources.kafka.connection.connection_options`.
    options
        Further options of Spark's Kafka source, such as those of :func:`etl.sources.kafka.topic_stream.options_of_streams_and_batches`.
    seconds
        Longest time without an answer of the brokers, or without records while some are left.
    """

    spark: SparkSession
    connecting: Mapping[str, str]
    options: Mapping[str, str]
    seconds: int = SECONDS

    @property
    def _keeps_headers(self) -> bool:
        """True if records keep their headers."""
        return self.options["includeHeaders"] == "true"

    def read_range(self, ranges: Ranges) -> DataFrame:
        """Read one range of some partitions with Spark: the columns of its Kafka source, always with ``headers``."""
        chosen: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, partition), offsets in ranges.items():
            chosen.setdefault(topic, {})[partition] = offsets
        begins, ends = (
            json.dumps(
                {t: {p: offsets[end] for p, offsets in result.items()} for t, result in chosen.items()}
            )
            for end in (0, 1)
        )
        rows = (
            self.spark.read.format("kafka")
            .options(**self.options, **self.connecting)
            .option("assign", json.dumps({topic: [*result] for topic, result in chosen.items()}))
            .options(startingOffsets=begins, endingOffsets=ends)
            .load()
        )
        headers = F.col("headers") if self._keeps_headers else F.lit(None)
        others = ("key", "value", "topic", "partition", "offset", "timestamp")
        return rows.select(*others, headers.cast(HEADERS).alias("headers"))

    def closing_consumer(self) -> AbstractContextManager[Any]:
        """Open Kafka's own consumer in the JVM, without a group: nothing is committed, and no ACL of a group is needed.

        Raises
        ------
        NoAnswerError
            The brokers do not answer.
        """
        jvm: Any = self.spark._jvm
        settings = {
            **client_properties(self.connecting),
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "isolation.level": self.options["kafka.isolation.level"],
            "max.poll.records": str(POLL_RECORDS),
            "fetch.max.bytes": str(CHUNK_BYTES),
        }
        as_bytes = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
        kind = jvm.org.apache.kafka.clients.consumer.KafkaConsumer
        return closing_client(lambda: kind(settings, as_bytes(), as_bytes()))

    @property
    def _java_poll_timeout(self) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.java.time.Duration.ofSeconds(self.seconds)

    def partitions(
        self, consumer: Any, topic: str, *, pattern: bool = False, only: Sequence[int] | None = None
    ) -> Sequence[Partition]:
        """Return the partitions of a query's topics.

        Parameters
        ----------
        topic
            Name of a topic, or a regular expression for complete names.
        pattern
            True for a regular expression.
        only
            Partition numbers; None for all.

        Raises
        ------
        NoAnswerError
            There is no such topic.
        """
        jvm: Any = self.spark._jvm
        there = {
            str(e.getKey()): len(e.getValue())
            for e in consumer.listTopics(self._java_poll_timeout).entrySet()
        }
        matches = jvm.java.util.regex.Pattern.matches if pattern else str.__eq__
        places = [(name, n) for name, count in there.items() if matches(topic, name) for n in range(count)]
        chosen = sorted(place for place in places if only is None or place[1] in only)
        if not chosen:
            raise NoAnswerError(f"Kafka topic {topic} does not exist")
        return chosen

    def oldest_and_next_offsets(
        self, consumer: Any, places: Sequence[Partition]
    ) -> dict[Partition, tuple[int, int]]:
        """Return the offsets of the oldest record and of the next one, by partition."""
        parts = [self._java_topic_partition(place) for place in places]
        begins = consumer.beginningOffsets(parts, self._java_poll_timeout)
        ends = consumer.endOffsets(parts, self._java_poll_timeout)
        return {place: (int(begins[a]), int(ends[a])) for place, a in zip(places, parts, strict=True)}

    def _java_topic_partition(self, place: Partition) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.org.apache.kafka.common.TopicPartition(*place)

    def offsets_between_times(
        self, consumer: Any, places: Sequence[Partition], since: int, until: int, latest: int
    ) -> Ranges:
        """Find the offsets of a range of time, by the times of single records.

        The brokers' time index returns a partition's *first* record from a time on, which may be one with a time far
        in the future: all records after it would be left out. So times from ``latest`` on are ignored.

        Parameters
        ----------
        since, until
            Milliseconds since 1970; the caller extends the range by more than the disorder of times.
        latest
            Times from this one on, or before 1970, are not a record's own.

        Returns
        -------
        Ranges
            Without the partitions that have no record in the range.
        """
        ranges = {}
        for place, (begin, end) in self.oldest_and_next_offsets(consumer, places).items():

            def first_offset_at(low: int, moment: int, place: Partition = place, end: int = end) -> int:
                def is_at_or_after_moment(offset: int) -> bool:
                    at = self._first_time_in_range(consumer, place, (offset, end), latest)
                    return at is None or at >= moment

                return low + bisect_left(range(low, end), True, key=is_at_or_after_moment)

            start = first_offset_at(begin, since)
            stop = first_offset_at(start, until)
            if start < stop:
                ranges[place] = (start, stop)
        return ranges

    def _first_time_in_range(
        self, consumer: Any, place: Partition, within: tuple[int, int], latest: int
    ) -> int | None:
        """Return the time of the first record in a range that has a valid time."""
        for record in self._records_of_range(consumer, place, within):
            if 0 <= (at := int(record.timestamp())) < latest:
                return at
        return None

    def find_overflowing_times(self, ranges: Ranges) -> Mapping[Partition, Sequence[int]]:
        """Find the records whose times overflow.

        Returns
        -------
        Mapping
            Their offsets in order, by partition; only for partitions that have some.

        Raises
        ------
        NoAnswerError
            The brokers do not answer.
        """
        jvm: Any = self.spark._jvm
        odd: dict[Partition, set[int]] = {}
        with self.closing_consumer() as consumer:
            for place, within in ranges.items():
                for page in self._poll_pages(consumer, place, within):
                    # One call for a page instead of one for each record.
                    told = _TIMES.findall(str(jvm.java.util.Objects.toString(page)))
                    late = {int(offset) for offset, at in told if abs(int(at)) > LATEST}
                    odd.setdefault(place, set()).update(o for o in late if _has_overflowing_time(page, o))
        result = {place: sorted(o for o in offsets if o < ranges[place][1]) for place, offsets in odd.items()}
        return {place: offsets for place, offsets in result.items() if offsets}

    def read_without_overflowing_times(
        self, ranges: Ranges, odd: Mapping[Partition, Sequence[int]]
    ) -> DataFrame:
        """Read a batch although Spark cannot read some of its records.

        Parameters
        ----------
        ranges
            Ranges of the batch; at least one.
        odd
            From :meth:`find_overflowing_times`.

        Returns
        -------
        DataFrame
            Columns of Spark's Kafka source. The unreadable records have no ``timestamp``, and their time in the last header.

        Raises
        ------
        NoAnswerError
            The brokers do not answer.
        """
        clean, rest = split_ranges_around_unreadable(ranges, odd)
        turns = range(max((len(each) for each in clean.values()), default=0))
        parts = [self.read_range({p: each[n] for p, each in clean.items() if n < len(each)}) for n in turns]
        return union_of_legs([*parts, *(self._yield_frames_read_in_driver(rest) if rest else ())])

    def _poll_pages(self, consumer: Any, place: Partition, within: tuple[int, int]) -> Iterator[Any]:
        """Yield pages of a partition's records, which may go a little beyond the range."""
        part = self._java_topic_partition(place)
        consumer.assign([part])
        consumer.seek(part, within[0])
        while (before := int(consumer.position(part))) < within[1]:
            records = consumer.poll(self._java_poll_timeout).records(part)
            if int(consumer.position(part)) == before:
                raise NoAnswerError(
                    f"topic {place[0]}, partition {place[1]}: the brokers sent no record after offset "
                    f"{before} for {self.seconds} s"
                )
            if records.size():
                yield records

    def _records_of_range(self, consumer: Any, place: Partition, within: tuple[int, int]) -> Iterator[Any]:
        """Yield the records of a range of one partition."""
        for page in self._poll_pages(consumer, place, within):
            for record in page:
                if int(record.offset()) >= within[1]:
                    return
                yield record

    def _yield_frames_read_in_driver(
        self, ranges: Mapping[Partition, Sequence[tuple[int, int]]]
    ) -> Iterator[DataFrame]:
        """Read ranges in the driver and send the records to the executors, a chunk at a time."""
        rows: list[tuple[Any, ...]] = []
        size = 0
        with self.closing_consumer() as consumer:
            parts = ((place, part) for place, result in ranges.items() for part in result)
            for record in (each for part in parts for each in self._records_of_range(consumer, *part)):
                rows.append(self._row_of_record(record))
                size += sum(len(each) for each in rows[-1][:2] if each is not None)
                if size > CHUNK_BYTES or len(rows) >= 10 * POLL_RECORDS:
                    yield self._frame_of_rows(rows)
                    rows, size = [], 0
        if rows:
            yield self._frame_of_rows(rows)

    def _frame_of_rows(self, rows: list[tuple[Any, ...]]) -> DataFrame:
        # Milliseconds become a time in the JVM, whose range of years is larger than Python's.
        made = self.spark.createDataFrame(rows, _RECORDS, verifySchema=False)
        made = made.withColumn("timestamp", F.expr("timestamp_millis(timestamp)"))
        # Otherwise its rows stay in the plan, and so on the driver.
        return made.localCheckpoint()

    def _row_of_record(self, record: Any) -> tuple[Any, ...]:
        pairs = record.headers().toArray() if self._keeps_headers else ()
        headers = [(str(header.key()), _bytearray_or_none(header.value())) for header in pairs]
        at = int(record.timestamp())
        overflows = abs(at) > LATEST
        if overflows:
            headers.append((TIME_HEADER, bytearray(str(at).encode())))
        return (
            _bytearray_or_none(record.key()),
            _bytearray_or_none(record.value()),
            str(record.topic()),
            int(record.partition()),
            int(record.offset()),
            None if overflows else at,
            headers or None,
        )


def _has_overflowing_time(page: Any, offset: int) -> bool:
    """Check that a page has a record at an offset whose time overflows."""
    size = int(page.size())
    at = bisect_left(range(size), offset, key=lambda place: int(page.get(place).offset()))
    return at < size and int(page.get(at).offset()) == offset and abs(int(page.get(at).timestamp())) > LATEST


def _bytearray_or_none(value: Any) -> bytearray | None:
    return None if value is None else bytearray(value)
