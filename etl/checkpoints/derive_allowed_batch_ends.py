"""Ends at which the batches of a derive query may end: all of its first snapshot is read, and with state, complete commits.

A batch that is planned with another end is changed in the checkpoint before anything of it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..commits.snapshot_history import count_added_files, snapshot_and_earlier
from ..record.errors import LossError, RestartQueryError
from ..record.ready_query import ReadyQuery
from ..record.tables import load_java_table
from .checkpoint import Checkpoint
from .derive_start_after_expiry import (
    IcebergStreamInPlan,
    commits_whose_manifests_list_deletes,
    count_snapshot_files,
    iceberg_streams_of_plan,
)


def query_with_allowed_batch_ends(
    query: ReadyQuery, checkpoint: Checkpoint, *, whole_commits: bool
) -> ReadyQuery:
    """Make a derive query's batches end where they may: all of its first snapshot is read, and with state, complete commits.

    A commit of a landing table is a batch of the source, in whose files records have no order. With state, the first part of a
    commit would move the watermark for the rest. So a planned end inside a commit is moved back to the end of the
    commit before, or to its own end if the batch has no complete commit: a batch has the rows of the limit, or of one commit.
    A first snapshot that is read with all its files is cut by the limit, with a watermark that does not move.

    Parameters
    ----------
    query
        Built but not started; a batch that it has planned and not committed is corrected now.
    whole_commits
        True for a query with state.
    """
    spark, readings = query.rows.sparkSession, iceberg_streams_of_plan(query.rows)
    ends = _AllowedBatchEnds(checkpoint, readings, whole_commits)
    ends.correct_planned_batch(spark)
    return replace(query, handle=_EndCheckingHandler(query.handle, ends))


@dataclass(frozen=True)
class _AllowedBatchEnds:
    """Ends at which the batches of a query may end."""

    checkpoint: Checkpoint
    readings: tuple[IcebergStreamInPlan, ...]
    whole_commits: bool

    def corrections_of_disallowed_batch(
        self, spark: SparkSession, batch_id: int
    ) -> tuple[dict[int, Any], bool] | None:
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
        spans = self.checkpoint.batch_offset_ranges(spark, batch_id, [each.source for each in self.readings])
        if not (self.whole_commits or any(start and start["scan_all_files"] for start, _ in spans)):
            return None
        result, held = {}, False
        for line, (each, (start, end)) in enumerate(zip(self.readings, spans, strict=True)):
            if not start or not end or not (start["scan_all_files"] or self.whole_commits):
                continue
            metadata = load_java_table(spark, each.table)
            ended = (
                _end_of_first_snapshot(metadata, each.table, start, end) if start["scan_all_files"] else None
            )
            held |= self.whole_commits and _starts_inside_first_snapshot(metadata, start)
            if ended is None and self.whole_commits and not end["scan_all_files"]:
                ended = _end_of_whole_commit(metadata, start, end)
            if ended is not None and ended != end:
                result[line] = ended
        return result, held and self.checkpoint.watermark_milliseconds(spark, batch_id) > 0

    def correct_planned_batch(self, spark: SparkSession) -> None:
        """Change a batch that is planned but not committed; nothing of it has been read.

        An end is one line of Spark's log, and the watermark a part of another, which the next start reads again.
        """
        batch_id = self.checkpoint.planned_uncommitted_batch(spark)
        if batch_id is None:
            return
        try:
            changes = self.corrections_of_disallowed_batch(spark, batch_id)
        except (FileNotFoundError, ValueError, LossError):
            # A damaged log, or one of another plan, is reported when Spark reads it; a loss by the handler of the batch.
            return
        if changes and any(changes):
            self.checkpoint.rewrite_planned_batch(spark, batch_id, changes[0], no_watermark=changes[1])


def _end_of_first_snapshot(metadata: Any, table: str, start: Any, end: Any) -> Any:
    """Return the end of a query's first snapshot for a batch that would leave out files of it; None for any other batch."""
    snapshot = metadata.snapshot(start["snapshot_id"])
    if snapshot is None:
        return None  # Iceberg reports it
    files, rest = count_snapshot_files(metadata, snapshot), _starts_inside_first_snapshot(metadata, start)
    if snapshot.operation() != "append" or (
        rest and commits_whose_manifests_list_deletes(metadata, snapshot)
    ):
        raise LossError(
            f"table {table}: the query started with all files of snapshot {start['snapshot_id']}, but "
            "Iceberg's source skips files of this snapshot or returns deleted ones; start from the beginning "
            "with `millrace checkpoint reset`"
        )
    return {**start, "position": files} if rest and end["snapshot_id"] != start["snapshot_id"] else None


def _starts_inside_first_snapshot(metadata: Any, start: Any) -> bool:
    """Return whether a batch begins in a first snapshot, before the end of its files."""
    snapshot = metadata.snapshot(start["snapshot_id"]) if start["scan_all_files"] else None
    return snapshot is not None and start["position"] < count_snapshot_files(metadata, snapshot)


def _end_of_whole_commit(metadata: Any, start: Any, end: Any) -> Any:
    """Return the end of the last commit that a batch has whole, or of the one in which it ends; None where unknown."""
    last = metadata.snapshot(end["snapshot_id"])
    if last is None or end["position"] >= count_added_files(last):
        return None
    for snapshot in snapshot_and_earlier(metadata, last):
        files = count_added_files(snapshot)
        begun = snapshot.snapshotId() == start["snapshot_id"]
        # Of a first snapshot that is read with all its files, nothing is left here.
        rest = not begun or (start["position"] < files and not start["scan_all_files"])
        if snapshot is not last and snapshot.operation() == "append" and files and rest:
            return {**end, "snapshot_id": snapshot.snapshotId(), "position": files}
        if begun:
            break
    return {**end, "position": count_added_files(last)}


@dataclass
class _EndCheckingHandler:
    """Handler that rejects a batch with an end or a watermark that is not allowed: it is planned again."""

    handle: Callable[[DataFrame, int], None]
    ends: _AllowedBatchEnds
    _passed: bool = field(default=False, repr=False)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        changes = (
            None if self._passed else self.ends.corrections_of_disallowed_batch(batch.sparkSession, batch_id)
        )
        self._passed = changes is None
        if changes and any(changes):
            places, held = changes
            ended = [
                f"up to snapshot {end['snapshot_id']} of {self.ends.readings[line].table}"
                for line, end in places.items()
            ]
            ended += ["with a watermark that stays until the first snapshot is read"] if held else []
            raise RestartQueryError(
                f"batch {batch_id} was planned with ends that this query may not have, and nothing of it was read; the query "
                f"restarts with the right ones, {', '.join(ended)}"
            )
        self.handle(batch, batch_id)
