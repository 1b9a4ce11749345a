"""Cost of a task besides its records, and what a stage gains with another number of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millrace.advisor.logs.application_history_model import Floats
from millrace.advisor.logs.statistics import (
    QUARTILES,
    Estimate,
    median_with_interval,
    slope_with_interval,
)


@dataclass(frozen=True)
class TaskCost:
    """Seconds of a task besides its records, and the spread of tasks around their cost, as a share of it."""

    fixed: Estimate
    spread: float

    def gain(self, before: Estimate, after: Callable[[float, float], float], uneven: float) -> Estimate:
        """Return the seconds that a stage gains.

        Parameters
        ----------
        before
            Its seconds now.
        after
            Its seconds then, from those now and a task's without records.
        uneven
            By how many spreads its longest task then is beyond the mean. They may as well average out in longer tasks.
        """

        def gained(seconds: float, fixed: float, share: float) -> float:
            return seconds - after(seconds, fixed) * (1 + share * uneven * self.spread)

        ends = [
            gained(seconds, fixed, share)
            for seconds in (before.low, before.high)
            for fixed in (self.fixed.low, self.fixed.high)
            for share in (0, 1)
        ]
        return Estimate(gained(before.value, self.fixed.value, 0.5), min(ends), max(ends))


def longest_by_chance(tasks: int) -> float:
    """Return by how many standard deviations the longest of several tasks is beyond the mean, at most (√(2 ln n))."""
    return math.sqrt(2 * math.log(tasks))


def fit_task_cost(records: Floats, seconds: Floats) -> TaskCost:
    """Fit a line through the times of tasks by their records; the cost has no lower end if the records do not vary."""
    slope, usual = slope_with_interval(records, seconds), float(np.median(records))
    likely = max(slope.value, 0.0)
    rest = seconds - likely * records
    fixed = median_with_interval(rest)
    low = fixed.low - (slope.high - likely) * usual if np.isfinite(slope.high) else -np.inf
    high = fixed.high + (likely - max(slope.low, 0.0)) * usual
    spread = float(np.subtract(*np.percentile(rest, [75, 25]))) / QUARTILES
    return TaskCost(Estimate(fixed.value, low, high), spread / max(float(np.median(seconds)), 1e-4))
