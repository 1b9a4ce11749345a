"""Maintenance of a table for months, while streams write to it and read from it.

Four chores, three of them by Iceberg's procedures. *Compaction* makes large files from the small ones
of batches; it adds no records, so a stream that derives from the table skips its commits.
*Expiry* removes old snapshots, except those that a derive query has not read yet: the checkpoints
of these queries record their positions. *Orphan removal* deletes files that no snapshot names, left by a writer
that was killed. *Retention* deletes dead letters after a configured age, in one
transaction that rewrites only the files of old days; a stream that derives from the table does not read it as records. The
bytes are deleted from S3 with the table's old snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from ..checkpoints.checkpoint import snapshots_last_read_by
from ..checkpoints.derive_start_after_expiry import newest_startable_snapshot
from ..commits.snapshot_history import commit_time
from ..record import batch_accounts
from ..record.batch_accounts import EventReporter
from ..record.envelope import ERASED
from ..record.tables import Table

MOST_SNAPSHOTS = 5_000
"""Most snapshots, however young: each is an entry of about a kilobyte in the metadata that every commit writes again."""

FEWEST_SNAPSHOTS = 20
"""Fewest snapshots, however old: a query finds its last commit among them (:mod:`etl.commits.commit_batch_once`)."""

_DELETE_FILES = 10
"""Delete files per data file at which it is rewritten: a reader opens all of them."""

_GROUP_FILES = 2
"""Files of the target size that are written at once: they take as many cores from the stream meanwhile."""


def call_iceberg_procedure(spark: SparkSession, table: Table, procedure: str, **arguments: str) -> DataFrame:
    """Run one of Iceberg's procedures on a table.

    Parameters
    ----------
    spark
        Session with Iceberg's extensions.
    table
        Table whose name is checked (:meth:`etl.record.tables.Table.from_name`).
    **arguments
        SQL from this code, not from users.

    Returns
    -------
    DataFrame
        Result of the procedure, after it has run.
    """
    parameters = "".join(f", {name} => {value}" for name, value in arguments.items())
    statement = (
        f"CALL {table.catalog}.system.{procedure}(table => '{table.database}.{table.name}'{parameters})"
    )
    return spark.sql(statement)


def first_row(rows: DataFrame) -> Mapping[str, Any]:
    """Return the first row; empty where there is none."""
    return next((row.asDict() for row in rows.take(1)), {})


def sql_timestamp(at: datetime) -> str:
    """Return a time as SQL, independent of the session's zone."""
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


@dataclass(frozen=True, kw_only=True)
class TableTask(ABC):
    """Maintenance task for a table, run at intervals.

    Attributes
    ----------
    WHAT
        Short name for reports.
    report
        Gets an event when work was done.
    every
        Interval between two runs.
    """

    WHAT: ClassVar[str] = ""

    table: Table
    report: EventReporter
    every: timedelta = timedelta(days=1)

    @property
    def task_name(self) -> str:
        """The task and its table."""
        return f"{self.WHAT} {self.table}"

    def __call__(self, spark: SparkSession) -> None:
        """Run it now if the table exists."""
        if self.table.exists(spark):
            self.work(spark, batch_accounts.utc_now())

    @abstractmethod
    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Do the work; if there is none, write and report nothing."""

    def report_done(self, event: str, begun: datetime, **fields: Any) -> None:
        """Report the work that was done."""
        times = batch_accounts.batch_time_fields(begun, batch_accounts.utc_now())
        self.report.emit(event, table=str(self.table), **fields, **times)


@dataclass(frozen=True, kw_only=True)
class Compaction(TableTask):
    """Compaction: makes files of a target size from small ones.

    Parameters
    ----------
    table
        Its commits are based on those that others make meanwhile. If another commit
        rewrites the same files (results that are replaced by key), the loser tries again:
        the stream repeats its batch, this task fails and runs again the next day.
    file_size
        Target size in bytes.
    report
        Gets an event with the rewritten files.
    """

    file_size: int

    WHAT = "compact"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Rewrite small files; without any, write nothing."""
        options = {
            "target-file-size-bytes": str(self.file_size),
            # One group after the other, each with its own commit: a failure costs only one group.
            "max-file-group-size-bytes": str(_GROUP_FILES * self.file_size),
            "max-concurrent-file-group-rewrites": "1",
            "partial-progress.enabled": "true",
            # Otherwise Iceberg would only log a commit that another one has refused.
            "partial-progress.max-failed-commits": "0",
            # For results that are replaced by key with delete files: each batch adds one to many data files.
            "delete-file-threshold": str(_DELETE_FILES),
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        row = first_row(
            call_iceberg_procedure(spark, self.table, "rewrite_data_files", options=f"map({pairs})")
        )
        if row.get("rewritten_data_files_count") or row.get("failed_data_files_count"):
            self.report_done(
                "compacted",
                begun,
                files_before=row["rewritten_data_files_count"],
                files_after=row["added_data_files_count"],
                files_failed=row["failed_data_files_count"],
                bytes=row["rewritten_bytes_count"],
            )


@dataclass(frozen=True, kw_only=True)
class SnapshotExpiry(TableTask):
    """Expiry: removes a table's old snapshots, and deletes the files that only they name.

    A slow derive query never loses data: the snapshot that it read last, by its
    checkpoint, and all later ones stay. A query that has planned a batch and committed none
    keeps all snapshots. A query that has never run keeps none: it starts with all files of a known snapshot
    (:mod:`etl.checkpoints.derive_start_after_expiry`). Of a landing table the newest snapshot for such a start and all later ones stay.

    Parameters
    ----------
    keep
        Age at which an old snapshot may be removed.
    readers
        Checkpoints of the queries that derive from the table, in any job.
    report
        Gets events with the removed files, and with each reader that keeps snapshots.
    """

    keep: timedelta
    readers: tuple[str, ...]
    every: timedelta = timedelta(hours=1)

    WHAT = "expire"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Expire the snapshots that are old enough and that no reader needs."""
        before = self._time_to_expire_before(spark, begun)
        if before is None:
            return
        needs = {reader: self._last_read_commit_time(spark, reader) for reader in self.readers}
        behind = {reader: at for reader, at in needs.items() if at is not None and at < before}
        for reader, at in behind.items():
            self.report.emit(
                "expiry_held",
                table=str(self.table),
                reader=reader,
                since=batch_accounts.iso_text(at),
                at=batch_accounts.iso_text(begun),
            )
        before = min([before, *behind.values(), self._start_time_of_new_reader(spark) or before])
        limits = {"older_than": sql_timestamp(before), "retain_last": str(FEWEST_SNAPSHOTS)}
        row = first_row(
            call_iceberg_procedure(spark, self.table, "expire_snapshots", **limits, stream_results="true")
        )
        files = sum(int(n or 0) for key, n in row.items() if key.startswith("deleted_"))
        if files:
            self.report_done(
                "snapshots_expired", begun, older_than=batch_accounts.iso_text(before), files=files
            )

    def _time_to_expire_before(self, spark: SparkSession, now: datetime) -> datetime | None:
        """Return the time before which unread snapshots may be removed; None if there are none to remove."""
        committed = [
            row["committed_at"]
            for row in spark.sql(
                f"SELECT committed_at FROM {self.table}.snapshots "  # noqa: S608 - a checked name
                f"ORDER BY committed_at DESC LIMIT {MOST_SNAPSHOTS + 1}"
            ).collect()
        ]
        if len(committed) <= FEWEST_SNAPSHOTS:
            return None
        limit = now - self.keep
        if len(committed) > MOST_SNAPSHOTS:
            limit = max(limit, committed[MOST_SNAPSHOTS - 1].astimezone(UTC))
        return limit

    def _start_time_of_new_reader(self, spark: SparkSession) -> datetime | None:
        """Return the commit time of the snapshot at which a new reader starts; None for a table that no query derives from.

        This is the current snapshot, or the one before the last compaction or delete. For a table of results, which every batch
        rewrites, it would always be the first snapshot.
        """
        metadata = self.table.load_java_table(spark)
        if metadata.schema().findField("_error") is None:
            return None
        first = newest_startable_snapshot(metadata, MOST_SNAPSHOTS)
        return None if first is None else commit_time(first)

    def _last_read_commit_time(self, spark: SparkSession, reader: str) -> datetime | None:
        """Return the commit time of the snapshot that a reader has read last; the epoch where it is not known."""
        states = snapshots_last_read_by(spark, reader, self.table.load_java_table(spark))
        return None if states is None else min(map(commit_time, states), default=_EPOCH)


_EPOCH = datetime.fromtimestamp(0, tz=UTC)


@dataclass(frozen=True, kw_only=True)
class OrphanFileRemoval(TableTask):
    """Orphan removal: deletes files below a table's location that no snapshot names.

    Parameters
    ----------
    older_than
        Age of a file at which no writer can still be about to commit it.
    report
        Gets an event with the number of files.
    """

    older_than: timedelta

    WHAT = "remove orphans of"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Delete the files."""
        rows = call_iceberg_procedure(
            spark, self.table, "remove_orphan_files", older_than=sql_timestamp(begun - self.older_than)
        )
        if files := rows.count():
            self.report_done("orphans_removed", begun, files=files)


@dataclass(frozen=True, kw_only=True)
class DeadLetterRetention(TableTask):
    """Retention: deletes old dead letters of a landing table, or of a direct query's dead letter table, while the stream writes.

    Parameters
    ----------
    keep
        Age, since arrival and since landing, at which a dead letter is deleted. The arrival
        time of a Kafka record is set by its producer and may be years back.
    """

    keep: timedelta

    WHAT = "expire dead letters of"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Delete the dead letters that are too old now; without any, write nothing."""
        before = begun - self.keep
        old = f"< timestamp_micros({int(before.timestamp() * 1e6)})"
        condition = (
            f"_error IS NOT NULL AND NOT _stage <=> '{ERASED}' "
            f"AND _arrived_at {old} AND (_landed_at IS NULL OR _landed_at {old})"
        )
        if count := spark.table(str(self.table)).where(condition).count():
            # The table's name is checked (``Table.from_name``), and the rest holds only a number computed here.
            spark.sql(f"DELETE FROM {self.table} WHERE {condition}")  # noqa: S608
            self.report_done(
                "expired", begun, dead_letters=count, arrived_before=batch_accounts.iso_text(before)
            )
