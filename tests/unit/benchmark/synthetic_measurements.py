"""Measurements of a machine whose costs are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np

from millrace.benchmark.measurements import Batch, BatchPoint, Measurements, Run


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
) -> list[BatchPoint]:
    """Batches with relative errors of their own (``noise``) and of their run (``drift``), both log-normal."""
    rng = np.random.default_rng(seed)
    result = []
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
                result.append(BatchPoint(limit, partitions, cores, duration, work, deviations, group, limit))
            group += 1
    return result


A, WAVE, B = 0.25, 0.02, 30e-6


def session(
    cores: int,
    *,
    alpha: float = 0.0,
    slow_repetition: float = 1.0,
    limits: tuple[int, ...] = (500, 2000, 8000),
    queries: Mapping[str, float] = MappingProxyType({"a": 1, "b": 2}),
) -> Measurements:
    """What a machine of known costs would have been measured as; a query's records cost so many times ``B``."""
    rng = np.random.default_rng(cores)
    runs = []
    cells = [(limit, partitions) for limit in limits for partitions in (1, 2)]
    for number, (repetition, (limit, partitions)) in enumerate(
        (repetition, cell) for repetition in range(3) for cell in cells
    ):
        for query, factor in queries.items():
            stretched = 1 + alpha * (cores - 1)
            drift = slow_repetition if repetition == 2 else 1.0
            batches = []
            for batch in range(14):
                task = factor * B * limit / partitions * stretched * drift
                waves = math.ceil(partitions / cores)
                seconds = (A + waves * (WAVE + task)) * rng.lognormal(0, 0.02) * (2.0 if batch < 3 else 1.0)
                tasks = (tuple(task * rng.lognormal(0, 0.1) for _ in range(partitions)),)
                batches.append(
                    Batch(batch=batch, records=limit, seconds={"triggerExecution": seconds}, tasks=tasks)
                )
            runs.append(
                Run(
                    query=query,
                    number=number,
                    limit=limit,
                    partitions=partitions,
                    repetition=repetition,
                    batches=tuple(batches),
                )
            )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Measurements(
        version=1, job="flights", engine="sandbox", begun_at=now, ended_at=now, spark="3.5.7", java="17",
        python="3.11", cores=cores, processors=2, processor="Linux x86_64", settings={}, runs=tuple(runs),
    )  # fmt: skip
