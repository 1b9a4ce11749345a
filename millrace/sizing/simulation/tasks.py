"""Tasks on cores: how a batch's partitions become tasks, and who runs when."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Partitions that are alike.

    Attributes
    ----------
    share
        Of the stream's records, for each of them.
    count
        How many there are.
    """

    share: float
    count: int


def parts(partitions: int, skew: float = 1.0) -> tuple[Part, ...]:
    """Divide a stream over its partitions, one of which may be hot.

    Parameters
    ----------
    partitions
        P.
    skew
        σ: share of the largest partition times P, from 1 to P.

    Examples
    --------
    >>> parts(4)
    (Part(share=0.25, count=4),)
    >>> parts(4, 2.0)
    (Part(share=0.5, count=1), Part(share=0.16666666666666666, count=3))
    """
    assert 1 <= skew <= partitions, f"skew {skew} of {partitions} partitions"
    if skew == 1.0 or partitions == 1:
        return (Part(1 / partitions, partitions),)
    hot = skew / partitions
    if hot >= 1.0:
        return (Part(1.0, 1),)
    return Part(hot, 1), Part((1 - hot) / (partitions - 1), partitions - 1)


@dataclass(frozen=True)
class Tasks:
    """Tasks that take equally long, in seconds on one core."""

    seconds: float
    count: int


class Slots:
    """Cores and when each is free, alike ones together, so that a thousand cost as little as one.

    Tasks are taken longest first by the core that is free first (list scheduling; Spark gives out the
    tasks of a stage in the order of their partitions, which is no better than this).
    """

    def __init__(self, cores: int, now: float) -> None:
        self._free: list[tuple[float, int]] = [(now, cores)] if cores else []
        self.ends = now
        """When the last task that was given out ends."""

    def add(self, cores: int, now: float) -> None:
        """Take cores in that are free from now on."""
        heapq.heappush(self._free, (now, cores))

    @property
    def next_free(self) -> float:
        """When the first core is free; infinity without any."""
        return self._free[0][0] if self._free else float("inf")

    def give(self, tasks: Tasks, now: float) -> int:
        """Give tasks to the cores that are free first, as many as these can take, and return how many."""
        free, cores = heapq.heappop(self._free)
        taken = min(cores, tasks.count)
        begin = max(free, now)
        heapq.heappush(self._free, (begin + tasks.seconds, taken))
        if taken < cores:
            heapq.heappush(self._free, (free, cores - taken))
        self.ends = max(self.ends, begin + tasks.seconds)
        return taken


def makespan(tasks: Iterable[Tasks], cores: int) -> float:
    """Return how long tasks take together on so many cores, longest first, in seconds.

    With even tasks it is ``ceil(P/c)`` times one of them.

    Examples
    --------
    >>> makespan([Tasks(1.0, 9)], 8), makespan([Tasks(1.0, 8), Tasks(3.0, 1)], 2)
    (2.0, 6.0)
    """
    asked = list(tasks)
    if len(asked) == 1:  # most batches: the same by multiplication
        return math.ceil(asked[0].count / cores) * asked[0].seconds
    slots = Slots(cores, 0.0)
    for each in sorted(asked, key=lambda one: one.seconds, reverse=True):
        left = each.count
        while left:
            left -= slots.give(Tasks(each.seconds, left), 0.0)
    return slots.ends
