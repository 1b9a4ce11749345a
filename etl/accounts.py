"""The accounts of each batch: taken inside its one action, written as one JSON line."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl.errors import AccountsError, describe

OBSERVATION_SECONDS = 120.0
"""Longest wait for the figures of a finished action; they come through Spark's listener bus."""


class Observed:
    """Figures that an action computes on the way, without a second action.

    Parameters
    ----------
    figures
        Named aggregates, such as ``F.count("*").alias("read")``.
    """

    def __init__(self, *figures: Column) -> None:
        self._figures = figures
        self._observation = Observation()

    def on(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Observe the rows that pass here, with ``more`` figures that rest on their columns; once per instance."""
        return rows.observe(self._observation, *self._figures, *more)

    def values(self, timeout: float = OBSERVATION_SECONDS) -> dict[str, Any]:
        """Figures of the action, after it succeeded; see :func:`values_of`."""
        return values_of(self, timeout=timeout)[0]


def values_of(*observed: Observed, timeout: float = OBSERVATION_SECONDS) -> list[dict[str, Any]]:
    """Figures of an action that several observed, after it succeeded.

    Parameters
    ----------
    *observed
        Each with figures of its own.
    timeout
        Longest wait, in seconds.

    Raises
    ------
    AccountsError
        They did not come in time. Spark would wait for ever where its optimizer
        removed the observed part of a plan, or where the listener bus dropped the event.
    """
    answer: queue.Queue[list[dict[str, Any]]] = queue.Queue()

    def ask() -> None:
        answer.put([one._observation.get for one in observed])

    # All of them in one thread: each thread of Python's opens a connection to the JVM, and a thread there.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.get(timeout=timeout)
    except queue.Empty:
        raise AccountsError(f"no figures of the batch after {timeout:.0f} s") from None


def count(name: str) -> Column:
    """The figure of how many rows there were, under a name."""
    return F.expr(f"count(1) AS {name}")


@dataclass(frozen=True)
class LandAccounts:
    """``read = landed + duplicates``, ``landed = good + bad``; in records."""

    read: int
    landed: int
    bad: int

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.landed <= self.read:
            raise AccountsError(f"accounts do not balance: {self}")

    def fields(self) -> dict[str, int]:
        """The figures as the batch's line has them."""
        return {
            "read": self.read,
            "duplicates": self.read - self.landed,
            "landed": self.landed,
            "good": self.landed - self.bad,
            "bad": self.bad,
        }


@dataclass(frozen=True)
class ReplayAccounts:
    """``letters = good + bad + already``, in dead letters; ``landed`` rows are the good and the newly bad.

    Attributes
    ----------
    bad
        Bad again, whether landed (with other bytes) or left as they were.
    already
        Replayed with success before.
    """

    letters: int
    good: int
    bad: int
    already: int
    landed: int

    def __post_init__(self) -> None:
        changed = self.landed - self.good
        if self.letters != self.good + self.bad + self.already or not 0 <= changed <= self.bad:
            raise AccountsError(f"accounts do not balance: {self}")


@dataclass(frozen=True)
class DeriveAccounts:
    """``read = written + filtered + duplicates``; ``filtered`` is negative where a transform adds rows."""

    read: int
    transformed: int
    written: int

    def __post_init__(self) -> None:
        if self.read < 0 or not 0 <= self.written <= self.transformed:
            raise AccountsError(f"accounts do not balance: {self}")

    def fields(self) -> dict[str, int]:
        """The figures as the batch's line has them."""
        return {
            "read": self.read,
            "duplicates": self.transformed - self.written,
            "filtered": self.read - self.transformed,
            "written": self.written,
        }


@dataclass(frozen=True)
class DirectAccounts:
    """``read = good + bad``, ``good = written + filtered + duplicates``; in records.

    ``filtered`` is negative where a transform adds rows.
    """

    read: int
    bad: int
    transformed: int
    written: int

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.read or not 0 <= self.written <= self.transformed:
            raise AccountsError(f"accounts do not balance: {self}")

    def fields(self) -> dict[str, int]:
        """The figures as the batch's line has them."""
        good = self.read - self.bad
        return {
            "read": self.read,
            "bad": self.bad,
            "good": good,
            "duplicates": self.transformed - self.written,
            "filtered": good - self.transformed,
            "written": self.written,
        }


Listener = Callable[[Mapping[str, Any]], None]
"""Hears of an event with all its fields."""


class Stream(Protocol):
    """What lines are written to."""

    def write(self, text: str, /) -> object:
        """Write a text."""

    def flush(self) -> None:
        """Hand on what was written."""


@dataclass(frozen=True)
class Reporter:
    """Writes events as JSON lines, each in one piece and flushed: queries share the stream.

    Parameters
    ----------
    job
        Name of the job, part of every line.
    stream
        Standard output, where a job's log and its starter read.
    """

    job: str
    stream: Stream = field(default_factory=lambda: sys.stdout)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _listeners: list[Listener] = field(default_factory=list, repr=False, compare=False)

    def listen(self, listener: Listener) -> None:
        """Tell someone of every event from now on; a listener must return at once."""
        self._listeners.append(listener)

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event."""
        told = {"event": event, "job": self.job, **fields}
        line = json.dumps(told, default=str)
        with self._lock:
            self.stream.write(line + "\n")
            self.stream.flush()
        for listener in self._listeners:
            listener(told)

    def failed(self, error: BaseException, **fields: Any) -> None:
        """Write that something failed, and why."""
        self.emit("failed", **fields, error=describe(error), error_class=type(error).__name__)


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


def times(begun: datetime, committed: datetime, oldest: int | None = None) -> dict[str, Any]:
    """How long something took and when it was committed, as an event has it.

    Parameters
    ----------
    begun, committed
        Its ends.
    oldest
        Arrival of the oldest record, in microseconds since 1970; adds its age at the commit.
    """
    fields: dict[str, Any] = {
        "seconds": round((committed - begun).total_seconds(), 3),
        "committed_at": text(committed),
    }
    if oldest is not None:
        fields["max_age_seconds"] = round(committed.timestamp() - oldest / 1e6, 3)
    return fields


def text(moment: datetime) -> str:
    """A moment in ISO 8601, UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
