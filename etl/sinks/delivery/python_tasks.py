"""Rows to a service that is written from Python: a pass over the batch's partitions, refused rows told apart.

The services here have an HTTP interface and no connector on every engine. What travels to Python is a row's
identity, a key and the row as JSON. The pass is an action on an RDD; Spark tells its listeners nothing of
figures observed below it, so they are read off the plan that ran.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...record.accounts import Observed
from ..base import LETTER, STAGE, Refuse, Sink, Written, carried, deletes, text_of, untimely

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


class Writer(Protocol):
    """Writes the rows of one partition, in requests of many."""

    written: int
    """Rows that are new in the service, as far as it tells."""

    def add(self, record: Record) -> Iterable[Refused]:
        """Take a row; may write those that wait, and tells which of them were refused."""

    def finish(self) -> Iterable[Refused]:
        """Write what still waits."""

    def close(self) -> None:
        """Close connections; also after an error."""


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
class PlanCounted:
    """Counts rows below an action on an RDD.

    Parameters
    ----------
    figures
        Named aggregates.
    """

    figures: tuple[Column, ...]
    _name: str = field(default_factory=lambda: f"millrace-{uuid.uuid4()}", repr=False)

    def on(self, rows: DataFrame) -> DataFrame:
        """Count the rows that pass here; once per instance."""
        first, *others = (figure._jc for figure in self.figures)
        gateway: Any = rows.sparkSession.sparkContext._gateway
        more = gateway.new_array(gateway.jvm.org.apache.spark.sql.Column, len(others))
        for position, other in enumerate(others):
            more[position] = other
        # By name: PySpark's own ``observe`` takes names from Spark 3.4 on, and Glue 4.0 has 3.3.
        return DataFrame(rows._jdf.observe(self._name, first, more), rows.sparkSession)

    def values(self, ran: DataFrame) -> Mapping[str, Any]:
        """The figures, after an action on the RDD of ``ran``."""
        row: Any = ran._jdf.queryExecution().observedMetrics().apply(self._name)
        return {name: row.get(position) for position, name in enumerate(row.schema().fieldNames())}


class Counted:
    """Counts what a batch holds on its way to a sink, however that sink reads; of several attempts, in the last.

    Parameters
    ----------
    sink
        Where the rows go.
    figures
        Named aggregates.
    """

    def __init__(self, sink: Sink, *figures: Column) -> None:
        self._sends, self._figures = sink.sends, figures
        self._by: PlanCounted | Observed | None = None

    def on(self, rows: DataFrame, *more: Column) -> DataFrame:
        """Count the rows that pass here, with ``more`` figures that rest on their columns."""
        if self._sends is None:
            return rows
        figures = (*self._figures, *more)
        self._by = PlanCounted(figures) if self._sends else Observed(*figures)
        return self._by.on(rows)

    def values(self, done: Written) -> Mapping[str, Any]:
        """The figures, after a write; none of a sink that reads its rows more than once."""
        if isinstance(self._by, PlanCounted):
            assert done.ran is not None, "a sink that sends tells which frame it sent"
            return self._by.values(done.ran)
        return self._by.values() if self._by is not None else {}


def behind_rdd(rows: DataFrame) -> DataFrame:
    """The same rows as those of an RDD: whatever becomes of them, it is the plan of ``rows`` that runs.

    Spark's writers plan what they are handed anew, and Spark 4 tells nobody what was observed in that plan: figures are
    0. Rows stay in Spark's own form, as in its own ``foreachBatch``; nothing is copied.
    """
    frame: Any = rows  # what PySpark keeps of the JVM is not in its types
    session: Any = rows.sparkSession
    ran = frame._jdf.queryExecution().toRdd()
    made = session._jsparkSession.internalCreateDataFrame(ran, frame._jdf.schema(), False)
    return DataFrame(made, rows.sparkSession)


def send(rows: DataFrame, key: Column, open_writer: Callable[[], Writer], refuse: Refuse) -> Written:
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
        "_deleted": deletes(rows),
        "_untimely": untimely(rows),
    }
    whole = rows.select(*carried(rows), *(column.alias(name) for name, column in more.items()))
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
    return Written(figures["offered"] or 0, figures["written"] or 0, figures["refused"], ran=sent)


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


def _deliver(open_writer: Callable[[], Writer], rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Send one partition: its refused rows, then one row with its counts."""
    writer: Writer | None = None
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


@dataclass
class Buffer:
    """Rows that wait for a request, up to what one request takes."""

    most: int
    most_bytes: int
    records: list[tuple[Record, Any, int]] = field(default_factory=list)
    size: int = 0

    def full(self, more: int) -> bool:
        """Whether a row of so many bytes goes into the next request."""
        return bool(self.records) and (len(self.records) >= self.most or self.size + more > self.most_bytes)

    def put(self, record: Record, entry: Any, size: int) -> None:
        """Add a row, as the service wants it."""
        self.records.append((record, entry, size))
        self.size += size

    def take(self) -> list[tuple[Record, Any, int]]:
        """All that wait, which then wait no more."""
        taken, self.records, self.size = self.records, [], 0
        return taken
