"""End of a stream before batches were written to it, to compare repeated batches with the stream.

A topic and a stream cannot remove a message, and have no transaction that Spark's checkpoint could join. But the
messages of an interrupted batch come after the end that the stream had before it, under identities that
are the same each time. So that end is stored beside the checkpoint, about once a minute. A batch that may
have been written before reads the stream from there, and leaves out the messages that it finds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...record import hadoop_files
from ...record.errors import JVM_ERRORS, SinkError, full_error_text
from ...services.backoff import Backoff
from ..base import BatchIdentity, Reread, WriteCounts
from .folder_manifest import batch_folder_name

FOLDER = "marks"
"""Folder below a query's checkpoint; Spark reads only its own folders there."""

TASK_RETRIED = "millrace: a task is retried whose messages may already be written"
"""Message of a task that fails because it is repeated; it is recognised in the driver's error."""

EVERY_SECONDS = 60.0
"""Seconds between two marks: one call and one small file a minute, and at most that much more of the stream to read."""


@dataclass(frozen=True)
class StreamEndMark:
    """Mark: the end of a stream, before any message of a batch was written.

    Attributes
    ----------
    stream
        Name of the stream: a mark is not valid for another stream.
    run
        Id of the checkpoint (:class:`etl.sinks.base.BatchIdentity`).
    batch
        Batch that was about to be written; no later one had been.
    end
        End, in the stream's own form, as JSON.
    """

    stream: str
    run: str
    batch: int
    end: Any


@dataclass
class StreamEndMarks:
    """Marks of one sink, in one run of its job.

    Parameters
    ----------
    every
        Seconds between two marks.
    """

    stream: str
    every: float = EVERY_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    _mark: StreamEndMark | None = field(default=None, repr=False)
    _begun: tuple[str, int] | None = field(default=None, repr=False)
    _taken_at: float = field(default=0.0, repr=False)

    def mark_before_write(
        self, spark: SparkSession, place: BatchIdentity, end: Callable[[], Any]
    ) -> StreamEndMark | None:
        """Return the mark from which to search for messages of a batch, before the batch is written.

        Parameters
        ----------
        end
            Returns the end of the stream; called once a minute.

        Returns
        -------
        StreamEndMark or None
            None if the batch was not started before. For the first batch of a run this is unknown, so it counts
            as started.

        Raises
        ------
        SinkError
            The mark of an earlier run is damaged.
        OSError
            The folder cannot be read, or a new mark cannot be written.
        """
        begun, self._begun = self._begun, (place.run, place.batch)
        first = begun is None or begun[0] != place.run
        if first:
            self._mark = self._read_mark(spark, place)
        if self._mark is not None and (begun is None or first or place.batch <= begun[1]):
            return self._mark
        now = self.clock()
        if self._mark is None or now - self._taken_at >= self.every:
            self._mark, self._taken_at = StreamEndMark(self.stream, place.run, place.batch, end()), now
            self._write_mark_and_delete_others(spark, f"{place.notes}/{FOLDER}", self._mark)
        return None

    def write_compared_with_mark(
        self,
        rows: DataFrame,
        place: BatchIdentity,
        reread: Reread | None,
        waits: Backoff,
        end: Callable[[], Any],
        identities: Callable[[Any], DataFrame | None],
        send: Callable[[DataFrame, DataFrame | None], WriteCounts],
    ) -> WriteCounts:
        """Write a batch; repeat it, compared with its mark, if one of its tasks was repeated.

        Parameters
        ----------
        reread
            Returns the rows again; without it a repeated task fails the batch.
        waits
            Waits before each further attempt.
        end
            As in :meth:`mark_before_write`.
        identities
            Returns the identities that the stream holds after an end; None for none.
        send
            Writes rows, except those with some identities, which are cached; None for all rows.
        """
        mark = self.mark_before_write(rows.sparkSession, place, end)
        while True:
            try:
                with _cached_unless_empty(None if mark is None else identities(mark.end)) as known:
                    return send(rows, known)
            except JVM_ERRORS as error:
                if reread is None or TASK_RETRIED not in full_error_text(error):
                    raise
                waits.wait(TASK_RETRIED)
                # All messages of the current batch come after this mark.
                mark, rows = self._mark, reread()

    @staticmethod
    def _write_mark_and_delete_others(spark: SparkSession, folder: str, mark: StreamEndMark) -> None:
        # Removed first: a driver that ends in between has written nothing of the batch, and makes a new mark.
        for other in hadoop_files.list_names(spark, folder):
            hadoop_files.delete_if_exists(spark, f"{folder}/{other}")
        hadoop_files.write_text(
            spark, f"{folder}/{batch_folder_name(mark.run, mark.batch)}.json", json.dumps(asdict(mark))
        )

    def _read_mark(self, spark: SparkSession, place: BatchIdentity) -> StreamEndMark | None:
        folder = f"{place.notes}/{FOLDER}"
        # The names of a run's files are in the order of its batches.
        mine = [
            n
            for n in hadoop_files.list_names(spark, folder)
            if n.startswith(f"{place.run}-") and n.endswith(".json")
        ]
        if not mine:
            return None
        url = f"{folder}/{mine[-1]}"
        try:
            mark = StreamEndMark(**json.loads(hadoop_files.read_text(spark, url)))
        except (TypeError, ValueError) as error:
            raise SinkError(
                f"{url}, which records where stream {self.stream} ended before the batch, cannot be read: "
                f"{error}. Delete it: the rows that the current batch has already written are then written "
                "again"
            ) from error
        return mark if mark.stream == self.stream and mark.batch <= place.batch else None


@contextmanager
def _cached_unless_empty(rows: DataFrame | None) -> Iterator[DataFrame | None]:
    """Yield rows, cached; None if there are none."""
    if rows is None:
        yield None
        return
    rows.persist()
    try:
        yield None if rows.isEmpty() else rows
    finally:
        rows.unpersist()
