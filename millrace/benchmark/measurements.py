"""Measurements in the form in which the core writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict

SHORTEST = 0.001
"""Seconds; Spark writes a task's time in whole milliseconds, and some take none."""


class _StrictModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Batch(_StrictModel):
    """One micro-batch.

    Attributes
    ----------
    seconds
        Of each part, by Spark's names (``triggerExecution`` is the complete batch).
    tasks
        Seconds of each task, by stage.
    """

    batch: int
    records: int
    seconds: dict[str, float]
    tasks: tuple[tuple[float, ...], ...]

    @property
    def duration(self) -> float:
        """D, the seconds of the complete batch."""
        return self.seconds["triggerExecution"]

    @property
    def task_seconds(self) -> float:
        """Seconds of all tasks together."""
        return math.fsum(task for stage in self.tasks for task in stage)


class Run(_StrictModel):
    """One run of a query; see :class:`etl.launch.erase_request_and_benchmark_schedule.BenchmarkRun`."""

    query: str
    number: int
    limit: int
    partitions: int
    repetition: int
    batches: tuple[Batch, ...]


class Measurements(_StrictModel):
    """All measurements of one session, with its machine and versions.

    Attributes
    ----------
    cores
        Tasks that could run at once.
    processors
        Number that the driver's JVM reports.
    settings
        Spark settings that influence speed.
    """

    version: int
    job: str
    engine: str
    begun_at: datetime
    ended_at: datetime
    spark: str
    java: str
    python: str
    cores: int
    processors: int
    processor: str
    settings: dict[str, str]
    runs: tuple[Run, ...]

    def runs_of_query(self, query: str) -> Iterator[Run]:
        """Yield the counted runs of a query."""
        return (run for run in self.runs if run.query == query and run.repetition >= 0)


@dataclass(frozen=True)
class BatchPoint:
    """One batch as the model sees it.

    Attributes
    ----------
    records, partitions, cores
        n, P, c.
    duration
        D in seconds.
    work
        Seconds of all its tasks.
    deviations
        Logarithms of the times of the tasks of its longest stage, less their mean.
    group
        Number of its run.
    limit
        Of that run.
    """

    records: int
    partitions: int
    cores: int
    duration: float
    work: float
    deviations: tuple[float, ...]
    group: int
    limit: int

    @property
    def waves(self) -> int:
        """ceil(P/c)."""
        return math.ceil(self.partitions / self.cores)


def to_batch_point(batch: Batch, run: Run, cores: int, group: int) -> BatchPoint:
    """Return a batch of a run as a point."""
    longest = [math.log(max(task, SHORTEST)) for task in max(batch.tasks, key=math.fsum, default=())]
    mean = math.fsum(longest) / len(longest) if longest else 0.0
    return BatchPoint(
        batch.records,
        run.partitions,
        cores,
        batch.duration,
        batch.task_seconds,
        tuple(each - mean for each in longest),
        group,
        run.limit,
    )
