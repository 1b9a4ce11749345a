"""Other methods to predict a batch's duration, trained on the same batches as the product's."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from millrace.benchmark.fit import fit_model
from millrace.benchmark.measurements import Batch, BatchPoint, Run

Foretell = Callable[[int, int, int], float]
"""Records, partitions and cores to seconds."""

Trained = Sequence[tuple[Run, int, Sequence[Batch]]]
"""Runs, the cores that they ran on, and their settled batches."""


def ours(points: Sequence[BatchPoint]) -> Foretell:
    return fit_model(points).forecast_seconds


def constant_rate(points: Sequence[BatchPoint]) -> Foretell:
    """Records per core and second, as the advice counts: D = n / (r·c)."""
    rate = sum(p.records for p in points) / sum(p.duration * min(p.cores, p.partitions) for p in points)
    return lambda records, partitions, cores: records / (rate * min(cores, partitions))


def true_rate(points: Sequence[BatchPoint]) -> Foretell:
    """DS2: the true processing rate is that of the time in which work was done (Kalavri et al., OSDI 2018)."""
    rate = sum(p.records for p in points) / sum(p.work for p in points)
    return lambda records, partitions, cores: records / (rate * min(cores, partitions))


def replay(trained: Trained) -> Foretell:
    """Sparklens: the driver's time as it was, the measured tasks again on other cores.

    Of other limits or partitions it knows nothing; it is given the nearest limit that was measured, and tasks
    that grow with their records.
    """
    batches = [(run, cores, batch) for run, cores, kept in trained for batch in kept if batch.tasks]

    def foretell(records: int, partitions: int, cores: int) -> float:
        nearest = min({run.limit for run, _, _ in batches}, key=lambda limit: abs(math.log(limit / records)))
        result = []
        for run, had, batch in batches:
            if run.limit != nearest:
                continue
            stage = max(batch.tasks, key=math.fsum)
            driver = batch.duration - _makespan(stage, had)
            per_record = math.fsum(stage) / batch.records
            result.append(driver + _makespan([per_record * records / partitions] * partitions, cores))
        return float(np.median(result))

    return foretell


def _makespan(tasks: Sequence[float], cores: int) -> float:
    """Longest first onto the core that is free first."""
    free = [0.0] * cores
    for task in sorted(tasks, reverse=True):
        heapq.heapreplace(free, free[0] + task)
    return max(free)


RIVALS: Mapping[str, str] = {
    "Millrace": "the sizing model, fitted",
    "constant rate": "records per core and second",
    "Sparklens": "replay of measured tasks",
    "DS2": "true processing rate",
}
