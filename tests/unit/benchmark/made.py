"""Measurements of a machine whose costs are known."""

from __future__ import annotations

import math

import numpy as np

from millrace.benchmark.measurements import Point


def points(
    *,
    overhead: float = 0.3,
    wave: float = 0.02,
    per_record: float = 20e-6,
    noise: float = 0.05,
    drift: float = 0.02,
    uneven: float = 0.1,
    cells: tuple[tuple[int, int], ...] = (
        (1000, 1),
        (4000, 1),
        (16000, 1),
        (64000, 1),
        (16000, 4),
        (64000, 4),
    ),
    cores: int = 2,
    repetitions: int = 3,
    batches: int = 12,
    seed: int = 0,
) -> list[Point]:
    """Batches with relative errors of their own (``noise``) and of their run (``drift``), both log-normal."""
    rng = np.random.default_rng(seed)
    found = []
    group = 0
    for _ in range(repetitions):
        for limit, partitions in cells:
            run = rng.lognormal(0, drift)
            for _ in range(batches):
                exact = overhead + math.ceil(partitions / cores) * (wave + per_record * limit / partitions)
                duration = exact * run * rng.lognormal(0, noise)
                work = limit * per_record * run
                logs = rng.normal(0, uneven, partitions)
                deviations = tuple(float(x) for x in logs - logs.mean())
                found.append(Point(limit, partitions, cores, duration, work, deviations, group, limit))
            group += 1
    return found
