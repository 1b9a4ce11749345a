"""Query that is ready to start, as the parts of the core exchange it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

BatchHandler = Callable[[DataFrame, int], None]

IsEndReached = Callable[[int], bool]
"""Takes the number of a batch, planned or the next one. Returns whether all before it covers the end of a bounded run."""


@dataclass(frozen=True)
class ReadyQuery:
    """Query that is ready to start.

    Attributes
    ----------
    rebuild
        Builds the query again after a failed batch, as a start of the job does: the failure may have left the handler or a guard with
        half of what it knows of the batch.
    check
        Checks the source at intervals, even without batches; raises :class:`etl.record.errors.LossError` if
        records would stay unread, and :class:`etl.record.errors.NoAnswerError` if it cannot determine this.
    determine_end
        Fixes the end of a bounded run at what the sources hold now; None if a source cannot tell.
    derives
        True if it reads tables that other queries of the job write: in a bounded run it starts after them.
    """

    name: str
    rows: DataFrame
    handle: BatchHandler
    checkpoint: str
    trigger_seconds: float
    rebuild: Callable[[], ReadyQuery] | None = None
    output_mode: Literal["append", "update"] = "append"
    check: Callable[[], None] | None = None
    determine_end: Callable[[], IsEndReached] | None = None
    derives: bool = False
