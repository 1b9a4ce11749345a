"""Offsets of a batch by partition, and the bound of its rows in a landing table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..launch.sources import reading_and_shuffled_tasks
from ..record.envelope import POSITION_DIGITS

MOST_PARTITIONS = 200
"""Most partitions of a range in a commit: the table's metadata holds it for each of thousands of commits."""


@dataclass(frozen=True)
class BatchOffsets:
    """Offsets of a batch, by partition: from ``start`` to ``end``, which is excluded.

    A partition that only ``end`` names is new.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]

    @property
    def offset_counts(self) -> list[int]:
        """Number of offsets of each partition."""
        return [end - self.start.get(p, 0) for p, end in self.end.items()]

    def partitions_with_prefix(self, prefix: str) -> BatchOffsets:
        """Return the partitions whose names have a prefix."""
        return BatchOffsets(
            *({p: at for p, at in ends.items() if p.startswith(prefix)} for ends in (self.start, self.end))
        )

    def with_prefix_removed(self, prefix: str) -> BatchOffsets:
        """Return the same offsets with the prefix removed from the names of partitions."""
        return BatchOffsets(
            *({p.removeprefix(prefix): at for p, at in ends.items()} for ends in (self.start, self.end))
        )


def read_in_planned_tasks(batch: DataFrame, offsets: BatchOffsets | None, planned: int | None) -> DataFrame:
    """Read a batch in the tasks of the plan, and one of few records in few tasks, which write few files.

    Parameters
    ----------
    batch
        Rows of these offsets and of nothing else, with their ``_id``.
    offsets
        None if they are unknown; then the tasks stay as they are.
    planned
        Tasks into which the plan divides a batch; None for those of the source.
    """
    if offsets is None:
        return batch
    counts = [count for count in offsets.offset_counts if count > 0]
    tasks, shuffled = reading_and_shuffled_tasks(sum(counts), len(counts), planned)
    if 0 < tasks < len(counts):
        batch = batch.coalesce(tasks)
    return batch if shuffled is None else batch.repartition(shuffled, "_id")


Range = tuple[int, int]
"""Offsets: start, and end (excluded)."""

MOST_CONDITIONS = 32
"""Most conditions of one bound. Spark plans each of them for the batch, and Iceberg for each file: with thousands of
partitions this takes longer than to read a few unnecessary files."""


def disjunction(conditions: Sequence[Column]) -> Column:
    """Return the disjunction of conditions; as a balanced tree, since a chain of thousands overflows Spark's stack."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return disjunction(conditions[:half]) | disjunction(conditions[half:])


def offset_ranges_condition(source: str, ranges: Mapping[str, Range]) -> Column:
    """Return a condition for the rows of a landing table with offsets in some ranges; it may match more rows.

    Iceberg can evaluate every condition on a file's metadata. With more partitions
    than ``MOST_CONDITIONS`` their ranges are merged, the nearest first, and partitions are ignored.

    Parameters
    ----------
    source
        Logical name of the stream.
    ranges
        By partition, as in the envelope's ``_shard``; at least one.
    """
    if len(ranges) <= MOST_CONDITIONS:
        rows = [
            (F.col("_shard") == shard) & _offset_range_condition(range_)
            for shard, range_ in sorted(ranges.items())
        ]
    else:
        rows = [_offset_range_condition(range_) for range_ in _merged_ranges(ranges.values())]
    return (F.col("_source") == source) & disjunction(rows)


def _offset_range_condition(range_: Range) -> Column:
    first, end = (str(offset).zfill(POSITION_DIGITS) for offset in range_)
    return (F.col("_position") >= first) & (F.col("_position") < end)


def _merged_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Cover ranges by at most ``MOST_CONDITIONS`` ones, so that the widest gaps remain."""
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
