"""End of a bounded run of a derive query: the snapshots that its tables have when the queries before it have ended."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..commits.snapshot_history import count_added_files, snapshot_and_earlier
from ..record.ready_query import IsEndReached
from ..record.tables import load_java_table
from .checkpoint import Checkpoint
from .derive_start_after_expiry import count_snapshot_files, iceberg_streams_of_plan


def checker_of_bounded_run_end(spark: SparkSession, rows: DataFrame, checkpoint: Checkpoint) -> IsEndReached:
    """Return the check of the end of a bounded run, which is fixed at the current snapshot of each table.

    Parameters
    ----------
    rows
        The stream, before ``foreachBatch``.
    checkpoint
        The query's checkpoint.
    """
    readings = iceberg_streams_of_plan(rows)
    sources = [each.source for each in readings]
    ends = [_newest_appending_snapshot(load_java_table(spark, each.table)) for each in readings]

    def is_end_reached(batch: int) -> bool:
        try:
            spans = checkpoint.batch_offset_ranges(spark, batch, sources)
        except FileNotFoundError:
            if not batch:
                return not any(ends)
            begins = [end for _, end in checkpoint.batch_offset_ranges(spark, batch - 1, sources)]
        else:
            begins = [begin for begin, _ in spans]
            # A batch without rows writes the results that the watermark has passed.
            if batch and begins == [end for _, end in spans]:
                return False
        pairs = zip(readings, begins, ends, strict=True)
        return all(
            end is None or _has_read_snapshot(load_java_table(spark, each.table), at, end)
            for each, at, end in pairs
        )

    return is_end_reached


def _newest_appending_snapshot(metadata: Any) -> Any:
    """Return the newest snapshot that adds records; None if a table has none. Streams skip compactions and deletes."""
    known = snapshot_and_earlier(metadata, metadata.currentSnapshot())
    return next((snapshot for snapshot in known if snapshot.operation() == "append"), None)


def _has_read_snapshot(metadata: Any, at: Any, end: Any) -> bool:
    """Check that a position, decoded from Spark's log, is at the end of a snapshot or behind it."""
    snapshot = None if at is None else metadata.snapshot(at["snapshot_id"])
    if snapshot is not None and snapshot.snapshotId() == end.snapshotId():
        return bool(
            at["position"]
            >= (count_snapshot_files(metadata, end) if at["scan_all_files"] else count_added_files(end))
        )
    return any(each.snapshotId() == end.snapshotId() for each in snapshot_and_earlier(metadata, snapshot))
