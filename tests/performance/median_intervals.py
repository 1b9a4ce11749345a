"""Medians with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A median and its 95 % bootstrap interval (percentile method)."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.1f} [{self.low:.1f}, {self.high:.1f}]"


def interval(values: Sequence[float]) -> Interval:
    """Return the median of a sample with its interval, the same for the same sample.

    Examples
    --------
    >>> interval([2.0, 2.0, 2.0])
    Interval(median=2.0, low=2.0, high=2.0)
    """
    sample = np.asarray(values)
    if np.ptp(sample) == 0:  # the bootstrap of a constant is itself; SciPy would warn
        return Interval(*(float(sample[0]),) * 3)
    found = stats.bootstrap(
        (sample,), np.median, method="percentile", rng=np.random.default_rng(1), n_resamples=9999
    ).confidence_interval
    return Interval(float(np.median(sample)), float(found.low), float(found.high))
