"""Repetition of disturbed measurements, instead of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millrace.benchmark.measurements import Measurements, Run
from millrace.benchmark.run_schedule import WARM_UP
from millrace.benchmark.settled_batches import Disturbance, find_disturbances, settled_points
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun

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
    outliers = []
    for query in queries:
        points = settled_points([measured], query)
        outliers += find_disturbances([*points.points, *points.short])
    return outliers


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
