"""The monitor passes measurements of a query to the outputs."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import CapturedException

from millrace.etl.metrics.background_writer import BackgroundWriter
from millrace.etl.metrics.poll_query_progress import MetricsMonitor
from millrace.etl.metrics.trigger_metrics import BacklogInputs, MetricSample
from tests.unit.etl.test_trigger_metrics import LANDED, idle, kafka, progress

SOON = 0.01


class Told:
    """An output that remembers, and can hang."""

    def __init__(self) -> None:
        self.samples: list[MetricSample] = []
        self.begun: list[str | None] = []
        """Queries of which only the beginning was told."""
        self.release = threading.Event()
        self.release.set()

    def write(self, samples: Sequence[MetricSample]) -> None:
        self.release.wait()
        for sample in samples:
            if sample.values == {"Triggers": 0}:
                self.begun.append(sample.query)
            else:
                self.samples.append(sample)

    def of(self, name: str) -> list[float]:
        return [sample.values[name] for sample in self.samples if name in sample.values]


class Query:
    """What a feed of Spark's tells, said beforehand."""

    def __init__(self, *triggers: dict[str, Any], failed: int = 0) -> None:
        self.triggers, self.failed = list(triggers), failed
        self.looked = threading.Event()

    def take_new_progress(self) -> list[dict[str, Any]]:
        told, self.triggers = self.triggers, []
        self.looked.set()
        return told

    def take_failed_task_count(self) -> int:
        failed, self.failed = self.failed, 0
        return failed


def test_accounts_and_progress_of_a_batch_become_one_sample() -> None:
    told = Told()
    monitor = MetricsMonitor(
        [BackgroundWriter("told", told.write)],
        origins={"land": BacklogInputs(counted=True)},
        poll_seconds=SOON,
    )
    monitor.on_event(LANDED)
    monitor.watch("land", Query(kafka((5,), (9,)), failed=2))
    assert monitor.close()
    started, batch = told.samples
    assert dict(started.values) == {"Starts": 1}
    values = batch.values
    assert (values["BadRecords"], values["BacklogRecords"], values["RetriedTasks"]) == (20, 4, 2)


def test_a_query_that_begins_says_so_and_one_that_is_started_again_does_not() -> None:
    """So that CloudWatch has a datum of it, after which its silence is one."""
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    for query in ("land", "derive", "land"):
        monitor.watch(query, Query())
    assert monitor.close()
    assert told.begun == ["land", "derive"]


def test_a_query_without_a_known_origin_is_measured_too() -> None:
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    monitor.watch("other", Query(idle(), progress(batchId=8), idle(batchId=9)))
    assert monitor.close()
    assert told.of("Triggers") == [1, 1, 1]
    assert [s.batch for s in told.samples if s.query] == [None, 8, None]


def test_failed_tasks_belong_to_the_last_of_the_batches_since_the_last_look() -> None:
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    monitor.watch("land", Query(progress(batchId=1), progress(batchId=2), failed=3))
    assert monitor.close()
    assert told.of("RetriedTasks") == [0, 3]


def test_a_failure_is_counted() -> None:
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    monitor.on_event({"event": "retrying", "query": "land", "attempt": 1})
    monitor.on_event({"event": "failed", "query": "land", "error": "no good"})
    monitor.on_event({"event": "started", "query": "land"})
    assert monitor.close()
    counted = [(s.query, dict(s.values)) for s in told.samples[1:]]
    assert counted == [("land", {"QueryRetries": 1}), ("land", {"QueryFailures": 1})]


def test_an_output_that_hangs_is_told_of_by_the_others() -> None:
    hanging, fine = Told(), Told()
    hanging.release.clear()
    pipes = [BackgroundWriter("hanging", hanging.write, room=5), BackgroundWriter("fine", fine.write)]
    monitor = MetricsMonitor(pipes, poll_seconds=SOON, close_seconds=0.5)
    query = Query(*(progress(batchId=n) for n in range(50)))
    monitor.watch("land", query)
    deadline = time.monotonic() + 10
    while not fine.of("DroppedSamples") and time.monotonic() < deadline:
        time.sleep(SOON)
    started = time.monotonic()
    assert not monitor.close()
    assert time.monotonic() - started < 3
    assert len(fine.of("BatchDuration")) == 50
    assert sum(fine.of("DroppedSamples")) >= 40
    hanging.release.set()


def test_a_progress_that_cannot_be_read_costs_itself_alone() -> None:
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    strange = progress(batchId=1)
    del strange["durationMs"]
    monitor.watch("land", Query(strange, progress(batchId=2)))
    assert monitor.close()
    assert [s.batch for s in told.samples if s.query] == [2]
    assert sum(told.of("DroppedSamples")) == 1


def test_the_end_of_the_jvm_ends_the_looking_and_nothing_else() -> None:
    class Gone(Query):
        def take_new_progress(self) -> list[dict[str, Any]]:
            raise Py4JError("the JVM is away")

    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    monitor.watch("land", Gone())
    assert monitor.close()
    assert told.of("Starts") == [1]


def test_one_refusal_of_java_is_not_the_end() -> None:
    class Refusal(CapturedException):
        def __init__(self) -> None:
            Exception.__init__(self, "not now")  # without a JVM to ask for a stack

    class Refuses(Query):
        refused = False

        def take_new_progress(self) -> list[dict[str, Any]]:
            if not self.refused:
                self.refused = True
                raise Refusal
            return super().take_new_progress()

    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    query = Refuses(progress(batchId=3))
    monitor.watch("land", query)
    assert query.looked.wait(10)
    assert monitor.close()
    assert [s.batch for s in told.samples if s.query] == [3]
    assert sum(told.of("DroppedSamples")) == 1


def test_accounts_that_spark_never_tells_of_are_forgotten() -> None:
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    for n in range(1000):
        monitor.on_event(LANDED | {"batch": n})
    query = Query()
    monitor.watch("land", query)
    assert query.looked.wait(10)
    query.looked.clear()
    assert query.looked.wait(10)
    query.triggers = [progress(batchId=5), progress(batchId=999)]
    assert monitor.close()
    bad = {s.batch: s.values.get("BadRecords") for s in told.samples if s.query}
    assert bad == {5: None, 999: 20}


def test_a_query_that_was_started_anew_goes_on_where_it_was() -> None:
    told = Told()
    monitor = MetricsMonitor(
        [BackgroundWriter("told", told.write)],
        origins={"land": BacklogInputs(counted=True)},
        poll_seconds=SOON,
    )
    first = Query(kafka((1,), (9,)))
    monitor.watch("land", first)
    assert first.looked.wait(10)
    monitor.watch("land", Query(kafka((2,), (9,), batchId=8, timestamp="2026-11-21T06:28:25.000Z")))
    assert monitor.close()
    assert told.of("LimitedInARow") == [1, 2]


def test_a_run_that_has_ended_is_asked_once_more_and_forgotten() -> None:
    """A query that is started again for months must not keep what Spark knows of all its runs."""
    told = Told()
    monitor = MetricsMonitor([BackgroundWriter("told", told.write)], poll_seconds=SOON)
    runs = [Query(progress(batchId=n)) for n in range(5)]
    for run in runs:
        monitor.watch("land", run)
    last, held = runs[-1], [weakref.ref(run) for run in runs[:-1]]
    del run
    runs.clear()
    assert last.looked.wait(10)
    last.looked.clear()
    assert last.looked.wait(10)
    gc.collect()
    assert [ref() for ref in held] == [None] * 4
    assert monitor.close()
    assert sorted(s.batch for s in told.samples if s.query) == [0, 1, 2, 3, 4]
