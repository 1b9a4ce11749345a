"""Whether a run's figures can be trusted: the same work must take the same time in all parts of the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.advisor.findings.view import View, stages
from millrace.advisor.history import Batch
from millrace.advisor.statistics import Estimate, median

MOVED = 0.25
"""How far the time of the same work may move between parts of a run (the sizing model's rule)."""

PARTS = 4
"""Into so many parts a run is cut: a disturbance that lasts a quarter of it is seen whole."""

LEAST = 4
"""Batches of a part: fewer have no interval."""


def disturbed(views: Sequence[View]) -> str | None:
    """Say what disturbed a run, ``None`` where nothing did.

    What a task costs is told apart from what it waits for: its seconds on the executor over its seconds of CPU time. A
    machine that others use makes the first longer and not the second, whatever the records are.
    """
    for view in views:
        if not view.enough:
            continue
        # A disturbance in the middle looks like the end of the start-up, so no more than a fifth counts as that.
        ran = view.query.batches
        held = [each for each in ran[min(view.start_up, len(ran) // 5) :] if each.records]
        parts = min(PARTS, len(held) // LEAST)
        if parts < 2:
            continue
        stretched = np.array([_stretch(batch) for batch in held])
        if np.isnan(stretched).any():
            continue
        found = [median(part) for part in np.array_split(stretched, parts)]
        best = min(found, key=lambda each: each.value)
        worst = max(found, key=lambda each: each.value)
        if worst.low > best.high * (1 + MOVED):
            return _words(view, found, best, worst)
    return None


def _stretch(batch: Batch) -> float:
    """Seconds on the executors for each second of CPU time, of all tasks of a batch."""
    run = sum(float((stage.tasks.run - stage.tasks.gc).sum()) for stage in stages(batch))
    cpu = sum(float(stage.tasks.cpu.sum()) for stage in stages(batch))
    return run / cpu if cpu > 0 else float("nan")


def _words(view: View, found: Sequence[Estimate], best: Estimate, worst: Estimate) -> str:
    where = found.index(worst) + 1
    return (
        f"in part {where} of {len(found)} of {view.query.name}, tasks ran {worst.value:.2f} s for each second of CPU time "
        f"({worst.low:.2f} to {worst.high:.2f}), in the best part {best.value:.2f} ({best.low:.2f} to {best.high:.2f}): "
        "something else used the machine, or what the tasks wait for changed"
    )
