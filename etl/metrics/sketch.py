"""A small summary of many values, from which percentiles are read, and which can be put together with others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_POINTS = 200
"""Points that a merged sketch keeps: a rank is then off by a four-hundredth at most, each time it is merged."""


@dataclass(frozen=True)
class Sketch:
    """Values of a set of records, as points that each stand for a number of them.

    Attributes
    ----------
    points
        Value and weight, by value; a weight is a number of records and need not be whole.
    most
        The largest value, exact.
    """

    points: tuple[tuple[float, float], ...]
    most: float

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a sketch without points")

    @property
    def count(self) -> float:
        """Records in all."""
        return sum(weight for _, weight in self.points)

    def quantile(self, q: float) -> float:
        """Return a value that about a share ``q`` of the records does not exceed.

        Each point stands in the middle of its share; between two middles the value is interpolated,
        as in Dunning's t-digest.

        Parameters
        ----------
        q
            From 0 to 1; 1 gives the largest value, exactly.
        """
        return self._quantiles([q])[0]

    def spread(self, number: int) -> list[float]:
        """Return at most so many values that stand for equally many records each, and the largest as the last.

        Parameters
        ----------
        number
            At least 1; fewer come back where there are fewer records.
        """
        inner = max(0, min(number, int(self.count)) - 1)
        return [*self._quantiles([(n + 0.5) / inner for n in range(inner)]), self.most]

    def capped(self, most: float) -> Sketch:
        """Return the same with nothing above ``most``, which becomes the largest value."""
        return Sketch(tuple((min(value, most), weight) for value, weight in self.points), most)

    def _quantiles(self, shares: Sequence[float]) -> list[float]:
        middles: list[float] = []
        reached = 0.0
        for _, weight in self.points:
            middles.append(reached + weight / 2)
            reached += weight
        middles.append(reached)
        values = [*(value for value, _ in self.points), self.most]
        return [_interpolated(middles, values, share * reached) for share in shares]


def _interpolated(places: Sequence[float], values: Sequence[float], place: float) -> float:
    after = bisect_left(places, place)
    if after == 0:
        return values[0]
    if after == len(places):
        return values[-1]
    share = (place - places[after - 1]) / (places[after] - places[after - 1])
    low, high = values[after - 1], values[after]
    return min(high, low + share * (high - low))


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """Put sketches of separate sets together.

    Parameters
    ----------
    sketches
        At least one.
    """
    given = list(sketches)
    if len(given) == 1:
        return given[0]
    points = sorted(point for sketch in given for point in sketch.points)
    whole = Sketch(tuple(points), max(sketch.most for sketch in given))
    if len(points) <= MOST_POINTS:
        return whole
    weight = whole.count / MOST_POINTS
    middles = [(n + 0.5) / MOST_POINTS for n in range(MOST_POINTS)]
    return Sketch(tuple((value, weight) for value in whole._quantiles(middles)), whole.most)


def of_points(values: Sequence[float], shares: Sequence[float], count: float, most: float) -> Sketch:
    """Make a sketch of values that each stand for a share of ``count`` records.

    Parameters
    ----------
    values, shares
        Of equal length; the shares add up to 1.
    count
        Records in all.
    """
    points = sorted((value, share * count) for value, share in zip(values, shares, strict=True))
    return Sketch(tuple(points), most)
