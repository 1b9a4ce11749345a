"""Reader of an event log: one pass from start to end into a history, which keeps figures and never lines."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millrace.advisor.logs import event_parser
from millrace.advisor.logs.application_history_model import (
    NO_TASKS,
    WITHOUT_START,
    Executor,
    History,
    Query,
    SparkJob,
    Stage,
    TaskAttempts,
)
from millrace.advisor.logs.event_logs import EventLog, LogLines
from millrace.advisor.logs.half_read_jobs_and_stages import (
    JOB_PROPERTIES,
    MOST_CORES,
    MOST_TASKS,
    PendingJob,
    PendingQueryRun,
    PendingStage,
    engine_of_properties,
    task_array,
    tasks_ordered_by_executor,
)
from millrace.advisor.logs.statistics import most_open_intervals

_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"

_INSTANT = 1e-3
"""Seconds: Spark writes times in whole milliseconds."""

HELD = 2 * 1024**3
"""Maximum of a history's estimated bytes in memory: the rest of a log is not read."""

_THING = 2048
"""Bytes that a job, a stage, an executor or a query takes in memory; measured, with its texts."""

_TIMES = 12
"""Maximum memory of a batch, as a multiple of its line: each position of a partition becomes a text and a number."""


def read_history(log: EventLog) -> History:
    """Read a log.

    Lines that cannot be parsed are counted (:attr:`History.unread`) and skipped, so that one damaged line costs no more
    than itself. A log that unpacks to more than its limit, or needs more than :data:`HELD`, is read up to there
    (:attr:`History.ended_at`).

    Raises
    ------
    OSError, botocore.exceptions.ClientError
        The log cannot be read to its end.
    """
    reader = _HistoryReader()
    lines = LogLines(log)
    ended_at = None
    try:
        for line in lines:
            reader.process_line(line)
    except _ReadingEndedError as reason:
        ended_at = str(reason)
    ended_at = ended_at or lines.ended_at
    if log.finished and not (reader.complete or ended_at):
        ended_at = "its last part is missing, as the application has ended"
    # The last line of a running application may be half written: that is no damage. One that can be read may lack its line feed.
    cut_off = lines.cut_off and (reader.last_failed or not reader.complete)
    if cut_off and reader.last_failed:
        reader.unread -= 1
    lost = log.lost or not reader.begins
    return reader.build_history(cut_off=cut_off, lost=lost, ended_at=ended_at)


class _ReadingEndedError(Exception):
    """The rest of the log is not read, for the reason in the message."""


class _HistoryReader:
    def __init__(self) -> None:
        self.unread = 0
        self.begins = False
        self._held = 0
        self.last_failed = False
        self._version = self._app = self._name = ""
        self._properties: dict[str, str] = {}
        self._first: float | None = None
        self._last = 0.0
        self.complete = False
        self._executors: dict[str, Executor] = {}
        self._place: dict[str, int] = {}
        self._removed: dict[str, float] = {}
        self._jobs: dict[int, PendingJob] = {}
        self._of_stage: dict[int, list[int]] = defaultdict(list)
        self._partitions: dict[int, int] = {}
        self._stages: dict[tuple[int, int], PendingStage] = {}
        self._ended: dict[tuple[int, int], PendingStage] = {}
        self._runs: dict[str, PendingQueryRun] = {}
        self._runs_of: dict[str, list[tuple[str, PendingQueryRun]]] = defaultdict(list)
        self._length = 0
        self._take_token: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "SparkListenerLogStart": self._log_start,
            event_parser.ENVIRONMENT: self._environment_update,
            "SparkListenerApplicationStart": self._application_start,
            "SparkListenerApplicationEnd": self._application_end,
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerJobStart": self._job_start,
            "SparkListenerJobEnd": self._job_end,
            "SparkListenerStageCompleted": self._stage_end,
            "SparkListenerTaskEnd": self._task_end,
            f"{_STREAMING}QueryStartedEvent": self._query_started,
            f"{_STREAMING}QueryProgressEvent": self._query_progress,
            f"{_STREAMING}QueryTerminatedEvent": self._query_ended,
        }

    def process_line(self, line: bytes) -> None:
        """Take in one line; count it when it cannot be read."""
        self.last_failed = False
        try:
            event = event_parser.parse_event(line, self._take_token)
            if event is not None:
                self._length = len(line)
                self._take_token[event["Event"]](event)
        except (
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            AssertionError,
            ArithmeticError,
            struct.error,
        ):
            # A damaged or foreign line may have any shape; each of these means that a field is not what it should be.
            self.unread += 1
            self.last_failed = True

    def _add_held_bytes_or_raise(self, size: int) -> None:
        self._held += size
        if self._held > HELD:
            raise _ReadingEndedError(f"its figures take more than {HELD >> 30} GiB")

    def _event_seconds_noting_span(self, ms: float) -> float:
        seconds = event_parser.checked_event_time(event_parser.to_number(ms) / 1e3)
        self._first = seconds if self._first is None else min(self._first, seconds)
        self._last = max(self._last, seconds)
        return seconds

    def _log_start(self, event: Mapping[str, Any]) -> None:
        if self.begins:  # its jobs have the same numbers as those of the first
            raise _ReadingEndedError("a second application begins in it")
        self._version = event_parser.to_text(event["Spark Version"])

    def _environment_update(self, event: Mapping[str, Any]) -> None:
        properties = event["Spark Properties"].items()
        self._add_held_bytes_or_raise(2 * self._length)
        self._properties |= {key: str(value) for key, value in properties if len(key) <= event_parser.WORDS}

    def _application_start(self, event: Mapping[str, Any]) -> None:
        self.begins = True
        self._name, self._app = (
            event_parser.to_text(event["App Name"]),
            event_parser.to_text(event.get("App ID") or ""),
        )
        self._event_seconds_noting_span(event["Timestamp"])

    def _application_end(self, event: Mapping[str, Any]) -> None:
        self._event_seconds_noting_span(event["Timestamp"])
        self.complete = True

    def _executor_added(self, event: Mapping[str, Any]) -> None:
        name, cores = event_parser.to_text(event["Executor ID"]), event["Executor Info"]["Total Cores"]
        self._add_held_bytes_or_raise(_THING)
        self._executors[name] = Executor(
            name,
            event_parser.to_count(cores, MOST_CORES),
            self._event_seconds_noting_span(event["Timestamp"]),
            None,
        )
        self._place.setdefault(name, len(self._place))
        self._removed.pop(name, None)

    def _executor_removed(self, event: Mapping[str, Any]) -> None:
        self._add_held_bytes_or_raise(_THING)
        self._removed[event_parser.to_text(event["Executor ID"])] = self._event_seconds_noting_span(
            event["Timestamp"]
        )

    def _job_start(self, event: Mapping[str, Any]) -> None:
        number, stages = event_parser.to_count(event["Job ID"]), event["Stage Infos"]
        properties = event.get("Properties") or {}
        job_properties = {
            key: event_parser.to_text(properties[key]) for key in JOB_PROPERTIES if key in properties
        }
        named = {
            event_parser.to_count(each["Stage ID"]): (
                event_parser.to_text(each["Stage Name"]),
                event_parser.to_count(each["Number of Tasks"], MOST_TASKS),
            )
            for each in stages
        }
        last = max(named, default=None)
        site = "" if last is None else named[last][0]
        self._add_held_bytes_or_raise(_THING * (1 + len(named)))
        self._jobs[number] = PendingJob(
            number, self._event_seconds_noting_span(event["Submission Time"]), job_properties, site
        )
        for stage, (_, partitions) in named.items():
            self._of_stage[stage].append(number)
            self._partitions.setdefault(stage, partitions)

    def _job_end(self, event: Mapping[str, Any]) -> None:
        job = self._jobs.get(event_parser.to_count(event["Job ID"]))
        self._event_seconds_noting_span(event["Completion Time"])
        if job is not None:
            job.running = False

    def _pending_stage(self, key: tuple[int, int]) -> PendingStage:
        """Return the stage attempt, counted for the job that runs it: other jobs that share it skip it."""
        if key not in self._stages:
            self._add_held_bytes_or_raise(_THING)
            owners = self._of_stage.get(key[0], [])
            running = [number for number in owners if self._jobs[number].running]
            job = next(iter(running or owners), None)
            self._stages[key] = PendingStage(job, self._partitions.get(key[0], 0))
        return self._stages[key]

    def _task_end(self, event: Mapping[str, Any]) -> None:
        key = (event_parser.to_count(event["Stage ID"]), event_parser.to_count(event["Stage Attempt ID"]))
        info = event["Task Info"]
        executor = info.get("Executor ID")
        name = None if executor is None else event_parser.to_text(executor)
        place = -1 if name is None else self._place.get(name, len(self._place))
        row = event_parser.pack_task_row(event, place)
        failure = event_parser.task_error_and_message(event)
        self._event_seconds_noting_span(info["Finish Time"])
        if name is not None and name not in self._place:
            self._add_held_bytes_or_raise(_THING)
            self._place[name] = place
        self._add_held_bytes_or_raise(len(row))
        stage = self._pending_stage(key)
        stage.rows += row
        # After the end of its stage comes a second copy of a task, killed when the first was done.
        if failure is not None and key not in self._ended:
            if failure not in stage.failures:
                self._add_held_bytes_or_raise(_THING)
            stage.failures[failure] += 1

    def _stage_end(self, event: Mapping[str, Any]) -> None:
        info = event["Stage Info"]
        key = (event_parser.to_count(info["Stage ID"]), event_parser.to_count(info["Stage Attempt ID"]))
        scans = event_parser.initial_rdds(info)
        self._add_held_bytes_or_raise(len(scans) * _THING // 2)
        partitions = event_parser.to_count(info["Number of Tasks"], MOST_TASKS)
        for moment in (info.get("Submission Time"), info.get("Completion Time")):
            if moment is not None:
                self._event_seconds_noting_span(moment)
        self._ended[key] = stage = self._pending_stage(key)
        stage.partitions, stage.scans, stage.adaptive = (
            partitions,
            scans,
            event_parser.is_task_count_adaptive(info),
        )

    def _query_run_of_event(self, event: Mapping[str, Any]) -> PendingQueryRun:
        run_id, name = event_parser.to_text(event["runId"]), event_parser.to_text(event.get("name") or "")
        if run_id not in self._runs:
            self._add_held_bytes_or_raise(_THING)
            run = PendingQueryRun(event_parser.to_text(event["id"]))
            self._runs[run_id] = run
            self._runs_of[run.id].append((run_id, run))
        run = self._runs[run_id]
        run.name = run.name or name or None
        return run

    def _query_started(self, event: Mapping[str, Any]) -> None:
        begun = event_parser.parse_progress_time(event["timestamp"])
        self._query_run_of_event(event).started = (
            None if begun is None else event_parser.checked_event_time(begun)
        )

    def _query_progress(self, event: Mapping[str, Any]) -> None:
        progress = event["progress"]
        batch = event_parser.batch_from_progress(progress)
        self._event_seconds_noting_span(batch.ended_at * 1e3)
        self._add_held_bytes_or_raise(_THING + _TIMES * self._length)
        run = self._query_run_of_event(progress)
        # A trigger that found nothing reports the next batch's number, without a batch's work.
        if "addBatch" in batch.parts:
            run.batches[batch.id] = batch
            run.unread_before_last = self.unread

    def _query_ended(self, event: Mapping[str, Any]) -> None:
        run = self._query_run_of_event(event)
        run.ended = self._last
        error = event.get("exception")
        run.failure = None if error is None else event_parser.to_text(error).strip().split("\n", 1)[0]

    def build_history(self, *, cut_off: bool, lost: bool, ended_at: str | None) -> History:
        """Join jobs to batches and batches to queries; tasks are already joined to stages."""
        for key, stage in (self._ended | self._stages).items():
            tasks = TaskAttempts(task_array(stage.rows)) if stage.rows else NO_TASKS
            stage.rows = bytearray()
            made = Stage(*key, stage.partitions, tasks, stage.failures, stage.scans, stage.adaptive)
            if stage.job is None:  # its job's start was lost, or compacted away
                self._jobs.setdefault(WITHOUT_START, PendingJob(WITHOUT_START, 0.0, {}, ""))
            self._jobs[WITHOUT_START if stage.job is None else stage.job].stages.append(made)
        others: list[SparkJob] = []
        of_batch: dict[tuple[str, int], list[SparkJob]] = defaultdict(list)
        for job in self._jobs.values():
            run, number = self._run_and_batch_of_job(job)
            execution = job.properties.get("spark.sql.execution.id", "")
            sql = int(execution) if execution.isdecimal() else None
            place = others
            if run is not None and number is not None and number in self._runs[run].batches:
                place = of_batch[run, number]
            place.append(SparkJob(job.id, sql, tuple(job.stages), job.site))
        queries = tuple(
            Query(
                name=run.name or run.id,
                id=run.id,
                run_id=run_id,
                started=run.started,
                failure=run.failure,
                batches=tuple(
                    replace(batch, jobs=tuple(of_batch.get((run_id, number), ())))
                    for number, batch in sorted(run.batches.items())
                ),
                unread_after=self.unread - run.unread_before_last,
            )
            for run_id, run in self._runs.items()
        )
        first = self._last if self._first is None else self._first
        return History(
            app_id=self._app or self._properties.get("spark.app.id", ""),
            name=self._name,
            spark_version=self._version,
            engine=engine_of_properties(self._properties),
            started=first,
            ended=self._last,
            complete=self.complete,
            properties=self._properties,
            executors=tuple(self._all_executors(first)),
            queries=queries,
            jobs=tuple(others),
            unread=self.unread,
            cut_off=cut_off,
            lost=lost,
            ended_at=ended_at,
        )

    def _all_executors(self, first: float) -> Iterator[Executor]:
        """Yield the executors that ran; where an executor's start is missing or damaged, by what its tasks show."""
        unnamed = [place for name, place in self._place.items() if name not in self._executors]
        tasks = tasks_ordered_by_executor(self._jobs.values()) if unnamed else task_array(b"")
        for name, place in self._place.items():
            made = self._executors.get(name)
            if made is None:
                ran = tasks[slice(*np.searchsorted(tasks["executor"], (place, place + 1)))]
                # By the executor's own seconds: the driver reports a task's end after it freed the slot.
                slots = most_open_intervals(
                    ran["launched"], ran["launched"] + np.maximum(ran["run"], _INSTANT)
                )
                made = Executor(name, slots, first, None, counted=True)
            yield replace(made, removed=self._removed.get(name))

    def _run_and_batch_of_job(self, job: PendingJob) -> tuple[str | None, int | None]:
        """Return the run and batch of a job.

        The job group is the run, unless the query's program set another group: then it is the query's run that was active.
        """
        number = job.properties.get("streaming.sql.batchId")
        if number is None or not number.isdecimal():
            return None, None
        group = job.properties.get("spark.jobGroup.id")
        if group in self._runs:
            return group, int(number)
        query = job.properties.get("sql.streaming.queryId")
        for run_id, run in self._runs_of.get(query or "", ()):
            if (run.started or 0.0) <= job.submitted <= (run.ended or float("inf")):
                return run_id, int(number)
        return None, int(number)
