"""Dead letters that are older than a company keeps them leave their table, while the stream writes.

Iceberg does it in one transaction that rewrites the files of old days only, and a stream that
derives from the table makes no records of it. The bytes leave S3 with the table's old snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ..record import accounts
from ..record.accounts import Reporter
from ..record.envelope import ERASED
from ..record.tables import Table


@dataclass(frozen=True)
class Retention:
    """Deletes old dead letters of some tables.

    Parameters
    ----------
    tables
        Landing tables, and tables of dead letters of direct queries.
    keep
        Age from which on a dead letter goes: since it arrived and since it was landed. The time of
        arrival of a Kafka record is what its producer says, and may lie years back.
    report
        Told how many went.
    """

    tables: tuple[Table, ...]
    keep: timedelta
    report: Reporter
    every: timedelta = timedelta(days=1)

    @property
    def name(self) -> str:
        """See :class:`etl.job.maintenance_schedule.MaintenanceTask`."""
        return "expire dead letters"

    def __call__(self, spark: SparkSession) -> None:
        """Delete what is too old now; a table without any is not written."""
        before = accounts.now() - self.keep
        old = f"< timestamp_micros({int(before.timestamp() * 1e6)})"
        condition = (
            f"_error IS NOT NULL AND NOT _stage <=> '{ERASED}' "
            f"AND _arrived_at {old} AND (_landed_at IS NULL OR _landed_at {old})"
        )
        for table in self.tables:
            begun = accounts.now()
            counted = spark.table(str(table)).where(condition).select(F.count(F.lit(1)).alias("n")).first()
            assert counted is not None
            if not counted["n"]:
                continue
            # A table's name is checked (``Table.of``), and the rest holds one number of ours.
            spark.sql(f"DELETE FROM {table} WHERE {condition}")  # noqa: S608
            self.report.emit(
                "expired",
                table=str(table),
                dead_letters=counted["n"],
                arrived_before=accounts.text(before),
                **accounts.times(begun, accounts.now()),
            )
