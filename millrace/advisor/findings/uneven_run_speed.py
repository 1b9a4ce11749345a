"""Disturbances of a run, found by its speed: the same work must take the same time in all parts of the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.advisor.findings.query_view import QueryView
from millrace.advisor.logs.application_history_model import Batch, Floats
from millrace.advisor.logs.statistics import median_with_interval, slope_with_interval

MOVED = 0.25
"""Largest change in the time of the same work between parts of a run (the sizing model's rule)."""

PARTS = 4
"""Number of parts of a run: a disturbance that lasts a quarter of it fills one."""

LEAST = 4
"""Minimum number of batches of a part: fewer have no interval."""

RUN = 0.1
"""Minimum seconds of task time in a batch: below it single milliseconds of waiting move the ratio."""

START_UP = 5
"""Largest share of a run, one in so many, that may count as start-up: a disturbance in the middle looks like its end."""


def describe_disturbances(views: Sequence[QueryView]) -> str | None:
    """Describe what disturbed a run; ``None`` for an undisturbed one.

    The cost of a task is separated from its waits: its seconds on the executor over its seconds of CPU time. A machine that
    others use makes the first longer and not the second. Both are first divided by the usual value of a batch of so many
    records in this run, since a small batch waits more for each second of work.
    """
    for view in views:
        if not view.has_enough_batches:
            continue
        ran = view.query.batches
        settled = [
            each for each in ran[min(view.startup_batch_count, len(ran) // START_UP) :] if each.records
        ]
        parts = min(PARTS, len(settled) // LEAST)
        if parts < 2:
            continue
        stretched = _wait_factors(settled)
        if stretched is None:
            continue
        medians = [median_with_interval(part) for part in np.array_split(stretched, parts)]
        best = min(medians, key=lambda each: each.value)
        worst = max(medians, key=lambda each: each.value)
        if worst.low > best.high * (1 + MOVED):
            return (
                f"in part {medians.index(worst) + 1} of {parts} of {view.query.name}, tasks lasted {worst.value / best.value:.2f} times as "
                f"long for each second of CPU time as in the best part ({worst.low / best.high:.2f} at least): something else used the "
                "machine, or what the tasks wait for changed"
            )
    return None


def _wait_factors(batches: Sequence[Batch]) -> Floats | None:
    """Return each batch's executor seconds over its CPU seconds, both as multiples of the usual at its size."""
    records = np.array([each.records for each in batches], float)
    run = np.array([sum(float((s.tasks.run - s.tasks.gc).sum()) for s in each.stages) for each in batches])
    cpu = np.array([sum(float(s.tasks.cpu.sum()) for s in each.stages) for each in batches])
    if (cpu <= 0).any() or (run <= 0).any() or np.median(run) < RUN:
        return None
    return np.asarray((run / _usual_seconds(records, run)) / (cpu / _usual_seconds(records, cpu)))


def _usual_seconds(records: Floats, seconds: Floats) -> Floats:
    """Return the usual seconds of a batch of so many records: a line that outliers do not move, and that is never below 0."""
    rise = max(0.0, slope_with_interval(records, seconds).value)
    base = max(0.0, float(np.median(seconds - rise * records)))
    return np.asarray(np.maximum(base + rise * records, 1e-6))
