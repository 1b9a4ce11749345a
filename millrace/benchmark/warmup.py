"""Warm-up batches at the start of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import ruptures

LEAST = 10
"""Minimum number of batches that are left after the cut."""

_WORTH = 0.10
"""Minimum slowdown of a first part, relative to the rest, that counts as warm-up."""


def count_warmup_batches(durations: Sequence[float], least: int = LEAST) -> int:
    """Return the number of batches at the start of a run that are warm-up.

    One rule for all: the one change point that explains the logarithms of the durations best (least
    squares, dynamic programming of ``ruptures``). The part before it is cut if it was slower by a tenth in the
    median; the very first batch is always cut, as only it opens the source. At least ``least`` batches
    are left where there were so many.

    Parameters
    ----------
    durations
        Seconds of the run's batches, in order.
    least
        Minimum number of batches that are left.
    """
    most = max(0, len(durations) - least)
    first = min(1, most)
    rest = np.log(np.asarray(durations[first:], dtype=float))
    if len(rest) < 4:
        return first
    change = ruptures.Dynp(model="l2", min_size=2, jump=1).fit(rest).predict(n_bkps=1)[0]
    slower = float(np.median(rest[:change]) - np.median(rest[change:]))
    return min(first + change, most) if slower > np.log1p(_WORTH) else first
