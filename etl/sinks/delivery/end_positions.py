"""Where a stream ended before batches were written to it: what a batch that comes again is held against.

A topic and a stream take no message back, and know no transaction that Spark's checkpoint could join. But what a
batch that was broken off has written stands behind the end that the stream had before it, under identities that
are the same each time. So that end is kept beside the checkpoint, about once a minute, and a batch that may
have been written before looks from there on what the stream holds, and leaves it out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...record import hadoop_files
from ...record.errors import JVM_ERRORS, SinkError, whole_text
from ...services.backoff import Backoff
from ..base import Again, BatchPlace, WriteCounts
from .folder_manifest import name_of

FOLDER = "marks"
"""Below a query's checkpoint; Spark looks at none but its own folders there."""

TASK_RETRIED = "millrace: a task comes again, whose messages may have been written"
"""What such a task fails with; found again in the driver's error."""

EVERY_SECONDS = 60.0
"""Between two marks: one call and one small file a minute, and at most so much more of the stream to look at."""


@dataclass(frozen=True)
class StreamEnd:
    """The end of a stream, before anything of a batch was written.

    Attributes
    ----------
    stream
        Its name: a query that writes another one now has no mark in it.
    run
        Of the checkpoint (:class:`etl.sinks.base.BatchPlace`).
    batch
        Which was about to be written, and none after it had been.
    end
        As the stream tells it, in JSON.
    """

    stream: str
    run: str
    batch: int
    end: Any


@dataclass
class EndPositions:
    """The marks of one sink, in one run of its job.

    Parameters
    ----------
    every
        Seconds.
    """

    stream: str
    every: float = EVERY_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    _mark: StreamEnd | None = field(default=None, repr=False)
    _begun: tuple[str, int] | None = field(default=None, repr=False)
    _taken_at: float = field(default=0.0, repr=False)

    def begin(self, spark: SparkSession, place: BatchPlace, end: Callable[[], Any]) -> StreamEnd | None:
        """Before a batch is written: where to look for what of it is written already.

        Parameters
        ----------
        end
            Asks the stream where it ends; called once a minute.

        Returns
        -------
        Mark or None
            None where the batch was not begun before. Of the first batch of a run nobody knows, so it counts
            as begun.

        Raises
        ------
        SinkError
            The mark of an earlier run is none.
        OSError
            The folder cannot be read, or a new mark not be written.
        """
        begun, self._begun = self._begun, (place.run, place.batch)
        first = begun is None or begun[0] != place.run
        if first:
            self._mark = self._read(spark, place)
        if self._mark is not None and (begun is None or first or place.batch <= begun[1]):
            return self._mark
        now = self.clock()
        if self._mark is None or now - self._taken_at >= self.every:
            self._mark, self._taken_at = StreamEnd(self.stream, place.run, place.batch, end()), now
            self._write(spark, f"{place.notes}/{FOLDER}", self._mark)
        return None

    def write(
        self,
        rows: DataFrame,
        place: BatchPlace,
        again: Again | None,
        waits: Backoff,
        end: Callable[[], Any],
        send: Callable[[DataFrame, Any], WriteCounts],
    ) -> WriteCounts:
        """Write a batch, and again, behind its mark, where one of its tasks came again.

        Parameters
        ----------
        again
            Gives the rows again; without it a task that comes again fails the batch.
        waits
            Before each further attempt.
        end
            As of :meth:`begin`.
        send
            Writes rows, but for those that the stream holds behind an end; None for all of them.
        """
        mark = self.begin(rows.sparkSession, place, end)
        while True:
            try:
                return send(rows, None if mark is None else mark.end)
            except JVM_ERRORS as error:
                if again is None or TASK_RETRIED not in whole_text(error):
                    raise
                waits.wait(TASK_RETRIED)
                # Behind it stands all of the current batch.
                mark, rows = self._mark, again()

    @staticmethod
    def _write(spark: SparkSession, folder: str, mark: StreamEnd) -> None:
        # Removed first: a driver that ends in between has written nothing of the batch, and marks again.
        for other in hadoop_files.names(spark, folder):
            hadoop_files.delete(spark, f"{folder}/{other}")
        hadoop_files.write_text(
            spark, f"{folder}/{name_of(mark.run, mark.batch)}.json", json.dumps(asdict(mark))
        )

    def _read(self, spark: SparkSession, place: BatchPlace) -> StreamEnd | None:
        folder = f"{place.notes}/{FOLDER}"
        # A run's names are in the order of its batches.
        mine = [
            n
            for n in hadoop_files.names(spark, folder)
            if n.startswith(f"{place.run}-") and n.endswith(".json")
        ]
        if not mine:
            return None
        url = f"{folder}/{mine[-1]}"
        try:
            mark = StreamEnd(**json.loads(hadoop_files.read_text(spark, url)))
        except (OSError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and not hadoop_files.is_corrupt(error):
                raise
            raise SinkError(
                f"{url} records where {self.stream} ended, but cannot be read: {error}. Delete it: the rows that the "
                "current batch has already written are then written again"
            ) from error
        return mark if mark.stream == self.stream and mark.batch <= place.batch else None
