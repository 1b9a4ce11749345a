"""Which offsets of a Kafka batch a table may hold already.

Mostly none: a batch is a fixed range of offsets, the run's last commit says that it holds an earlier one
(:mod:`etl.commits`), and nobody else has landed any. What else a table can hold at or after a batch's offsets was written
by another checkpoint, one that was reset among them, or by a backfill. How far that reaches is found out by reading
positions, once, and later of what others have added meanwhile. A batch behind it needs no look-up, and neither do
those after it, in this process and the next: the commit says so (``millrace.alone``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl.commits import Added, BatchId, Commits, History
from etl.sinks.iceberg import Appended, Bound, IcebergSink, may_hold
from etl.sources.bounds import Range, any_of, offset_bound
from etl.sources.offsets import MOST_PARTITIONS, OffsetRange
from etl.tables import Table

Ends = Mapping[str, int]
"""By partition, as a batch's offsets name it: the offset from which on a table holds nothing."""

EndsOf = Callable[[DataFrame, Collection[str]], Ends | None]
"""Reads those of some partitions off rows of a table, and maybe of more; None where nobody can tell."""


@dataclass(frozen=True)
class Held:
    """What of a batch a table may hold.

    Attributes
    ----------
    ranges
        By partition; None where nobody can tell.
    again
        Commits of this same batch.
    alone
        Whether nothing after the batch can be in the table.
    """

    ranges: Mapping[str, Range] | None
    again: tuple[Added, ...]
    alone: bool


@dataclass
class Overlap:
    """Knows how far a table reaches into a query's topics.

    Parameters
    ----------
    table
        Its name.
    ends_of
        Reads the ends of the query's partitions off rows.
    """

    table: Table
    ends_of: EndsOf
    _ends: Ends = field(default_factory=dict, init=False, repr=False)
    _covered: set[str] = field(default_factory=set, init=False, repr=False)
    """Partitions of which the ends are known; one without an end holds nothing that a batch can hold."""
    _untold: bool = field(default=False, init=False, repr=False)

    def of(self, spark: SparkSession, history: History, offsets: OffsetRange | None) -> Held:
        """What of a batch the table may hold.

        Parameters
        ----------
        spark
            With the table's catalog.
        history
            Of the table.
        offsets
            Of the batch; None where the checkpoint does not know them.
        """
        if offsets is None or self._untold:
            return Held(None, history.again, alone=False)
        if not self._learn(spark, history, offsets):
            self._untold = True
            return Held(None, history.again, alone=False)
        ends, first = self._ends, offsets.start
        ranges = {
            partition: (first.get(partition, 0), min(end, ends[partition]))
            for partition, end in offsets.end.items()
            if ends.get(partition, 0) > first.get(partition, 0)
        }
        alone = all(ends.get(partition, 0) <= end for partition, end in offsets.end.items())
        return Held(ranges, history.again, alone)

    def _learn(self, spark: SparkSession, history: History, offsets: OffsetRange) -> bool:
        """Read what is not known yet; False where nobody can tell."""
        partitions = offsets.end.keys()
        if history.empty:
            self._ends, self._covered = {}, set(partitions)
        elif history.lost:
            self._covered = set()
        elif not self._covered and history.alone:
            # Of partitions that the checkpoint has not read before, no commit of its own tells.
            self._covered = set(offsets.start)
        if not partitions <= self._covered or not all(added.whole for added in history.others):
            rows = spark.table(str(self.table))
            self._covered |= partitions
        elif history.others:
            rows = reduce(DataFrame.unionByName, (a.rows(spark, self.table) for a in history.others))
        else:
            return True
        found = self.ends_of(rows, partitions)
        if found is None:
            return False
        self._ends = {p: max(self._ends.get(p, 0), found.get(p, 0)) for p in {**self._ends, **found}}
        return True


@dataclass
class Appender:
    """Appends batches of Kafka offsets to a table, each record once, and looks up only what the table may hold.

    Parameters
    ----------
    sink
        The table.
    ends_of
        Reads ends of partitions off its rows.
    bound_of
        Where in it records of some ranges can be.
    """

    sink: IcebergSink
    ends_of: EndsOf
    bound_of: Callable[[Mapping[str, Range] | None], Bound]
    _commits: Commits = field(init=False, repr=False)
    _overlap: Overlap = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._commits = Commits(self.sink.table)
        self._overlap = Overlap(self.sink.table, self.ends_of)

    def append(
        self,
        spark: SparkSession,
        rows: Callable[[], DataFrame],
        batch: BatchId | None,
        offsets: OffsetRange | None,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Appended:
        """Write those rows of a batch that the table does not hold, in one transaction.

        Parameters
        ----------
        spark
            The batch's session.
        rows
            Makes the batch's rows in the table's shape, with observations of their own.
        batch, offsets
            None where the checkpoint does not know them.
        properties
            Of the commit.
        """

        def attempt(history: History) -> Appended:
            held = self._overlap.of(spark, history, offsets)
            bound = None if held.ranges == {} else self.bound_of(held.ranges)
            fence = self._commits.fence(history, batch, alone=held.alone)
            return self.sink.append(rows(), bound, added=held.again, fence=fence, properties=properties)

        return self._commits.write(spark, batch, attempt)


def landed_ends(names: Mapping[str, str]) -> EndsOf:
    """Ends of partitions in a landing table.

    Parameters
    ----------
    names
        Logical name of each stream, to what its partitions' names begin with in a batch's offsets.
    """

    def ends_of(rows: DataFrame, partitions: Collection[str]) -> Ends:
        mine = rows.where(F.col("_source").isin(sorted(names)) & F.col("_shard").isNotNull())
        if len(partitions) <= MOST_PARTITIONS:
            # Files of one partition, as landing writes them, tell by their metadata whose they are.
            shards = {
                p.removeprefix(prefix)
                for p in partitions
                for prefix in names.values()
                if p.startswith(prefix)
            }
            mine = mine.where(F.col("_shard").isin(sorted(shards)))
        mine = mine.select("_source", "_shard", "_position")
        if not may_hold(mine):
            return {}
        last = F.max(F.col("_position").cast("long")).alias("last")
        found = mine.groupBy("_source", "_shard").agg(last).collect()
        return {f"{names[row['_source']]}{row['_shard']}": row["last"] + 1 for row in found}

    return ends_of


_ID = r"^([^/]+)/(\d+)/(\d+)(\D.*)?$"
"""A Kafka record's identity: topic, partition, offset. A transform that makes several rows of it adds to it, and a replay."""


def derived_ends(source: str, prefix: str) -> EndsOf:
    """Ends of partitions in a table that has identities and no positions.

    Parameters
    ----------
    source
        Logical name of the stream.
    prefix
        What the names of its partitions begin with in a batch's offsets.
    """

    def ends_of(rows: DataFrame, partitions: Collection[str]) -> Ends | None:  # noqa: ARG001 - no column tells
        mine = rows.where(F.col("_source") == source).select("_id")
        if not may_hold(mine):
            return {}
        topic, partition, offset = (F.regexp_extract("_id", _ID, number) for number in (1, 2, 3))
        last = F.max(offset.cast("long")).alias("last")
        ends: dict[str, int] = {}
        for row in mine.groupBy(topic.alias("topic"), partition.alias("partition")).agg(last).collect():
            if not row["topic"]:
                return None
            # Of a single topic the offsets name the number alone.
            for name in (row["partition"], f"{row['topic']}/{row['partition']}"):
                ends[prefix + name] = max(ends.get(prefix + name, 0), row["last"] + 1)
        return ends

    return ends_of


def landed_bound(names: Mapping[str, str]) -> Callable[[Mapping[str, Range] | None], Bound]:
    """Where in a landing table records of some ranges can be.

    Parameters
    ----------
    names
        As of :func:`landed_ends`.
    """

    def bound_of(ranges: Mapping[str, Range] | None) -> Bound:
        if ranges is None:
            return Bound(F.col("_source").isin(sorted(names)))
        by_source: dict[str, dict[str, Range]] = {}
        for partition, range_ in ranges.items():
            source, prefix = next((s, p) for s, p in names.items() if partition.startswith(p))
            by_source.setdefault(source, {})[partition.removeprefix(prefix)] = range_
        return Bound(any_of([offset_bound(source, mine) for source, mine in by_source.items()]))

    return bound_of
