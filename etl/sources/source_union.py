"""Union of several sources in one query: each is a leg with its own line in Spark's offset log.

Sources of a kind that are read together are one leg, so that a source can be added to a running query: for Spark it is a
new partition of the same source. A leg whose batches do not replay has its own guard. Spark refuses a query whose legs
differ from its checkpoint's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..record.lookup_bounds import LookUpBound
from . import arrival_ranges
from .arrival_ranges import Range
from .base import LegGuard, ReplayedLeg, missing_records_error
from .offsets import OffsetRange, any_of


def offsets_of(spark: SparkSession, replayed: Sequence[ReplayedLeg], batch_id: int) -> OffsetRange | None:
    """Return the offsets of a batch over all legs that replay, by stream and partition.

    Returns
    -------
    OffsetRange or None
        With partitions as ``stream/partition``; None if the checkpoint has no end, or positions are no numbers.
    """
    legs = [(leg, *leg.offsets(spark, batch_id)) for leg in replayed]
    if all(end is None for _, _, end in legs):
        return None
    ranges: tuple[dict[str, int], dict[str, int]] = {}, {}
    for leg, *ends in legs:
        for source in leg.sources:
            for into, offset in zip(ranges, ends, strict=True):
                positions = {} if offset is None else source.offsets_by_partition(offset)
                if positions is None:
                    return None
                into |= {f"{source.name}/{p}": at for p, at in positions.items()}
    return OffsetRange(*ranges)


@dataclass(frozen=True)
class SourceUnion:
    """Guards of a query's legs; they check before and after each batch. Some or all legs do not replay.

    Parameters
    ----------
    replayed
        Legs that need no guard.
    streams
        Guards of the others.
    """

    replayed: tuple[ReplayedLeg, ...]
    streams: tuple[LegGuard, ...]

    @property
    def same_identity_refusal(self) -> str | None:
        """Error text of the first stream that has one."""
        return next(
            (guard.same_identity_refusal for guard in self.streams if guard.same_identity_refusal), None
        )

    def check_before_batch(self, spark: SparkSession, batch_id: int) -> Mapping[str, str]:
        """Check every stream, see :meth:`etl.sources.base.LegGuard.check_before_batch`.

        Returns
        -------
        Mapping
            Position that the look-up of this batch must find, by ``stream/shard``.
        """
        return {
            f"{guard.source.name}/{shard}": position
            for guard in self.streams
            for shard, position in guard.check_before_batch(spark, batch_id).items()
        }

    @property
    def has_unreadable_positions(self) -> bool:
        """True if one of the connectors writes positions that cannot be read."""
        return any(guard.has_unreadable_positions for guard in self.streams)

    def bounds(self, begun: datetime, beside: Column | None = None) -> Iterator[LookUpBound]:
        """Yield bounds of the rows that can hold a record of the batch, from the tightest bound to one without times.

        Times apply to rows of guarded streams only, and a record that is older than its stream's bound fails the write.

        Parameters
        ----------
        begun
            Time at which the batch started.
        beside
            Condition for rows that can hold a record of the replayed legs; None for none.
        """
        ranges: list[tuple[Range, ...]] = [()] * len(self.streams)
        for level in zip_longest(*(guard.arrival_range_levels(begun) for guard in self.streams)):
            # A stream with fewer levels keeps its last.
            ranges = [now or before for now, before in zip(level, ranges, strict=True)]
            yield self._within(ranges, beside)
        yield LookUpBound(_or([F.col("_source") == guard.source.name for guard in self.streams], beside))

    def _within(self, ranges: Sequence[tuple[Range, ...]], beside: Column | None) -> LookUpBound:
        if not self.replayed and len(ranges) == 1 and len(ranges[0]) == 1:
            return LookUpBound.since("_arrived_at", ranges[0][0][0])
        mine = [F.col("_source") == guard.source.name for guard in self.streams]
        inside = [m & arrival_ranges.arrived_within(each) for m, each in zip(mine, ranges, strict=True)]
        outside = [m & arrival_ranges.arrived_outside(each) for m, each in zip(mine, ranges, strict=True)]
        return LookUpBound(_or(inside, beside), "_arrived_at", outside=any_of(outside))

    def count_held_positions(self, positions: Mapping[str, str]) -> Column | None:
        """Return the aggregate that counts, over the rows of the look-up, how many of these positions are present."""
        counts = [
            count
            for guard in self.streams
            if (count := guard.count_held_positions(_of(guard, positions))) is not None
        ]
        return reduce(lambda a, b: a + b, (F.coalesce(c, F.lit(0)) for c in counts)) if counts else None

    def check_after_batch(self, positions: Mapping[str, str], held: int | None) -> None:
        """Compare the look-up's result with the positions of :meth:`check_before_batch`.

        Raises
        ------
        LossError
            The batch began after a record that is not in the table.
        """
        if positions and (held or 0) < len(positions):
            raise missing_records_error(positions, [guard.table for guard in self.streams])

    def figures(self) -> tuple[Column, ...]:
        """Return the arrival figures of each stream, over all records of a batch, including those that have landed already."""
        return tuple(
            figure
            for place, guard in enumerate(self.streams)
            for figure in guard.figures(f"_{place}", f"_source = '{guard.source.name}'")
        )

    def note_arrivals(self, figures: Mapping[str, Any]) -> None:
        """Pass a landed batch's figures to the guards."""
        for place, guard in enumerate(self.streams):
            guard.note_arrivals(figures[f"oldest_{place}"], figures[f"steps_{place}"])


def _or(conditions: Sequence[Column], beside: Column | None) -> Column:
    return any_of([*conditions, *([] if beside is None else [beside])])


def _of(guard: LegGuard, positions: Mapping[str, str]) -> dict[str, str]:
    """Return the positions of one stream; a name has no slash."""
    mine = f"{guard.source.name}/"
    return {shard.removeprefix(mine): p for shard, p in positions.items() if shard.startswith(mine)}


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all legs; Spark numbers its sources in this order."""
    return reduce(lambda a, b: a.unionByName(b), frames)
