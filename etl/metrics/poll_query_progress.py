"""Monitor that collects the metrics of all queries of a job and sends them to the outputs.

Queries are polled once a second, instead of by a ``StreamingQueryListener`` in Python, which runs inside a thread of
Spark's (``docs/design/metrics.md#polled-progress``): no call of Spark ever waits for this code.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..record.errors import OWN_REPETITION
from .background_writer import BackgroundWriter
from .trigger_metrics import BacklogInputs, MetricSample, TriggerMeter

POLL_SECONDS = 1.0

CLOSE_SECONDS = 5.0
"""Longest time that the end of a job waits for its last metrics."""

_COUNTED = MappingProxyType({"failed": "QueryFailures", "retrying": "QueryRetries"})
"""Events that count as a metric."""

_REMEMBERED = 200
"""Batches whose accounts are kept until Spark reports their progress: Spark keeps a hundred for each query."""


class MetricsMonitor:
    """Poller of all queries' progress, in its own daemon thread.

    It never delays a batch: a batch passes on its accounts and continues, and Spark
    keeps its progress in any case.

    Parameters
    ----------
    outputs
        Pipes to the writers of samples.
    origins
        Backlog source of each query, by the query's name.
    followers
        Pipes for all progress of a query's triggers, by the query's name.
    others
        Other pipes of the job, whose losses are counted too, and which are closed last.
    poll_seconds
        Seconds between two polls.
    close_seconds
        Longest time that the end waits for the last metrics.
    """

    def __init__(
        self,
        outputs: Sequence[BackgroundWriter[MetricSample]],
        *,
        origins: Mapping[str, BacklogInputs] = MappingProxyType({}),
        followers: Mapping[str, BackgroundWriter[Mapping[str, Any]]] = MappingProxyType({}),
        others: Sequence[BackgroundWriter[Any]] = (),
        poll_seconds: float = POLL_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._outputs = tuple(outputs)
        self._origins = dict(origins)
        self._followers = dict(followers)
        self._others = (*self._followers.values(), *others)
        self._poll_seconds = poll_seconds
        self._close_seconds = close_seconds
        self._heard: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._accounts: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._watched: dict[str, tuple[TriggerMeter, SparkProgress]] = {}
        self._ended: list[tuple[TriggerMeter, SparkProgress]] = []
        self._lock = threading.Lock()
        self._lost = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._measure_until_closed, name="metrics", daemon=True)
        self._put_sample(MetricSample(time.time(), None, {"Starts": 1}))
        self._thread.start()

    def watch(self, query: str, feed: SparkProgress) -> None:
        """Poll a query from now on; a restarted query continues its measurement."""
        with self._lock:
            before = self._watched.get(query)
            if before is not None:
                # One more poll for its last batches; then it is dropped, with all that Spark keeps of that run.
                self._ended.append(before)
            else:
                # A sample at the start, so that missing data from now on means silence.
                self._put_sample(MetricSample(time.time(), query, {"Triggers": 0}))
            meter = before[0] if before else TriggerMeter(query, self._origins.get(query, BacklogInputs()))
            self._watched[query] = meter, feed

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Accept an event that the job reports (``docs/launch-document.md``); return at once."""
        if event["event"] == "batch" or event["event"] in _COUNTED:
            self._heard.put(event)

    def close(self) -> bool:
        """Poll a last time and let the outputs finish within the time limit; return True if they did."""
        until = time.monotonic() + self._close_seconds
        self._closing.set()
        self._thread.join(self._close_seconds)
        done = not self._thread.is_alive()
        for pipes in (self._outputs, self._others):
            for pipe in pipes:
                pipe.start_final_writes()  # all start at once: none waits for one that hangs
            for pipe in pipes:
                done &= pipe.close(max(0.0, until - time.monotonic()))
        return done

    def _measure_until_closed(self) -> None:
        closing = False
        while not closing:
            # One more poll after the request to close, for the batches that ended meanwhile.
            closing = self._closing.wait(self._poll_seconds)
            try:
                self._measure_new_triggers()
            except (Py4JJavaError, CapturedException):
                self._lost += 1  # an error from Java; the next poll may succeed
            except (Py4JError, OSError):
                return  # the JVM has ended, so there is nothing left to poll

    def _measure_new_triggers(self) -> None:
        with self._lock:
            watched = (*self._ended, *self._watched.values())
            self._ended.clear()
        new = [(meter, feed.take_new_progress(), feed) for meter, feed in watched]
        # Only now: a batch reports its accounts before Spark reports its end.
        self._store_heard_events()
        for meter, ended, feed in new:
            if ended:
                self._notify_follower(meter.query, ended)
                self._measure_triggers(meter, ended, feed.take_failed_task_count())
        for key in list(self._accounts)[:-_REMEMBERED]:
            del self._accounts[key]
        dropped, self._lost = self._lost, 0
        dropped += sum(pipe.take_dropped_count() for pipe in (*self._outputs, *self._others))
        if dropped:
            self._put_sample(MetricSample(time.time(), None, {"DroppedSamples": dropped}))

    def _store_heard_events(self) -> None:
        while True:
            try:
                event = self._heard.get_nowait()
            except queue.Empty:
                return
            if event["event"] in _COUNTED:
                self._put_sample(MetricSample(time.time(), event.get("query"), {_COUNTED[event["event"]]: 1}))
            else:
                self._accounts[event["query"], event["batch"]] = event

    def _notify_follower(self, query: str, ended: Sequence[Mapping[str, Any]]) -> None:
        if query in self._followers:
            for progress in ended:
                self._followers[query].put(progress)

    def _measure_triggers(
        self, meter: TriggerMeter, ended: Sequence[Mapping[str, Any]], retried: int
    ) -> None:
        for progress in ended:
            try:
                accounts = self._accounts.pop((meter.query, progress["batchId"]), None)
                # Failed tasks are known by job, not by batch: they count for the last batch since the last poll.
                sample = meter.measure(progress, accounts, retried if progress is ended[-1] else 0)
            except (KeyError, TypeError, ValueError):
                self._lost += 1  # a source with another form of progress
            else:
                self._put_sample(sample)

    def _put_sample(self, sample: MetricSample) -> None:
        for pipe in self._outputs:
            pipe.put(sample)


class SparkProgress:
    """Progress of a query in this Spark session.

    Parameters
    ----------
    query
        A started query.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._query: Any = query._jsq
        self._group = str(query.runId)
        self._context: Any = spark._jsc.sc()
        self._seen = ""
        self._last_job = -1

    def take_new_progress(self) -> list[dict[str, Any]]:
        """Return the triggers that ended since the last call, the oldest first.

        Spark keeps a hundred; those with data appear when they end, those without every ten seconds
        (``spark.sql.streaming.noDataProgressEventInterval``).
        """
        recent = self._query.recentProgress()
        new: list[dict[str, Any]] = []
        # From the newest backwards: each access is a call into the JVM.
        for index in range(len(recent) - 1, -1, -1):
            begun = str(recent[index].timestamp())
            if begun <= self._seen:
                break
            new.append(json.loads(recent[index].json()))
        if new:
            self._seen = str(new[0]["timestamp"])
        return new[::-1]

    def take_failed_task_count(self) -> int:
        """Return the number of failed tasks in jobs of the query that ended since the last call.

        A running Spark job is left for a later call.
        """
        jobs = self._context.statusTracker().getJobIdsForGroup(self._group)
        last, failed = self._last_job, 0
        newest = last
        for index in range(len(jobs)):  # the newest first
            job = int(jobs[index])
            if job <= last:
                break
            newest = max(newest, job)
            try:
                data = self._context.statusStore().job(job)
                if str(data.status()) == "RUNNING":
                    newest = job - 1
                elif not self._is_job_ended_by_core(data):
                    failed += int(data.numFailedTasks())
            except Py4JJavaError:
                continue  # so many jobs since then that Spark has dropped this one
        self._last_job = newest
        return failed

    def _is_job_ended_by_core(self, data: Any) -> bool:
        """Return whether a Spark job was ended by the core, which writes its batch another way."""
        if str(data.status()) != "FAILED":
            return False
        stages = [data.stageIds().apply(index) for index in range(data.stageIds().size())]
        reasons = [self._context.statusStore().lastStageAttempt(each).failureReason() for each in stages]
        return any(each.isDefined() and OWN_REPETITION in str(each.get()) for each in reasons)
