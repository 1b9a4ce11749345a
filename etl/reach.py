"""How far a table reaches into a topic: what tells, without a look at its rows, that it holds none of a batch.

A batch of Kafka is a fixed range of offsets, and each commit of a direct query bears it, for the audit to read. Whether
the table holds records of a *batch* is another question, which the last commit's range cannot answer: a checkpoint that was
reset reads the past again, batch after batch, each of which follows the one before. So a commit also bears the reach: by
partition, the offset at which all that the query has ever written ends. A batch that begins there is appended as it is, any
other is looked up by identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl.sinks.iceberg import Bound, IcebergSink
from etl.sources.offsets import OffsetRange
from etl.tables import Table

QUERY, RANGE, REACH = "millrace.query", "millrace.offsets", "millrace.reach"
"""Properties of a commit: who wrote it, which offsets it holds, and where all ends that was written so far."""

_ID = r"^([^/]+)/(\d+)/(\d+)(\D.*)?$"
"""A Kafka record's identity: topic, partition, offset. A transform that makes several rows of it adds to it, and a replay."""

Reach = Mapping[str, int]
"""By partition, as the query's offsets name it: the offset from which on a table holds nothing."""


@dataclass
class Chain:
    """Appends batches of offsets to a table, each record once, and looks up only what the table may hold.

    Parameters
    ----------
    name
        Of the query, or of a query and its route, as the commits bear it.
    source
        The logical name of the stream.
    sink
        The table.
    prefix
        What the names of the stream's partitions begin with in the query's offsets; those of other streams are none of
        the table's.
    """

    name: str
    source: str
    sink: IcebergSink
    prefix: str = ""
    _reach: Reach | None = field(default=None, init=False, repr=False)
    _untold: bool = field(default=False, init=False, repr=False)

    def append(self, rows: DataFrame, offsets: OffsetRange | None) -> tuple[int, int]:
        """Write those rows of a batch that the table does not hold, in one transaction.

        Parameters
        ----------
        rows
            Of the batch, in the table's shape.
        offsets
            Of the batch; None where the checkpoint no longer knows them.

        Returns
        -------
        tuple of int
            How many rows were offered, and how many written.
        """
        reach = self._reach
        if reach is None and not self._untold:
            reach = known(rows.sparkSession, self.sink.table, self.name, self.source, self.prefix)
            self._untold = reach is None
        # Known again only when the batch is written: should it fail and come again in this run, the table tells.
        self._reach = None
        properties = {QUERY: self.name}
        after = None
        if offsets is not None:
            properties[RANGE] = offsets.text()
            after = None if reach is None else _further(reach, self._mine(offsets.end))
        if after is not None:
            properties[REACH] = json.dumps(after, sort_keys=True, separators=(",", ":"))
        if offsets is not None and reach is not None and self._begins_at(reach, offsets):
            written = self.sink.add(rows, properties)
            done = written, written
        else:
            # The first batch of a checkpoint, one that was written and not committed in the checkpoint, and all that a
            # checkpoint which was reset reads again.
            appended = self.sink.append(rows, Bound(F.col("_source") == self.source), properties=properties)
            done = appended.offered, appended.written
        self._reach = after
        return done

    def passed(self, offsets: OffsetRange) -> None:
        """Hear of a batch that has no row for the table.

        Parameters
        ----------
        offsets
            Of the batch.
        """
        if self._reach is not None and self._begins_at(self._reach, offsets):
            self._reach = _further(self._reach, self._mine(offsets.end))

    def _begins_at(self, reach: Reach, offsets: OffsetRange) -> bool:
        # A partition that the batch does not name is not in it.
        return offsets.follows(OffsetRange({}, {p: at for p, at in reach.items() if p in offsets.end}))

    def _mine(self, ends: Mapping[str, int]) -> Reach:
        return {p: at for p, at in ends.items() if p.startswith(self.prefix)}


def known(spark: SparkSession, table: Table, name: str, source: str, prefix: str = "") -> Reach | None:
    """How far a table reaches into a stream.

    By the query's newest commit, mostly. Where that does not say it, as an earlier version's, or the table has forgotten
    all of the query's commits, by the table's rows, which costs what a look-up does, once.

    Parameters
    ----------
    spark
        With the table's catalog.
    table
        Its name.
    name, source, prefix
        As of :class:`Chain`.

    Returns
    -------
    Mapping or None
        None where nobody can tell: the rows have identities of the transform's own.
    """
    found: Reach = {}
    told = True
    for summary in table.commits(spark):
        if summary.get(QUERY) != name:
            continue
        text, held = summary.get(REACH), summary.get(RANGE)
        if text is not None and told:
            return _further(found, json.loads(str(text)))
        told = told and held is not None
        if held is not None:
            ends = OffsetRange.parse(str(held)).end
            found = _further(found, {p: at for p, at in ends.items() if p.startswith(prefix)})
    rows = _by_rows(spark, table, source, prefix)
    return None if rows is None else _further(found, rows)


def _by_rows(spark: SparkSession, table: Table, source: str, prefix: str) -> Reach | None:
    topic, partition, offset = (F.regexp_extract("_id", _ID, number) for number in (1, 2, 3))
    rows = spark.table(str(table)).where(F.col("_source") == source)
    last = F.max(offset.cast("long")).alias("last")
    reach: Reach = {}
    for row in rows.groupBy(topic.alias("topic"), partition.alias("partition")).agg(last).collect():
        if not row["topic"]:
            return None
        # Of a single topic the offsets name the number alone.
        names = (row["partition"], f"{row['topic']}/{row['partition']}")
        reach = _further(reach, {f"{prefix}{p}": row["last"] + 1 for p in names})
    return reach


def _further(one: Reach, other: Reach) -> Reach:
    """The greater of two reaches, partition by partition."""
    return {p: max(one.get(p, 0), other.get(p, 0)) for p in {**one, **other}}
