"""Start of a derive query on a table whose first snapshots are expired, so that no row is left out.

Iceberg starts a stream at the oldest snapshot that it knows, with the files that *this snapshot added*. Files that expired
snapshots added are left out without an error. Iceberg first looks for the start in the checkpoint, so the start is written
there: all files of a snapshot. Three cases would still lose or double records without an error:

- Iceberg skips a commit that appends nothing (compaction, deletes) with all its files. So the start is an append.
- If the manifests of a snapshot still list deleted files, Iceberg reads those too and miscounts the positions of the
    others. So the start is an append whose manifests list none.
- A batch that continues from the start into later snapshots reads only as many files of the first as that one added. Such
    a planned batch is therefore cut at the end of the first snapshot before it is read; the next batch has the rest.
    A cut batch is as exact as any other, with any state and any sink.

Files of such a snapshot have no order in time: Iceberg lists those of the newest commit first. So with state the watermark stays
at zero until all of them are read: no record is late, and no state is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..commits.snapshots import added_files, history_of
from ..record import hadoop_files
from ..record.errors import LossError, RestartQueryError, StartError
from ..record.ready_query import ReadyQuery
from ..record.tables import load_table
from .checkpoint import Checkpoint


def newest_complete_snapshot(metadata: Any, most: int | None = None) -> Any:
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
    for snapshot in islice(history_of(metadata, metadata.currentSnapshot()), most):
        # One commit wrote a manifest with deleted files; all snapshots from it to the one looked at have this manifest.
        if spoiled:
            spoiled = set() if snapshot.snapshotId() in spoiled else spoiled
        elif snapshot.operation() == "append":
            spoiled = _with_deleted(metadata, snapshot)
            if not spoiled:
                return snapshot
            spoiled -= {snapshot.snapshotId()}
    return None


def _with_deleted(metadata: Any, snapshot: Any) -> set[int]:
    """Return the commits that wrote those manifests of a snapshot that list deleted files."""
    lists = snapshot.dataManifests(metadata.io())
    return {int(m.snapshotId()) for m in lists if m.hasDeletedFiles()}


def all_files(metadata: Any, snapshot: Any) -> int:
    """Count the files of a snapshot as Iceberg's source does."""
    lists = snapshot.dataManifests(metadata.io())
    return sum(int(m.addedFilesCount()) + int(m.existingFilesCount()) for m in lists)


def start_with_all_files(
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
    begun = checkpoint.has_batches(spark)
    from_all = []
    for number, table in {each.source: each.table for each in table_streams(rows)}.items():
        url = checkpoint.initial_snapshot_file(number)
        # Iceberg reads it at every start, and needs it until the first batch is committed.
        if begun and _is_readable_json(spark, url):
            continue
        metadata = load_table(spark, table)
        if metadata.currentSnapshot() is None:
            continue
        oldest = jvm.org.apache.iceberg.util.SnapshotUtil.oldestAncestor(metadata)
        whole = oldest.parentId() is None
        if not whole and begun and checkpoint.positions(spark) is None:
            raise StartError(
                f"query {name}: the file {url} is lost or damaged, and the first batch, which is planned but not "
                f"committed, needs it: it records the snapshot of {table} where the query started, and the table's "
                "oldest snapshots are expired; restore the file, or start from the beginning with `millrace "
                "checkpoint reset`"
            )
        # Iceberg would start at the oldest snapshot too. Written here, its expiry before the first
        # batch is an error and not another start.
        first = oldest if whole or begun else newest_complete_snapshot(metadata)
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


def with_batch_ends(query: ReadyQuery, checkpoint: Checkpoint, *, whole_commits: bool) -> ReadyQuery:
    """Make a derive query's batches end where they may: all of its first snapshot is read, and with state, complete commits.

    A commit of a landing table is a batch of the source, in whose files records have no order. With state, the first part of a
    commit would move the watermark for the rest. So a planned end inside a commit is moved back to the end of the
    commit before, or to its own end if the batch has no complete commit: a batch has the rows of the limit, or of one commit.
    A first snapshot that is read with all its files is cut by the limit, with a watermark that does not move.

    Parameters
    ----------
    query
        Built but not started; a batch that it has planned and not committed is checked now.
    whole_commits
        True for a query with state.
    """
    spark, readings = query.rows.sparkSession, table_streams(query.rows)
    ends = _BatchEnds(checkpoint, readings, whole_commits)
    ends.change(spark)

    def reopen() -> DataFrame:
        ends.change(spark)
        return query.rows

    return replace(query, handle=_Ended(query.handle, ends), reopen=reopen)


@dataclass(frozen=True)
class _BatchEnds:
    """Ends at which the batches of a query may end."""

    checkpoint: Checkpoint
    readings: tuple[TableStream, ...]
    whole_commits: bool

    def corrected_ends(self, spark: SparkSession, batch_id: int) -> tuple[dict[int, Any], bool] | None:
        """Return changes of a planned batch; None if it and all later ones are allowed.

        Returns
        -------
        dict of int to object
            Another end for each line of Spark's log whose end is not allowed.
        bool
            True if the batch has a watermark and must have none.

        Raises
        ------
        LossError
            Iceberg would not read the complete first snapshot.
        FileNotFoundError, ValueError
            The log is damaged, or of another plan.
        """
        spans = self.checkpoint.batch_ranges(spark, batch_id, [each.source for each in self.readings])
        if not (self.whole_commits or any(start and start["scan_all_files"] for start, _ in spans)):
            return None
        result, held = {}, False
        for line, (each, (start, end)) in enumerate(zip(self.readings, spans, strict=True)):
            if not start or not end or not (start["scan_all_files"] or self.whole_commits):
                continue
            metadata = load_table(spark, each.table)
            ended = _first_end(metadata, each.table, start, end) if start["scan_all_files"] else None
            held |= self.whole_commits and _has_rest(metadata, start)
            if ended is None and self.whole_commits and not end["scan_all_files"]:
                ended = _commit_end(metadata, start, end)
            if ended is not None and ended != end:
                result[line] = ended
        return result, held and self.checkpoint.watermark(spark, batch_id) > 0

    def change(self, spark: SparkSession) -> None:
        """Change a batch that is planned but not committed; nothing of it has been read.

        An end is one line of Spark's log, and the watermark a part of another, which the next start reads again.
        """
        batch_id = self.checkpoint.planned_batch(spark)
        if batch_id is None:
            return
        try:
            changes = self.corrected_ends(spark, batch_id)
        except (FileNotFoundError, ValueError, LossError):
            # A damaged log, or one of another plan, is reported when Spark reads it; a loss by the handler of the batch.
            return
        if changes and any(changes):
            self.checkpoint.change_planned_batch(spark, batch_id, changes[0], no_watermark=changes[1])


def _first_end(metadata: Any, table: str, start: Any, end: Any) -> Any:
    """Return the end of a query's first snapshot for a batch that would leave out files of it; None for any other batch."""
    snapshot = metadata.snapshot(start["snapshot_id"])
    if snapshot is None:
        return None  # Iceberg reports it
    files, rest = all_files(metadata, snapshot), _has_rest(metadata, start)
    if snapshot.operation() != "append" or (rest and _with_deleted(metadata, snapshot)):
        raise LossError(
            f"table {table}: the query started with all files of snapshot {start['snapshot_id']}, but "
            "Iceberg's source skips files of this snapshot or returns deleted ones; start from the beginning "
            "with `millrace checkpoint reset`"
        )
    return {**start, "position": files} if rest and end["snapshot_id"] != start["snapshot_id"] else None


def _has_rest(metadata: Any, start: Any) -> bool:
    """Return whether a batch begins in a first snapshot, before the end of its files."""
    snapshot = metadata.snapshot(start["snapshot_id"]) if start["scan_all_files"] else None
    return snapshot is not None and start["position"] < all_files(metadata, snapshot)


def _commit_end(metadata: Any, start: Any, end: Any) -> Any:
    """Return the end of the last commit that a batch has whole, or of the one in which it ends; None where unknown."""
    last = metadata.snapshot(end["snapshot_id"])
    if last is None or end["position"] >= added_files(last):
        return None
    for snapshot in history_of(metadata, last):
        files = added_files(snapshot)
        begun = snapshot.snapshotId() == start["snapshot_id"]
        # Of a first snapshot that is read with all its files, nothing is left here.
        rest = not begun or (start["position"] < files and not start["scan_all_files"])
        if snapshot is not last and snapshot.operation() == "append" and files and rest:
            return {**end, "snapshot_id": snapshot.snapshotId(), "position": files}
        if begun:
            break
    return {**end, "position": added_files(last)}


@dataclass
class _Ended:
    """Handler that rejects a batch with an end or a watermark that is not allowed: it is planned again."""

    handle: Callable[[DataFrame, int], None]
    ends: _BatchEnds
    _passed: bool = field(default=False, repr=False)
    _sent_back: int | None = field(default=None, repr=False)
    """The batch that was changed last."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        changes = None if self._passed else self.ends.corrected_ends(batch.sparkSession, batch_id)
        self._passed = changes is None
        if changes and any(changes):
            places, held = changes
            ended = [
                f"up to snapshot {end['snapshot_id']} of {self.ends.readings[line].table}"
                for line, end in places.items()
            ]
            ended += ["with a watermark that stays until the first snapshot is read"] if held else []
            if self._sent_back == batch_id:
                # Otherwise it would be repeated forever, and nothing read.
                raise LossError(
                    f"batch {batch_id} must be read {', '.join(ended)}, but Spark plans it with other ends "
                    "again, although they were corrected in the checkpoint; start from the beginning with "
                    "`millrace checkpoint reset`"
                )
            self._sent_back = batch_id
            raise RestartQueryError(
                f"batch {batch_id} is read again, with its ends corrected in the checkpoint: "
                f"{', '.join(ended)}"
            )
        self.handle(batch, batch_id)


def _is_readable_json(spark: SparkSession, url: str) -> bool:
    """Check that a file is readable JSON, as written."""
    try:
        return isinstance(json.loads(hadoop_files.read_text(spark, url)), dict)
    except (FileNotFoundError, ValueError):
        return False


@dataclass(frozen=True)
class TableStream:
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


def table_streams(rows: DataFrame) -> tuple[TableStream, ...]:
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
        streams.append(TableStream(name, sources.index(leaf)))
    return tuple(streams)
