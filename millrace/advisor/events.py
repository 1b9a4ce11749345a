"""Spark's events as they stand in a log, one JSON object a line, and which of them tell anything.

Written from Spark's ``JsonProtocol`` (3.5 and 4.0) and from real logs of both. What an event lacks because an older or
newer Spark did not write it is taken as 0 or unknown, never as an error.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from millrace.advisor.application_history import TASK, Batch, Failure, Scan, Source, StateOperator

_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"

LOG_START = "SparkListenerLogStart"
ENVIRONMENT = "SparkListenerEnvironmentUpdate"
APPLICATION_START = "SparkListenerApplicationStart"
APPLICATION_END = "SparkListenerApplicationEnd"
EXECUTOR_ADDED = "SparkListenerExecutorAdded"
EXECUTOR_REMOVED = "SparkListenerExecutorRemoved"
MEMORY_ADDED = "SparkListenerBlockManagerAdded"
JOB_START = "SparkListenerJobStart"
JOB_END = "SparkListenerJobEnd"
STAGE_END = "SparkListenerStageCompleted"
TASK_END = "SparkListenerTaskEnd"
QUERY_STARTED = f"{_STREAMING}QueryStartedEvent"
QUERY_PROGRESS = f"{_STREAMING}QueryProgressEvent"
QUERY_ENDED = f"{_STREAMING}QueryTerminatedEvent"

WANTED = frozenset(
    name.encode()
    for name in (
        *(LOG_START, ENVIRONMENT, APPLICATION_START, APPLICATION_END),
        *(EXECUTOR_ADDED, EXECUTOR_REMOVED, MEMORY_ADDED, JOB_START, JOB_END, STAGE_END, TASK_END),
        *(QUERY_STARTED, QUERY_PROGRESS, QUERY_ENDED),
    )
)
"""All that is parsed; plans, submitted stages and started tasks are most of a log and tell nothing more."""

_BEGIN = b'{"Event":"'


def parse(line: bytes) -> Mapping[str, Any] | None:
    """Return the event of a line, ``None`` where it is one that nothing is read from.

    Raises
    ------
    ValueError
        Where it is no JSON object with an event's name.
    """
    if line.startswith(_BEGIN):
        name = line[len(_BEGIN) : line.find(b'"', len(_BEGIN))]
        if name not in WANTED:
            # Not parsed, but looked at: damage must not pass as an event that is not wanted.
            if not line.rstrip().endswith(b"}"):
                raise ValueError("a line without its end")
            return None
        if name == b"SparkListenerTaskEnd":
            line = without_accumulables(line)
    event = orjson.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("Event"), str):
        raise ValueError("no event")
    return event if event["Event"].encode() in WANTED else None


_ACCUMULABLES = b'"Accumulables":['
_METRICS = b']},"Task Executor Metrics":'


def without_accumulables(line: bytes) -> bytes:
    """Leave out a task's accumulators, three quarters of its line, which its metrics repeat."""
    # A failed task has accumulators in its end reason too, so the last list is meant.
    end = line.rfind(_METRICS)
    begin = line.rfind(_ACCUMULABLES, 0, end)
    if begin < 0 or end < 0:
        return line
    return line[: begin + len(_ACCUMULABLES)] + line[end:]


def moment(text: str | None) -> float | None:
    """Return the epoch seconds of a time as Spark writes it in progress, such as ``2026-11-21T06:27:56.034Z``."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2000, 2200))
"""No log of Spark is of another time: such a number is damage, and no calendar need hold it."""


def event_time(seconds: float) -> float:
    """Return when something happened, in epoch seconds.

    Raises
    ------
    ValueError
        Where nothing can have happened then.
    """
    if not _EARLIEST <= seconds < _LATEST:
        raise ValueError(f"{seconds} is no time of a log")
    return seconds


MOST = 10**15
"""No count of a log is larger: records, bytes, nanoseconds, milliseconds. Beyond it sums would not be exact any more."""

WORDS = 300
"""Characters kept of what a log names or says."""

NAMES = 1000
"""Entries kept of what a log lists by names."""


def to_count(value: Any, most: int = MOST) -> int:
    """Return a count.

    Raises
    ------
    ValueError
        It is no whole number from 0 to ``most``; true and false are none.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def to_number(value: Any, most: float = MOST) -> float:
    """Return a number that is not negative.

    Raises
    ------
    ValueError
        It is none from 0 to ``most``; true and false are none.
    """
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError("no number")
    return float(value)


def to_text(value: Any, most: int = WORDS) -> str:
    """Return the begin of a text.

    Raises
    ------
    ValueError
        It is none.
    """
    if type(value) is not str:
        raise ValueError("no text")
    return value[:most]


def _object(value: Any) -> Mapping[str, Any]:
    """An object, or nothing in its place."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


_ROW = struct.Struct("<7d9q3i2?")
assert _ROW.size == TASK.itemsize


def task(event: Mapping[str, Any], executor: int) -> bytes:
    """Return a row of :data:`~millrace.advisor.application_history.TASK`, packed.

    The scheduler's delay is what is left of a task's time beside running, (de)serialising and fetching its result, as
    Spark's own user interface counts it (``AppStatusUtils.schedulerDelay``).

    Raises
    ------
    ValueError, TypeError, struct.error
        A figure is none.
    """
    info, metrics = event["Task Info"], event.get("Task Metrics") or {}
    launched, finished = info["Launch Time"], info["Finish Time"]
    run = metrics.get("Executor Run Time", 0)
    result = info.get("Getting Result Time") or 0
    getting = finished - result if result else 0
    serializing = metrics.get("Executor Deserialize Time", 0) + metrics.get("Result Serialization Time", 0)
    fetched = metrics.get("Shuffle Read Metrics") or {}
    shuffled = metrics.get("Shuffle Write Metrics") or {}
    read, written = metrics.get("Input Metrics") or {}, metrics.get("Output Metrics") or {}
    delay = max(0, finished - launched - run - serializing - getting) if metrics else 0
    figures = (
        *(launched, finished, run),
        metrics.get("Executor CPU Time", 0),
        metrics.get("JVM GC Time", 0),
        delay,
        fetched.get("Fetch Wait Time", 0),
        read.get("Records Read", 0),
        read.get("Bytes Read", 0),
        written.get("Records Written", 0),
        written.get("Bytes Written", 0),
        fetched.get("Total Records Read", 0),
        fetched.get("Remote Bytes Read", 0) + fetched.get("Local Bytes Read", 0),
        shuffled.get("Shuffle Records Written", 0),
        shuffled.get("Shuffle Bytes Written", 0),
        metrics.get("Disk Bytes Spilled", 0),
        info["Index"],
        info.get("Attempt", 0),
    )
    if not _NUMBERS.issuperset(map(type, figures)) or min(figures) < 0 or max(figures) > MOST:
        raise ValueError("a figure that is none")
    return _ROW.pack(
        event_time(launched / 1e3),
        event_time(finished / 1e3),
        run / 1e3,
        figures[3] / 1e9,
        *(each / 1e3 for each in figures[4:7]),
        *figures[7:],
        executor,
        bool(info.get("Failed")),
        bool(info.get("Speculative")),
    )


_NUMBERS = {int, float}


def failure(event: Mapping[str, Any]) -> Failure | None:
    """Return why a task failed, ``None`` where it did not."""
    reason = _object(event.get("Task End Reason"))
    kind = reason.get("Reason", "Success")
    if to_text(kind) in {"Success", "TaskKilled"} or not event["Task Info"].get("Failed"):
        return None
    error = to_text(reason.get("Class Name") or kind)
    text = to_text(
        reason.get("Description") or reason.get("Loss Reason") or reason.get("Message") or "", _TRACE
    )
    # Of an error in Python, what was raised comes last; of one in the JVM, first.
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    python = error.endswith("PythonException") or "Traceback (most recent call last)" in text
    return Failure(error, (lines[-1] if python else lines[0]).strip()[:WORDS], 1)


_TRACE = 1_000_000
"""Characters of a failure that are looked into: of an error in Python, what was raised stands at the end."""


_ADAPTIVE_READ = "AQEShuffleRead"
_SCOPE_NAME = re.compile(r'"name":"((?:[^"\\]|\\.)*)"')


def scans(stage: Mapping[str, Any]) -> tuple[Scan, ...]:
    """Return what a stage begins with: the RDDs without parents, and those that are held."""
    found = []
    for rdd in stage.get("RDD Info", ()):
        level = rdd.get("Storage Level") or {}
        cached = bool(level.get("Use Memory") or level.get("Use Disk"))
        if cached or not rdd.get("Parent IDs"):
            name = _operator(rdd)
            found.append(
                Scan(
                    name[:200], cached, to_count(rdd["RDD ID"]), to_count(rdd.get("Number of Partitions", 0))
                )
            )
    return tuple(found[:NAMES])


def is_adaptive(stage: Mapping[str, Any]) -> bool:
    """Tell whether adaptive query execution chose how many tasks read a stage's shuffle."""
    return any(_operator(rdd) == _ADAPTIVE_READ for rdd in stage.get("RDD Info", ()))


def _operator(rdd: Mapping[str, Any]) -> str:
    """What made an RDD, as Spark names its operator; its own name where none did."""
    scope = _SCOPE_NAME.search(rdd.get("Scope") or "")
    return str(scope[1].strip() if scope else rdd.get("Name", ""))


def batch(progress: Mapping[str, Any]) -> Batch:
    """Return one batch from a query's progress, without its jobs."""
    parts = {
        name[:WORDS]: to_number(ms) / 1e3
        for name, ms in itertools.islice(_object(progress.get("durationMs")).items(), NAMES)
    }
    sources = tuple(_source(each) for each in progress.get("sources") or ())
    sink = _object(progress.get("sink"))
    written = sink.get("numOutputRows")
    begun = moment(to_text(progress["timestamp"]))
    assert begun is not None
    return Batch(
        id=to_count(progress["batchId"]),
        begun=event_time(begun),
        duration=parts.get("triggerExecution", to_number(progress.get("batchDuration", 0)) / 1e3),
        parts=parts,
        # Spark writes no sum of its own here.
        rows=sum(each.rows for each in sources),
        sources=sources,
        sink=to_text(sink.get("description", "")),
        rows_written=written if type(written) is int and 0 <= written <= MOST else None,
        state=tuple(_state(each) for each in progress.get("stateOperators") or ()),
        watermark=moment(_object(progress.get("eventTime")).get("watermark")),
        arrivals=_arrivals(_object(progress.get("observedMetrics"))),
    )


def _source(source: Mapping[str, Any]) -> Source:
    return Source(
        description=to_text(source.get("description", "")),
        start=_offset(source.get("startOffset")),
        end=_offset(source.get("endOffset")),
        latest=_offset(source.get("latestOffset")),
        rows=to_count(source.get("numInputRows") or 0),
        metrics={
            key[:WORDS]: str(value)[:WORDS]
            for key, value in itertools.islice(_object(source.get("metrics")).items(), NAMES)
        },
    )


def _offset(value: Any) -> Mapping[str, int] | None:
    """Return the positions of an offset that counts records: Kafka's, ``{topic: {partition: position}}``, made flat.

    A flat object of whole numbers counts whatever its connector likes: a file source's ``logOffset`` counts batches.
    """
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    flat = {(topic, key): at for topic, parts in value.items() for key, at in parts.items()}
    if not flat or not all(key.isdecimal() and type(at) is int for (_, key), at in flat.items()):
        return None
    if not all(-2 <= at <= MOST for at in flat.values()):  # -2 and -1 are Kafka's earliest and latest
        raise ValueError("a position that is none")
    return {f"{topic[:WORDS]}:{key[:WORDS]}": at for (topic, key), at in flat.items()}


def _state(operator: Mapping[str, Any]) -> StateOperator:
    return StateOperator(
        name=to_text(operator.get("operatorName") or ""),
        rows=to_count(max(0, operator.get("numRowsTotal", 0))),
        updated=to_count(max(0, operator.get("numRowsUpdated", 0))),
        removed=to_count(max(0, operator.get("numRowsRemoved", 0))),
        late=to_count(operator.get("numRowsDroppedByWatermark", 0)),
        memory=to_count(max(0, operator.get("memoryUsedBytes", 0))),
        commit=to_number(operator.get("commitTimeMs", 0)) / 1e3,
        update=to_number(operator.get("allUpdatesTimeMs", 0)) / 1e3,
        partitions=to_count(operator.get("numShufflePartitions", 0)),
        metrics={
            key[:WORDS]: float(value)
            for key, value in itertools.islice(_object(operator.get("customMetrics")).items(), NAMES)
            if type(value) in _NUMBERS
        },
    )


def _arrivals(observed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Oldest and youngest arrival of a batch, which the core of this project observes."""
    row = _object(observed.get("millrace_arrivals"))
    values = row.get("values") or ()
    fields = [each.get("name") for each in _object(row.get("schema")).get("fields", ())]
    named = dict(zip(fields, values, strict=False))
    oldest, youngest = named.get("oldest"), named.get("youngest")
    if oldest is None or youngest is None:
        return None
    oldest, youngest = to_number(oldest) / 1e3, to_number(youngest) / 1e3
    # Producers set these times: one that no clock shows is theirs, and the rest of the line holds.
    return (oldest, youngest) if _EARLIEST <= oldest <= youngest < _LATEST else None
