"""Dead letters that are older than a company keeps them leave their table, while the stream writes.

Iceberg does it in one transaction that rewrites the files of old days only, and a stream that
derives from the table makes no records of it. The bytes leave S3 with the table's old snapshots.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.utils import CapturedException  # type: ignore[attr-defined]  # its home in Spark 3.3 to 4

from etl import accounts
from etl.accounts import Reporter
from etl.errors import describe
from etl.tables import Table

FIRST = timedelta(minutes=10)
"""From a job's start: a start has a backlog to see to."""

EVERY = timedelta(days=1)


@dataclass(frozen=True)
class Retention:
    """Deletes old dead letters of some tables.

    Parameters
    ----------
    tables
        Landing tables, and tables of dead letters of direct queries.
    keep
        Age, by arrival, from which on a dead letter goes.
    report
        Told how many went.
    """

    tables: tuple[Table, ...]
    keep: timedelta
    report: Reporter

    def __call__(self, spark: SparkSession) -> None:
        """Delete what is too old now; a table without any is not written."""
        before = accounts.now() - self.keep
        condition = f"_error IS NOT NULL AND _arrived_at < timestamp_micros({int(before.timestamp() * 1e6)})"
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


@dataclass
class Daily:
    """Runs something a while after a job's start and then each day, beside its queries.

    What fails is reported and tried again the next day: it is no reason for a stream to end.
    """

    spark: SparkSession
    chores: Sequence[Retention]
    report: Reporter
    first: timedelta = FIRST
    every: timedelta = EVERY
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def start(self) -> None:
        """Begin, in a daemon thread."""
        if self.chores:
            threading.Thread(target=self._run, name="daily", daemon=True).start()

    def stop(self) -> None:
        """End after what is at hand; returns at once."""
        self._stop.set()

    def _run(self) -> None:
        wait = self.first
        while not self._stop.wait(wait.total_seconds()):
            for chore in self.chores:
                try:
                    chore(self.spark)
                except (Py4JError, CapturedException) as error:
                    if not self._stop.is_set():
                        self.report.emit(
                            "not_expired", error=describe(error), error_class=type(error).__name__
                        )
            wait = self.every
