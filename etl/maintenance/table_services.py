"""What keeps a table quick and small over months, while streams write to it and read from it.

Three chores, by Iceberg's own procedures. *Compaction* makes large files out of the small ones
that batches leave; it makes no records, so a stream that derives from the table passes over it.
*Expiry* forgets the table's past states, but none that a derive query has yet to read: their
checkpoints say where they are. *Orphan removal* deletes files that no state names, which a writer
that was killed left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.initial_snapshot import beginning
from ..record import accounts
from ..record.accounts import Reporter
from ..record.tables import Table

MOST_SNAPSHOTS = 5_000
"""However young: each is an entry of about a kilobyte in the metadata that every commit writes anew."""

FEWEST_SNAPSHOTS = 20
"""However old: a query finds its last commit among them (:mod:`etl.record.commits`)."""

_DELETE_FILES = 10
"""Files of deletes that a data file may have before it is rewritten without them: a reader opens all of them."""

_GROUP_FILES = 2
"""Files of the wanted size that are written at once: so many cores the stream lacks meanwhile."""


def call(spark: SparkSession, table: Table, procedure: str, **arguments: str) -> Mapping[str, Any]:
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
    Mapping
        The first row that it gives; empty where it gives none.
    """
    given = "".join(f", {name} => {value}" for name, value in arguments.items())
    statement = f"CALL {table.catalog}.system.{procedure}(table => '{table.database}.{table.name}'{given})"
    rows: DataFrame = spark.sql(statement)
    first = rows.first()
    return {} if first is None else first.asDict()


def moment(at: datetime) -> str:
    """Return a moment as SQL, whatever the session's zone."""
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


@dataclass(frozen=True)
class Compaction:
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

    @property
    def name(self) -> str:
        """See :class:`etl.job.maintenance_schedule.MaintenanceTask`."""
        return f"compact {self.table}"

    def __call__(self, spark: SparkSession) -> None:
        """Rewrite small files; a table without any is not written."""
        if not self.table.exists(spark):
            return
        begun = accounts.now()
        options = {
            "target-file-size-bytes": str(self.file_size),
            # One group after the other, each committed by itself: what a failure costs is one group.
            "max-file-group-size-bytes": str(_GROUP_FILES * self.file_size),
            "max-concurrent-file-group-rewrites": "1",
            "partial-progress.enabled": "true",
            # Of results that are replaced by key without writing their files anew: each batch adds one to many files.
            "delete-file-threshold": str(_DELETE_FILES),
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        found = call(spark, self.table, "rewrite_data_files", options=f"map({pairs})")
        if found.get("rewritten_data_files_count") or found.get("failed_data_files_count"):
            self.report.emit(
                "compacted",
                table=str(self.table),
                files_before=found["rewritten_data_files_count"],
                files_after=found["added_data_files_count"],
                files_failed=found["failed_data_files_count"],
                bytes=found["rewritten_bytes_count"],
                **accounts.times(begun, accounts.now()),
            )


@dataclass(frozen=True)
class Expiry:
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

    @property
    def name(self) -> str:
        """See :class:`etl.job.maintenance_schedule.MaintenanceTask`."""
        return f"expire {self.table}"

    def __call__(self, spark: SparkSession) -> None:
        """Expire what is old enough and no reader needs."""
        if not self.table.exists(spark):
            return
        begun = accounts.now()
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
                since=accounts.text(at),
                at=accounts.text(begun),
            )
        before = min([before, *behind.values(), self._beginning(spark) or before])
        found = call(
            spark,
            self.table,
            "expire_snapshots",
            older_than=moment(before),
            retain_last=str(FEWEST_SNAPSHOTS),
            stream_results="true",
        )
        files = sum(int(n or 0) for key, n in found.items() if key.startswith("deleted_"))
        if files:
            self.report.emit(
                "snapshots_expired",
                table=str(self.table),
                older_than=accounts.text(before),
                files=files,
                **accounts.times(begun, accounts.now()),
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
        rewrites, it would be the first state for ever.
        """
        metadata = self.table.metadata(spark)
        if metadata.schema().findField("_error") is None:
            return None
        first = beginning(metadata, MOST_SNAPSHOTS)
        return None if first is None else _committed(first)

    def _needed(self, spark: SparkSession, reader: str) -> datetime | None:
        """When the state was committed that a reader has read last; the epoch where that is not known."""
        checkpoint = Checkpoint(reader)
        if not checkpoint.begun(spark):
            return None
        try:
            positions = checkpoint.positions(spark)
        except ValueError:
            positions = None  # damaged, as its reader will say
        metadata = self.table.metadata(spark)
        if positions is None:
            return datetime.fromtimestamp(0, tz=UTC)
        found = [
            _committed(snapshot)
            for offset in positions
            if isinstance(offset, dict)
            and (snapshot := metadata.snapshot(int(offset.get("snapshot_id", -1)))) is not None
        ]
        # A join's other table has states of its own, whose ids do not meet.
        return min(found, default=datetime.fromtimestamp(0, tz=UTC))


def _committed(snapshot: Any) -> datetime:
    """When a state of a table was committed."""
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=UTC)


@dataclass(frozen=True)
class Orphans:
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

    @property
    def name(self) -> str:
        """See :class:`etl.job.maintenance_schedule.MaintenanceTask`."""
        return f"remove orphans of {self.table}"

    def __call__(self, spark: SparkSession) -> None:
        """Delete them."""
        if not self.table.exists(spark):
            return
        begun = accounts.now()
        rows = spark.sql(
            f"CALL {self.table.catalog}.system.remove_orphan_files("
            f"table => '{self.table.database}.{self.table.name}', older_than => {moment(begun - self.older_than)})"
        )
        files = rows.count()
        if files:
            self.report.emit(
                "orphans_removed", table=str(self.table), files=files, **accounts.times(begun, accounts.now())
            )
