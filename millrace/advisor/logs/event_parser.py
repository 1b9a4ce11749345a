"""Parser of Spark's events in a log, one JSON object a line, for the events that are used.

Written from Spark's ``JsonProtocol`` (3.5 and 4.0) and from real logs of both. A field that an older or newer Spark
does not write counts as 0 or unknown, never as an error.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from millrace.advisor.logs.application_history_model import (
    TASK,
    Batch,
    BatchSource,
    InitialRdd,
    StateOperator,
)

ENVIRONMENT = "SparkListenerEnvironmentUpdate"

_BEGIN = b'{"Event":"'


def parse_event(line: bytes, names: Container[str]) -> Mapping[str, Any] | None:
    """Return the event of a line, ``None`` for an event that is not wanted.

    Plans, submitted stages and started tasks are most of a log and add nothing, so they are not parsed.

    Parameters
    ----------
    names
        Names of the wanted events.

    Raises
    ------
    ValueError
        The line is not a JSON object with an event's name.
    """
    if line.startswith(_BEGIN):
        name = line[len(_BEGIN) : line.find(b'"', len(_BEGIN))]
        if name.decode(errors="replace") not in names:
            # Not parsed, but checked: damage must not pass as an event that is not wanted.
            if not line.rstrip().endswith(b"}"):
                raise ValueError("the line is cut off: it does not end with }")
            return None
        if name == b"SparkListenerTaskEnd":
            line = without_accumulables(line)
    event = orjson.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("Event"), str):
        raise ValueError("no event")
    return event if event["Event"] in names else None


_ACCUMULABLES = b'"Accumulables":['
_METRICS = b']},"Task Executor Metrics":'


def without_accumulables(line: bytes) -> bytes:
    """Remove a task's accumulators, three quarters of its line, which its metrics repeat."""
    # A failed task has accumulators in its end reason too, so the last list is removed.
    end = line.rfind(_METRICS)
    begin = line.rfind(_ACCUMULABLES, 0, end)
    if begin < 0 or end < 0:
        return line
    return line[: begin + len(_ACCUMULABLES)] + line[end:]


def parse_progress_time(text: str | None) -> float | None:
    """Return the epoch seconds of a time as Spark writes it in progress, such as ``2026-11-21T06:27:56.034Z``."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2000, 2200))
"""Range of times in a log of Spark: a number outside it is damage, and calendar functions may fail on it."""


def checked_event_time(seconds: float) -> float:
    """Return the time of an event, in epoch seconds.

    Raises
    ------
    ValueError
        No event can have this time.
    """
    if not _EARLIEST <= seconds < _LATEST:
        raise ValueError(f"{seconds} is not a possible time of an event")
    return seconds


MOST = 10**15
"""Largest count in a log: records, bytes, nanoseconds, milliseconds. Sums of larger ones would not be exact."""

WORDS = 300
"""Characters kept of a name or a text."""

NAMES = 1000
"""Entries kept of a list or map in a log."""


def to_count(value: Any, most: int = MOST) -> int:
    """Return a count.

    Raises
    ------
    ValueError
        It is not an integer from 0 to ``most``; true and false are none.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def to_number(value: Any) -> float:
    """Return a number that is not negative.

    Raises
    ------
    ValueError
        It is not a number from 0 to :data:`MOST`; true and false are none.
    """
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError("no number")
    return float(value)


def to_text(value: Any, most: int = WORDS) -> str:
    """Return the start of a text.

    Raises
    ------
    ValueError
        It is not a text.
    """
    if type(value) is not str:
        raise ValueError("no text")
    return value[:most]


def _object_or_empty(value: Any) -> Mapping[str, Any]:
    """Return an object; an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


_ROW = struct.Struct("<5d4q2i2?")
assert _ROW.size == TASK.itemsize


def pack_task_row(event: Mapping[str, Any], executor: int) -> bytes:
    """Return a row of :data:`~millrace.advisor.logs.application_history_model.TASK`, packed.

    Raises
    ------
    ValueError, TypeError, struct.error
        A figure is not a number in its range.
    """
    info, metrics = event["Task Info"], event.get("Task Metrics") or {}
    launched, finished = info["Launch Time"], info["Finish Time"]
    fetched = metrics.get("Shuffle Read Metrics") or {}
    figures = (
        *(launched, finished),
        metrics.get("Executor Run Time", 0),
        metrics.get("Executor CPU Time", 0),
        metrics.get("JVM GC Time", 0),
        (metrics.get("Input Metrics") or {}).get("Records Read", 0),
        (metrics.get("Output Metrics") or {}).get("Bytes Written", 0),
        fetched.get("Total Records Read", 0),
        fetched.get("Remote Bytes Read", 0) + fetched.get("Local Bytes Read", 0),
        info["Index"],
    )
    if not _NUMBERS.issuperset(map(type, figures)) or min(figures) < 0 or max(figures) > MOST:
        raise ValueError("a metric of the event is not a number, or out of range")
    return _ROW.pack(
        checked_event_time(launched / 1e3),
        checked_event_time(finished / 1e3),
        figures[2] / 1e3,
        figures[3] / 1e9,
        figures[4] / 1e3,
        *figures[5:],
        executor,
        bool(info.get("Failed")),
        bool(info.get("Killed")),
    )


_NUMBERS = {int, float}


def task_error_and_message(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the error and the message with which a task failed, ``None`` where it did not."""
    reason = _object_or_empty(event.get("Task End Reason"))
    kind = reason.get("Reason", "Success")
    if to_text(kind) in {"Success", "TaskKilled"} or not event["Task Info"].get("Failed"):
        return None
    error = to_text(reason.get("Class Name") or kind)
    text = to_text(
        reason.get("Description") or reason.get("Loss Reason") or reason.get("Message") or "", _TRACE
    )
    # An error in Python has what was raised at the end; one in the JVM, at the start.
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    python = error.endswith("PythonException") or "Traceback (most recent call last)" in text
    return error, (lines[-1] if python else lines[0]).strip()[:WORDS]


_TRACE = 1_000_000
"""Characters of a failure that are searched: an error in Python has what was raised at the end."""


_ADAPTIVE_READ = "AQEShuffleRead"
_SCOPE_NAME = re.compile(r'"name":"((?:[^"\\]|\\.)*)"')


def initial_rdds(stage: Mapping[str, Any]) -> tuple[InitialRdd, ...]:
    """Return the RDDs with which a stage starts: those without parents, and cached ones."""
    result = []
    for rdd in stage.get("RDD Info", ()):
        level = rdd.get("Storage Level") or {}
        cached = bool(level.get("Use Memory") or level.get("Use Disk"))
        if cached or not rdd.get("Parent IDs"):
            name = _operator_name(rdd)
            result.append(InitialRdd(name[:200], cached, to_count(rdd["RDD ID"])))
    return tuple(result[:NAMES])


def is_task_count_adaptive(stage: Mapping[str, Any]) -> bool:
    """Tell whether adaptive query execution chose how many tasks read a stage's shuffle."""
    return any(_operator_name(rdd) == _ADAPTIVE_READ for rdd in stage.get("RDD Info", ()))


def _operator_name(rdd: Mapping[str, Any]) -> str:
    """Return Spark's name of the operator that made an RDD; else the RDD's own name."""
    scope = _SCOPE_NAME.search(rdd.get("Scope") or "")
    return str(scope[1].strip() if scope else rdd.get("Name", ""))


def batch_from_progress(progress: Mapping[str, Any]) -> Batch:
    """Return one batch from a query's progress, without its jobs."""
    parts = {
        name[:WORDS]: to_number(ms) / 1e3
        for name, ms in itertools.islice(_object_or_empty(progress.get("durationMs")).items(), NAMES)
    }
    sources = tuple(
        BatchSource(
            description=to_text(each.get("description", "")),
            start=_flat_positions(each.get("startOffset")),
            end=_flat_positions(each.get("endOffset")),
            latest=_flat_positions(each.get("latestOffset")),
            rows=to_count(each.get("numInputRows") or 0),
        )
        for each in progress.get("sources") or ()
    )
    state = tuple(
        StateOperator(
            name=to_text(each.get("operatorName") or ""),
            rows=to_count(max(0, each.get("numRowsTotal", 0))),
            removed=to_count(max(0, each.get("numRowsRemoved", 0))),
            memory=to_count(max(0, each.get("memoryUsedBytes", 0))),
        )
        for each in progress.get("stateOperators") or ()
    )
    begun = parse_progress_time(to_text(progress["timestamp"]))
    assert begun is not None
    return Batch(
        id=to_count(progress["batchId"]),
        begun=checked_event_time(begun),
        duration=parts.get("triggerExecution", to_number(progress.get("batchDuration", 0)) / 1e3),
        parts=parts,
        # Spark writes no sum here.
        rows=sum(each.rows for each in sources),
        sources=sources,
        state=state,
        # Only whether there is one: records set its time, also to a year that a calendar of Python does not have.
        has_watermark=_object_or_empty(progress.get("eventTime")).get("watermark") is not None,
        arrivals=_oldest_and_youngest_arrival(_object_or_empty(progress.get("observedMetrics"))),
    )


def _flat_positions(value: Any) -> Mapping[str, int] | None:
    """Return the positions of an offset that counts records, flat: Kafka's ``{topic: {partition: position}}``.

    A flat object of integers may count anything: a file source's ``logOffset`` counts batches.
    """
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    flat = {(topic, key): at for topic, parts in value.items() for key, at in parts.items()}
    # -2 and -1 are Kafka's earliest and latest. Larger numbers than a count has are times or ids of another connector.
    if not flat or not all(
        key.isdecimal() and type(at) is int and -2 <= at <= MOST for (_, key), at in flat.items()
    ):
        return None
    return {f"{topic[:WORDS]}:{key[:WORDS]}": at for (topic, key), at in flat.items()}


def _oldest_and_youngest_arrival(observed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the oldest and youngest arrival of a batch, which Millrace's core observes."""
    row = _object_or_empty(observed.get("millrace_arrivals"))
    values = row.get("values") or ()
    fields = [each.get("name") for each in _object_or_empty(row.get("schema")).get("fields", ())]
    named = dict(zip(fields, values, strict=False))
    times: list[Any] = [named.get("oldest"), named.get("youngest")]
    if not _NUMBERS.issuperset(map(type, times)):
        return None
    oldest, youngest = (each / 1e3 for each in times)
    # Producers set these times: an impossible one is their error, and the rest of the line is valid.
    return (oldest, youngest) if _EARLIEST <= oldest <= youngest < _LATEST else None
