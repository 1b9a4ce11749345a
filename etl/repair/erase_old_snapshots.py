"""History of a table with erased rows: a mark after which nothing of them is left, and the expiry of older snapshots."""

from __future__ import annotations

from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from ..checkpoints.checkpoint import snapshots_last_read_by
from ..commits.snapshot_history import ERASURE, commit_time, snapshot_and_earlier
from ..maintenance.table_maintenance import call_iceberg_procedure, first_row, sql_timestamp
from ..record.tables import Table


def remove_rest_and_commit_erasure_mark(spark: SparkSession, table: Table, erasure: str) -> int:
    """Remove the rest of erased rows from the current snapshot, and end the old history with a commit without rows: its mark.

    A query that derives from the table reads that commit as an empty batch, so even a query without other data
    reads past it.

    Returns
    -------
    int
        Snapshot id of the mark.
    """
    if spark.table(f"{table}.delete_files").count():
        # Rows that were replaced by key, merged on read: their files still hold them, and delete files mark them.
        only_those = {
            "delete-file-threshold": "1",
            "min-file-size-bytes": "0",
            "max-file-size-bytes": str(2**62),
            "min-input-files": str(2**31 - 1),
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in only_those.items())
        call_iceberg_procedure(spark, table, "rewrite_data_files", options=f"map({pairs})")
    _rewrite_manifests_listing_deletes(spark, table)
    metadata = table.load_java_table(spark)
    metadata.newAppend().set(ERASURE, erasure).commit()
    mark = snapshot_id_of_newest_mark(spark, table, erasure)
    assert mark is not None, "it was committed"
    return mark


def _rewrite_manifests_listing_deletes(spark: SparkSession, table: Table) -> None:
    """Rewrite manifests that list deleted files: such entries have the smallest and largest values."""
    metadata = table.load_java_table(spark)
    snapshot = metadata.currentSnapshot()
    if snapshot is None or not any(m.hasDeletedFiles() for m in snapshot.dataManifests(metadata.io())):
        return
    # Iceberg's procedure does not rewrite a single manifest.
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # PySpark's own
    metadata.rewriteManifests().clusterBy(_SingleManifestFunction()).commit()


class _SingleManifestFunction:
    """Java function that puts all files into one manifest, and into the next when it is full."""

    def apply(self, file: Any) -> str:
        return ""

    class Java:
        implements = ("java.util.function.Function",)


def snapshot_id_of_newest_mark(spark: SparkSession, table: Table, erasure: str) -> int | None:
    """Return the snapshot id of an erasure's newest mark; None if there is none, or it has expired."""
    metadata = table.load_java_table(spark)
    for snapshot in snapshot_and_earlier(metadata, metadata.currentSnapshot()):
        if snapshot.summary().get(ERASURE) == erasure:
            return int(snapshot.snapshotId())
    return None


def has_query_read_past(spark: SparkSession, table: Table, reader: str, snapshot: int) -> bool:
    """Check that a query that derives from a table has read everything that was committed before a snapshot.

    Parameters
    ----------
    reader
        Checkpoint of the query. The answer for a query that never started is true: it starts at a snapshot that is left.
    """
    metadata = table.load_java_table(spark)
    states, at = snapshots_last_read_by(spark, reader, metadata), metadata.snapshot(snapshot)
    if states is None or at is None:
        return True  # every reader has passed an expired snapshot
    return bool(states) and min(each.sequenceNumber() for each in states) >= at.sequenceNumber()


def expire_before_mark_and_count_files(spark: SparkSession, table: Table, snapshot: int) -> int:
    """Expire all snapshots before a mark, delete the files that only they name, and return how many these are.

    Returns
    -------
    int
        Number of files deleted.
    """
    at = table.load_java_table(spark).snapshot(snapshot)
    if at is None:
        return 0  # it has expired already
    limits = {"older_than": sql_timestamp(commit_time(at)), "retain_last": "1"}
    row = first_row(call_iceberg_procedure(spark, table, "expire_snapshots", **limits, stream_results="true"))
    return sum(int(n or 0) for key, n in row.items() if key.startswith("deleted_"))
