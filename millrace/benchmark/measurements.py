"""Measurements of a benchmark; its settled batches, which begin after the warm-up; agreement of repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from millrace.config.base import Model, grouped

SHORTEST = 0.001
"""Seconds; Spark writes a task's time in whole milliseconds, and some take none."""


class Batch(Model):
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


class Run(Model):
    """One run of a query; see :class:`etl.launch.erase_request_and_benchmark_schedule.BenchmarkRun`."""

    query: str
    number: int
    limit: int
    partitions: int
    repetition: int
    batches: tuple[Batch, ...]


class Measurements(Model):
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


LEAST = 10
"""Minimum number of batches that are left after the cut."""

_WORTH = 0.10
"""Minimum slowdown of a first part, relative to the rest, that counts as warm-up."""


def count_warmup_batches(durations: Sequence[float], least: int = LEAST) -> int:
    """Return the number of batches at the start of a run that are warm-up.

    One rule for all: the one change point that explains the logarithms of the durations best (least
    squares, dynamic programming of ``ruptures``). The part before it is cut if it was slower by a tenth in the
    median; the very first batch is always cut, as only it opens the source. At least ``least`` batches
    are left where there were so many.

    Parameters
    ----------
    durations
        Seconds of the run's batches, in order.
    least
        Minimum number of batches that are left.
    """
    import ruptures  # of the extra sandbox, without which results of benchmarks are read too

    most = max(0, len(durations) - least)
    first = min(1, most)
    rest = np.log(np.asarray(durations[first:], dtype=float))
    if len(rest) < 4:
        return first
    change = ruptures.Dynp(model="l2", min_size=2, jump=1).fit(rest).predict(n_bkps=1)[0]
    slower = float(np.median(rest[:change]) - np.median(rest[change:]))
    return min(first + change, most) if slower > np.log1p(_WORTH) else first


_DISTURBED = 0.25
"""Largest difference in the task time per record between repetitions (the sizing model's rule)."""

_Cell = tuple[int, int, int]
"""Limit, partitions, cores."""


class FitError(ValueError):
    """Measurements that are not enough for a fit; the message says what is missing."""


@dataclass(frozen=True)
class Disturbance:
    """Repetitions that do not agree: the machine did something else."""

    limit: int
    partitions: int
    moved: float
    """Largest over smallest of the runs' task seconds per record, less 1."""
    seconds_per_record: tuple[float, ...]

    def __str__(self) -> str:
        listed = ", ".join(f"{value * 1e6:.1f}" for value in self.seconds_per_record)
        return (
            f"{self.limit:,} records over {self.partitions} partition{'s' * (self.partitions != 1)}: tasks took "
            f"{listed} µs a record in its repetitions, {self.moved:.0%} apart"
        )


class SettledPoints(NamedTuple):
    """Settled batches of measurements.

    Attributes
    ----------
    points
        Settled batches, for the fit.
    warm_up
        Number of batches that were cut.
    short
        Batches of runs with too few for the fit: the fit leaves them out, but they show disturbances.
    left_out
        Number of such runs.
    """

    points: list[BatchPoint]
    warm_up: int
    short: list[BatchPoint]
    left_out: int


def settled_points(measured: Iterable[Measurements], query: str) -> SettledPoints:
    """Return a query's settled batches of all sessions.

    A run with fewer than ten batches after the cut (a derive query takes landed rows in its own steps) is left out
    where another repetition has enough. This is not random: a run that something slowed has fewer batches. So the runs that are
    left out are compared with the others (:func:`find_disturbances`); at most half of their batches count as warm-up.

    Raises
    ------
    FitError
        No repetition of some limit and number of partitions has ten batches after the cut, or only one has and the
        others have no batches to compare with it.
    """
    points: list[BatchPoint] = []
    short: list[BatchPoint] = []
    cut = group = left_out = 0
    runs: dict[_Cell, list[Run]] = {}
    for session in measured:
        for run in session.runs_of_query(query):
            runs.setdefault((run.limit, run.partitions, session.cores), []).append(run)
            durations = [batch.duration for batch in run.batches]
            first = count_warmup_batches(durations)
            if len(run.batches) - first >= LEAST:
                points += [to_batch_point(batch, run, session.cores, group) for batch in run.batches[first:]]
                cut += first
            else:
                first = (
                    count_warmup_batches(durations, len(durations) // 2)
                    if len(durations) > 1
                    else len(durations)
                )
                short += [
                    to_batch_point(batch, run, session.cores, group)
                    for batch in run.batches[first:]
                    if batch.records
                ]
                left_out += 1
            group += 1
    enough, groups = _points_by_cell_and_run(points), _points_by_cell_and_run([*points, *short])
    for cell, repetitions in runs.items():
        limit, partitions, _ = cell
        what = f"{query} with {limit:,} records a batch over {partitions} partitions"
        if cell not in enough:
            raise FitError(
                f"no run of {what} has {LEAST} batches after the warm-up; run {repetitions[0].number}, for "
                f"example, has {len(repetitions[0].batches)} batches in all; measure more with --batches"
            )
        if len(repetitions) > 1 and len(groups[cell]) < 2:
            listed = ", ".join(str(len(run.batches)) for run in repetitions)
            raise FitError(
                f"runs of {what} have {listed} batches: only one run has {LEAST} after the warm-up, and the others "
                "have too few to tell whether they agree; measure more with --batches"
            )
    return SettledPoints(points, cut, short, left_out)


def _points_by_cell_and_run(points: Iterable[BatchPoint]) -> dict[_Cell, dict[int, list[BatchPoint]]]:
    """Return the points by cell and run."""
    cells = grouped(((each.limit, each.partitions, each.cores), each) for each in points)
    return {cell: grouped((each.group, each) for each in own) for cell, own in cells.items()}


def find_disturbances(points: Iterable[BatchPoint]) -> list[Disturbance]:
    """Return the settings whose repetitions differ in task time per record by more than a quarter."""
    result = []
    for (limit, partitions, _), runs in sorted(_points_by_cell_and_run(points).items()):
        costs = tuple(float(np.median([p.work / p.records for p in run])) for run in runs.values())
        if len(costs) < 2 or min(costs) <= 0:
            continue
        moved = max(costs) / min(costs) - 1
        if moved > _DISTURBED:
            result.append(Disturbance(limit, partitions, moved, costs))
    return result
