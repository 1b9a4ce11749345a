"""Accounts of each batch: computed inside its one action, written as one JSON line."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import pyspark
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from .errors import JVM_ERRORS, AccountsError, describe_error

REPORT_SECONDS = 1.0
"""Usual wait for the figures of a finished action, at most; they arrive through Spark's listener bus."""

EVENT_SECONDS = 120.0
"""Longest wait until the listener bus is empty; afterwards figures that are missing are counted."""


Answer = TypeVar("Answer")


def call_in_background(call: Callable[[], Answer]) -> Future[Answer]:
    """Call a function in its own daemon thread, so that one that hangs blocks nothing.

    The threads of a ``ThreadPoolExecutor`` are no daemons: Python waits for them at its end.
    """
    answer: Future[Answer] = Future()

    def set_result_of_call() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=set_result_of_call, name="background", daemon=True).start()
    return answer


class ObservedFigures:
    """Figures that an action computes while it runs, without a second action.

    Parameters
    ----------
    figures
        Named aggregates, such as ``F.count("*").alias("read")``.
    """

    def __init__(self, *figures: Column) -> None:
        self._figures = figures
        self._observation = Observation()
        self._observed: DataFrame | None = None

    def observe(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Observe the rows, with ``more`` figures that use their columns; once per instance."""
        self._figures = (*self._figures, *more)
        self._observed = rows.observe(self._observation, *self._figures)
        return self._observed

    def values(self) -> dict[str, Any]:
        """Return the figures of the action, after it succeeded; see :func:`figures_of_each_observer`."""
        return figures_of_each_observer(self)[0]

    def wait_for_figures(self) -> dict[str, Any]:
        """Wait for the figures; none where Spark 4.1 says that a plan ran without the observed part (SPARK-54620)."""
        observation: Any = self._observation
        try:
            if int(pyspark.__version__.partition(".")[0]) >= 4:
                return dict(observation.get)
            # Its `get` goes through a Java iterator, whose end is an exception: thirty calls into the JVM more.
            figures = observation._jo.getAsJava()
            return {name: figures.get(name) for name in figures.keySet().toString()[1:-1].split(", ")}
        except JVM_ERRORS:
            return {}

    def wait_for_listener_events(self) -> None:
        """Wait until Spark has told its listeners all that has happened, at most :data:`EVENT_SECONDS`."""
        spark: Any = self._observed_frame.sparkSession
        spark._jsc.sc().listenerBus().waitUntilEmpty(int(EVENT_SECONDS * 1000))
        time.sleep(0.1)

    def compute_by_own_action(self) -> dict[str, Any]:
        """Compute the figures by an action of their own, which also ends the wait of :meth:`wait_for_figures`."""
        return compute_aggregates(self._observed_frame, self._figures)

    @property
    def _observed_frame(self) -> DataFrame:
        assert self._observed is not None, "nothing was observed"
        return self._observed


def compute_aggregates(rows: DataFrame, figures: Sequence[Column]) -> dict[str, Any]:
    """Compute named aggregates of rows by an action."""
    [row] = rows.agg(*figures).collect()
    return dict(row.asDict())


def figures_of_each_observer(*observed: ObservedFigures) -> list[dict[str, Any]]:
    """Return the figures of an action with several observers, after it succeeded.

    Spark reports nothing of a part that its optimizer removed, as below ``where(false)``, and may drop an event: what has not
    been reported once all events are, is counted.
    """
    # All in one thread: each Python thread opens a connection to the JVM, and a thread there.
    answer = call_in_background(lambda: [one.wait_for_figures() for one in observed])
    try:
        found = answer.result(REPORT_SECONDS)
    except TimeoutError:
        with suppress(*JVM_ERRORS):
            observed[0].wait_for_listener_events()
        found = answer.result(0) if answer.done() else [{} for _ in observed]
    return [figures or one.compute_by_own_action() for figures, one in zip(found, observed, strict=True)]


def row_count_aggregate(name: str) -> Column:
    """Return the aggregate that counts rows, under a name."""
    return F.expr(f"count(1) AS {name}")


@dataclass(frozen=True)
class BatchAccounts:
    """Accounts of a batch: ``read = bad + good``, ``good = written + filtered + duplicates + refused``.

    Attributes
    ----------
    read
        Records of the batch; None if the sink does not count them.
    offered
        Rows that the transform made of the good records; if there are more rows than records, ``filtered`` is negative. None
        if ``read`` is.
    written
        Offered rows that are new in the sink.
    bad
        Records that could not be decoded; None if only good ones are read.
    refused
        Rows that the sink refused; None for a sink that refuses none.

    Raises
    ------
    AccountsError
        The accounts do not balance.
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
            raise AccountsError(
                f"internal error of Millrace: the record counts of the batch do not add up: {self}"
            )

    def event_fields(self) -> dict[str, int]:
        """Return the figures for the event of a derive or direct query's batch, without missing ones."""
        done = self.written + (self.refused or 0)
        found: dict[str, int | None] = {"read": self.read, "bad": self.bad}
        if self.read is not None and self.bad is not None:
            found["good"] = self.read - self.bad
        found["duplicates"] = 0 if self.offered is None else self.offered - done
        if self.read is not None and self.offered is not None:
            found["filtered"] = self.read - (self.bad or 0) - self.offered
        found |= {"written": self.written, "refused": self.refused}
        return {name: count for name, count in found.items() if count is not None}


def landing_event_fields(read: int, landed: int, bad: int) -> dict[str, int]:
    """Return the figures for the event of a land query's batch: ``read = landed + duplicates``, ``landed = good + bad``.

    Parameters
    ----------
    read, landed, bad
        Records; ``bad`` is a part of ``landed``.

    Raises
    ------
    AccountsError
        As in :class:`BatchAccounts`.
    """
    told = BatchAccounts(read, read - bad, landed - bad, bad).event_fields()
    return {
        "read": read,
        "duplicates": told["duplicates"],
        "landed": landed,
        "good": landed - bad,
        "bad": bad,
    }


@dataclass(frozen=True)
class ReplayAccounts:
    """Accounts of a replay, in dead letters: ``letters = good + filtered + bad + already``.

    A row lands for each settled letter, and for each bad one with new bytes.

    Attributes
    ----------
    good
        Landed, or written by the sink.
    bad
        Bad again, whether landed (with other bytes) or unchanged.
    already
        Replayed with success before.
    landed
        Rows added to the table.
    filtered
        Left out by the current transform, and so settled; None if records are only decoded.
    duplicates
        Rows that the sinks of a direct query had already and left as they are; None if none were sent to them.
    """

    letters: int
    good: int
    bad: int
    already: int
    landed: int
    filtered: int | None = None
    duplicates: int | None = None

    def __post_init__(self) -> None:
        settled = self.good + (self.filtered or 0)
        counts = (self.good, self.filtered or 0, self.bad, self.already)
        if self.letters != sum(counts) or min(counts) < 0 or not 0 <= self.landed - settled <= self.bad:
            raise AccountsError(
                f"internal error of Millrace: the record counts of the replay do not add up: {self}"
            )

    def event_fields(self) -> dict[str, int]:
        """Return the figures for the event of a replay."""
        return {name: count for name, count in vars(self).items() if count is not None}


Listener = Callable[[Mapping[str, Any]], None]
"""Gets each event with all its fields."""


class LineOutput(Protocol):
    """Output of lines."""

    def write(self, text: str, /) -> object:
        """Write a text."""

    def flush(self) -> None:
        """Flush what was written."""


@dataclass(frozen=True)
class EventReporter:
    """Writer of events as JSON lines, each written at once and flushed: queries share the stream.

    Parameters
    ----------
    job
        Name of the job, part of every line.
    stream
        Standard output, read by the job's log and its starter.
    """

    job: str
    stream: LineOutput = field(default_factory=lambda: sys.stdout)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _listeners: list[Listener] = field(default_factory=list, repr=False, compare=False)

    def add_listener(self, listener: Listener) -> None:
        """Send every event from now on to a listener, which must return at once."""
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

    def report_failure(self, error: BaseException, **fields: Any) -> None:
        """Write an event for a failure with its reason."""
        self.emit("failed", **fields, error=describe_error(error), error_class=type(error).__name__)


def utc_now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def batch_time_fields(begun: datetime, committed: datetime, oldest: int | None = None) -> dict[str, Any]:
    """Return duration and commit time, as fields of an event.

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
    """Return a time in ISO 8601, UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
