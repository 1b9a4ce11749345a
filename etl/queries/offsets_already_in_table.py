"""Overlap of a batch's offsets with the records that a table already holds.

Mostly there is none: a batch is a fixed range of offsets, the run's last commit names an earlier one
(:mod:`etl.commits.commit_batch_once`), and no other writer has landed any. Other records at or after a batch's offsets were written
by another checkpoint (also one that was reset) or by a backfill. Their end is determined once by reading
positions, and later from the commits that others add. A batch after that end needs no look-up, and neither do
the following ones, in this process and the next: the commit records it (``millrace.alone``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..commits.duplicate_look_up_bounds import DuplicateLookUp, LookUps, TableHistory
from ..sinks.iceberg import any_file_may_match
from ..sources.batch_offsets import MOST_PARTITIONS, BatchOffsets, Range, disjunction, offset_ranges_condition

Ends = Mapping[str, int]
"""By partition, as in a batch's offsets (``stream/partition``): the offset from which on a table holds no records."""


@dataclass
class OffsetOverlap:
    """Known ends of one table's records in a query's topics.

    Parameters
    ----------
    ends_of
        Reads the ends of some partitions, maybe of more, from rows of the table; None if they cannot be determined.
    rows_of
        Returns the condition for the table's rows in some ranges; None for all rows of the query.
    """

    ends_of: Callable[[DataFrame, Collection[str]], Ends | None]
    rows_of: Callable[[Mapping[str, Range] | None], Column]
    _ends: Ends | None = field(default_factory=dict, init=False, repr=False)
    """None once they cannot be determined."""
    _covered: set[str] = field(default_factory=set, init=False, repr=False)
    """Partitions with known ends; one without an end has no records in the table."""

    def look_ups_as_function(self, offsets: BatchOffsets | None) -> LookUps:
        """Return the only look-up of a batch, as a function of the table's history.

        Parameters
        ----------
        offsets
            Offsets of the batch; None if the checkpoint does not know them.
        """
        return lambda history: [self.look_up_of_batch(offsets, history)]

    def look_up_of_batch(self, offsets: BatchOffsets | None, history: TableHistory) -> DuplicateLookUp:
        """Return the look-up for the rows in which records of a batch can be; arguments as in :meth:`look_ups_as_function`."""
        ends = None if offsets is None else self._read_unknown_ends(history, offsets)
        if offsets is None or ends is None:
            return DuplicateLookUp(self.rows_of(None))
        first = offsets.start
        ranges = {
            partition: (first.get(partition, 0), min(end, ends[partition]))
            for partition, end in offsets.end.items()
            if ends.get(partition, 0) > first.get(partition, 0)
        }
        nothing_later = all(ends.get(partition, 0) <= end for partition, end in offsets.end.items())
        return DuplicateLookUp(self.rows_of(ranges) if ranges else None, nothing_later=nothing_later)

    def _read_unknown_ends(self, history: TableHistory, offsets: BatchOffsets) -> Ends | None:
        """Read the ends that are not known yet, and return all; None if they cannot be determined."""
        if self._ends is None:
            return None
        partitions = offsets.end.keys()
        if history.empty:
            self._ends, self._covered = {}, set(partitions)
        elif history.incomplete:
            self._covered = set()
        elif not self._covered and history.nothing_later:
            # For partitions that the checkpoint has not read before, its own commits show nothing.
            self._covered = set(offsets.start)
        if not partitions <= self._covered or not all(added.whole for added in history.others):
            rows = history.spark.table(str(history.table))
            self._covered |= partitions
        elif history.others:
            added = (commit.rows(history.spark, history.table) for commit in history.others)
            rows = reduce(DataFrame.unionByName, added)
        else:
            return self._ends
        found, known = self.ends_of(rows, partitions), self._ends
        if found is not None:
            found = {p: max(known.get(p, 0), found.get(p, 0)) for p in {**known, **found}}
        self._ends = found
        return found


def overlap_with_landing_table(names: Iterable[str]) -> OffsetOverlap:
    """Return the overlap with a table in the shape of a landing table, which has positions.

    Parameters
    ----------
    names
        Logical names of the landed streams.
    """
    mine = sorted(names)
    return OffsetOverlap(partial(landed_end_offsets, mine), partial(_landed_in_ranges_condition, mine))


def overlap_with_derived_table(source: str) -> OffsetOverlap:
    """Return the overlap with a table that has the identities of one stream's records, but no positions.

    Parameters
    ----------
    source
        Logical name of the stream.
    """
    return OffsetOverlap(partial(derived_end_offsets, source), lambda _: F.col("_source") == source)


def landed_end_offsets(names: Sequence[str], rows: DataFrame, partitions: Collection[str]) -> Ends:
    """Return the ends of partitions in a landing table.

    Parameters
    ----------
    names
        Logical names of the streams.
    """
    mine = rows.where(F.col("_source").isin([*names]) & F.col("_shard").isNotNull())
    if len(partitions) <= MOST_PARTITIONS:
        # The metadata of files with one partition, as landing writes them, shows their partition.
        shards = {partition.partition("/")[2] for partition in partitions}
        mine = mine.where(F.col("_shard").isin(sorted(shards)))
    mine = mine.select("_source", "_shard", "_position")
    if not any_file_may_match(mine):
        return {}
    last = F.max(F.col("_position").cast("long")).alias("last")
    found = mine.groupBy("_source", "_shard").agg(last).collect()
    return {f"{row['_source']}/{row['_shard']}": row["last"] + 1 for row in found}


_ID = r"^([^/]+)/(\d+)/(\d+)(\D.*)?$"
"""A record's identity: topic, partition, offset. A replay and a transform that makes several rows add a suffix."""


def derived_end_offsets(source: str, rows: DataFrame, partitions: Collection[str]) -> Ends | None:  # noqa: ARG001 - no column tells
    """Return the ends of partitions in a table that has identities but no positions; None if an identity is of another form.

    Parameters
    ----------
    source
        Logical name of the stream.
    """
    mine = rows.where(F.col("_source") == source).select("_id")
    if not any_file_may_match(mine):
        return {}
    topic, partition, offset = (F.regexp_extract("_id", _ID, number) for number in (1, 2, 3))
    last = F.max(offset.cast("long")).alias("last")
    ends: dict[str, int] = {}
    for row in mine.groupBy(topic.alias("topic"), partition.alias("partition")).agg(last).collect():
        if not row["topic"]:
            return None
        # For a single topic the offsets have the partition number alone.
        for name in (row["partition"], f"{row['topic']}/{row['partition']}"):
            ends[f"{source}/{name}"] = max(ends.get(f"{source}/{name}", 0), row["last"] + 1)
    return ends


def _landed_in_ranges_condition(names: Sequence[str], ranges: Mapping[str, Range] | None) -> Column:
    """Return the condition for records of some ranges in a landing table."""
    if ranges is None:
        return F.col("_source").isin([*names])
    by_source: dict[str, dict[str, Range]] = {}
    for partition, range_ in ranges.items():
        source, _, shard = partition.partition("/")
        by_source.setdefault(source, {})[shard] = range_
    return disjunction([offset_ranges_condition(source, mine) for source, mine in by_source.items()])
