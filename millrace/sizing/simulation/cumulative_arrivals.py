"""Arrivals of records: a cumulative count over time, linear between its edges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NOTHING = 1e-9
"""Number of records below which a float cannot represent the slope of a span."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Records that have arrived, by time.

    Attributes
    ----------
    times
        Edges in seconds, from 0, strictly ascending.
    totals
        Records that arrived before each edge, from 0, never falling; between two edges they
        arrive evenly.
    """

    times: Floats
    totals: Floats
    _times: list[float] = field(init=False, repr=False)
    _totals: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert len(self.times) == len(self.totals) >= 2, "at least one span"
        assert self.times[0] == 0
        assert self.totals[0] == 0
        assert np.all(np.diff(self.times) > 0)
        assert np.all(np.diff(self.totals) >= 0)
        # A look-up in a list is many times faster than in an array, and a run needs one for each batch.
        object.__setattr__(self, "_times", self.times.tolist())
        object.__setattr__(self, "_totals", self.totals.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrivals) and (self._times, self._totals) == (other._times, other._totals)

    def __hash__(self) -> int:
        return hash((len(self._times), self._times[-1], self._totals[-1]))

    @classmethod
    def of_rates(cls, edges: Sequence[float] | Floats, rates: Sequence[float] | Floats) -> Arrivals:
        """Return arrivals with a constant rate between two edges.

        Parameters
        ----------
        edges
            Seconds, from 0, one more than rates.
        rates
            Records per second.
        """
        times = np.asarray(edges, dtype=np.float64)
        counts = np.asarray(rates, dtype=np.float64) * np.diff(times)
        return cls(times, np.concatenate(([0.0], np.cumsum(counts))))

    @classmethod
    @lru_cache(maxsize=1024)
    def constant(cls, rate: float, seconds: float) -> Arrivals:
        """Return arrivals with a constant rate in records per second."""
        return cls.of_rates([0.0, seconds], [rate])

    @classmethod
    @lru_cache(maxsize=1024)
    def spikes(cls, low: float, high: float, each: float, seconds: float) -> Arrivals:
        """Return arrivals with two alternating rates, the low one first, each for ``each`` seconds."""
        edges = np.append(np.arange(0.0, seconds, each), seconds)
        rates = np.where(np.arange(len(edges) - 1) % 2 == 0, low, high)
        return cls.of_rates(edges, rates)

    def poisson(self, seed: int, step: float = 1.0) -> Arrivals:
        """Return arrivals with the same mean and the randomness of independent records: a Poisson count in each step.

        Parameters
        ----------
        seed
            Seed of the generator; the same seed gives the same counts.
        step
            Longest span in seconds of one draw.
        """
        fine = np.arange(0.0, self.times[-1], step)
        edges = _union(self.times, fine)
        expected = np.diff(np.interp(edges, self.times, self.totals))
        counts = np.random.default_rng(seed).poisson(np.maximum(expected, 0.0)).astype(np.float64)
        return Arrivals(edges, np.concatenate(([0.0], np.cumsum(counts))))

    def plus(self, other: Arrivals) -> Arrivals:
        """Return the sum of two arrivals, as long as the longer one."""
        edges = _union(self.times, other.times)
        return Arrivals(
            edges,
            np.interp(edges, self.times, self.totals) + np.interp(edges, other.times, other.totals),
        )

    def scaled(self, factor: float) -> Arrivals:
        """Return the same shape with ``factor`` times the records."""
        return Arrivals(self.times, self.totals * factor)

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self._times[-1]

    @property
    def records(self) -> float:
        """Number of all records."""
        return self._totals[-1]

    @cached_property
    def never_rests(self) -> bool:
        """True if records arrive all the time."""
        return bool(np.all(np.diff(self.totals) > _NOTHING))

    def arrived_before(self, time: float) -> float:
        """Return the number of records that arrived before a time in seconds."""
        if time <= 0:
            return 0.0
        if time >= self._times[-1]:
            return self._totals[-1]
        return _interpolate(self._times, self._totals, bisect_right(self._times, time), time)

    def next_arrival_time(self, count: float) -> float:
        """Return the time at which the record after the first ``count`` starts to arrive; infinity if there is none."""
        if count >= self._totals[-1]:
            return float("inf")
        return _interpolate(self._totals, self._times, bisect_right(self._totals, count), count)

    def arrival_time(self, count: float) -> float:
        """Return the time in seconds at which the last of the first ``count`` records arrived."""
        if count <= 0:
            return self.next_arrival_time(0.0)
        place = min(bisect_left(self._totals, count), len(self._totals) - 1)
        return _interpolate(self._totals, self._times, place, count)

    def spans_with_arrival_times(self, cuts: Floats) -> tuple[Floats, Floats, Floats]:
        """Divide the records between the first and the last cut at each change of the rate and at each cut.

        Parameters
        ----------
        cuts
            Counts of records, ascending.

        Returns
        -------
        tuple
            Edges in counts, one more than the others, and the seconds at which each span's first
            and last record arrived.
        """
        inside = self.totals[(self.totals > cuts[0]) & (self.totals < cuts[-1])]
        edges = _union(cuts, inside)
        middle = (edges[:-1] + edges[1:]) / 2
        place = np.clip(np.searchsorted(self.totals, middle) - 1, 0, len(self.totals) - 2)
        low, high = self.totals[place], self.totals[place + 1]
        begin, end = self.times[place], self.times[place + 1]
        slope = (end - begin) / np.where(high - low > _NOTHING, high - low, 1.0)
        first = begin + slope * np.maximum(edges[:-1] - low, 0.0)
        last = begin + slope * np.minimum(np.maximum(edges[1:] - low, 0.0), high - low)
        return edges, first, last


def _union(one: Floats, other: Floats) -> Floats:
    """Return the numbers of both in order, each once; NumPy's own function imports masked arrays, which takes longer than a small plan."""
    both = np.sort(np.concatenate((one, other)))
    return both[np.diff(both, prepend=-np.inf) > 0]


def _interpolate(points: Sequence[float], values: Sequence[float], place: int, at: float) -> float:
    """Return the value at a point between those in front of a place and at it."""
    begin, end = points[place - 1], points[place]
    low, high = values[place - 1], values[place]
    return low + (high - low) * (at - begin) / (end - begin)
