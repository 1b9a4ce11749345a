"""Ranges of arrival of a stream's next batch, derived from the last batch.

Rows have no shard, but each has an arrival time, and a shard is read forward. So the next batch arrived shortly after
minutes of the last one, or is new. A shard that lags by hours adds only its own minutes, and not the time in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import reduce
from itertools import pairwise
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from ...record.look_ups import older_than

MOST_RANGES = 8
"""Most ranges of a bound: each is a comparison for each row, and another number of them changes the generated code."""

Steps = tuple[int, int | None]
"""Steps since 1970: from the first to the second, which is excluded; None for no end."""

Range = tuple[datetime, datetime | None]
"""From a time to another one, which is excluded; None for no end, as only the last of some ranges has."""


def ranges_after(steps: Collection[int], further: int, recent: int) -> tuple[Steps, ...]:
    """Return the ranges in which the records after some others can be.

    Parameters
    ----------
    steps
        Steps with a record of the last batch.
    further
        Number of steps that a shard may advance beyond the step of its last record.
    recent
        Step at whose start shards without unread records continue.

    Returns
    -------
    tuple of Steps
        Disjoint ranges, at most ``MOST_RANGES``; the last has no end.

    Examples
    --------
    >>> ranges_after([3, 4, 40], 5, 41)
    ((3, 10), (40, None))
    """
    ranges: list[tuple[int, int]] = []
    for step in sorted(steps):
        end = step + 1 + further
        if ranges and step <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((step, end))
    first = recent
    while ranges and ranges[-1][1] >= first:
        first = min(first, ranges.pop()[0])
    while len(ranges) > MOST_RANGES - 1:
        gap = min(range(1, len(ranges)), key=lambda n: ranges[n][0] - ranges[n - 1][1])
        ranges[gap - 1 : gap + 1] = [(ranges[gap - 1][0], ranges[gap][1])]
    return (*ranges, (first, None))


def arrived_within(ranges: Sequence[Range]) -> Column:
    """Return a condition: rows arrived in one of some ranges. Iceberg evaluates it on a file's metadata."""
    arrived = F.col("_arrived_at")
    return reduce(
        or_,
        (
            arrived >= F.lit(begin) if end is None else (arrived >= F.lit(begin)) & (arrived < F.lit(end))
            for begin, end in ranges
        ),
    )


def arrived_outside(ranges: Sequence[Range]) -> Column:
    """Return a condition: records arrived in none of some ordered ranges. Its times are outside the generated code."""
    result = older_than("_arrived_at", ranges[0][0])
    for (_, end), (begin, _) in pairwise(ranges):
        assert end is not None, "only the last range has no end"
        result |= older_than("_arrived_at", begin) & ~older_than("_arrived_at", end)
    return result
