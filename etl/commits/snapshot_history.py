"""Snapshots of an Iceberg table, as Iceberg's Java objects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row, SparkSession

from ..record.tables import Table

ERASURE = "millrace.erasure"
"""Property of the commit that ends the old history of a table for an erasure: the erasure's id."""

ARRIVALS = "millrace.arrivals"
"""Property of a backfill's commit: the first and last arrival of its rows, in microseconds since 1970; empty if one has none."""


def snapshot_and_earlier(metadata: Any, snapshot: Any) -> Iterator[Any]:
    """Yield a snapshot of a table and those before it, the newest first; nothing for None. It ends where they are expired."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else metadata.snapshot(parent)


def commit_time(snapshot: Any) -> datetime:
    """Return the commit time of a snapshot."""
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=UTC)


def commits_set_back(spark: SparkSession, table: Table) -> list[Row]:
    """Return the commits that a table no longer has, as an earlier snapshot was restored.

    Iceberg remembers them until snapshots of that time are expired.

    Returns
    -------
    list of Row
        ``snapshot_id``, the commit's ``summary``, and ``at`` in microseconds since 1970.
    """
    history = spark.table(f"{table}.history").where("NOT is_current_ancestor")
    lost = history.selectExpr("snapshot_id", "unix_micros(made_current_at) AS at")
    snapshots = spark.table(f"{table}.snapshots").select("snapshot_id", "summary")
    # Mostly there is none, which costs less to find out than the join.
    return [] if lost.isEmpty() else lost.join(snapshots, "snapshot_id").collect()


def count_added_files(snapshot: Any) -> int:
    """Count the files that a snapshot added."""
    return int(snapshot.summary().getOrDefault("added-data-files", "0"))


def snapshots_of_batch(table: Any, start: Any, end: Any) -> Iterator[Any]:
    """Yield the snapshots of which a batch reads files, the newest first.

    Parameters
    ----------
    table
        The table, as Iceberg's Java object.
    start, end
        Iceberg's streaming offsets; a start of None is the table's first snapshot.
    """
    for snapshot in snapshot_and_earlier(table, table.snapshot(int(end["snapshot_id"]))):
        if start and int(snapshot.snapshotId()) == int(start["snapshot_id"]):
            if start["position"] < count_added_files(snapshot):
                yield snapshot
            return
        yield snapshot
