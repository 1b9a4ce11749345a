"""Traffic for a stream: records at a rate, with bursts, late ones, duplicates and spoiled ones, and a ledger of all.

Time and chance are separate from the servers: :class:`Feed` makes records, :class:`TokenBucket` keeps the rate,
and the producers of :mod:`millrace.sandbox.producer` send and enter into the ledger what was acknowledged.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event as Stop
from typing import Literal, Protocol

from pyspark.sql.types import StringType, TimestampNTZType, TimestampType

from millrace.sandbox.child_processes import SandboxError
from millrace.sandbox.flights import Event
from millrace.sandbox.payloads import Payloads
from millrace.sandbox.producer import Producer
from millrace.sandbox.traffic_values import Values

Lateness = Literal["exponential", "uniform"]

_REMEMBERED = 500
"""Records among which the one to be sent twice is looked for."""

_SHORTEST_PAUSE = 0.0002
"""Seconds; one of nearly nothing would be asked for again and again."""

_LONGEST_PAUSE = 0.05
"""Seconds; what collects in a longer one arrives as a burst that nobody asked for."""


class Records(Protocol):
    """Where records come from."""

    def record(self, number: int, now: datetime) -> Values:
        """Make or take the record of a place in the stream."""


@dataclass(frozen=True)
class FileRecords:
    """The records of a file as they are, from the beginning again after the last."""

    records: list[Values]

    def record(self, number: int, now: datetime) -> Values:
        """Take one; its times stay what they are."""
        del now
        return dict(self.records[number % len(self.records)])


@dataclass(frozen=True)
class Shape:
    """What the traffic looks like.

    Attributes
    ----------
    per_second
        Rate outside bursts.
    burst_factor, burst_every, burst_seconds
        In the first ``burst_seconds`` of each ``burst_every`` seconds the rate is so much higher.
    dirty, duplicates, late
        Shares of all records.
    late_seconds
        Mean lateness (exponential), or the largest (uniform).
    key
        Field whose value is the key; None takes random ones.
    keys
        Distinct random keys.
    hot
        Share of records that one key has besides.
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

    def rate(self, at: float) -> float:
        """Records a second at a time after the start, in seconds."""
        burst = self.burst_factor > 1 and at % self.burst_every < self.burst_seconds
        return self.per_second * (self.burst_factor if burst else 1.0)


@dataclass
class TokenBucket:
    """Lets through as many as the rate has made room for, and never more than a moment's worth at once.

    Parameters
    ----------
    rate
        Records a second at a time after the start.
    clock, wait
        Of the machine; a test has its own.
    """

    rate: Callable[[float], float]
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    _tokens: float = 1.0
    _started: float | None = None
    _last: float = 0.0

    def take(self) -> None:
        """Wait until one more may pass."""
        if self._started is None:
            self._started = self.clock()
        while True:
            at = self.clock() - self._started
            rate = self.rate(at)
            # What a pause has missed is made good, up to a second's worth; a stall is not followed by a flood.
            self._tokens = min(self._tokens + (at - self._last) * rate, max(1.0, rate))
            self._last = at
            if self._tokens >= 1:
                self._tokens -= 1
                return
            self.wait(min(max((1 - self._tokens) / rate, _SHORTEST_PAUSE), _LONGEST_PAUSE))


@dataclass
class Feed:
    """Makes a stream's events; the same seed makes the same ones, but for the times in them.

    Parameters
    ----------
    payloads
        How they are written.
    shape
        What is done to them.
    choose
        Where chance comes from.
    now
        The time of a record.

    Raises
    ------
    SandboxError
        A key or time field that the schema has not.
    """

    source: Records
    payloads: Payloads
    shape: Shape
    choose: random.Random
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    late: int = 0
    duplicated: int = 0
    _recent: deque[Event] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def __post_init__(self) -> None:
        names = self.payloads.schema.fieldNames()
        if self.shape.key is not None and self.shape.key not in names:
            raise SandboxError(f"no field {self.shape.key} for the key; the schema has {', '.join(names)}")
        times = [
            f.name
            for f in self.payloads.schema.fields
            if isinstance(f.dataType, TimestampType | TimestampNTZType)
        ]
        self._time = self.shape.time or (times[0] if times else None)
        if self._time is not None and self._time not in times:
            raise SandboxError(f"no timestamp {self._time}; the schema has {', '.join(times) or 'none'}")
        if self.shape.late and self._time is None:
            raise SandboxError("late records need a timestamp in the schema, and it has none")

    def events(self, *, most: int | None = None) -> Iterator[Event]:
        """Make events, endlessly or so many."""
        number = made = 0
        while most is None or made < most:
            if self._recent and self.choose.random() < self.shape.duplicates:
                self.duplicated += 1
                yield self.choose.choice(self._recent)
            else:
                event = self._event(number)
                number += 1
                if event.dirt is None:
                    self._recent.append(event)
                yield event
            made += 1

    def _event(self, number: int) -> Event:
        values = self.source.record(number, self.now())
        if (
            self._time is not None
            and values[self._time] is not None
            and self.choose.random() < self.shape.late
        ):
            values[self._time] -= timedelta(seconds=self._lateness())
            self.late += 1
        key = self._key(values)
        if self.choose.random() < self.shape.dirty:
            payload, dirt = self.payloads.spoil(values, self.choose)
            return Event(key, payload, dirt)
        return Event(key, self.payloads.encode(values))

    def _lateness(self) -> float:
        if self.shape.lateness == "uniform":
            return self.choose.uniform(0, self.shape.late_seconds)
        return self.choose.expovariate(1 / self.shape.late_seconds)

    def _key(self, values: Values) -> bytes:
        if self.shape.hot and self.choose.random() < self.shape.hot:
            return b"hot"
        if self.shape.key is not None:
            value = values[self.shape.key]
            # A Kinesis key is text of 1 to 256 characters.
            return str("-" if value in (None, "") else value)[:256].encode()
        return f"k{self.choose.randrange(self.shape.keys)}".encode()


def default_key_field(payloads: Payloads) -> str | None:
    """The first text field that every record has; None for random keys."""
    required = (
        f.name for f in payloads.schema.fields if not f.nullable and isinstance(f.dataType, StringType)
    )
    return next(required, None)


@dataclass(frozen=True)
class Sent:
    """What was sent.

    Attributes
    ----------
    seconds
        From the first record's leave to send to the last's acknowledgement.
    """

    records: int
    dirty: int
    late: int
    duplicates: int
    payload_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """The rate that came of it."""
        return self.records / self.seconds if self.seconds else 0.0


def send(
    feed: Feed,
    producer: Producer,
    *,
    most: int | None,
    seconds: float | None,
    stop: Stop,
    sent: Callable[[int], None],
) -> Sent:
    """Send at the feed's rate until enough were sent, the time is over, or somebody says stop.

    Parameters
    ----------
    feed, producer
        What is sent, and what sends it.
    most, seconds
        How much and how long at most; None for no such limit.
    stop
        Set by whoever does not want more; what was handed over is sent yet.
    sent
        Is told how many more were acknowledged.

    Raises
    ------
    SandboxError
        The stream or topic refused records; the ledger holds what was taken.
    """
    bucket = TokenBucket(feed.shape.rate, wait=stop.wait)
    started = time.monotonic()
    size = 0

    def paced() -> Iterator[Event]:
        nonlocal size
        for event in feed.events(most=most):
            bucket.take()
            if stop.is_set() or (seconds is not None and time.monotonic() - started >= seconds):
                return
            size += len(event.payload)
            yield event

    producer.send(paced(), sent=sent)
    ledger = producer.ledger
    return Sent(
        len(ledger), ledger.dirty, feed.late, feed.duplicated, size, round(time.monotonic() - started, 3)
    )
