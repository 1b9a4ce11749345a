"""Estimates with intervals: a finding rests on many batches, never on one comparison."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from millrace.advisor.logs.task_attempts_as_columns import Floats

_DRAWS = 999
"""Bootstrap draws: the ends of a 95 % interval are then the 25th from either end."""

_DRAWN = 2000
"""Maximum number of values that are resampled: time and memory grow with both numbers."""

_NORMAL = 1.96
"""Quantile of the normal distribution at 97.5 %."""

QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""

_PAIRED = 1000
"""Maximum number of points of which all pairs are used."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Estimate:
    """A figure with its 95 % interval, of which forecasts are written and read again."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """Return the estimate of a multiple, by a factor that is not negative."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def median_with_interval(values: ArrayLike) -> Estimate:
    """Estimate a median with its bootstrap interval (percentiles of redrawn medians; Efron 1979).

    For many values the interval has its asymptotic form, without resampling: the quantiles at 1/2 plus and minus
    1.96 / (2 √n) (Conover, *Practical Nonparametric Statistics*, section 3.2).
    """
    seen = np.asarray(values, float)
    if len(seen) < 2:
        only = float(seen[0]) if len(seen) else 0.0
        return Estimate(only, only, only)
    if len(seen) > _DRAWN:
        low, high = np.quantile(seen, 0.5 + np.array([-1, 1]) * _NORMAL / 2 / math.sqrt(len(seen)))
    else:
        drawn = np.random.default_rng(0).choice(seen, (_DRAWS, len(seen)))
        low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Estimate(float(np.median(seen)), float(low), float(high))


def slope_with_interval(x: ArrayLike, y: ArrayLike) -> Estimate:
    """Estimate a line's slope: the median of the slopes of all pairs (Theil 1950, Sen 1968), which outliers do not move.

    Of more points, :data:`_PAIRED` of them, evenly spread, are paired: all pairs of a week's batches are 10^10.
    """
    at, values = np.asarray(x, float), np.asarray(y, float)
    if len(at) < 3 or np.ptp(at) == 0:
        return Estimate(0.0, -np.inf, np.inf)
    if len(at) > _PAIRED:
        places = np.linspace(0, len(at) - 1, _PAIRED).astype(int)
        at, values = at[places], values[places]
    apart = np.subtract.outer(at, at)
    later = apart > 0
    slopes = np.sort(np.subtract.outer(values, values)[later] / apart[later])
    # Kendall's variance of the number of rising pairs, less what ties take from it: Sen 1968, equation 2.6.
    spread = _tie_variance(np.array([len(at)])) - sum(
        _tie_variance(np.unique(each, return_counts=True)[1]) for each in (at, values)
    )
    off = _NORMAL * math.sqrt(max(0.0, spread) / 18)
    low, high = round((len(slopes) - off) / 2) - 1, round((len(slopes) + off) / 2)
    ends = slopes[max(low, 0)], slopes[min(high, len(slopes) - 1)]
    return Estimate(float(np.median(slopes)), *map(float, ends))


def _tie_variance(counts: ArrayLike) -> float:
    """Return the term of Kendall's variance for groups of so many points; a single point has none."""
    many = np.asarray(counts, float)
    return float(np.sum(many * (many - 1) * (2 * many + 5)))


def count_startup_batches(durations: Sequence[float] | Floats) -> int:
    """Return the number of start-up batches at the start, by one rule for all: MSER.

    The cut that makes the standard error of the rest's mean smallest (White 1997), on logarithms, as durations spread by
    factors; at most half of the batches, and always the first, as only it opens the source and compiles the plans.
    """
    seen = np.log(np.maximum(np.asarray(durations, float), 1e-3))
    most = len(seen) // 2
    if most < 1:
        return 0
    # Sums of the rest behind each cut, from the end; about the mean of all, as squares of large numbers cancel.
    off = (seen - seen.mean())[::-1]
    left = np.arange(1, len(seen) + 1)
    means, squares = np.cumsum(off) / left, np.cumsum(off * off) / left
    errors = ((squares - means * means) / left)[::-1]
    return 1 + int(np.argmin(errors[1 : most + 1]))


def union_seconds(begins: Floats, ends: Floats) -> float:
    """Return the seconds in which at least one of several intervals was open."""
    if not len(begins):
        return 0.0
    order = np.argsort(begins)
    begun, closed = begins[order], np.maximum.accumulate(ends[order])
    gaps = np.maximum(0, begun[1:] - closed[:-1])
    return float(closed[-1] - begun[0] - gaps.sum())


def most_open_intervals(begins: Floats, ends: Floats) -> int:
    """Return the most of several intervals that were open at once; at the same time, one closes before another opens."""
    moments = np.concatenate([ends, begins])
    steps = np.concatenate([-np.ones(len(ends)), np.ones(len(begins))])
    return int(np.cumsum(steps[np.lexsort((steps, moments))]).max(initial=0))


def makespan_of_list_scheduling(durations: Floats, cores: int) -> float:
    """Return the seconds of tasks that run in order, each on the core that is free first (list scheduling, Graham 1966)."""
    free = [0.0] * max(1, min(cores, len(durations)))
    for duration in durations:
        heapq.heapreplace(free, free[0] + float(duration))
    return max(free)
