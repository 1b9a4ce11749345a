"""Where a derive query begins on a table whose first states are forgotten, so that nothing of it is left out.

Iceberg begins a stream at the oldest state that it knows, with the files that *this state added*: of a table whose first
states are forgotten it leaves out what they had added, in silence. It looks for the beginning in the checkpoint first, so
the beginning is written there: all files of a state. Three things would still lose or double records, in silence too:

- A commit that appends nothing (compaction, deletes) is passed over with all its files. So the beginning is an append.
- Where a state's lists of files still name deleted ones, those are read as well, and the places of the others are
  miscounted. So it is an append whose lists name none.
- A batch that continues from there into later states reads of the first one only as many files as that one added. So a
  batch that was planned like this is cut at the end of the first state, before anything of it is read, and what
  lies behind comes with the next one. A cut batch is as exact as any other, whatever the query keeps and wherever it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..record import hadoop_files
from ..record.errors import LossError, RestartQueryError, StartError
from ..record.query import Query
from .checkpoint import Checkpoint


def newest_complete_snapshot(metadata: Any, most: int | None = None) -> Any:
    """The newest state of a table that a stream can begin at with all its files.

    Parameters
    ----------
    metadata
        The table, as Iceberg's Java object.
    most
        How many states are looked at, from the present one on; None for all.

    Returns
    -------
    object or None
        Iceberg's snapshot; None where none that the table still knows is an append whose lists name no deleted file.
    """
    spoiled: set[int] = set()
    snapshot, looked = metadata.currentSnapshot(), 0
    while snapshot is not None and (most is None or looked < most):
        # A list with deleted files came with one commit, and all states from it to the one looked at have it.
        if spoiled:
            spoiled = set() if snapshot.snapshotId() in spoiled else spoiled
        elif snapshot.operation() == "append":
            spoiled = _with_deleted(metadata, snapshot)
            if not spoiled:
                return snapshot
            spoiled -= {snapshot.snapshotId()}
        parent = snapshot.parentId()
        snapshot, looked = metadata.snapshot(parent) if parent is not None else None, looked + 1
    return None


def _with_deleted(metadata: Any, snapshot: Any) -> set[int]:
    """The commits that made those of a state's lists which name deleted files."""
    lists = snapshot.dataManifests(metadata.io())
    return {int(m.snapshotId()) for m in lists if m.hasDeletedFiles()}


def _files(metadata: Any, snapshot: Any) -> int:
    """How many files a state has, as Iceberg's source counts them."""
    lists = snapshot.dataManifests(metadata.io())
    return sum(int(m.addedFilesCount()) + int(m.existingFilesCount()) for m in lists)


def start_with_all_files(
    spark: SparkSession, rows: DataFrame, checkpoint: Checkpoint, name: str
) -> tuple[str, ...]:
    """Make a derive query's first start read all that its tables hold, though their history was expired.

    Parameters
    ----------
    rows
        The stream, before ``foreachBatch``.
    checkpoint
        The query's; one that has begun is left as it is, unless that file is lost.
    name
        Of the query, for messages.

    Returns
    -------
    tuple of str
        The tables whose history was expired.

    Raises
    ------
    StartError
        A table that cannot be begun at any state that it knows, or a beginning that was lost while it was needed.
    """
    jvm: Any = spark._jvm
    begun = checkpoint.begun(spark)
    from_all = []
    for number, table in {each.source: each.table for each in table_streams(rows)}.items():
        url = checkpoint.initial_snapshot_file(number)
        # Iceberg reads it at every start, and needs it until the first batch is committed.
        if begun and _is_there(spark, url):
            continue
        metadata = _load(spark, table)
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
        # The oldest state is where Iceberg would begin too. Said here, one that is forgotten before the first
        # batch is an error, and not another beginning.
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


def with_whole_first_snapshot(query: Query, checkpoint: Checkpoint) -> Query:
    """See to it that a derive query reads all of the state that it begins at.

    Parameters
    ----------
    query
        Built, and not started: a batch that it has planned and not committed is looked at now.
    """
    spark, readings = query.rows.sparkSession, table_streams(query.rows)
    end_batch_at_first_snapshot(spark, checkpoint, readings)

    def reopen() -> DataFrame:
        end_batch_at_first_snapshot(spark, checkpoint, readings)
        return query.rows

    return replace(query, handle=_Whole(query.handle, checkpoint, readings), reopen=reopen)


@dataclass
class _Whole:
    """Lets no batch through that would leave out files of the state that the query begins at."""

    handle: Callable[[DataFrame, int], None]
    checkpoint: Checkpoint
    readings: tuple[TableStream, ...]
    _passed: bool = field(default=False, repr=False)
    _sent_back: int | None = field(default=None, repr=False)
    """The batch that was last to be cut."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if not self._passed:
            self._passed = not self._look(batch.sparkSession, batch_id)
        self.handle(batch, batch_id)

    def _look(self, spark: SparkSession, batch_id: int) -> bool:
        """Whether a table is still read from the state that it was begun at; raises where the batch is not whole."""
        first = False
        for _, table, start, end in _of_first(spark, self.checkpoint, self.readings, batch_id):
            first = True
            metadata = _load(spark, table)
            snapshot = metadata.snapshot(start["snapshot_id"])
            if snapshot is None:
                continue  # as Iceberg will say
            rest = start["position"] < _files(metadata, snapshot)
            if snapshot.operation() != "append" or (rest and _with_deleted(metadata, snapshot)):
                raise LossError(
                    f"table {table}: the query started with all files of snapshot {start['snapshot_id']}, but "
                    "Iceberg's source skips files of this snapshot or returns deleted ones; start from the beginning "
                    "with `millrace checkpoint reset`"
                )
            if rest and end["snapshot_id"] != start["snapshot_id"]:
                if self._sent_back == batch_id:
                    # It would come again forever, and nothing be read.
                    raise LossError(
                        f"batch {batch_id} was shortened to end at snapshot {start['snapshot_id']} of {table}, but "
                        "still continues past it; start from the beginning with `millrace checkpoint reset`"
                    )
                self._sent_back = batch_id
                raise RestartQueryError(
                    f"batch {batch_id} continues past snapshot {start['snapshot_id']} of {table} before it has read "
                    "all of its files; it is shortened and read again"
                )
        return first


def end_batch_at_first_snapshot(
    spark: SparkSession, checkpoint: Checkpoint, readings: Sequence[TableStream]
) -> None:
    """Let a batch that is planned and not committed end where the state ends that the query begins at.

    Nothing of the batch was read: :func:`with_whole_first_snapshot` sees it first. Where it ends is one line of Spark's log, which is
    read again by the next start.

    Parameters
    ----------
    checkpoint
        The query's, which is not running.
    """
    batch_id = checkpoint.planned(spark)
    if batch_id is None:
        return
    try:
        found = _of_first(spark, checkpoint, readings, batch_id)
    except (FileNotFoundError, ValueError):
        # A damaged log, or one of another plan. Spark reads it next, and says so.
        return
    places = {}
    for line, table, start, end in found:
        metadata = _load(spark, table)
        snapshot = metadata.snapshot(start["snapshot_id"])
        if snapshot is None or end["snapshot_id"] == start["snapshot_id"]:
            continue
        files = _files(metadata, snapshot)
        if start["position"] < files:
            places[line] = {**start, "position": files}
    if places:
        checkpoint.end_at(spark, batch_id, places)


def _of_first(
    spark: SparkSession, checkpoint: Checkpoint, readings: Sequence[TableStream], batch_id: int
) -> list[tuple[int, str, Any, Any]]:
    """Lines of Spark's log whose batch begins in the state that was begun at: number, table, start and end."""
    spans = checkpoint.spans(spark, batch_id, [each.source for each in readings])
    lines = zip(readings, spans, strict=True)
    return [
        (line, each.table, start, end)
        for line, (each, (start, end)) in enumerate(lines)
        if start and end and start["scan_all_files"]
    ]


def _is_there(spark: SparkSession, url: str) -> bool:
    """Whether a file is what was written."""
    try:
        return isinstance(json.loads(hadoop_files.read_text(spark, url)), dict)
    except (FileNotFoundError, ValueError):
        return False
    except OSError as error:
        if hadoop_files.is_corrupt(error):
            return False
        raise


def _load(spark: SparkSession, table: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


@dataclass(frozen=True)
class TableStream:
    """A place in a plan at which a table is streamed in; Spark's log of offsets has a line for each, in their order.

    Attributes
    ----------
    table
        Its full name.
    source
        Spark's number of the source. A stream that a plan uses twice is one source at two places; a table that was opened
        twice is two.
    """

    table: str
    source: int


def table_streams(rows: DataFrame) -> tuple[TableStream, ...]:
    """Where a plan streams from tables."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    sources: list[Any] = []
    found = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2":
            continue
        if leaf not in sources:
            sources.append(leaf)
        name = re.sub(r"[^A-Za-z0-9_.]", "", str(leaf.table().name()))
        found.append(TableStream(name, sources.index(leaf)))
    return tuple(found)
