"""The accounts of each batch: taken inside its one action, written as one JSON line."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from .errors import AccountsError, describe

OBSERVATION_SECONDS = 120.0
"""Longest wait for the figures of a finished action; they come through Spark's listener bus."""


Answer = TypeVar("Answer")


def in_background(call: Callable[[], Answer]) -> Future[Answer]:
    """Call something in a thread of its own: what does not answer holds nobody up. An executor's threads, which are none, are waited for at the end of Python."""
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="background", daemon=True).start()
    return answer


class ObservedFigures:
    """Figures that an action computes on the way, without a second action.

    Parameters
    ----------
    figures
        Named aggregates, such as ``F.count("*").alias("read")``.
    """

    def __init__(self, *figures: Column) -> None:
        self._figures = figures
        self._observation = Observation()

    def observe(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Observe the rows that pass here, with ``more`` figures that rest on their columns; once per instance."""
        return rows.observe(self._observation, *self._figures, *more)

    def values(self, timeout: float = OBSERVATION_SECONDS) -> dict[str, Any]:
        """Figures of the action, after it succeeded; see :func:`values_of`."""
        return values_of(self, timeout=timeout)[0]


def values_of(*observed: ObservedFigures, timeout: float = OBSERVATION_SECONDS) -> list[dict[str, Any]]:
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
        They did not come in time. Spark would wait forever where its optimizer
        removed the observed part of a plan, or where the listener bus dropped the event.
    """
    # All of them in one thread: each thread of Python's opens a connection to the JVM, and a thread there.
    answer = in_background(lambda: [one._observation.get for one in observed])
    try:
        return answer.result(timeout)
    except TimeoutError:
        raise AccountsError(
            f"Spark did not report the row counts of the batch within {timeout:.0f} s"
        ) from None


def row_count(name: str) -> Column:
    """The figure of how many rows there were, under a name."""
    return F.expr(f"count(1) AS {name}")


@dataclass(frozen=True)
class Accounts:
    """What became of a batch: ``read = bad + good``, ``good = written + filtered + duplicates + refused``.

    Attributes
    ----------
    read
        Records of the batch; None where the sink leaves them uncounted.
    offered
        Rows that the transform made of the good ones; with more of them than records, ``filtered`` is negative. None as
        ``read`` is.
    written
        Of these, rows that are new in the sink.
    bad
        Records that could not be decoded; None where only good ones are read.
    refused
        Of the rows, those that the sink refused; None for one that takes every row.

    Raises
    ------
    AccountsError
        They do not balance.
    """

    read: int | None
    offered: int | None
    written: int
    bad: int | None = None
    refused: int | None = None

    def __post_init__(self) -> None:
        bad, refused = self.bad or 0, self.refused or 0
        read = bad if self.read is None else self.read
        offered = self.written + refused if self.offered is None else self.offered
        if not 0 <= bad <= read or min(self.written, refused) < 0 or self.written + refused > offered:
            raise AccountsError(f"accounts do not balance: {self}")

    @classmethod
    def of_landing(cls, read: int, landed: int, bad: int) -> Accounts:
        """Of a land query, which judges what is new only: ``read = landed + duplicates``, ``landed = good + bad``.

        Parameters
        ----------
        read, landed, bad
            Records; ``bad`` is a part of ``landed``.
        """
        return cls(read, read - bad, landed - bad, bad)

    def fields(self) -> dict[str, int]:
        """The figures as the line of a derive or direct query's batch has them; without those that it does not have."""
        done = self.written + (self.refused or 0)
        found: dict[str, int | None] = {"read": self.read, "bad": self.bad}
        if self.read is not None and self.bad is not None:
            found["good"] = self.read - self.bad
        found["duplicates"] = 0 if self.offered is None else self.offered - done
        if self.read is not None and self.offered is not None:
            found["filtered"] = self.read - (self.bad or 0) - self.offered
        found |= {"written": self.written, "refused": self.refused}
        return {name: count for name, count in found.items() if count is not None}

    def landed(self) -> dict[str, int]:
        """The figures as the line of a land query's batch has them."""
        told = self.fields()
        landed = {"landed": told["written"] + told["bad"], "good": told["written"], "bad": told["bad"]}
        return {"read": told["read"], "duplicates": told["duplicates"], **landed}


@dataclass(frozen=True)
class ReplayAccounts:
    """``letters = good + filtered + bad + already``, in dead letters; what is settled lands, and what is bad in another way.

    Attributes
    ----------
    good
        Landed, or taken by the sink.
    bad
        Bad again, whether landed (with other bytes) or left as they were.
    already
        Replayed with success before.
    landed
        Rows that were added to the table.
    filtered
        Left out by the transform as it is now, and so settled; None where records are decoded only.
    """

    letters: int
    good: int
    bad: int
    already: int
    landed: int
    filtered: int | None = None

    def __post_init__(self) -> None:
        settled = self.good + (self.filtered or 0)
        counts = (self.good, self.filtered or 0, self.bad, self.already)
        if self.letters != sum(counts) or min(counts) < 0 or not 0 <= self.landed - settled <= self.bad:
            raise AccountsError(f"accounts do not balance: {self}")

    def fields(self) -> dict[str, int]:
        """The figures as the line of a replay has them."""
        return {name: count for name, count in vars(self).items() if count is not None}


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


def batch_times(begun: datetime, committed: datetime, oldest: int | None = None) -> dict[str, Any]:
    """How long something took and when it was committed, as an event has it.

    Parameters
    ----------
    oldest
        Arrival of the oldest record, in microseconds since 1970; adds its age at the commit.
    """
    fields: dict[str, Any] = {
        "seconds": round((committed - begun).total_seconds(), 3),
        "committed_at": iso_text(committed),
    }
    if oldest is not None:
        fields["max_age_seconds"] = round(committed.timestamp() - oldest / 1e6, 3)
    return fields


def iso_text(moment: datetime) -> str:
    """A moment in ISO 8601, UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
