"""Bounded runs in a simulation: their drawn starts, and the time in which their workers are billed."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.sizing.simulation.result import Batch


@dataclass(frozen=True)
class Runs:
    """Runs of a job that runs in turns.

    Attributes
    ----------
    every
        Seconds from the start of one run to the start of the next.
    fast, slow
        Least and most seconds until a run's first batch.
    billed
        Seconds before the first batch from which workers are billed.
    least
        Least billed seconds.
    """

    every: float
    fast: float
    slow: float
    billed: float
    least: float

    def first_batch(self, begin: float, seed: int) -> float:
        """Return the seconds from a run's start at ``begin`` to its first batch; the same for all queries of the run."""
        return random.Random(f"{seed} {begin:.3f}").uniform(self.fast, self.slow)

    def billed_spans(
        self, seconds: float, seed: int, batches: Iterable[Sequence[Batch]]
    ) -> list[tuple[float, float]]:
        """Return begin and end of the billed time of each run.

        Parameters
        ----------
        seconds
            Duration of the simulation.
        batches
            Batches of each query.
        """
        starts = [number * self.every for number in range(math.ceil(seconds / self.every))]
        begins = [start + self.first_batch(start, seed) for start in starts]
        ends = [begin - self.billed + self.least for begin in begins]
        for batch in itertools.chain.from_iterable(batches):
            run = max(0, bisect.bisect_right(begins, batch.start + 1e-6) - 1)
            ends[run] = max(ends[run], batch.end)
        spans, last = [], 0.0
        for begin, end in zip(begins, ends, strict=True):
            spans.append((max(last, begin - self.billed), max(last, end)))
            last = spans[-1][1]
        return [(begin, min(end, seconds)) for begin, end in spans if begin < min(end, seconds)]
