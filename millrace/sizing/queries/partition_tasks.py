"""Partitions of a source, the tasks that read them, and their schedule on cores."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


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


class SourcePartitions(NamedTuple):
    """The partitions that a reader finds.

    Attributes
    ----------
    partitions
        P; of streams that bring more or less to each, as many as if all were like the fullest.
    evenly
        P as a real number that follows the traffic, where the traffic decides it.
    steady
        Whether their number is constant.
    limits_parts
        Whether each has a limit in a batch.
    unequal
        Partitions of streams that bring more or less to each; empty where all are equal.
    shuffled
        Whether a batch is shuffled where waves would do, too: fewer tasks write fewer files.
    """

    partitions: int
    evenly: float
    steady: bool = True
    limits_parts: bool = False
    unequal: tuple[EqualPartitions, ...] = ()
    shuffled: bool = False

    @classmethod
    def of_equal(cls, number: int) -> SourcePartitions:
        """Return equal partitions whose number is constant."""
        return cls(number, float(number))

    @property
    def tasks(self) -> int:
        """Tasks that read them, and as many cores read all at once."""
        return sum(each.count for each in self.unequal) if self.unequal else self.partitions

    @property
    def read_in_waves(self) -> float:
        """Number of which waves are counted: an estimate of AWS's shards is as real as the traffic, so that no rounding decides."""
        return self.tasks if self.steady else self.evenly

    @property
    def all_at_once(self) -> float:
        """Cores that are busy on average while all are read in one wave, which ends with the fullest."""
        return self.effective_cores(math.ceil(self.read_in_waves))

    def effective_cores(self, cores: int) -> float:
        """Return the cores that are busy on average while all are read: P / ceil(P/c), as equal ones run in waves."""
        if self.unequal:
            return _effective_cores(self.unequal, cores)
        number = self.read_in_waves
        return number / math.ceil(number / cores)

    def evenly_read(self, tasks: int) -> float:
        """Return how many of :attr:`evenly` are read at a time by some tasks, in waves."""
        if self.unequal:
            return min(self.evenly, self.effective_cores(tasks))
        return self.evenly / math.ceil(self.evenly / tasks)

    def fewest_cores_with_busy(self, above: float) -> int:
        """Return the fewest cores of which more than so many are busy on average, fewer than :attr:`all_at_once`."""
        if self.unequal:
            return bisect_right(range(self.tasks), above, lo=1, key=self.effective_cores)
        waves = max(1, math.ceil(self.read_in_waves / above) - 1)
        return math.ceil(self.read_in_waves / waves)


@lru_cache(maxsize=4096)
def _effective_cores(partitions: tuple[EqualPartitions, ...], cores: int) -> float:
    seconds = schedule_seconds((EqualTasks(each.share, each.count) for each in partitions), cores)
    return min(float(cores), 1 / seconds)
