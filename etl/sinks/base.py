"""Common interface of all sinks: rows in, accounts and refused rows out.

A sink has one method, ``write``, which writes a batch idempotently and documents its guarantee in its
docstring; ``docs/sinks.md`` has the table. A row that the sink cannot store (too large, a value that the
server refuses, a time outside the years 1 to 9999) becomes a dead letter with stage ``sink``. If a server refuses to work,
the sink waits within limits (:mod:`etl.services.backoff`); then the batch fails and is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from operator import or_
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..checkpoints.checkpoint import Checkpoint
from ..commits.commit_batch_once import BatchId
from ..commits.duplicate_look_up_bounds import LookUps
from ..formats.decoding.decoder_output_and_checks import all_leaves_condition, types_within
from ..launch import typed_json
from ..launch.sinks import SinkSettings
from ..record.envelope import CARRIED, IDENTITY
from ..record.errors import SinkError, StartError
from ..record.job_run_context import JobRun

STAGE = "sink"
"""Stage of a dead letter that was decoded and transformed, but refused by the sink."""

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
"""Row that a sink refused: identity and times, the row as JSON, and the reason."""

JSON_OPTIONS: Mapping[str, str] = {
    # Spark's default truncates microseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # X three times: Java's offset as +01:00
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

DELETED = "_deleted"
"""Boolean column of results, never null: true if the row deletes the row with its identity. Not a column of the sink."""

ORDER = "_order"
"""Column of the last records of a key: which of two is the later one (:mod:`etl.sinks.delivery.record_order`).
A sink keeps it with the row; a row without it is older than every record."""

HASH = "_hash"
"""Column with a hash of the payload, or of the values of a version, in tables that have one."""

Refuse = Callable[[DataFrame], None]
"""Stores refused rows, in the shape of :data:`LETTER`, permanently; called before a batch counts as written."""


Reread = Callable[[], DataFrame]
"""Returns the rows of a batch with new counters: those of a failed attempt hold a part of it."""


BATCHES = 2**30
"""Most batches of a checkpoint in a version. With it a version is below 2**63 for checkpoints made until the year 2242
(2**33 seconds): OpenSearch takes a signed 64-bit integer (``org.opensearch.index.VersionType``)."""


@runtime_checkable
class RowOrderLister(Protocol):
    """Sink that can list its rows, for a truncate of the table from which they come."""

    def identities_and_orders(self, spark: SparkSession) -> DataFrame:
        """Return ``_id`` and :data:`ORDER` of all rows."""


@dataclass(frozen=True)
class BatchIdentity:
    """Identity of a batch: the same for every replay of it, and for no other batch.

    Attributes
    ----------
    run
        Id of the query's checkpoint; a reset checkpoint has a new one.
    batch
        Number of the batch; starts from 0 with a new checkpoint.
    start, end
        Offsets of the batch, from the checkpoint; empty if it does not know them.
    notes
        URL of the query's checkpoint, below which a sink may store data on the batch; empty if there
        is none.
    created
        Time at which the checkpoint was made, in whole seconds since 1970.
    route
        Query and route, for a query with several routes: each has its own commits.
    source
        As in :class:`~etl.commits.commit_batch_once.BatchId`.
    properties
        Properties of the commit, for a sink with a history.
    look_ups
        Find the rows of the batch that a table may hold already; None if they cannot be bounded.
    rows
        Number of rows of a batch that is cached and was counted; None otherwise.
    landed_again
        True if records of it may have been in an earlier batch of this run: a backfill landed what was lost.
    """

    run: str
    batch: int
    start: str = ""
    end: str = ""
    notes: str = ""
    created: int = 0
    route: str = ""
    source: str = field(default="", compare=False)
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    look_ups: LookUps | None = field(default=None, compare=False, repr=False)
    rows: int | None = field(default=None, compare=False, repr=False)
    landed_again: bool = field(default=False, compare=False, repr=False)

    @property
    def batch_id(self) -> BatchId:
        """Id by which a table's commits name it."""
        run = f"{self.run}/{self.route}" if self.route else self.run
        return BatchId(run, self.batch, self.source, self.created)

    @property
    def name(self) -> str:
        """Unique name of the batch; empty without a checkpoint."""
        return f"{self.run}/{self.batch}" if self.notes else ""

    @property
    def version(self) -> int:
        """Version of the batch's results: the same in every replay, larger in later batches, and in all of a later checkpoint.

        A reset checkpoint counts its batches from 0 again, and its results replace the earlier ones.
        """
        return self.created * BATCHES + self.batch


def batch_identity(
    spark: SparkSession, checkpoint: Checkpoint, batch: int, *, look_ups: LookUps | None = None
) -> BatchIdentity:
    """Return the identity of a batch, from its checkpoint.

    Parameters
    ----------
    batch
        Spark's batch number.
    look_ups
        As in :class:`BatchIdentity`.
    """
    run, created = checkpoint.id_and_creation_time(spark)
    offsets = (checkpoint.batch_start_offset(spark, batch), checkpoint.batch_end_offset(spark, batch))
    start, end = ("" if each is None else json.dumps(each, sort_keys=True) for each in offsets)
    return BatchIdentity(
        run, batch, start, end, checkpoint.location, created, source=checkpoint.source, look_ups=look_ups
    )


@dataclass(frozen=True)
class WriteCounts:
    """Result of a write, in rows.

    Attributes
    ----------
    offered
        Rows that the transform made of the batch; None if the sink does not count them separately.
    written
        Offered rows that are new in the sink. A sink that cannot know counts all rows that it wrote.
    refused
        Offered rows that became dead letters; None for a sink of the lake, which refuses none.
    unordered
        Rows that were compared with a row of the sink, of which only the arrival says which record is the later one
        (:func:`etl.sinks.delivery.record_order.decided_by_arrival_sql`).
    ran
        DataFrame on whose RDD the action ran, for a sink that ``acts_on_rdd``.
    """

    offered: int | None
    written: int
    refused: int | None = 0
    unordered: int = 0
    ran: DataFrame | None = field(default=None, compare=False, repr=False)


class Sink(Protocol):
    """Target of a query's rows."""

    @property
    def acts_on_rdd(self) -> bool | None:
        """True if its action is on an RDD; Spark reports figures that were observed below an RDD to no listener.

        None if it reads its rows more than once, so that nothing can be counted on their way.
        """

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the target, or check an existing one, before the first batch.

        Raises
        ------
        StartError
            The target does not exist, has another schema, or cannot be written.
        """

    def write(
        self, rows: DataFrame, place: BatchIdentity | None, refuse: Refuse, reread: Reread | None = None
    ) -> WriteCounts:
        """Write a batch.

        Parameters
        ----------
        place
            Identity of the batch; None for rows of no batch, such as a replay's.
        refuse
            Stores rows that the sink cannot store.
        reread
            Returns the rows again, for a second attempt in the same call; None if they are not counted.
        """


def version_if_rows_are_results(rows: DataFrame, place: BatchIdentity | None) -> int | None:
    """Return the version of a batch of results, whose identity is ``_id`` alone.

    None for records, which never change, and for the last records of keys, of which each has its own order.

    Raises
    ------
    SinkError
        Results of no batch: it is unknown which of two is the later one.
    """
    if "_source" in rows.columns or ORDER in rows.columns:
        return None
    if place is None:
        raise SinkError(
            "these rows belong to no batch, such as those of a replay; without a batch number it is "
            "unknown which of two results with one identity is later, so nothing was written"
        )
    return place.version


def row_as_json(rows: DataFrame) -> Column:
    """Return a row as JSON, without its empty fields; times with microseconds, bytes in base64."""
    return F.to_json(F.struct(*(F.col(f"`{c}`") for c in rows.columns)), dict(JSON_OPTIONS))


def delete_condition(rows: DataFrame) -> Column:
    """Return a condition: a row deletes the row with its identity. Never null."""
    return F.col(DELETED) if DELETED in rows.columns else F.lit(False)


def identity_and_time_columns(rows: DataFrame) -> list[Column]:
    """Return identity and times of a row; null where a result of many records has none."""
    kinds: dict[str, DataType] = {f.name: f.dataType for f in LETTER.fields}
    have = set(rows.columns)
    return [F.col(c) if c in have else F.lit(None).cast(kinds[c]).alias(c) for c in CARRIED]


def refuse_unwritable_map_keys(schema: StructType, what: str) -> None:
    """Refuse a map whose keys have no form as JSON: Spark writes their internal form, for bytes another one each time.

    Parameters
    ----------
    schema
        Columns of the rows.
    what
        The sink, for the message.

    Raises
    ------
    StartError
        A map's keys are bytes, times, intervals, or values with parts.
    """
    for kind in types_within(schema):
        if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType | BooleanType | NumericType):
            raise StartError(
                f"{what}: a map has keys of type {kind.keyType.simpleString()}, which JSON cannot represent "
                "as names: cast them to STRING in the transform"
            )


FIRST_DAY, LAST_DAY = date.min, date.max
"""Days that a row may hold outside the lake: years of four digits (RFC 3339, and ``date`` of SQL's standard).
Spark's range is 290,308 BC to 294,247, which PostgreSQL, the clocks of most languages and JSON readers do not support."""


def reason_not_storable(rows: DataFrame) -> Column:
    """Return the reason why a sink outside the lake cannot store a row: no identity, or a time; null if it can.

    Parameters
    ----------
    rows
        Rows of a batch, in a session whose time zone is UTC.
    """
    names = [name for name in IDENTITY if name in rows.columns]
    lacking = reduce(or_, (F.col(name).isNull() for name in names))
    why = f"the transform returned a row without {' or without '.join(names)}"
    return F.when(lacking, F.lit(why)).otherwise(reason_time_not_storable(rows))


def reason_time_not_storable(rows: DataFrame) -> Column:
    """Return the reason why a sink outside the lake cannot store one of a row's times, at any depth; null if it can.

    Parameters
    ----------
    rows
        Rows of a batch, in a session whose time zone is UTC.
    """
    reason = F.lit(None).cast("string")
    for each in rows.schema.fields:
        within = all_leaves_condition(each.dataType, F.col(f"`{each.name}`"), _storable_time_condition)
        if within is not None:
            text = f"{each.name} holds a time outside the years {FIRST_DAY.year} to {LAST_DAY.year}"
            reason = F.when(~within, F.lit(text)).otherwise(reason)
    return reason


def _storable_time_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a time is in those years. None for a type that is no time."""
    if isinstance(kind, DateType):
        first, last = (F.expr(f"date'{day}'") for day in (FIRST_DAY, LAST_DAY))
        return value.between(first, last)
    if kind.typeName() in ("timestamp", "timestamp_ntz"):
        first, last = (F.expr(f"timestamp'{day} 00:00:00'") for day in (FIRST_DAY, LAST_DAY))
        return (value >= first) & (value < last + F.expr("INTERVAL 1 DAY"))
    return None


def dead_letters_of_refused_rows(rows: DataFrame, error: Column) -> DataFrame:
    """Return refused rows in the shape of :data:`LETTER`.

    Parameters
    ----------
    rows
        Rows as they were offered, without other columns.
    error
        Reason of the refusal of each row.
    """
    return rows.select(
        *identity_and_time_columns(rows),
        row_as_json(rows).cast("binary").alias("_bytes"),
        F.lit(STAGE).alias("_stage"),
        error.alias("_error"),
    ).select(*LETTER.fieldNames())


def raise_on_refused_rows(letters: DataFrame) -> None:
    """Stand in for ``refuse`` if a sink refuses no row.

    Raises
    ------
    SinkError
        It refused some: its settings name no table for them.
    """
    raise SinkError(
        f"internal error of Millrace: the sink refused {letters.count()} rows, but this query has no table "
        "for dead letters"
    )


def open_sink(
    settings: SinkSettings, run: JobRun, key: tuple[str, ...] = (), *, history: bool = False
) -> Sink:
    """Make the sink; nothing is created or called yet, unless an implementation says so.

    Parameters
    ----------
    key
        Columns that identify a row, which a later one replaces; empty where rows are records. A sink of the lake needs it.
    history
        True for rows that are versions of those with the key (:mod:`etl.sinks.delivery.row_version_history`); in a table of the lake alone.

    Raises
    ------
    StartError
        The settings name something that the job does not have.
    """
    # No other sink needs to know of it: a job's configuration refuses a history there.
    more = {"history": True} if history else {}
    sink: Sink = typed_json.import_module_of(settings).open_sink(settings, run, key, **more)
    return sink
