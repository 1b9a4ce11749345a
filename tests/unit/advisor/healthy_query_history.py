"""Synthetic histories: a healthy query, to which each test adds one fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Finding
from millrace.advisor.logs.application_history_model import (
    Batch,
    BatchSource,
    Executor,
    History,
    InitialRdd,
    Query,
    SparkJob,
    Stage,
    StateOperator,
    TaskAttempts,
)

START = 1_800_000_000.0
KAFKA = "KafkaV2[Subscribe[orders]]"
SOURCE = InitialRdd("MicroBatchScan", False, 1)


def stage(at: float, times: Sequence[float], records: Sequence[int], number: int = 0, **more: Any) -> Stage:
    """A stage whose tasks begin together, on as many cores as it has tasks unless ``launched`` says otherwise."""
    launched = np.array(more.pop("launched", [0.0] * len(times))) + at
    scans = more.pop("scans", (SOURCE,))
    failures: dict[tuple[str, str], int] = more.pop("failures", {})
    partitions = more.pop("partitions", len(times))
    columns: dict[str, Any] = {
        "launched": launched,
        "finished": launched + np.array(times),
        "run": np.array(times) * 0.95,
        "cpu": np.array(times) * 0.9,
        "records_read": records,
        "index": range(len(times)),
        **more,
    }
    return Stage(number, 0, partitions, TaskAttempts.from_columns(**columns), failures, scans)


def job(number: int, stages: Sequence[Stage], execution: int | None = None) -> SparkJob:
    return SparkJob(number, number if execution is None else execution, tuple(stages), "save")


def batch(number: int, begun: float, jobs: Sequence[SparkJob], records: int = 1000, **more: Any) -> Batch:
    """A batch that ends a tenth of a second after its last task."""
    duration = more.pop(
        "duration", max(float(s.tasks.finished.max()) for j in jobs for s in j.stages) + 0.1 - begun
    )
    parts = {
        "triggerExecution": duration,
        "addBatch": duration - 0.06,
        "walCommit": 0.03,
        "commitOffsets": 0.02,
    }
    parts |= {"queryPlanning": 0.01} | more.pop("parts", {})
    left = more.pop("left", 0)
    done = (number + 1) * records
    source = more.pop("source", None) or BatchSource(
        KAFKA,
        {"orders:0": done - records},
        {"orders:0": done},
        {"orders:0": done + left},
        more.pop("rows", records),
    )
    return Batch(number, begun, duration, parts, source.rows, (source,), jobs=tuple(jobs), **more)


def even(number: int, begun: float) -> Batch:
    """A healthy batch: two tasks of 0.4 s, give or take a fiftieth."""
    times = [0.4 + 0.008 * ((number * 7) % 5 - 2), 0.4 + 0.008 * ((number * 3) % 5 - 2)]
    jitter = (number * 13) % 7
    return batch(
        number, begun, [job(number, [stage(begun + 0.05, times, [500 + jitter, 500])])], 1000 + jitter
    )


def history(
    make: Callable[[int, float], Batch] = even,
    count: int = 24,
    every: float = 2.0,
    cores: int = 2,
    **more: Any,
) -> History:
    """An application with one query, whose batches begin every two seconds."""
    batches = tuple(make(number, START + number * every) for number in range(count))
    query = Query("orders", "id", "run", START, None, batches)
    executors = tuple(Executor(str(n), cores, START, None) for n in range(more.pop("executors", 1)))
    return History(
        "app", "orders", "3.5.7", "spark", START, START + count * every, True, {}, executors, (query,), **more
    )


def state(rows: int, removed: int = 0) -> tuple[StateOperator, ...]:
    return (StateOperator("dedupe", rows, removed, rows * 100),)


def kinds(found: Any) -> list[str]:
    return [each.kind for each in found.findings]


def again(found: Batch, **changes: Any) -> Batch:
    return replace(found, **changes)


def tiny_tasks(number: int, begun: float) -> Batch:
    """A batch whose hundred rows are read behind a shuffle by a hundred tasks, half of them without one."""
    launched = [0.012 * (n // 2) for n in range(100)]
    at = stage(
        begun + 0.05,
        [0.012] * 100,
        [0] * 100,
        launched=launched,
        shuffle_records_read=[0, 2] * 50,
        scans=(),
    )
    return batch(number, begun, [job(number, [at])], 100)


def found(kind: str, *arguments: Any, **more: Any) -> Finding:
    """The finding of a kind in such a history, which costs 1,000 dollars a month."""
    advice = advise(history(*arguments, **more), AdvisedJob("job orders", 1000.0))
    assert kind in kinds(advice), kinds(advice)
    finding = next(each for each in advice.findings if each.kind == kind)
    assert finding.words
    assert finding.changes
    assert finding.effect.low <= finding.effect.likely <= finding.effect.high
    return finding


def twice(cached: bool) -> Callable[[int, float], Batch]:
    """Batches with two actions on the same source, the second on what the first has held where it is cached."""

    def two(number: int, begun: float) -> Batch:
        held = InitialRdd("InMemoryTableScan", True, 100 + number)
        scans = [(SOURCE, held)] * 2 if cached else [(SOURCE,)] * 2
        jobs = [
            job(2 * number, [stage(begun + 0.05, [0.4, 0.4], [500, 500], 0, scans=scans[0])]),
            job(2 * number + 1, [stage(begun + 0.5, [0.4, 0.4], [500, 500], 1, scans=scans[1])]),
        ]
        return batch(number, begun, jobs, rows=1000 if cached else 2000)

    return two
