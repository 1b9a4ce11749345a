"""Start of a derive query on a table whose first snapshots are expired, so that no row is left out.

Iceberg starts a stream at the oldest snapshot that it knows, with the files that *this snapshot added*. Files that expired
snapshots added are left out without an error. Iceberg first looks for the start in the checkpoint, so the start is written
there: all files of a snapshot. Three cases would still lose or double records without an error:

- Iceberg skips a commit that appends nothing (compaction, deletes) with all its files. So the start is an append.
- If the manifests of a snapshot still list deleted files, Iceberg reads those too and miscounts the positions of the
    others. So the start is an append whose manifests list none.
- A batch that continues from the start into later snapshots reads only as many files of the first as that one added. Such
    a planned batch is therefore cut at the end of the first snapshot before it is read (:mod:`etl.checkpoints.derive_allowed_batch_ends`); the next batch has the rest.
    A cut batch is as exact as any other, with any state and any sink.

Files of such a snapshot have no order in time: Iceberg lists those of the newest commit first. So with state the watermark stays
at zero until all of them are read: no record is late, and no state is dropped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..commits.snapshot_history import snapshot_and_earlier
from ..record import hadoop_files
from ..record.errors import StartError
from ..record.tables import load_java_table
from .checkpoint import Checkpoint


def newest_startable_snapshot(metadata: Any, most: int | None = None) -> Any:
    """Return the newest snapshot of a table at which a stream can start with all its files.

    Parameters
    ----------
    metadata
        The table, as Iceberg's Java object.
    most
        Number of snapshots to look at, from the current one back; None for all.

    Returns
    -------
    object or None
        Iceberg's snapshot; None if no known snapshot is an append whose manifests list no deleted file.
    """
    spoiled: set[int] = set()
    for snapshot in islice(snapshot_and_earlier(metadata, metadata.currentSnapshot()), most):
        # One commit wrote a manifest with deleted files; all snapshots from it to the one looked at have this manifest.
        if spoiled:
            spoiled = set() if snapshot.snapshotId() in spoiled else spoiled
        elif snapshot.operation() == "append":
            spoiled = commits_whose_manifests_list_deletes(metadata, snapshot)
            if not spoiled:
                return snapshot
            spoiled -= {snapshot.snapshotId()}
    return None


def commits_whose_manifests_list_deletes(metadata: Any, snapshot: Any) -> set[int]:
    """Return the commits that wrote those manifests of a snapshot that list deleted files."""
    lists = snapshot.dataManifests(metadata.io())
    return {int(m.snapshotId()) for m in lists if m.hasDeletedFiles()}


def count_snapshot_files(metadata: Any, snapshot: Any) -> int:
    """Count the files of a snapshot as Iceberg's source does."""
    lists = snapshot.dataManifests(metadata.io())
    return sum(int(m.addedFilesCount()) + int(m.existingFilesCount()) for m in lists)


def write_starts_and_list_expired_tables(
    spark: SparkSession, rows: DataFrame, checkpoint: Checkpoint, name: str
) -> tuple[str, ...]:
    """Make the first start of a derive query read all rows of its tables although their history has expired.

    Parameters
    ----------
    rows
        The stream, before ``foreachBatch``.
    checkpoint
        The query's checkpoint; a used one is not changed, unless the file of the start is lost.
    name
        Name of the query, for messages.

    Returns
    -------
    tuple of str
        The tables whose history was expired.

    Raises
    ------
    StartError
        The query cannot start at any known snapshot of a table, or the file of the start is lost while it is needed.
    """
    jvm: Any = spark._jvm
    begun = checkpoint.has_planned_batch(spark)
    from_all = []
    for number, table in {each.source: each.table for each in iceberg_streams_of_plan(rows)}.items():
        url = checkpoint.url_of_start_position(number)
        # Iceberg reads it at every start, and needs it until the first batch is committed.
        if begun and _is_readable_json(spark, url):
            continue
        metadata = load_java_table(spark, table)
        if metadata.currentSnapshot() is None:
            continue
        oldest = jvm.org.apache.iceberg.util.SnapshotUtil.oldestAncestor(metadata)
        whole = oldest.parentId() is None
        if not whole and begun and checkpoint.committed_source_offsets(spark) is None:
            raise StartError(
                f"query {name}: the file {url} is lost or damaged, and the first batch, which is planned but not "
                f"committed, needs it: it records the snapshot of {table} where the query started, and the table's "
                "oldest snapshots are expired; restore the file, or start from the beginning with `millrace "
                "checkpoint reset`"
            )
        # Iceberg would start at the oldest snapshot too. Written here, its expiry before the first
        # batch is an error and not another start.
        first = oldest if whole or begun else newest_startable_snapshot(metadata)
        if first is None:
            catalog, _, rest = table.partition(".")
            raise StartError(
                f"query {name}: table {table}: its oldest snapshots are expired, and a new query cannot start at any "
                "of the others: each is a compaction or a delete, or its manifests list deleted files; remove the "
                f"query from the job, run `CALL {catalog}.system.rewrite_manifests('{rest}')`, wait until a batch has "
                "landed, and add the query again"
            )
        begins = {
            "version": 1,
            "snapshot_id": first.snapshotId(),
            "position": 0,
            "scan_all_files": not whole,
        }
        hadoop_files.write_text(spark, url, json.dumps(begins, separators=(",", ":")))
        if not whole and not begun:
            from_all.append(table)
    return tuple(from_all)


def _is_readable_json(spark: SparkSession, url: str) -> bool:
    """Check that a file is readable JSON, as written."""
    try:
        return isinstance(json.loads(hadoop_files.read_text(spark, url)), dict)
    except (FileNotFoundError, ValueError):
        return False


@dataclass(frozen=True)
class IcebergStreamInPlan:
    """A table stream in a plan; Spark's offset log has a line for each, in the same order.

    Attributes
    ----------
    table
        Its full name.
    source
        Spark's source number. A stream that a plan uses twice is one source in two lines; a table that is opened twice is
        two sources.
    """

    table: str
    source: int


def iceberg_streams_of_plan(rows: DataFrame) -> tuple[IcebergStreamInPlan, ...]:
    """Return the table streams of a plan."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    sources: list[Any] = []
    streams = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2":
            continue
        if leaf not in sources:
            sources.append(leaf)
        name = re.sub(r"[^A-Za-z0-9_.]", "", str(leaf.table().name()))
        streams.append(IcebergStreamInPlan(name, sources.index(leaf)))
    return tuple(streams)
