"""Ranges of arrival in which duplicates of a stream's next batch are looked up, derived from the last batch.

Rows have no shard, but each has an arrival time, and a shard is read forward. So the next batch arrived shortly after
minutes of the last one, or is new. A shard that lags by hours adds only its own minutes, and not the time in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from pyspark.sql import functions as F

from ...commits.duplicate_look_up_bounds import DuplicateLookUp, older_than_condition
from ..batch_offsets import disjunction

MOST_RANGES = 8
"""Most ranges of a bound: each is a comparison for each row, and another number of them changes the generated code."""

Steps = tuple[int, int | None]
"""Steps since 1970: from the first to the second, which is excluded; None for no end."""


def next_arrival_ranges(steps: Collection[int], further: int, recent: int) -> tuple[Steps, ...]:
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
    >>> next_arrival_ranges([3, 4, 40], 5, 41)
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


def look_up_of_arrivals(
    source: str, ranges: Sequence[Steps], time_of: Callable[[int], datetime]
) -> DuplicateLookUp:
    """Return the look-up of a stream's records that arrived in some ranges; any other fails the write.

    Iceberg evaluates the condition for the rows on a file's metadata. The times of the other are outside the generated code.

    Parameters
    ----------
    source
        Logical name of the stream.
    ranges
        As from :func:`next_arrival_ranges`.
    time_of
        Returns the time at which a step begins.
    """
    mine, arrived = F.col("_source") == source, F.col("_arrived_at")
    begins = [time_of(begin) for begin, _ in ranges]
    ends = [time_of(end) for _, end in ranges if end is not None]
    pairs = zip(begins, ends, strict=False)
    inside = [(arrived >= F.lit(begin)) & (arrived < F.lit(end)) for begin, end in pairs]
    gaps = zip(ends, begins[1:], strict=True)
    outside = [
        ~older_than_condition("_arrived_at", end) & older_than_condition("_arrived_at", begin)
        for end, begin in gaps
    ]
    return DuplicateLookUp(
        mine & disjunction([*inside, arrived >= F.lit(begins[-1])]),
        mine & disjunction([older_than_condition("_arrived_at", begins[0]), *outside]),
    )
