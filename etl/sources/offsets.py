"""Offsets of a batch, by partition, and where in a landing table its records can be by them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from ..record.envelope import POSITION_DIGITS

MOST_PARTITIONS = 200
"""Of a range that is written into a commit: the table's metadata keeps it for each of thousands of commits."""


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of a batch, by partition: from ``start`` up to, not including, ``end``.

    A partition that only ``end`` names is new, and begins by itself.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]

    def of(self, prefix: str) -> OffsetRange:
        """Of those partitions only whose names begin like this."""
        return OffsetRange(
            *({p: at for p, at in ends.items() if p.startswith(prefix)} for ends in (self.start, self.end))
        )

    def without_prefix(self, prefix: str) -> OffsetRange:
        """The same with shorter names of partitions."""
        return OffsetRange(
            *({p.removeprefix(prefix): at for p, at in ends.items()} for ends in (self.start, self.end))
        )

    def as_property(self) -> str | None:
        """For a commit's property; None where there are too many partitions for that."""
        if len(self.end) > MOST_PARTITIONS:
            return None
        return json.dumps({"start": self.start, "end": self.end}, sort_keys=True, separators=(",", ":"))


Range = tuple[int, int]
"""Offsets from the first up to, not including, the second."""

MOST_CONDITIONS = 32
"""Of one bound. Spark plans each of them for the batch, and Iceberg for each file: with thousands of partitions that
takes longer than to look at a few files too many."""


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether one of some conditions holds; as a balanced tree, since a chain of thousands overflows Spark's stack."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def offset_bound(source: str, ranges: Mapping[str, Range]) -> Column:
    """Rows of a landing table whose offsets lie in some ranges, and maybe some more.

    Every condition is one that Iceberg can answer from a file's metadata. With more partitions
    than ``MOST_CONDITIONS`` their ranges are put together, the nearest first, and partitions no longer told apart.

    Parameters
    ----------
    source
        Logical name of the stream.
    ranges
        By partition, as the envelope's ``_shard`` calls it; at least one.
    """
    if len(ranges) <= MOST_CONDITIONS:
        rows = [(F.col("_shard") == shard) & _within(range_) for shard, range_ in sorted(ranges.items())]
    else:
        rows = [_within(range_) for range_ in _together(ranges.values())]
    return (F.col("_source") == source) & any_of(rows)


def _within(range_: Range) -> Column:
    first, end = (str(offset).zfill(POSITION_DIGITS) for offset in range_)
    return (F.col("_position") >= first) & (F.col("_position") < end)


def _together(ranges: Iterable[Range]) -> list[Range]:
    """Cover ranges by ``MOST_CONDITIONS`` ones at most, so that the widest gaps stay between them."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    gaps = sorted(
        range(1, len(joined)), key=lambda place: joined[place][0] - joined[place - 1][1], reverse=True
    )
    cuts = [0, *sorted(gaps[: MOST_CONDITIONS - 1]), len(joined)]
    return [(joined[begin][0], joined[end - 1][1]) for begin, end in itertools.pairwise(cuts)]
