"""Rows to a service that is written from Python: a pass over the batch's partitions, refused rows told apart.

The services here have an HTTP interface and no connector on every engine. What travels to Python is a row's
identity, a key and the row as JSON. The pass is an action on an RDD; Spark tells its listeners nothing of
figures observed below it, so they are read off the plan that ran.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...record.batch_accounts import ObservedFigures
from ...services.backoff import Backoff
from ..base import (
    LETTER,
    STAGE,
    Refuse,
    Sink,
    WriteCounts,
    identity_and_times,
    is_delete,
    text_of,
    unstorable_time,
)

_TIMES = ("_arrived_at", "_landed_at")


class Record(NamedTuple):
    """One row on its way; times in microseconds since 1970.

    Attributes
    ----------
    key
        The row's text for the service's own key; None where the column is empty.
    text
        The row as JSON.
    deleted
        Whether it deletes what has its identity.
    """

    id: str
    source: str | None
    arrived_at: int | None
    landed_at: int | None
    key: str | None
    text: str
    deleted: bool = False


Refused = tuple[Record, str]
"""A row and why the service cannot take it."""


_OUTCOME = StructType(
    [
        StructField("_id", StringType()),
        StructField("_source", StringType()),
        StructField("_arrived_at", LongType()),
        StructField("_landed_at", LongType()),
        StructField("_text", StringType()),
        StructField("_error", StringType()),
        StructField("_offered", LongType()),
        StructField("_written", LongType()),
    ]
)


@dataclass
class RowsCountedInPlan:
    """Counts rows below an action on an RDD.

    Parameters
    ----------
    figures
        Named aggregates.
    """

    figures: tuple[Column, ...]
    _name: str = field(default_factory=lambda: f"millrace-{uuid.uuid4()}", repr=False)

    def observe(self, rows: DataFrame) -> DataFrame:
        """Count the rows that pass here; once per instance."""
        return rows.observe(self._name, *self.figures)

    def values(self, ran: DataFrame) -> Mapping[str, Any]:
        """The figures, after an action on the RDD of ``ran``."""
        row: Any = ran._jdf.queryExecution().observedMetrics().apply(self._name)
        return {name: row.get(position) for position, name in enumerate(row.schema().fieldNames())}


class CountedRows:
    """Counts what a batch holds on its way to a sink, however that sink reads; of several attempts, in the last.

    Parameters
    ----------
    sink
        Where the rows go.
    figures
        Named aggregates.
    """

    def __init__(self, sink: Sink, *figures: Column) -> None:
        self._sends, self._figures = sink.acts_on_rdd, figures
        self._by: RowsCountedInPlan | ObservedFigures | None = None

    def observe(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Count the rows that pass here, with ``more`` figures that rest on their columns."""
        if self._sends is None:
            return rows
        figures = (*self._figures, *more)
        self._by = RowsCountedInPlan(figures) if self._sends else ObservedFigures(*figures)
        return self._by.observe(rows)

    def values(self, done: WriteCounts) -> Mapping[str, Any]:
        """The figures, after a write; none of a sink that reads its rows more than once."""
        if isinstance(self._by, RowsCountedInPlan):
            assert done.ran is not None, "a sink that sends tells which frame it sent"
            return self._by.values(done.ran)
        return self._by.values() if self._by is not None else {}


def through_rdd(rows: DataFrame) -> DataFrame:
    """The same rows as those of an RDD: whatever becomes of them, it is the plan of ``rows`` that runs.

    Spark's writers plan what they are handed again, and Spark 4 tells nobody what was observed in that plan: figures are
    0. Rows stay in Spark's own form, as in its own ``foreachBatch``; nothing is copied.
    """
    frame: Any = rows  # what PySpark keeps of the JVM is not in its types
    session: Any = rows.sparkSession
    ran = frame._jdf.queryExecution().toRdd()
    made = session._jsparkSession.internalCreateDataFrame(ran, frame._jdf.schema(), False)
    return DataFrame(made, rows.sparkSession)


def send(
    rows: DataFrame, key: Column, open_writer: Callable[[], RequestWriter], refuse: Refuse
) -> WriteCounts:
    """Send a batch, each partition by a writer of its own, then keep what was refused.

    Parameters
    ----------
    key
        Text for the service's own key.
    open_writer
        Makes a writer where the partition is; it travels there.
    refuse
        Keeps refused rows; not called where there are none, so that a clean batch pays nothing.

    Returns
    -------
    Written
        With ``ran``, the frame on whose RDD the action ran.
    """
    spark = rows.sparkSession
    micros = [F.expr(f"unix_micros(`{c}`)").alias(c) for c in _TIMES]
    more = {
        "_key": key.cast("string"),
        "_text": text_of(rows),
        "_deleted": is_delete(rows),
        "_untimely": unstorable_time(rows),
    }
    whole = rows.select(*identity_and_times(rows), *(column.alias(name) for name, column in more.items()))
    sent = whole.select("_id", "_source", *micros, *more)
    outcome = spark.createDataFrame(sent.rdd.mapPartitions(partial(_deliver, open_writer)), _OUTCOME)
    # Two readers: the accounts, and the dead letters where there are some. It holds a row for each partition
    # and for each refused row; a block that is lost is sent again, which idempotence bears.
    outcome.persist()
    try:
        figures = outcome.agg(
            F.sum("_offered").alias("offered"),
            F.sum("_written").alias("written"),
            F.count("_error").alias("refused"),
        ).first()
        assert figures is not None
        if figures["refused"]:
            refuse(_letters(outcome))
    finally:
        outcome.unpersist()
    return WriteCounts(figures["offered"] or 0, figures["written"] or 0, figures["refused"], ran=sent)


def _letters(outcome: DataFrame) -> DataFrame:
    times = [F.expr(f"timestamp_micros(`{c}`)").alias(c) for c in _TIMES]
    return (
        outcome.where(F.col("_error").isNotNull())
        .select(
            "_id",
            "_source",
            *times,
            F.col("_text").cast("binary").alias("_bytes"),
            F.lit(STAGE).alias("_stage"),
            "_error",
        )
        .select(*LETTER.fieldNames())
    )


def _deliver(open_writer: Callable[[], RequestWriter], rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Send one partition: its refused rows, then one row with its counts."""
    writer: RequestWriter | None = None
    offered = 0
    try:
        for *fields, why in rows:
            # An empty partition opens no connection.
            writer = writer or open_writer()
            offered += 1
            record = Record(*fields)
            for refused in writer.add(record) if why is None else ((record, why),):
                yield _refused(refused)
        if writer is None:
            return
        for refused in writer.finish():
            yield _refused(refused)
        yield (None, None, None, None, None, None, offered, writer.written)
    finally:
        if writer is not None:
            writer.close()


def _refused(refused: Refused) -> tuple[Any, ...]:
    record, why = refused
    return (record.id, record.source, record.arrived_at, record.landed_at, record.text, why, 0, 0)


class UnsupportedRowError(ValueError):
    """A row that a service has no form for."""


Entry = tuple[Record, Any]
"""A row, and its form in the service."""


@dataclass
class RequestWriter(ABC):
    """Writes the rows of one partition, in requests of at most so many rows and bytes.

    Attributes
    ----------
    MOST, MOST_BYTES
        Of one request.
    client
        To the service; closed at the end.
    """

    MOST = 1
    MOST_BYTES = 1

    client: Any
    backoff: Backoff
    written: int = field(default=0, kw_only=True)
    _waiting: dict[Any, Entry] = field(default_factory=dict, kw_only=True, repr=False)
    _size: int = field(default=0, kw_only=True, repr=False)

    @abstractmethod
    def to_request(self, record: Record) -> tuple[Any, int]:
        """A row as the service wants it, and its bytes.

        Raises
        ------
        UnsupportedRowError
            It has no form for it.
        """

    def key(self, entry: Any) -> Any:
        """What no two rows of a request may have alike."""
        return object()

    def add(self, record: Record) -> Iterable[Refused]:
        """Take a row; writes the rows before it where a request is full."""
        try:
            entry, size = self.to_request(record)
        except UnsupportedRowError as error:
            yield record, str(error)
            return
        key, full = self.key(entry), self._size + size > self.MOST_BYTES or len(self._waiting) >= self.MOST
        if self._waiting and (full or key in self._waiting):
            yield from self.finish()
        self._waiting[key] = record, entry
        self._size += size

    def take_waiting(self) -> list[Entry]:
        """All that wait, which then wait no more."""
        taken = [*self._waiting.values()]
        self._waiting, self._size = {}, 0
        return taken

    @abstractmethod
    def finish(self) -> Iterable[Refused]:
        """Write what waits."""

    def close(self) -> None:
        """Close connections; also after an error."""
        self.client.close()
