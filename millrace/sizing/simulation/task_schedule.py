"""Tasks on cores: tasks of a batch's partitions, and their schedule."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class EqualPartitions:
    """Equal partitions.

    Attributes
    ----------
    share
        Share of the stream's records in each of them.
    count
        Number of them.
    """

    share: float
    count: int


def divide_stream(partitions: int, skew: float = 1.0) -> tuple[EqualPartitions, ...]:
    """Return a stream divided into its partitions, one of which may be hot.

    Parameters
    ----------
    partitions
        P.
    skew
        σ: share of the largest partition times P, from 1 to P.

    Examples
    --------
    >>> divide_stream(4)
    (EqualPartitions(share=0.25, count=4),)
    >>> divide_stream(4, 2.0)
    (EqualPartitions(share=0.5, count=1), EqualPartitions(share=0.16666666666666666, count=3))
    """
    assert 1 <= skew <= partitions, f"skew {skew} of {partitions} partitions"
    if skew == 1.0 or partitions == 1:
        return (EqualPartitions(1 / partitions, partitions),)
    hot = skew / partitions
    if hot >= 1.0:
        return (EqualPartitions(1.0, 1),)
    return EqualPartitions(hot, 1), EqualPartitions((1 - hot) / (partitions - 1), partitions - 1)


@dataclass(frozen=True)
class EqualTasks:
    """Tasks of equal duration, in seconds on one core."""

    seconds: float
    count: int


def schedule_seconds(tasks: Iterable[EqualTasks], cores: int) -> float:
    """Return the seconds that tasks take together on a number of cores, longest first.

    With equal tasks it is ``ceil(P/c)`` times the duration of one.

    Examples
    --------
    >>> schedule_seconds([EqualTasks(1.0, 9)], 8), schedule_seconds([EqualTasks(1.0, 8), EqualTasks(3.0, 1)], 2)
    (2.0, 6.0)
    """
    asked = list(tasks)
    if len(asked) == 1:  # most batches: the same result by multiplication
        return math.ceil(asked[0].count / cores) * asked[0].seconds
    # Equal cores are grouped, so that a thousand cost as little as one. The one that is free first takes the longest task (list
    # scheduling; Spark assigns the tasks of a stage in the order of their partitions, which is no better than this).
    free, ends = [(0.0, cores)], 0.0
    for each in sorted(asked, key=lambda one: one.seconds, reverse=True):
        left = each.count
        while left:
            begin, idle = heapq.heappop(free)
            taken = min(idle, left)
            heapq.heappush(free, (begin + each.seconds, taken))
            if taken < idle:
                heapq.heappush(free, (begin, idle - taken))
            left, ends = left - taken, max(ends, begin + each.seconds)
    return ends
