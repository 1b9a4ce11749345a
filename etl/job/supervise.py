"""Supervisor of a job's queries, which run side by side: a failure is reported and does not interrupt another's batch."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..checkpoints.checkpoint import Checkpoint
from ..metrics import arrival_times
from ..metrics.poll_query_progress import MetricsMonitor, SparkProgress
from ..record.batch_accounts import EventReporter, call_in_background
from ..record.errors import (
    LeaseLostError,
    LossError,
    NoAnswerError,
    RestartQueryError,
    SinkError,
    StartError,
    describe_error,
    full_error_text,
    is_interruption,
)
from ..record.ready_query import BatchHandler, ReadyQuery
from . import jvm_shutdown_hook, kill_when_lease_lost
from .kill_when_lease_lost import LeaseFence
from .lease import Lease
from .running_query import RunningQuery, StopRequestedError

LOST_PROGRESS = 'because the return value of "scala.Option.get()" is null'
"""Error of Spark 4.1.1 that does not fail a batch. Spark computes the progress of a topic from the newest offsets that it
requested. A run that starts with an already planned batch has requested none: its query ends after that batch is committed,
when Spark reports the progress (``KafkaMicroBatchStream.metrics``). The next start begins with a new batch."""

POOL = "spark.scheduler.pool"
"""Local property of a thread: the pool of the FAIR scheduler in which its Spark jobs run."""

POLL_SECONDS = 0.2

BOUNDED_TRIGGER_SECONDS = 1.0
"""Trigger of a bounded run, and the least time between two looks whether it has reached its end."""

CHECK_SECONDS = 60.0
"""Seconds between two checks of a source: the longest time that an unread partition stays unnoticed."""


@dataclass(frozen=True)
class RetryLimits:
    """Retries of one failed query before the job fails.

    Attributes
    ----------
    most
        Most failures in a row that are retried; a successful batch resets the count.
    first_seconds, longest_seconds
        Wait before the first retry, doubled before each further one, and its upper limit.
    """

    most: int = 0
    first_seconds: float = 5.0
    longest_seconds: float = 300.0

    def seconds_before_attempt(self, attempt: int) -> float:
        """Return the seconds before an attempt, counted from 1; a random addition of up to 20% keeps queries out of step."""
        seconds: float = min(self.first_seconds * 2 ** (attempt - 1), self.longest_seconds)
        return seconds * random.uniform(1.0, 1.2)


@dataclass
class Supervisor:
    """Supervisor of queries: starts them, waits for them and ends them.

    Parameters
    ----------
    report
        Receives the events.
    monitor
        Measures the queries; None for no measurements. It is closed when they have ended.
    retries
        Retries of a failed query, while the others continue.
    check_seconds
        Seconds between two checks of a source.
    lease
        Lease of the checkpoints, held; it is released when the queries have ended. None if no other run can start the queries.
    bounded
        True to end when the queries have committed what had arrived when they started; those that derive start after the
        others have ended, and process what these have landed.
    finish
        Called under the lease after a bounded run that reached its end; it ends early when the event is set.
    kill
        Ends the process if the lease is lost and a query does not end within ``end_seconds``.
    """

    spark: SparkSession
    report: EventReporter
    monitor: MetricsMonitor | None = None
    retries: RetryLimits = RetryLimits()
    check_seconds: float = CHECK_SECONDS
    lease: Lease | None = None
    kill: Callable[[], None] | None = None
    end_seconds: float = kill_when_lease_lost.END_SECONDS
    bounded: bool = False
    finish: Callable[[threading.Event], None] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)

    def request_stop(self) -> None:
        """Request an end after the current batches; returns at once and may be called from a signal handler."""
        self._stopping.set()

    def run_to_exit_status(self, queries: Sequence[ReadyQuery]) -> int:
        """Run queries until they end, and return the exit status.

        Parameters
        ----------
        queries
            At least one.

        Returns
        -------
        int
            Exit status: 0 after a requested stop or the end of a bounded run, 1 after a failure.
        """
        jvm_shutdown_hook.remove_iceberg_pool_shutdown_hooks(self.spark)
        hook = jvm_shutdown_hook.add_jvm_shutdown_hook(self.spark, self._stop_and_wait)
        running: list[RunningQuery] = []
        watched = self._start_lease_fence(running)
        try:
            if not self.bounded:
                return int(self._run_all_and_return_if_failed(queries, running))
            for derives in (False, True):
                stage = [query for query in queries if query.derives is derives]
                if self._run_all_and_return_if_failed(stage, running):
                    return 1
                if self._stopping.is_set():
                    return 0
            if self.finish is not None:
                self.finish(self._stopping)
            self.report.emit("finished")
            return 0
        finally:
            ended = _have_all_ended(running)
            if watched is not None and ended:
                watched.stop_watching()
            # Before a waiting shutdown of the JVM continues: afterwards the JVM, which the monitor queries and which
            # carries standard output, is gone.
            if self.monitor is not None:
                self.monitor.close()
            if self.lease is not None and ended:
                self.lease.release()
            self._done.set()
            jvm_shutdown_hook.remove_jvm_shutdown_hook(self.spark, hook)

    def _run_all_and_return_if_failed(
        self, queries: Sequence[ReadyQuery], running: list[RunningQuery]
    ) -> bool:
        """Start queries and wait for their end; return True after a failure."""
        failed = False
        for query in queries:
            one = RunningQuery(query, self._stopping, self.lease)
            try:
                if self.bounded:
                    assert query.determine_end is not None, f"{query.name}: checked when it was built"
                    one.reached = query.determine_end()
                one.query = self._start_query(query, one)
            except (CapturedException, NoAnswerError, OSError, Py4JJavaError, SinkError, StartError) as error:
                one.error = error
                failed = self._report_failure_and_request_stop(one)
                break
            running.append(one)
            self.report.emit("started", query=query.name)
            if self.monitor is not None:
                self.monitor.watch(query.name, SparkProgress(self.spark, one.query))
        return self._wait_for_all_and_return_if_failed(running) or failed

    def _stop_and_wait(self) -> None:
        """Stop and wait for the end, as a hook of the JVM's shutdown."""
        self.request_stop()
        self._done.wait(jvm_shutdown_hook.HOOK_SECONDS)

    def _start_lease_fence(self, running: list[RunningQuery]) -> LeaseFence | None:
        if self.lease is None:
            return None

        def report_lease_loss(error: LeaseLostError) -> None:
            # The list is empty while the first query is being started.
            for where in [{"query": one.spec.name, **one.failed_batch_field} for one in running] or [{}]:
                self.report.report_failure(error, **where)

        return LeaseFence(
            self.lease,
            report_lease_loss,
            self.kill or kill_when_lease_lost.process_killer(self.spark),
            self.end_seconds,
        )

    def _start_query(self, query: ReadyQuery, handle: BatchHandler) -> StreamingQuery:
        seconds = BOUNDED_TRIGGER_SECONDS if self.bounded else query.trigger_seconds
        trigger = f"{max(0, round(seconds * 1000))} milliseconds"
        context = self.spark.sparkContext
        # The thread of the query inherits it, and so do the jobs of its batches: queries share the cores fairly, where a
        # queue would let each wait for all tasks of a long batch.
        context.setLocalProperty(POOL, query.name)
        try:
            return (
                arrival_times.observe_arrivals(query.rows)
                .writeStream.queryName(query.name)
                .option("checkpointLocation", query.checkpoint)
                .outputMode(query.output_mode)
                .trigger(processingTime=trigger)
                .foreachBatch(handle)
                .start()
            )
        finally:
            context.setLocalProperty(POOL, None)  # type: ignore[arg-type]  # removes it

    def _wait_for_all_and_return_if_failed(self, running: list[RunningQuery]) -> bool:
        failed = False
        while running:
            self._end_all_if_lease_lost(running)
            for one in list(running):
                assert one.query is not None
                if one.rebuilt is not None:
                    if one.rebuilt.done():
                        self._start_rebuilt(one, one.rebuilt)
                elif one.again_at is not None and not one.is_ending:
                    if time.monotonic() >= one.again_at:
                        _start_again(one)
                elif not one.query.isActive:
                    if isinstance(one.error, RestartQueryError) and self._restart_on_request(one):
                        continue
                    one.error = one.error or one.query.exception()
                    if self._restart_if_spark_lost_progress(one) or self._schedule_retry_if_any_left(one):
                        continue
                    running.remove(one)
                    stopped = isinstance(one.error, StopRequestedError) or (
                        one.is_ending
                        and (
                            isinstance(one.error, RestartQueryError)
                            or "StopRequestedError" in str(one.error)
                            or (one.interrupted and is_interruption(one.error))
                        )
                    )
                    if one.error is not None and not stopped:
                        failed = self._report_failure_and_request_stop(one)
                elif one.is_ending and not one.query.status["isTriggerActive"]:
                    # The next trigger may start at this moment, and its reads are interrupted.
                    one.interrupted = True
                    _interrupt_and_wait(one)
                else:
                    self._end_query_if_source_loses_data(one)
                    self._stop_if_bounded_run_done(one)
            time.sleep(POLL_SECONDS)
        return failed

    def _end_all_if_lease_lost(self, running: list[RunningQuery]) -> None:
        """End all queries if the lease is lost, even in the middle of a batch."""
        try:
            kill_when_lease_lost.raise_if_lease_lost(self.lease)
        except LeaseLostError as error:
            # All at once: a query that does not end must not let another's batch continue.
            ends = [threading.Thread(target=_interrupt_and_wait, args=(one,), daemon=True) for one in running]
            for end in ends:
                end.start()
            for end in ends:
                end.join()
            for one in running:
                one.error, one.again_at = error, None

    def _end_query_if_source_loses_data(self, one: RunningQuery) -> None:
        """Check the source of a running query; data that it would leave unread ends the query."""
        if one.look is None:
            if one.spec.check is not None and time.monotonic() >= one.checked_at + self.check_seconds:
                one.checked_at = time.monotonic()
                one.look = call_in_background(one.spec.check)
            return
        if not one.look.done():
            return
        error, one.look = one.look.exception(), None
        if isinstance(error, NoAnswerError):
            self.report.emit("unchecked", query=one.spec.name, error=str(error))
        elif error is not None:
            _interrupt_and_wait(one)
            # After the end: the interrupted batch has set an error of its own.
            one.error = error

    def _stop_if_bounded_run_done(self, one: RunningQuery) -> None:
        """End a query of a bounded run that has no data to process, and whose commits cover the end of the run.

        A query that always finds new data ends at the start of a batch.
        """
        assert one.query is not None
        if one.reached is None or time.monotonic() < one.looked_at + BOUNDED_TRIGGER_SECONDS:
            return
        status = one.query.status
        if status["isDataAvailable"] or status["isTriggerActive"]:
            return
        one.looked_at = time.monotonic()
        last = Checkpoint(one.spec.checkpoint).last_committed_batch(self.spark)
        try:
            one.done = one.reached(0 if last is None else last + 1)
        except (CapturedException, OSError, Py4JJavaError) as error:
            self.report.emit("unchecked", query=one.spec.name, error=describe_error(error))

    def _schedule_retry_if_any_left(self, one: RunningQuery) -> bool:
        """Schedule and report the next attempt; return False if there is none."""
        final = (StopRequestedError, LossError, LeaseLostError, StartError)
        waits = one.again_at is not None  # the stop was requested while it waits
        if one.error is None or isinstance(one.error, final) or one.is_ending or waits:
            return False
        if one.attempts >= self.retries.most:
            return False
        one.attempts += 1
        delay = self.retries.seconds_before_attempt(one.attempts)
        one.again_at = time.monotonic() + delay
        self.report.emit(
            "retrying",
            query=one.spec.name,
            **one.failed_batch_field,
            attempt=one.attempts,
            of=self.retries.most,
            seconds=round(delay, 1),
            error=describe_error(one.error),
            error_class=type(one.error).__name__,
        )
        return True

    def _restart_on_request(self, one: RunningQuery) -> bool:
        """Start a query again whose handler asked for it, and return True.

        A second time for the same batch is a failure, which is retried.
        """
        if one.sent_back == one.failed_batch or one.is_ending:
            return False
        one.sent_back = one.failed_batch
        self.report.emit("reopened", query=one.spec.name, why=str(one.error))
        _start_again(one)
        return True

    def _restart_if_spark_lost_progress(self, one: RunningQuery) -> bool:
        """Start a query again that Spark ended after a committed batch, and return True; this does not count as an attempt."""
        if one.error is None or one.is_ending or LOST_PROGRESS not in full_error_text(one.error):
            return False
        self.report.emit("reopened", query=one.spec.name, why="Spark lost the progress of a repeated batch")
        _start_again(one)
        return True

    def _start_rebuilt(self, one: RunningQuery, rebuilt: Future[ReadyQuery]) -> None:
        """Start a query that was built again, on its checkpoint: its last batch is repeated. An error shows at the next check."""
        one.rebuilt = None
        try:
            one.spec = rebuilt.result()
            one.query = started = self._start_query(one.spec, one)
        except StartError as error:
            # It could be started before, so this is no error of the settings: a service does not answer at present.
            one.error = NoAnswerError(str(error))
        except (CapturedException, OSError, Py4JJavaError, NoAnswerError, SinkError) as error:
            one.error = error
        else:
            if self.monitor is not None:
                self.monitor.watch(one.spec.name, SparkProgress(self.spark, started))

    def _report_failure_and_request_stop(self, one: RunningQuery) -> bool:
        assert one.error is not None
        self.report.report_failure(one.error, query=one.spec.name, **one.failed_batch_field)
        self._stopping.set()
        return True


def _start_again(one: RunningQuery) -> None:
    """Begin to build a query again; the others are supervised while a service that it asks keeps silent."""
    one.again_at = one.error = one.failed_batch = None
    spec = one.spec
    one.rebuilt = call_in_background(spec.rebuild or (lambda: spec))


def _have_all_ended(running: Sequence[RunningQuery]) -> bool:
    try:
        return not any(one.query.isActive for one in running if one.query)
    except Py4JError:
        return False  # the JVM does not answer, so this is unknown


def _interrupt_and_wait(one: RunningQuery) -> None:
    """Interrupt a query and wait for its end, up to ``spark.sql.streaming.stopTimeout``."""
    try:
        if one.query is not None and one.query.isActive:
            one.query.stop()
    except (CapturedException, Py4JError):
        return  # not ended in that time: it ends after its batch or with the process
