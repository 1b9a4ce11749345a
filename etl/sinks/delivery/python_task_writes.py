"""Writes from Python tasks to a service: a pass over the batch's partitions that separates refused rows.

These services have an HTTP interface and no connector on every engine. A row is sent to Python as its
identity, a key and JSON. The pass is an action on an RDD; Spark does not report figures that were observed
below an RDD to listeners, so they are read from the executed plan.
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

from ...record.batch_accounts import ObservedFigures, compute_aggregates
from ...services.backoff import Backoff
from ...services.python_task_start import skip_reading_zip_directories
from ..base import (
    LETTER,
    ORDER,
    STAGE,
    Refuse,
    Sink,
    WriteCounts,
    delete_condition,
    identity_and_time_columns,
    reason_not_storable,
    row_as_json,
)

_TIMES = ("_arrived_at", "_landed_at")


class RowToSend(NamedTuple):
    """Row to send; times in microseconds since 1970.

    Attributes
    ----------
    key
        Text for the service's own key; None if the column is null.
    text
        The row as JSON.
    deleted
        True if it deletes the row with its identity.
    order
        Order of the last record of a key; None for other rows.
    """

    id: str
    source: str | None
    arrived_at: int | None
    landed_at: int | None
    key: str | None
    text: str
    deleted: bool = False
    order: str | None = None


Refused = tuple[RowToSend, str]
"""Row, and the reason why the service cannot store it."""


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
        StructField("_unordered", LongType()),
    ]
)


@dataclass
class RowsCountedInPlan:
    """Counter of rows below an action on an RDD.

    Parameters
    ----------
    figures
        Named aggregates.
    """

    figures: tuple[Column, ...]
    _name: str = field(default_factory=lambda: f"millrace-{uuid.uuid4()}", repr=False)
    _observed: DataFrame | None = field(default=None, repr=False)

    def observe(self, rows: DataFrame) -> DataFrame:
        """Count the rows; once per instance."""
        self._observed = rows.observe(self._name, *self.figures)
        return self._observed

    def values_after_action(self, ran: DataFrame) -> Mapping[str, Any]:
        """Return the figures, after an action on the RDD of ``ran``; counted if its plan has lost the observed part."""
        metrics: Any = ran._jdf.queryExecution().observedMetrics()
        if not metrics.contains(self._name):
            assert self._observed is not None, "nothing was observed"
            return compute_aggregates(self._observed, self.figures)
        row = metrics.apply(self._name)
        return {name: row.get(position) for position, name in enumerate(row.schema().fieldNames())}


class CountedRows:
    """Counter of a batch's rows on their way to any sink; after several attempts, of the last one.

    Parameters
    ----------
    sink
        Sink of the rows.
    figures
        Named aggregates.
    """

    def __init__(self, sink: Sink, *figures: Column) -> None:
        self._sends, self._figures = sink.acts_on_rdd, figures
        self._by: RowsCountedInPlan | ObservedFigures | None = None

    def observe(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Count the rows, with ``more`` figures that use their columns."""
        if self._sends is None:
            return rows
        figures = (*self._figures, *more)
        self._by = RowsCountedInPlan(figures) if self._sends else ObservedFigures(*figures)
        return self._by.observe(rows)

    def values_after_write(self, done: WriteCounts) -> Mapping[str, Any]:
        """Return the figures after a write; empty for a sink that reads its rows more than once."""
        if isinstance(self._by, RowsCountedInPlan):
            assert done.ran is not None, "a sink that sends tells which frame it sent"
            return self._by.values_after_action(done.ran)
        return self._by.values() if self._by is not None else {}


def rows_through_rdd(rows: DataFrame) -> DataFrame:
    """Return the same rows as a DataFrame on an RDD: any action on it runs the plan of ``rows``.

    Spark's writers plan their input again, and Spark 4 does not report figures observed in that plan: they are
    0. Rows stay in Spark's internal form, as in ``foreachBatch``; nothing is copied.
    """
    frame: Any = rows  # PySpark's types do not include its JVM objects
    session: Any = rows.sparkSession
    ran = frame._jdf.queryExecution().toRdd()
    made = session._jsparkSession.internalCreateDataFrame(ran, frame._jdf.schema(), False)
    return DataFrame(made, rows.sparkSession)


def send_batch(
    rows: DataFrame, key: Column, open_writer: Callable[[], RequestWriter], refuse: Refuse
) -> WriteCounts:
    """Send a batch, each partition by its own writer, then store the refused rows.

    Parameters
    ----------
    key
        Text for the service's own key.
    open_writer
        Makes a writer in the task of the partition; it is serialized.
    refuse
        Stores refused rows; not called if there are none, so that a clean batch costs nothing.

    Returns
    -------
    WriteCounts
        With ``ran``, the DataFrame on whose RDD the action ran.
    """
    spark = rows.sparkSession
    micros = [F.expr(f"unix_micros(`{c}`)").alias(c) for c in _TIMES]
    more = {
        "_key": key.cast("string"),
        "_text": row_as_json(rows),
        "_deleted": delete_condition(rows),
        ORDER: F.col(ORDER) if ORDER in rows.columns else F.lit(None).cast("string"),
        "_unstorable": reason_not_storable(rows),
    }
    whole = rows.select(
        *identity_and_time_columns(rows), *(column.alias(name) for name, column in more.items())
    )
    sent = whole.select("_id", "_source", *micros, *more)
    outcome = spark.createDataFrame(
        sent.rdd.mapPartitions(partial(_send_partition_and_yield_outcome, open_writer)), _OUTCOME
    )
    # Two readers: the accounts, and the dead letters if there are some. It has one row for each partition
    # and for each refused row; a lost block is sent again, which is idempotent.
    outcome.persist()
    try:
        [figures] = outcome.agg(
            F.sum("_offered").alias("offered"),
            F.sum("_written").alias("written"),
            F.count("_error").alias("refused"),
            F.sum("_unordered").alias("unordered"),
        ).collect()
        if figures["refused"]:
            refuse(_dead_letters_of_outcome(outcome))
    finally:
        outcome.unpersist()
    return WriteCounts(
        figures["offered"] or 0, figures["written"] or 0, figures["refused"], figures["unordered"] or 0, sent
    )


def _dead_letters_of_outcome(outcome: DataFrame) -> DataFrame:
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


def _send_partition_and_yield_outcome(
    open_writer: Callable[[], RequestWriter], rows: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    """Send one partition: yield its refused rows, then one row with its counts."""
    skip_reading_zip_directories()
    writer: RequestWriter | None = None
    offered = 0
    try:
        for *fields, why in rows:
            # An empty partition opens no connection.
            writer = writer or open_writer()
            offered += 1
            record = RowToSend(*fields)
            for refused in writer.add_and_yield_refused(record) if why is None else ((record, why),):
                yield _refused_row_tuple(refused)
        if writer is None:
            return
        for refused in writer.write_rest_and_yield_refused():
            yield _refused_row_tuple(refused)
        yield (None, None, None, None, None, None, offered, writer.written, writer.unordered)
    finally:
        if writer is not None:
            writer.close()


def _refused_row_tuple(refused: Refused) -> tuple[Any, ...]:
    record, why = refused
    return (record.id, record.source, record.arrived_at, record.landed_at, record.text, why, 0, 0, 0)


class UnsupportedRowError(ValueError):
    """Row that has no form in a service."""


Entry = tuple[RowToSend, Any]
"""Row, and its form in the service."""


@dataclass
class RequestWriter(ABC):
    """Writer of one partition's rows, in requests with limits on rows and bytes.

    Attributes
    ----------
    MOST, MOST_BYTES
        Most rows and most bytes of one request.
    client
        Client of the service; closed at the end.
    """

    MOST = 1
    MOST_BYTES = 1

    client: Any
    backoff: Backoff
    written: int = field(default=0, kw_only=True)
    unordered: int = field(default=0, kw_only=True)
    _waiting: dict[Any, Entry] = field(default_factory=dict, kw_only=True, repr=False)
    _size: int = field(default=0, kw_only=True, repr=False)

    @abstractmethod
    def to_entry_and_size(self, record: RowToSend) -> tuple[Any, int]:
        """Return a row in the service's form, and its size in bytes.

        Raises
        ------
        UnsupportedRowError
            The row has no form in the service.
        """

    def unique_key(self, entry: Any) -> Any:
        """Return the key that must be unique among the rows of a request."""
        return object()

    def add_and_yield_refused(self, record: RowToSend) -> Iterable[Refused]:
        """Add a row; if the request is full, write the waiting rows first, and yield those that are refused."""
        try:
            entry, size = self.to_entry_and_size(record)
        except UnsupportedRowError as error:
            yield record, str(error)
            return
        key, full = (
            self.unique_key(entry),
            self._size + size > self.MOST_BYTES or len(self._waiting) >= self.MOST,
        )
        if self._waiting and (full or key in self._waiting):
            yield from self.write_rest_and_yield_refused()
        self._waiting[key] = record, entry
        self._size += size

    def take_waiting_entries(self) -> list[Entry]:
        """Return all waiting rows, and empty the queue."""
        taken = [*self._waiting.values()]
        self._waiting, self._size = {}, 0
        return taken

    @abstractmethod
    def write_rest_and_yield_refused(self) -> Iterable[Refused]:
        """Write the waiting rows, and yield those that are refused."""

    def close(self) -> None:
        """Close connections; also after an error."""
        self.client.close()
