"""Small summary of many values, from which percentiles are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PercentileSketch:
    """Values of a set of records, as weighted points.

    Attributes
    ----------
    points
        Value and weight, sorted by value, at least one; a weight is a number of records and may be a fraction.
    most
        The largest value, exact.
    """

    points: tuple[tuple[float, float], ...]
    most: float

    def quantile(self, q: float) -> float:
        """Return a value that about a share ``q`` of the records does not exceed.

        Each point is in the middle of its share; values between two middles are interpolated,
        as in Dunning's t-digest.

        Parameters
        ----------
        q
            From 0 to 1; 1 returns the largest value, exactly.
        """
        middles: list[float] = []
        reached = 0.0
        for _, weight in self.points:
            middles.append(reached + weight / 2)
            reached += weight
        values = [*(value for value, _ in self.points), self.most]
        return _interpolated([*middles, reached], values, q * reached)

    def with_values_capped_at(self, most: float) -> PercentileSketch:
        """Return a copy with no value above ``most``, which becomes the largest value."""
        return PercentileSketch(tuple((min(value, most), weight) for value, weight in self.points), most)


def _interpolated(places: Sequence[float], values: Sequence[float], place: float) -> float:
    after = bisect_left(places, place)
    if after == 0:
        return values[0]
    if after == len(places):
        return values[-1]
    share = (place - places[after - 1]) / (places[after] - places[after - 1])
    low, high = values[after - 1], values[after]
    return min(high, low + share * (high - low))
