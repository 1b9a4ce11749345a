"""What keeps a table quick and small over months, while streams write to it and read from it.

Four chores, three of them by Iceberg's own procedures. *Compaction* makes large files out of the small ones
that batches leave; it makes no records, so a stream that derives from the table passes over it.
*Expiry* forgets the table's past states, but none that a derive query has yet to read: their
checkpoints say where they are. *Orphan removal* deletes files that no state names, which a writer
that was killed left behind. *Retention* deletes dead letters that are older than a company keeps them, in one
transaction that rewrites the files of old days only; a stream that derives from the table makes no records of it. The
bytes leave S3 with the table's old snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..checkpoints.checkpoint import read_states
from ..checkpoints.initial_snapshot import newest_complete_snapshot
from ..record import batch_accounts
from ..record.batch_accounts import Reporter
from ..record.envelope import ERASED
from ..record.tables import Table

MOST_SNAPSHOTS = 5_000
"""However young: each is an entry of about a kilobyte in the metadata that every commit writes again."""

FEWEST_SNAPSHOTS = 20
"""However old: a query finds its last commit among them (:mod:`etl.record.commits`)."""

_DELETE_FILES = 10
"""Files of deletes that a data file may have before it is rewritten without them: a reader opens all of them."""

_GROUP_FILES = 2
"""Files of the wanted size that are written at once: so many cores the stream lacks meanwhile."""


def call(spark: SparkSession, table: Table, procedure: str, **arguments: str) -> DataFrame:
    """Run one of Iceberg's procedures on a table.

    Parameters
    ----------
    spark
        With Iceberg's extensions.
    table
        Its name is checked (:meth:`etl.record.tables.Table.of`).
    **arguments
        SQL, of our own making.

    Returns
    -------
    DataFrame
        What it gives, when it has run.
    """
    given = "".join(f", {name} => {value}" for name, value in arguments.items())
    statement = f"CALL {table.catalog}.system.{procedure}(table => '{table.database}.{table.name}'{given})"
    return spark.sql(statement)


def first_row(rows: DataFrame) -> Mapping[str, Any]:
    """Return the first row; empty where there is none."""
    return next((row.asDict() for row in rows.take(1)), {})


def sql_timestamp(at: datetime) -> str:
    """Return a moment as SQL, whatever the session's zone."""
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


class TableTask(ABC):
    """Something to do to a table now and then.

    Attributes
    ----------
    WHAT
        In a word, for reports.
    report
        Told what was done.
    every
        From one time to the next.
    """

    WHAT = ""

    table: Table
    report: Reporter
    every: timedelta

    @property
    def name(self) -> str:
        """What it does, and to which table."""
        return f"{self.WHAT} {self.table}"

    def __call__(self, spark: SparkSession) -> None:
        """Do it now, to a table that is there."""
        if self.table.exists(spark):
            self.work(spark, batch_accounts.now())

    @abstractmethod
    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Do it; where there is nothing to do, nothing is written or told."""

    def report_done(self, event: str, begun: datetime, **fields: Any) -> None:
        """Report what was done."""
        times = batch_accounts.batch_times(begun, batch_accounts.now())
        self.report.emit(event, table=str(self.table), **fields, **times)


@dataclass(frozen=True)
class Compaction(TableTask):
    """Makes files of a wanted size out of small ones.

    Parameters
    ----------
    table
        Its commits are made on top of what others commit meanwhile. Where another one
        rewrites the same files (results that are replaced by key), the loser tries again:
        the stream its batch, this the next day.
    file_size
        Bytes.
    report
        Told what was rewritten.
    """

    table: Table
    file_size: int
    report: Reporter
    every: timedelta = timedelta(days=1)

    WHAT = "compact"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Rewrite small files; a table without any is not written."""
        options = {
            "target-file-size-bytes": str(self.file_size),
            # One group after the other, each committed by itself: what a failure costs is one group.
            "max-file-group-size-bytes": str(_GROUP_FILES * self.file_size),
            "max-concurrent-file-group-rewrites": "1",
            "partial-progress.enabled": "true",
            # Of results that are replaced by key without writing their files again: each batch adds one to many files.
            "delete-file-threshold": str(_DELETE_FILES),
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        found = first_row(call(spark, self.table, "rewrite_data_files", options=f"map({pairs})"))
        if found.get("rewritten_data_files_count") or found.get("failed_data_files_count"):
            self.report_done(
                "compacted",
                begun,
                files_before=found["rewritten_data_files_count"],
                files_after=found["added_data_files_count"],
                files_failed=found["failed_data_files_count"],
                bytes=found["rewritten_bytes_count"],
            )


@dataclass(frozen=True)
class Expiry(TableTask):
    """Forgets a table's past states, and deletes the files that only they name.

    A derive query that is behind is never cut off: the state that it has read last, by its
    checkpoint, and all later ones stay. One that has planned a batch and committed none
    holds everything. One that has never run holds nothing: it begins with all files of a state that the table knows
    (:mod:`etl.checkpoints.initial_snapshot`), and of a landing table the newest state for that stays, and all later ones.

    Parameters
    ----------
    keep
        Age from which on a past state goes.
    readers
        Checkpoints of the queries that derive from the table, in whatever job.
    report
        Told what went, and which reader holds what.
    """

    table: Table
    keep: timedelta
    readers: tuple[str, ...]
    report: Reporter
    every: timedelta = timedelta(hours=1)

    WHAT = "expire"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Expire what is old enough and no reader needs."""
        before = self._wanted(spark, begun)
        if before is None:
            return
        held = {reader: self._needed(spark, reader) for reader in self.readers}
        behind = {reader: at for reader, at in held.items() if at is not None and at < before}
        for reader, at in behind.items():
            self.report.emit(
                "expiry_held",
                table=str(self.table),
                reader=reader,
                since=batch_accounts.iso_text(at),
                at=batch_accounts.iso_text(begun),
            )
        before = min([before, *behind.values(), self._beginning(spark) or before])
        limits = {"older_than": sql_timestamp(before), "retain_last": str(FEWEST_SNAPSHOTS)}
        found = first_row(call(spark, self.table, "expire_snapshots", **limits, stream_results="true"))
        files = sum(int(n or 0) for key, n in found.items() if key.startswith("deleted_"))
        if files:
            self.report_done(
                "snapshots_expired", begun, older_than=batch_accounts.iso_text(before), files=files
            )

    def _wanted(self, spark: SparkSession, now: datetime) -> datetime | None:
        """Before when states may go if nobody reads them; None where there is none to go."""
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

    def _beginning(self, spark: SparkSession) -> datetime | None:
        """When the state was committed that a new reader begins at; None for a table that no query derives from.

        It is the present state, or was before the last compaction or delete. Of a table of results, which every batch
        rewrites, it would be the first state forever.
        """
        metadata = self.table.metadata(spark)
        if metadata.schema().findField("_error") is None:
            return None
        first = newest_complete_snapshot(metadata, MOST_SNAPSHOTS)
        return None if first is None else commit_time(first)

    def _needed(self, spark: SparkSession, reader: str) -> datetime | None:
        """When the state was committed that a reader has read last; the epoch where that is not known."""
        states = read_states(spark, reader, self.table.metadata(spark))
        return None if states is None else min(map(commit_time, states), default=_EPOCH)


_EPOCH = datetime.fromtimestamp(0, tz=UTC)


def commit_time(snapshot: Any) -> datetime:
    """When a state of a table was committed."""
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=UTC)


@dataclass(frozen=True)
class OrphanFileRemoval(TableTask):
    """Deletes files below a table's location that none of its states names.

    Parameters
    ----------
    older_than
        Age of a file from which on nobody can still be about to commit it.
    report
        Told how many went.
    """

    table: Table
    older_than: timedelta
    report: Reporter
    every: timedelta = timedelta(days=1)

    WHAT = "remove orphans of"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Delete them."""
        rows = call(
            spark, self.table, "remove_orphan_files", older_than=sql_timestamp(begun - self.older_than)
        )
        if files := rows.count():
            self.report_done("orphans_removed", begun, files=files)


@dataclass(frozen=True)
class Retention(TableTask):
    """Deletes old dead letters of a landing table, or of a table of dead letters of a direct query, while the stream writes.

    Parameters
    ----------
    keep
        Age from which on a dead letter goes: since it arrived and since it was landed. The time of
        arrival of a Kafka record is what its producer says, and may lie years back.
    """

    table: Table
    keep: timedelta
    report: Reporter
    every: timedelta = timedelta(days=1)

    WHAT = "expire dead letters of"

    def work(self, spark: SparkSession, begun: datetime) -> None:
        """Delete what is too old now; a table without any is not written."""
        before = begun - self.keep
        old = f"< timestamp_micros({int(before.timestamp() * 1e6)})"
        condition = (
            f"_error IS NOT NULL AND NOT _stage <=> '{ERASED}' "
            f"AND _arrived_at {old} AND (_landed_at IS NULL OR _landed_at {old})"
        )
        if count := spark.table(str(self.table)).where(condition).count():
            # A table's name is checked (``Table.of``), and the rest holds one number of ours.
            spark.sql(f"DELETE FROM {self.table} WHERE {condition}")  # noqa: S608
            self.report_done(
                "expired", begun, dead_letters=count, arrived_before=batch_accounts.iso_text(before)
            )
