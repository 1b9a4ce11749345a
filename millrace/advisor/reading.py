"""Reads an event log once, from begin to end, into what the application did; in memory stay figures, never lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from millrace.advisor import events
from millrace.advisor.history import (
    NO_TASKS,
    TASK,
    Batch,
    Executor,
    Failure,
    History,
    Query,
    Scan,
    SparkJob,
    Stage,
    Tasks,
)
from millrace.advisor.logs import EventLog, Lines
from millrace.advisor.statistics import at_once

_INSTANT = 1e-3
"""Seconds: Spark tells times in whole milliseconds."""

_JOB_PROPERTIES = (
    "spark.sql.execution.id",
    "spark.jobGroup.id",
    "sql.streaming.queryId",
    "streaming.sql.batchId",
)


@dataclass
class _Job:
    id: int
    submitted: float
    properties: Mapping[str, str]
    site: str
    completed: float | None = None
    succeeded: bool | None = None
    stages: list[Stage] = field(default_factory=list)


@dataclass
class _Stage:
    """A stage attempt while its tasks come in."""

    job: int | None
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class _Run:
    """One run of a query."""

    id: str
    name: str | None = None
    started: float | None = None
    ended: float | None = None
    failure: str | None = None
    batches: dict[int, Batch] = field(default_factory=dict)


def read(log: EventLog) -> History:
    """Read a log.

    Whatever cannot be parsed is counted (:attr:`History.unread`) and passed over, so that one damaged line costs no more
    than itself.

    Raises
    ------
    OSError, botocore.exceptions.ClientError
        Where the log cannot be read to its end.
    """
    reader = _Reader()
    lines = Lines(log)
    for line in lines:
        reader.take(line)
    # The last line of a running application may be half written: that is no damage.
    if lines.cut_off and reader.last_failed:
        reader.unread -= 1
    return reader.history(cut_off=lines.cut_off, lost=log.lost, too_long=lines.too_long)


class _Reader:
    def __init__(self) -> None:
        self.unread = 0
        self.last_failed = False
        self._version = self._app = self._name = ""
        self._properties: dict[str, str] = {}
        self._first: float | None = None
        self._last = 0.0
        self._complete = False
        self._executors: dict[str, Executor] = {}
        self._place: dict[str, int] = {}
        self._memory: dict[str, int] = {}
        self._removed: dict[str, tuple[float, str]] = {}
        self._jobs: dict[int, _Job] = {}
        self._of_stage: dict[int, list[int]] = defaultdict(list)
        self._names: dict[int, tuple[str, int]] = {}
        self._open: dict[tuple[int, int], _Stage] = {}
        self._closed: dict[tuple[int, int], tuple[_Job, int]] = {}
        self._runs: dict[str, _Run] = {}
        self._take: dict[str, Callable[[Mapping[str, Any]], None]] = {
            events.LOG_START: self._log_start,
            events.ENVIRONMENT: self._environment,
            events.APPLICATION_START: self._application_start,
            events.APPLICATION_END: self._application_end,
            events.EXECUTOR_ADDED: self._executor_added,
            events.EXECUTOR_REMOVED: self._executor_removed,
            events.MEMORY_ADDED: self._memory_added,
            events.JOB_START: self._job_start,
            events.JOB_END: self._job_end,
            events.STAGE_END: self._stage_end,
            events.TASK_END: self._task_end,
            events.QUERY_STARTED: self._query_started,
            events.QUERY_PROGRESS: self._query_progress,
            events.QUERY_ENDED: self._query_ended,
        }

    def take(self, line: bytes) -> None:
        """Take one line in; one that cannot be read is counted."""
        self.last_failed = False
        try:
            event = events.parse(line)
            if event is not None:
                self._take[event["Event"]](event)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, OverflowError):
            # Any shape may stand in a damaged or foreign line; each of these says that a field is not what it should be.
            self.unread += 1
            self.last_failed = True

    def _at(self, ms: float) -> float:
        seconds = events.happened(ms / 1e3)
        self._first = seconds if self._first is None else min(self._first, seconds)
        self._last = max(self._last, seconds)
        return seconds

    def _log_start(self, event: Mapping[str, Any]) -> None:
        self._version = str(event["Spark Version"])

    def _environment(self, event: Mapping[str, Any]) -> None:
        self._properties |= {str(key): str(value) for key, value in event["Spark Properties"].items()}

    def _application_start(self, event: Mapping[str, Any]) -> None:
        self._name, self._app = str(event["App Name"]), str(event.get("App ID") or "")
        self._at(event["Timestamp"])

    def _application_end(self, event: Mapping[str, Any]) -> None:
        self._at(event["Timestamp"])
        self._complete = True

    def _executor_added(self, event: Mapping[str, Any]) -> None:
        name = str(event["Executor ID"])
        self._executors[name] = Executor(
            name,
            event["Executor Info"]["Total Cores"],
            self._at(event["Timestamp"]),
            None,
            0,
        )
        self._place.setdefault(name, len(self._place))
        self._removed.pop(name, None)

    def _executor_removed(self, event: Mapping[str, Any]) -> None:
        reason = str(event.get("Removed Reason", ""))[:300]
        self._removed[str(event["Executor ID"])] = (self._at(event["Timestamp"]), reason)

    def _memory_added(self, event: Mapping[str, Any]) -> None:
        self._memory[str(event["Block Manager ID"]["Executor ID"])] = event["Maximum Memory"]

    def _job_start(self, event: Mapping[str, Any]) -> None:
        number, stages = event["Job ID"], event["Stage Infos"]
        properties = event.get("Properties") or {}
        kept = {key: properties[key] for key in _JOB_PROPERTIES if key in properties}
        named = {each["Stage ID"]: (str(each["Stage Name"]), each["Number of Tasks"]) for each in stages}
        last = max(named, default=None)
        site = "" if last is None else named[last][0]
        self._jobs[number] = _Job(number, self._at(event["Submission Time"]), kept, site)
        for stage, name in named.items():
            self._of_stage[stage].append(number)
            self._names.setdefault(stage, name)

    def _job_end(self, event: Mapping[str, Any]) -> None:
        job = self._jobs[event["Job ID"]]
        job.completed = self._at(event["Completion Time"])
        job.succeeded = event["Job Result"]["Result"] == "JobSucceeded"

    def _stage(self, key: tuple[int, int]) -> _Stage:
        """The stage attempt, counted for the job that runs it: others that share it skip it."""
        if key not in self._open:
            owners = self._of_stage.get(key[0], [])
            running = [number for number in owners if self._jobs[number].completed is None]
            self._open[key] = _Stage(next(iter(running or owners), None))
        return self._open[key]

    def _task_end(self, event: Mapping[str, Any]) -> None:
        key = (event["Stage ID"], event["Stage Attempt ID"])
        info = event["Task Info"]
        name = info.get("Executor ID")
        place = -1 if name is None else self._place.get(str(name), len(self._place))
        row = events.task(event, place)
        failure = events.failure(event)
        self._at(info["Finish Time"])
        if name is not None:
            self._place.setdefault(str(name), place)
        if key in self._closed:  # a second copy of a task that was killed when the first was done
            job, at = self._closed[key]
            stage = job.stages[at]
            job.stages[at] = replace(stage, tasks=Tasks(np.concatenate([stage.tasks.table, _table([row])])))
            return
        stage_open = self._stage(key)
        stage_open.rows.append(row)
        if failure is not None:
            why = (failure.error, failure.message)
            stage_open.failures[why] = stage_open.failures.get(why, 0) + 1

    def _stage_end(self, event: Mapping[str, Any]) -> None:
        info = event["Stage Info"]
        key = (info["Stage ID"], info["Stage Attempt ID"])
        submitted, completed = info.get("Submission Time"), info.get("Completion Time")
        self._close(
            key,
            str(info["Stage Name"]),
            info["Number of Tasks"],
            None if submitted is None else self._at(submitted),
            None if completed is None else self._at(completed),
            events.scans(info),
            info.get("Failure Reason"),
            adaptive=events.adaptive(info),
        )

    def _close(
        self,
        key: tuple[int, int],
        name: str,
        partitions: int,
        submitted: float | None,
        completed: float | None,
        scans: tuple[Scan, ...],
        failure: str | None,
        *,
        adaptive: bool = False,
    ) -> None:
        known = self._stage(key)
        del self._open[key]
        if known.job is None:
            return  # of a job whose start was compacted away
        job = self._jobs[known.job]
        failures = tuple(Failure(*why, count) for why, count in known.failures.items())
        tasks = Tasks(_table(known.rows)) if known.rows else NO_TASKS
        self._closed[key] = (job, len(job.stages))
        reason = None if failure is None else failure.strip().split("\n", 1)[0][:300]
        times = (submitted, completed)
        job.stages.append(Stage(*key, name, *times, partitions, tasks, reason, failures, scans, adaptive))

    def _run(self, event: Mapping[str, Any]) -> _Run:
        run = self._runs.setdefault(event["runId"], _Run(str(event["id"])))
        run.name = run.name or event.get("name")
        return run

    def _query_started(self, event: Mapping[str, Any]) -> None:
        begun = events.moment(event["timestamp"])
        self._run(event).started = None if begun is None else events.happened(begun)

    def _query_progress(self, event: Mapping[str, Any]) -> None:
        progress = event["progress"]
        batch = events.batch(progress)
        self._at(batch.ended * 1e3)
        run = self._run(progress)
        # A trigger that found nothing tells the next batch's number, without the work of one.
        if "addBatch" in batch.parts:
            run.batches[batch.id] = batch

    def _query_ended(self, event: Mapping[str, Any]) -> None:
        run = self._run(event)
        run.ended = self._last
        error = event.get("exception")
        run.failure = None if error is None else str(error).strip().split("\n", 1)[0][:300]

    def history(self, *, cut_off: bool, lost: bool, too_long: int) -> History:
        """Join what was read: tasks to stages are joined; jobs to batches, batches to queries."""
        for key in list(self._open):
            name, partitions = self._names.get(key[0], ("", 0))
            begun = min((row[0] for row in self._open[key].rows), default=None)
            self._close(key, name, partitions, begun, None, (), None)
        others: list[SparkJob] = []
        of_batch: dict[tuple[str, int], list[SparkJob]] = defaultdict(list)
        for job in self._jobs.values():
            run, number = self._batch_of(job)
            made = _spark_job(job, run, number)
            if run is not None and number is not None and number in self._runs[run].batches:
                of_batch[run, number].append(made)
            else:
                others.append(made)
        queries = tuple(self._query(run_id, run, of_batch) for run_id, run in self._runs.items())
        first = self._last if self._first is None else self._first
        return History(
            app_id=self._app or self._properties.get("spark.app.id", ""),
            name=self._name,
            spark_version=self._version,
            engine=_engine(self._properties),
            started=first,
            ended=self._last,
            complete=self._complete,
            properties=self._properties,
            executors=tuple(self._all_executors(first)),
            queries=queries,
            jobs=tuple(others),
            unread=self.unread + too_long,
            cut_off=cut_off,
            lost=lost,
        )

    def _all_executors(self, first: float) -> Iterator[Executor]:
        """Those that ran; of one whose begin is lost or damaged, what its tasks tell."""
        stages = [stage for job in self._jobs.values() for stage in job.stages]
        for name, place in self._place.items():
            made = self._executors.get(name)
            if made is None:
                ran = np.concatenate(
                    [each.tasks.table[each.tasks.executor == place] for each in stages] or [_table([])]
                )
                # By the executor's own seconds: the driver tells a task's end after it gave the slot away.
                slots = at_once(ran["launched"], ran["launched"] + np.maximum(ran["run"], _INSTANT))
                made = Executor(name, slots, first, None, 0, counted=True)
            removed, reason = self._removed.get(name, (None, ""))
            yield replace(made, removed=removed, reason=reason, memory=self._memory.get(name, 0))

    def _batch_of(self, job: _Job) -> tuple[str | None, int | None]:
        """The run and batch of a job.

        Its group is the run, unless the query's own program set another group: then it is the run of the query that was
        alive.
        """
        number = job.properties.get("streaming.sql.batchId")
        if number is None or not number.isdecimal():
            return None, None
        group = job.properties.get("spark.jobGroup.id")
        if group in self._runs:
            return group, int(number)
        query = job.properties.get("sql.streaming.queryId")
        for run_id, run in self._runs.items():
            alive = (run.started or 0.0) <= job.submitted <= (run.ended or float("inf"))
            if run.id == query and alive:
                return run_id, int(number)
        return None, int(number)

    def _query(self, run_id: str, run: _Run, of_batch: Mapping[tuple[str, int], list[SparkJob]]) -> Query:
        batches = tuple(
            replace(batch, jobs=tuple(of_batch.get((run_id, number), ())))
            for number, batch in sorted(run.batches.items())
        )
        return Query(run.name or run.id, run.id, run_id, run.started, run.ended, run.failure, batches)


def _table(rows: list[tuple[Any, ...]]) -> Any:
    return np.array(rows, TASK)


def _spark_job(job: _Job, run: str | None, batch: int | None) -> SparkJob:
    execution = job.properties.get("spark.sql.execution.id")
    return SparkJob(
        job.id,
        int(execution) if execution is not None and execution.isdecimal() else None,
        run,
        batch,
        job.submitted,
        job.completed,
        job.succeeded,
        tuple(job.stages),
        job.site,
    )


def _engine(properties: Mapping[str, str]) -> str:
    if any(key.startswith("spark.glue.") for key in properties):
        return "glue"
    if any(key.startswith("spark.emr-serverless.") for key in properties):
        return "emr"
    return "sandbox" if properties.get("spark.master", "").startswith("local") else "spark"
