"""Iceberg sink for tables of results: a later result replaces the earlier one of the same identity."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..record import tables
from ..record.batch_accounts import EventReporter
from ..record.errors import JVM_ERRORS, SinkError, full_error_text
from ..record.tables import Table
from .base import DELETED, ORDER, BatchIdentity, Refuse, Reread, WriteCounts
from .delivery.cached_merge_source_view import cached_temporary_view
from .delivery.keyed_rows import first_timestamp_of_key
from .delivery.record_order import (
    decided_by_arrival_sql,
    not_older_sql,
    order_after_replacement_sql,
    order_bytes_sql,
)

_VIEW = "millrace_results"

COMPARED_EVERY = 600.0
"""Seconds between two batches whose orders are compared with those of the table, which reads both a second time."""


@dataclass
class KeyedIcebergSink:
    """Table with one row for each ``_id``.

    Parameters
    ----------
    table
        Table, made or checked by :func:`etl.record.tables.create_or_evolve_table`.
    time
        A timestamp column of the identity; None for none. Only the part of the
        table within the batch's range of this column is read.
    key
        Columns of the identity; the first timestamp among them becomes ``time``.
    report
        Gets an event for each alteration.
    """

    table: Table
    time: str | None = None
    key: tuple[str, ...] = field(default=(), kw_only=True)
    report: EventReporter | None = field(default=None, kw_only=True)
    acts_on_rdd: None = field(default=None, init=False)
    _compared_at: float | None = field(default=None, init=False, repr=False)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or alter or check an existing one.

        Raises
        ------
        StartError
            The table has another schema.
        """
        self.time = first_timestamp_of_key(schema, self.key)
        shape = StructType([f for f in schema.fields if f.name != DELETED])
        tables.create_or_evolve_table(spark, self.table, shape, time=self.time, report=self.report)

    def identities_and_orders(self, spark: SparkSession) -> DataFrame:
        """See :class:`~etl.sinks.base.RowOrderLister`."""
        return spark.table(str(self.table)).select("_id", ORDER)

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Insert the results of a batch, or replace those with the same ``_id``, in one transaction.

        A row whose :data:`~etl.sinks.base.DELETED` is true deletes the row with its ``_id``.

        Guarantee: the last result of each identity, exactly once, with one writer at a time: a
        repeated batch holds the same results, and writing them again changes nothing. A row with an order
        (:mod:`etl.sinks.delivery.record_order`) replaces or deletes only an older one, whichever batch holds it. A
        failed write leaves the table unchanged.

        Parameters
        ----------
        rows
            Rows with ``_id``, each once, in the table's schema, and optionally :data:`~etl.sinks.base.DELETED`.

        Raises
        ------
        SinkError
            Two rows have an ``_id`` that the table has.
        """
        # A batch with state must be read only once, because the read commits the state.
        with cached_temporary_view(rows, _VIEW):
            known = None if place is None or self.time else place.rows
            span = (
                Row(rows=known)
                if known is not None
                else rows.select(
                    F.count(F.lit(1)).alias("rows"),
                    *(
                        (
                            F.expr(f"count(`{self.time}`)").alias("timed"),
                            F.expr(f"min(unix_micros(`{self.time}`))").alias("first"),
                            F.expr(f"max(unix_micros(`{self.time}`))").alias("last"),
                        )
                        if self.time
                        else ()
                    ),
                ).collect()[0]
            )
            unordered = 0
            if span["rows"]:
                unordered = self._count_decided_by_arrival(rows, span)
                try:
                    rows.sparkSession.sql(
                        f"MERGE INTO {self.table} t USING {_VIEW} s ON t._id = s._id{self._time_range_sql(span)} {_merge_actions_sql(rows)}"
                    )
                except JVM_ERRORS as error:
                    if "MERGE_CARDINALITY_VIOLATION" not in full_error_text(error):
                        raise
                    raise SinkError(
                        f"table {self.table}: two results of one batch have the same values of "
                        f"{', '.join(self.key)}: the key must name every column by which the transform groups"
                    ) from error
            return WriteCounts(None, span["rows"], None, unordered)

    def _count_decided_by_arrival(self, rows: DataFrame, span: Row) -> int:
        """Count rows of which only the arrival says that they are later than the table's; 0 in most batches, see above."""
        due = self._compared_at is None or clock.monotonic() - self._compared_at >= COMPARED_EVERY
        if ORDER not in rows.columns or not due:
            return 0
        self._compared_at = clock.monotonic()
        apart = decided_by_arrival_sql(f"s.{ORDER}", f"t.{ORDER}")
        return rows.sparkSession.sql(
            f"SELECT 1 FROM {_VIEW} s JOIN {self.table} t ON t._id = s._id{self._time_range_sql(span)} AND {apart}"  # noqa: S608 - plain names
        ).count()

    def _time_range_sql(self, span: Row) -> str:
        """Return the condition for the batch's range of time; empty if some rows have no time."""
        if self.time is None or span["timed"] < span["rows"]:
            return ""
        return f" AND t.`{self.time}` BETWEEN timestamp_micros({span['first']}) AND timestamp_micros({span['last']})"


def _merge_actions_sql(rows: DataFrame) -> str:
    """Return the actions of the ``MERGE``, by the columns that say whether a row deletes and which record is the later one."""
    deletes, ordered = DELETED in rows.columns, ORDER in rows.columns
    new, old = order_bytes_sql(f"s.{ORDER}"), order_bytes_sql(f"t.{ORDER}")
    later = f" AND {not_older_sql(new, old)}" if ordered else ""
    kept = {ORDER: f"CAST({order_after_replacement_sql(new, old)} AS STRING)"} if ordered else {}
    values = ", ".join(
        f"t.`{name}` = {kept.get(name, f's.`{name}`')}" for name in rows.columns if name != DELETED
    )
    delete = f"WHEN MATCHED AND s.{DELETED}{later} THEN DELETE " if deletes else ""
    update = f"WHEN MATCHED{f' AND NOT s.{DELETED}' if deletes else ''}{later} THEN UPDATE SET {values} "
    return f"{delete}{update}WHEN NOT MATCHED{f' AND NOT s.{DELETED}' if deletes else ''} THEN INSERT *"
