"""What a machine that does other things disturbed is measured once more, instead of everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millrace.benchmark.measurements import Measurements
from millrace.benchmark.repetitions import Disturbance, disturbances, points
from millrace.benchmark.schedule import WARM_UP, Planned

_MOST = 1 / 3
"""Of all settings: where more of them disagree, the machine is busy and would be so again."""


def disturbed(measured: Measurements, queries: Iterable[str]) -> list[Disturbance]:
    """Find settings whose repetitions disagree, in any query.

    Raises
    ------
    FitError
        The measurements cannot carry a fit.
    """
    found = []
    for query in queries:
        taken = points([measured], query)
        found += disturbances([*taken.points, *taken.short])
    return found


def schedule_again(runs: Sequence[Planned], found: Iterable[Disturbance]) -> tuple[Planned, ...]:
    """Plan the settings that disagree anew, all repetitions of each, behind a run that warms up.

    Parameters
    ----------
    runs
        The whole schedule.
    found
        What disagreed in it.

    Returns
    -------
    tuple of Planned
        None where nothing disagreed, or more than a third of all settings.
    """
    cells = {(run.limit, run.partitions) for run in runs if run.repetition != WARM_UP}
    wanted = {(each.limit, each.partitions) for each in found}
    if not wanted or len(wanted) > _MOST * len(cells):
        return ()
    kept = [run for run in runs if run.repetition == WARM_UP or (run.limit, run.partitions) in wanted]
    return tuple(
        Planned(number, run.limit, run.partitions, run.repetition, run.batches)
        for number, run in enumerate(kept)
    )


def replaced(measured: Measurements, again: Measurements) -> Measurements:
    """Put the settings that were measured again in the place of what they came to before.

    Whole settings, never single runs: which of the repetitions was the odd one is not chosen.
    """
    anew = tuple(run for run in again.runs if run.repetition != WARM_UP)
    cells = {(run.limit, run.partitions) for run in anew}
    kept = tuple(run for run in measured.runs if (run.limit, run.partitions) not in cells)
    last = max((run.number for run in measured.runs), default=-1)
    moved = tuple(run.model_copy(update={"number": last + 1 + run.number}) for run in anew)
    told = ", ".join(f"{limit} over {partitions}" for limit, partitions in sorted(cells))
    return measured.model_copy(
        update={
            "runs": kept + moved,
            "ended_at": again.ended_at,
            "settings": {**measured.settings, "measured_again": told},
        }
    )
