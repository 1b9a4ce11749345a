"""Schedule of a benchmark: rising limits and partitions in random order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from millrace.etl.launch.erase_request_and_benchmark_schedule import (
    BENCHMARK_VERSION,
    BenchmarkRun,
    BenchmarkSchedule,
)

BATCHES = 16
"""Batches of a run: ten after the warm-up, which takes up to six."""

REPETITIONS = 3

WARM_UP = -1
"""Repetition number of the run that only warms the session up; it does not count."""

_WARM_UP_BATCHES = 40


def log_spaced_limits(smallest: int, largest: int, levels: int) -> tuple[int, ...]:
    """Space limits evenly on a logarithmic scale.

    Parameters
    ----------
    smallest, largest
        Records in a batch.
    levels
        Number of limits, both ends included; two at least.

    Examples
    --------
    >>> log_spaced_limits(1000, 64000, 4)
    (1000, 4000, 16000, 64000)
    """
    ratio = (largest / smallest) ** (1 / (levels - 1))
    return tuple(dict.fromkeys(round(smallest * ratio**level) for level in range(levels)))


def schedule_runs(
    sizes: Sequence[int],
    partitions: Sequence[int],
    *,
    repetitions: int = REPETITIONS,
    batches: int = BATCHES,
    seed: int = 0,
) -> tuple[BenchmarkRun, ...]:
    """Order the runs so that a drift with time does not look like an effect of the limit.

    One partition is measured at all limits, more partitions at the two largest only: these show the cost of
    a wave, and small batches are all overhead.

    Parameters
    ----------
    sizes
        Limits, rising.
    partitions
        Counts to measure; 1 is always included.
    repetitions, batches
        Runs of each setting, and batches in each run.

    Returns
    -------
    tuple of Planned
        First a run that warms up; then each repetition as a block in an order of its own, so that a
        disturbance of a minute does not hit all repetitions of one limit.
    """
    order = random.Random(seed)
    cells = [(limit, 1) for limit in sizes]
    cells += [(limit, count) for count in sorted(set(partitions) - {1}) for limit in sizes[-2:]]
    runs = [BenchmarkRun(0, sizes[len(sizes) // 2], max(partitions, default=1), WARM_UP, _WARM_UP_BATCHES)]
    for repetition in range(repetitions):
        block = list(cells)
        order.shuffle(block)
        runs += [BenchmarkRun(len(runs) + n, *cell, repetition, batches) for n, cell in enumerate(block)]
    return tuple(runs)


def schedule_document(
    runs: Sequence[BenchmarkRun], queries: Sequence[str], topic_partitions: int, result: str
) -> dict[str, Any]:
    """Write the schedule that the core reads (``docs/launch-document.md``).

    Parameters
    ----------
    runs
        From :func:`schedule_runs`.
    topic_partitions
        Partitions of the topic that is filled.
    result
        URL for the measurements.
    """
    schedule = BenchmarkSchedule(tuple(queries), topic_partitions, result, tuple(runs))
    return {"version": BENCHMARK_VERSION, **asdict(schedule)}
