"""Union of several sources in one query: each is a leg with its own line in Spark's offset log.

Sources of a kind that are read together are one leg, so that a source can be added to a running query: for Spark it is a
new partition of the same source. A leg whose batches do not replay has its own guard. Spark refuses a query whose legs
differ from its checkpoint's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from operator import add
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from .base import LegGuard, ReplayedLeg, missing_records_error
from .batch_offsets import BatchOffsets, disjunction

Positions = Sequence[Mapping[str, str]]
"""For each stream, by shard: the position that the look-up of a batch must find."""


def batch_offsets_of_legs(
    spark: SparkSession, replayed: Sequence[ReplayedLeg], batch_id: int
) -> BatchOffsets | None:
    """Return the offsets of a batch over all legs that replay, by stream and partition.

    Returns
    -------
    BatchOffsets or None
        With partitions as ``stream/partition``; None if the checkpoint has no end, or positions are no numbers.
    """
    logs = [leg.checkpoint for leg in replayed]
    legs = [(log.batch_start_offset(spark, batch_id), log.batch_end_offset(spark, batch_id)) for log in logs]
    if all(end is None for _, end in legs):
        return None
    ranges: tuple[dict[str, int], dict[str, int]] = {}, {}
    for leg, ends in zip(replayed, legs, strict=True):
        for source in leg.sources:
            for into, offset in zip(ranges, ends, strict=True):
                positions = {} if offset is None else source.offsets_by_partition(offset)
                if positions is None:
                    return None
                into |= {f"{source.name}/{p}": at for p, at in positions.items()}
    return BatchOffsets(*ranges)


@dataclass(frozen=True)
class LegGuards:
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

    def look_ups(self, begun: datetime, replayed: DuplicateLookUp) -> Iterator[DuplicateLookUp]:
        """Yield look-ups of a batch's records, from the tightest to all rows of the streams.

        Times apply to rows of guarded streams only, and a record that is older than its stream's bound fails the write.

        Parameters
        ----------
        begun
            Time at which the batch started.
        replayed
            Look-up of the records of the replayed legs.
        """
        looks = [replayed] * len(self.streams)
        for level in zip_longest(*(guard.look_ups(begun) for guard in self.streams)):
            # A stream with fewer levels keeps its last.
            looks = [now or before for now, before in zip(level, looks, strict=True)]
            outside = disjunction([look.outside for look in looks if look.outside is not None])
            yield replace(_look_up_with_more_rows(replayed, [look.rows for look in looks]), outside=outside)
        yield _look_up_with_more_rows(
            replayed, [F.col("_source") == guard.source.name for guard in self.streams]
        )

    def held_position_count_aggregate(self, positions: Positions) -> Column | None:
        """Return the aggregate that counts, over the rows of the look-up, how many of these positions are present."""
        counts = [
            F.coalesce(count, F.lit(0))
            for guard, mine in zip(self.streams, positions, strict=False)
            if (count := guard.held_position_count_aggregate(mine)) is not None
        ]
        return reduce(add, counts) if counts else None

    def check_expected_positions_found(self, positions: Positions, found_count: int | None) -> None:
        """Compare the look-up's result with the positions that it must find.

        Raises
        ------
        LossError
            The batch began after a record that is not in the table.
        """
        if sum(map(len, positions)) > (found_count or 0):
            pairs = zip(self.streams, positions, strict=True)
            wanted = {
                f"{guard.source.name}/{shard}": at for guard, mine in pairs for shard, at in mine.items()
            }
            raise missing_records_error(wanted, [guard.table for guard in self.streams])

    def arrival_aggregates(self) -> tuple[Column, ...]:
        """Return the arrival figures of each stream, over all records of a batch, including those that have landed already."""
        return tuple(
            figure
            for place, guard in enumerate(self.streams)
            for figure in guard.arrival_aggregates(f"_{place}", f"_source = '{guard.source.name}'")
        )

    def store_arrivals_of_landed_batch(self, figures: Mapping[str, Any]) -> None:
        """Pass a landed batch's figures to the guards."""
        for place, guard in enumerate(self.streams):
            guard.store_arrivals_of_landed_batch(figures[f"oldest_{place}"], figures[f"steps_{place}"])


def _look_up_with_more_rows(look_up: DuplicateLookUp, more: Sequence[Column | None]) -> DuplicateLookUp:
    return replace(look_up, rows=disjunction([rows for rows in (*more, look_up.rows) if rows is not None]))


def union_of_legs(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all legs; Spark numbers its sources in this order."""
    return reduce(DataFrame.unionByName, frames)
