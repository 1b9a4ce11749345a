"""Iceberg sink for the history of rows with a key: every version, with the interval in which it was the row."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..record import tables
from ..record.batch_accounts import EventReporter
from ..record.errors import StartError
from ..record.tables import Table
from .base import ORDER, BatchIdentity, Refuse, Reread, WriteCounts
from .delivery.cached_merge_source_view import cached_temporary_view
from .delivery.row_version_history import NEW, VALID_FROM, VALID_TO, new_and_newly_ended_versions

_VIEW = "millrace_versions"


@dataclass(frozen=True)
class IcebergHistorySink:
    """Table with one row for each version of :mod:`etl.sinks.delivery.row_version_history`.

    Parameters
    ----------
    table
        Table, made or checked by :func:`etl.record.tables.create_or_evolve_table`.
    report
        Gets an event for each alteration.
    """

    table: Table
    report: EventReporter | None = field(default=None, kw_only=True)
    acts_on_rdd: None = field(default=None, init=False)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or alter or check an existing one.

        Raises
        ------
        StartError
            The table has another schema, or rows that are no versions.
        """
        if self.table.exists(spark) and VALID_FROM not in spark.table(str(self.table)).columns:
            raise StartError(
                f"table {self.table} keeps no history, because it lacks the column {VALID_FROM}: name "
                "another table"
            )
        tables.create_or_evolve_table(spark, self.table, schema, time=None, report=self.report)

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Insert the versions of a batch, and end the ones before them, in one transaction.

        Guarantee: each version exactly once and with the interval that all versions so far determine, with one writer at a
        time: whatever batch holds a version, and however often. A failed write leaves the table unchanged.

        Parameters
        ----------
        rows
            Versions, each ``_id`` once; persisted, as they are read several times.
        """
        spark = rows.sparkSession
        count, truncates = rows.select(F.count(F.lit(1)), F.count_if(F.col("_id").startswith(" "))).collect()[
            0
        ]
        if count:
            with (
                new_and_newly_ended_versions(
                    rows,
                    spark.table(str(self.table)),
                    every=truncates > 0,
                    erased=tables.DELETE_ISOLATION in self.table.load_java_table(spark).properties(),
                ) as ends,
                cached_temporary_view(ends.join(rows.drop(ORDER, VALID_TO), "_id", "left"), _VIEW),
            ):
                spark.sql(
                    f"MERGE INTO {self.table} t USING {_VIEW} s ON t._id = s._id "  # noqa: S608 - plain names
                    f"WHEN MATCHED AND s.{NEW} THEN UPDATE SET * "
                    f"WHEN MATCHED THEN UPDATE SET {ORDER} = s.{ORDER}, {VALID_TO} = s.{VALID_TO} "
                    "WHEN NOT MATCHED THEN INSERT *"
                )
        return WriteCounts(None, count, None)
