"""Traffic for a stream: records at a rate, with bursts, late, duplicated and spoiled records, and a ledger of all.

Time and chance are separate from the servers: :class:`TrafficFeed` makes records, :func:`wait_for_rate` keeps the rate,
and the producers of :mod:`millrace.sandbox.records.producer` send records and add acknowledged ones to the ledger.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event as Stop
from typing import Any, Literal

from pyspark.sql.types import StringType, TimestampNTZType, TimestampType

from millrace.lifecycle.aws_error_messages import AwsError, ThrottledError
from millrace.sandbox.payloads import PayloadWriters
from millrace.sandbox.payloads.read_file_records import FileRecord
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.producer import RecordProducer
from millrace.sandbox.schemas.traffic_values import (
    RecordGenerator,
    SampledRecords,
    Values,
    read_sample_file,
)

Lateness = Literal["exponential", "uniform"]

_REMEMBERED = 500
"""Last records among which one is chosen to be sent twice."""


Records = Callable[[int, datetime], Values | FileRecord]
"""Returns the record with a given number in the stream, at a given time."""


def source_of_file_records(records: Sequence[FileRecord]) -> Records:
    """Return a source of a file's records; after the last one they start again."""
    return lambda number, _: records[number % len(records)]


@dataclass(frozen=True)
class TrafficShape:
    """Shape of traffic.

    Attributes
    ----------
    per_second
        Rate outside bursts.
    burst_factor, burst_every, burst_seconds
        In the first ``burst_seconds`` of each ``burst_every`` seconds the rate is multiplied by the factor.
    dirty, duplicates, late
        Shares of all records.
    late_seconds
        Mean lateness (exponential), or the largest (uniform).
    key
        Field whose value is the key; None for random keys.
    keys
        Number of distinct random keys.
    hot
        Share of records with the one key ``hot``, beside the other keys.
    """

    per_second: float
    burst_factor: float = 1.0
    burst_every: float = 60.0
    burst_seconds: float = 10.0
    dirty: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    late_seconds: float = 30.0
    lateness: Lateness = "exponential"
    time: str | None = None
    key: str | None = None
    keys: int = 10_000
    hot: float = 0.0

    def rate_at(self, at: float) -> float:
        """Return the records a second at a time after the start, in seconds."""
        burst = self.burst_factor > 1 and at % self.burst_every < self.burst_seconds
        return self.per_second * (self.burst_factor if burst else 1.0)


_STEP_SECONDS = 0.05
"""Longest time over which a rate is taken as constant."""


def wait_for_rate(
    rate: Callable[[float], float],
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Yield when the next record is due, endlessly; a stall is made up for by the records of at most one second.

    Parameters
    ----------
    rate
        Function from seconds after the start to records a second.
    clock, wait
        The machine's; tests replace them.
    """
    started = clock()
    due = 0.0
    while True:
        at = clock() - started
        due = max(due, at - 1.0)
        if due > at:
            wait(due - at)
        yield
        left = 1.0
        # In steps: at a low rate the next record would be due long after a burst began.
        while left > 1e-9:
            now = rate(due)
            step = min(left / now, _STEP_SECONDS)
            left -= step * now
            due += step


@dataclass
class TrafficFeed:
    """Generator of a stream's events; the same seed gives the same ones, except for their times.

    Parameters
    ----------
    payloads
        Writers of the payloads.
    shape
        Shape of the traffic.
    choose
        Source of random numbers.
    now
        Returns the time of a record.

    Raises
    ------
    SandboxError
        The schema does not have the key or time field.
    """

    source: Records
    payloads: PayloadWriters
    shape: TrafficShape
    choose: random.Random
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    late: int = 0
    duplicated: int = 0
    _recent: deque[RecordToSend] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def __post_init__(self) -> None:
        names = self.payloads.schema.fieldNames()
        if self.shape.key is not None and self.shape.key not in names:
            raise SandboxError(
                f"the schema has no field {self.shape.key} for the key; its fields are {', '.join(names)}"
            )
        times = [
            f.name
            for f in self.payloads.schema.fields
            if isinstance(f.dataType, TimestampType | TimestampNTZType)
        ]
        self._time = self.shape.time or (times[0] if times else None)
        if self._time is not None and self._time not in times:
            raise SandboxError(
                f"the schema has no timestamp field {self._time}; its timestamp fields: "
                f"{', '.join(times) or 'none'}"
            )
        if self.shape.late and self._time is None:
            raise SandboxError("late records need a field of type timestamp, which the schema does not have")

    def events(self, *, most: int | None = None) -> Iterator[RecordToSend]:
        """Yield events, endlessly or so many."""
        number = made = 0
        while most is None or made < most:
            if self._recent and self.choose.random() < self.shape.duplicates:
                self.duplicated += 1
                yield self.choose.choice(self._recent)
            else:
                event = self._next_record_to_send(number)
                number += 1
                if event.dirt is None:
                    self._recent.append(event)
                yield event
            made += 1

    def _next_record_to_send(self, number: int) -> RecordToSend:
        values = self.source(number, self.now())
        if isinstance(values, FileRecord):
            return RecordToSend(self._partition_key(values.row), values.payload)
        if (
            self._time is not None
            and values[self._time] is not None
            and self.choose.random() < self.shape.late
        ):
            values[self._time] -= timedelta(seconds=self._random_lateness())
            self.late += 1
        key = self._partition_key(values)
        if self.choose.random() < self.shape.dirty:
            payload, dirt = self.payloads.spoil(values, self.choose)
            return RecordToSend(key, payload, dirt)
        return RecordToSend(key, self.payloads.encode(values))

    def _random_lateness(self) -> float:
        if self.shape.lateness == "uniform":
            return self.choose.uniform(0, self.shape.late_seconds)
        return self.choose.expovariate(1 / self.shape.late_seconds)

    def _partition_key(self, values: Mapping[str, Any]) -> bytes:
        if self.shape.hot and self.choose.random() < self.shape.hot:
            return b"hot"
        if self.shape.key is not None:
            value = values.get(self.shape.key)
            # A Kinesis key is text of 1 to 256 characters.
            return str("-" if value in (None, "") else value)[:256].encode(errors="replace")
        return f"k{self.choose.randrange(self.shape.keys)}".encode()


def generated_feed(
    payloads: PayloadWriters, shape: TrafficShape, seed: int, sample: Path | None = None
) -> TrafficFeed:
    """Return a feed of generated records, or of records drawn from a sample; the same seed gives the same ones.

    Parameters
    ----------
    sample
        File with JSON lines or CSV.

    Raises
    ------
    SandboxError
        The schema does not have a field of the shape.
    """
    choose = random.Random(seed)
    values = (
        RecordGenerator(payloads.schema, choose)
        if sample is None
        else SampledRecords(read_sample_file(sample, payloads.schema, dict), payloads.schema, choose)
    )
    return TrafficFeed(values.record, payloads, shape, choose)


def default_key_field(payloads: PayloadWriters) -> str | None:
    """Return the first text field that every record has; None for random keys."""
    required = (
        f.name for f in payloads.schema.fields if not f.nullable and isinstance(f.dataType, StringType)
    )
    return next(required, None)


@dataclass(frozen=True)
class SentTraffic:
    """Result of sending.

    Attributes
    ----------
    seconds
        From the start of sending to the last acknowledgement.
    """

    records: int
    dirty: int
    late: int
    duplicates: int
    payload_bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        """The actual rate."""
        return self.records / self.seconds if self.seconds else 0.0


def send_feed(
    feed: TrafficFeed,
    producer: RecordProducer,
    *,
    stop: Stop,
    most: int | None = None,
    seconds: float | None = None,
    sent: Callable[[int], None] = lambda _: None,
    pass_event: Callable[[RecordToSend], object] = lambda _: None,
) -> SentTraffic:
    """Send at the feed's rate until enough records were sent, the time is over, or ``stop`` is set; return what was sent.

    Parameters
    ----------
    feed, producer
        The events, and their producer.
    most, seconds
        Maximum number of records and longest time; None for no limit.
    stop
        Flag that ends sending; records that the producer has are still sent.
    sent
        Called with the number of newly acknowledged records.
    pass_event
        Called with each event that the producer gets.

    Raises
    ------
    SandboxError
        The stream or topic refused records; the ledger has the accepted ones.
    AwsError
        The service refused a call, also one that it throttles: the producer has tried often enough.
    """
    started = time.monotonic()
    size = 0

    def paced_records() -> Iterator[RecordToSend]:
        nonlocal size
        for event, _ in zip(
            feed.events(most=most), wait_for_rate(feed.shape.rate_at, wait=stop.wait), strict=False
        ):
            if stop.is_set() or (seconds is not None and time.monotonic() - started >= seconds):
                return
            size += len(event.payload)
            pass_event(event)
            yield event

    try:
        producer.send(paced_records(), sent=sent)
    except ThrottledError as error:
        # Whoever waits for the end of this repeats what is throttled.
        raise AwsError(str(error)) from error
    ledger = producer.ledger
    return SentTraffic(
        len(ledger),
        ledger.dirty_count,
        feed.late,
        feed.duplicated,
        size,
        round(time.monotonic() - started, 3),
    )
