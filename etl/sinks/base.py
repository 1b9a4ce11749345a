"""What all sinks have in common: rows in, accounts and refused rows out.

A sink has one method, ``write``, which writes a batch idempotently and says in its docstring what it
guarantees; ``docs/sinks.md`` has the table. A row that the sink cannot take (too large, a value that the
server refuses, a time of no year from 1 to 9999) becomes a dead letter with stage ``sink``; a server that refuses to work is waited for within
limits (:mod:`etl.services.backoff`), and then the batch fails and comes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..checkpoints.checkpoint import Checkpoint
from ..formats.decoding.rows import holds_for_all
from ..record.commits import BatchId
from ..record.envelope import CARRIED
from ..record.errors import SinkError
from ..record.lookup_bounds import LookUp

STAGE = "sink"
"""Of a dead letter that decoded well and was transformed, and that the sink refused."""

LETTER = StructType(
    [
        StructField("_id", StringType()),
        StructField("_source", StringType()),
        StructField("_arrived_at", TimestampType()),
        StructField("_landed_at", TimestampType()),
        StructField("_bytes", BinaryType()),
        StructField("_stage", StringType()),
        StructField("_error", StringType()),
    ]
)
"""A row that a sink refused: whose it is, the row as JSON, and why."""

JSON_OPTIONS: Mapping[str, str] = {
    # Spark's own default cuts microseconds off.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # X three times: Java's offset as +01:00
}

DELETED = "_deleted"
"""Boolean column of results, never null: whether the row deletes what has its identity. No column of the sink's."""

Refuse = Callable[[DataFrame], None]
"""Keeps refused rows, in the shape of :data:`LETTER`, for good; called before a batch counts as written."""


Again = Callable[[], DataFrame]
"""The rows of a batch with counters of their own: those of an attempt that failed hold a part of it."""


BATCHES = 2**30
"""Of a checkpoint, as versions count them. With it a version is below 2**63 for checkpoints made until the year 2242
(2**33 seconds): OpenSearch takes a signed 64-bit integer (``org.opensearch.index.VersionType``)."""


@dataclass(frozen=True)
class BatchPlace:
    """Which batch it is: the same for every replay of it, and for no other batch.

    Attributes
    ----------
    run
        Id of the query's checkpoint, which a reset checkpoint does not have again.
    batch
        Number of the batch; starts from the beginning with a checkpoint.
    start, end
        The offsets that it lies between, as the checkpoint has them; empty where it does not know.
    notes
        The query's checkpoint, beside which a sink may keep what it has to know of the batch; empty where there
        is none.
    created
        When the checkpoint was made, in whole seconds since 1970.
    route
        Query and route, of a query with several: each has commits of its own.
    properties
        Of the commit, for a sink that keeps a history.
    lookup
        Where a table can hold rows of the batch already; None where nobody can tell.
    """

    run: str
    batch: int
    start: str = ""
    end: str = ""
    notes: str = ""
    created: int = 0
    route: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    lookup: LookUp | None = field(default=None, compare=False, repr=False)

    @property
    def committed(self) -> BatchId:
        """By which a table's commits name it."""
        return BatchId(f"{self.run}/{self.route}" if self.route else self.run, self.batch)

    @property
    def name(self) -> str:
        """Of the batch, unlike that of any other; empty where it has no checkpoint."""
        return f"{self.run}/{self.batch}" if self.notes else ""

    @property
    def version(self) -> int:
        """Of the batch's results: the same in every replay, larger in later batches, and in all of a later checkpoint.

        A checkpoint that was reset counts its batches from 0 again, and its results take the place of those before.
        """
        return self.created * BATCHES + self.batch


def batch_place(
    spark: SparkSession, checkpoint: Checkpoint, batch: int, *, lookup: LookUp | None = None
) -> BatchPlace:
    """Which batch it is, as its checkpoint has it.

    Parameters
    ----------
    batch
        Spark's number.
    lookup
        As of :class:`BatchPlace`.
    """
    run, created = checkpoint.id_and_creation_time(spark)
    offsets = (checkpoint.start_of(spark, batch), checkpoint.end_of(spark, batch))
    start, end = ("" if each is None else json.dumps(each, sort_keys=True) for each in offsets)
    return BatchPlace(run, batch, start, end, checkpoint.location, created, lookup=lookup)


@dataclass(frozen=True)
class WriteCounts:
    """What a write came to, in rows.

    Attributes
    ----------
    offered
        Rows that the transform made of the batch; None where the sink does not count them apart.
    written
        Of these, rows that are new in the sink. A sink that cannot tell counts all that it took.
    refused
        Of these, rows that became dead letters; None for a sink of the lake, which takes every row.
    ran
        The frame on whose RDD the action ran, for a sink that ``acts_on_rdd``.
    """

    offered: int | None
    written: int
    refused: int | None = 0
    ran: DataFrame | None = field(default=None, compare=False, repr=False)


class Sink(Protocol):
    """Where a query writes."""

    @property
    def acts_on_rdd(self) -> bool | None:
        """Whether its action is on an RDD, of which Spark tells no listener what was observed below it.

        None where it reads its rows more than once, so that nothing can be counted on their way.
        """

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make what is written to, or check what is there, before the first batch.

        Raises
        ------
        StartError
            It is not there, has another shape, or may not be written.
        """

    def write(
        self, rows: DataFrame, place: BatchPlace | None, refuse: Refuse, again: Again | None = None
    ) -> WriteCounts:
        """Write a batch.

        Parameters
        ----------
        place
            Which one it is; None for rows of no batch, such as a replay's.
        refuse
            Keeps rows that the sink cannot take.
        again
            Gives the rows again, for a second attempt in the same call; None where they are counted nowhere.
        """


def version_of(rows: DataFrame, place: BatchPlace | None) -> int | None:
    """Version of a batch of results, known by ``_id`` alone; None where rows are records, which never change.

    Raises
    ------
    SinkError
        Results of no batch: nobody knows which of two is the later one.
    """
    if "_source" in rows.columns:
        return None
    if place is None:
        raise SinkError(
            "results can be written only in batches, whose number tells which of two results is the later one"
        )
    return place.version


def text_of(rows: DataFrame) -> Column:
    """A row as JSON, without its empty fields; times with microseconds, bytes in base64."""
    return F.to_json(F.struct(*(F.col(f"`{c}`") for c in rows.columns)), dict(JSON_OPTIONS))


def is_delete(rows: DataFrame) -> Column:
    """Whether a row deletes what has its identity; never null."""
    return F.col(DELETED) if DELETED in rows.columns else F.lit(False)


def identity_and_times(rows: DataFrame) -> list[Column]:
    """Identity and times of a row, empty where a result of many records has none."""
    kinds: dict[str, DataType] = {f.name: f.dataType for f in LETTER.fields}
    have = set(rows.columns)
    return [F.col(c) if c in have else F.lit(None).cast(kinds[c]).alias(c) for c in CARRIED]


FIRST_DAY, LAST_DAY = date.min, date.max
"""Days that a row may hold where it leaves the lake: years of four digits (RFC 3339, and ``date`` of SQL's standard).
Spark's own go from 290,308 BC to 294,247, which PostgreSQL, clocks of most languages and readers of JSON do not."""


def unstorable_time(rows: DataFrame) -> Column:
    """Why a sink beside the lake cannot hold a row for one of its times, wherever in the row that is; null where it can.

    Parameters
    ----------
    rows
        Of a batch, in a session whose time zone is UTC.
    """
    reason = F.lit(None).cast("string")
    for each in rows.schema.fields:
        within = holds_for_all(each.dataType, F.col(f"`{each.name}`"), _within)
        if within is not None:
            text = f"{each.name} holds a time outside the years {FIRST_DAY.year} to {LAST_DAY.year}"
            reason = F.when(~within, F.lit(text)).otherwise(reason)
    return reason


def _within(kind: DataType, value: Column) -> Column | None:
    """Whether a time is in those years; None for a type that is no time."""
    if isinstance(kind, DateType):
        first, last = (F.expr(f"date'{day}'") for day in (FIRST_DAY, LAST_DAY))
        return value.between(first, last)
    if kind.typeName() in ("timestamp", "timestamp_ntz"):
        first, last = (F.expr(f"timestamp'{day} 00:00:00'") for day in (FIRST_DAY, LAST_DAY))
        return (value >= first) & (value < last + F.expr("INTERVAL 1 DAY"))
    return None


def letters_of(rows: DataFrame, error: Column) -> DataFrame:
    """Refused rows in the shape of :data:`LETTER`.

    Parameters
    ----------
    rows
        As they were offered, and nothing beside.
    error
        Why each was refused.
    """
    return rows.select(
        *identity_and_times(rows),
        text_of(rows).cast("binary").alias("_bytes"),
        F.lit(STAGE).alias("_stage"),
        error.alias("_error"),
    ).select(*LETTER.fieldNames())


def takes_every_row(letters: DataFrame) -> None:
    """Stand where a sink takes every row.

    Raises
    ------
    SinkError
        It refused some: its settings name no table for them.
    """
    raise SinkError(f"the sink refused {letters.count()} rows, but the query has no table of dead letters")
