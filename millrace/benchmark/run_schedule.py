"""Schedule of a benchmark: rising limits and partitions in random order, and repetition of disturbed measurements alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from millrace.benchmark.measurements import Disturbance, Measurements, Run, find_disturbances, settled_points
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


_MOST = 1 / 3
"""Largest share of all settings: where more of them disagree, the machine is busy and would be so again."""

_Cell = tuple[int, int]
"""Limit, partitions."""


def disturbances_of_all_queries(measured: Measurements, queries: Iterable[str]) -> list[Disturbance]:
    """Find settings whose repetitions disagree, in any query.

    Raises
    ------
    FitError
        The measurements are not enough for a fit.
    """
    settled = (settled_points([measured], query) for query in queries)
    return [each for points in settled for each in find_disturbances([*points.points, *points.short])]


def schedule_disturbed_runs_again(
    runs: Sequence[BenchmarkRun], disturbances: Iterable[Disturbance]
) -> tuple[BenchmarkRun, ...]:
    """Schedule the settings that disagree again, all repetitions of each, after a run that warms up.

    The largest setting that agrees is measured again, too: the repetition is minutes after all the rest, and only a
    setting that is measured both times shows whether the machine is as fast as before (:func:`replace_disturbed_settings`).

    Parameters
    ----------
    disturbances
        The disturbances in the measurements of ``runs``.

    Returns
    -------
    tuple of Planned
        Empty where nothing disagreed, or more than a third of all settings.
    """
    cells = {_limit_and_partitions(run) for run in runs if run.repetition != WARM_UP}
    disturbed = _disturbed_limits_and_partitions(disturbances)
    if not disturbed or len(disturbed) > _MOST * len(cells):
        return ()
    disturbed.add(max(cells - disturbed))
    repeated = [run for run in runs if run.repetition == WARM_UP or _limit_and_partitions(run) in disturbed]
    return tuple(
        BenchmarkRun(number, run.limit, run.partitions, run.repetition, run.batches)
        for number, run in enumerate(repeated)
    )


def replace_disturbed_settings(
    measured: Measurements, repeated_measurements: Measurements, disturbances: Iterable[Disturbance]
) -> Measurements:
    """Replace the settings that disagreed by their second measurements.

    Complete settings are replaced, never single runs: nobody chooses which repetition was wrong. Settings that agreed and were
    measured again replace nothing. They count as further repetitions, so that a machine that became faster or slower shows as a
    disturbance like any other.

    Parameters
    ----------
    repeated_measurements
        Measurements by :func:`schedule_disturbed_runs_again`.
    disturbances
        The disturbances in ``measured``.
    """
    repeated = tuple(run for run in repeated_measurements.runs if run.repetition != WARM_UP)
    cells = _disturbed_limits_and_partitions(disturbances)
    others = tuple(run for run in measured.runs if _limit_and_partitions(run) not in cells)
    last = max((run.number for run in measured.runs), default=-1)
    further = max((run.repetition for run in measured.runs), default=-1) + 1
    moved = tuple(
        run.model_copy(
            update={
                "number": last + 1 + run.number,
                "repetition": run.repetition + (0 if _limit_and_partitions(run) in cells else further),
            }
        )
        for run in repeated
    )
    notes = {
        "measured_again": _limits_over_partitions_text(cells),
        "measured_again_beside": _limits_over_partitions_text(
            {_limit_and_partitions(run) for run in repeated} - cells
        ),
    }
    return measured.model_copy(
        update={
            "runs": others + moved,
            "ended_at": repeated_measurements.ended_at,
            "settings": {**measured.settings, **notes},
        }
    )


def _limit_and_partitions(run: BenchmarkRun | Run) -> _Cell:
    return run.limit, run.partitions


def _disturbed_limits_and_partitions(disturbances: Iterable[Disturbance]) -> set[_Cell]:
    return {(each.limit, each.partitions) for each in disturbances}


def _limits_over_partitions_text(cells: Iterable[_Cell]) -> str:
    return ", ".join(f"{limit} over {partitions}" for limit, partitions in sorted(cells))
