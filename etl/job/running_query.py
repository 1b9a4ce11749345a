"""A query while a supervisor runs it: its current state, and the handler that lets a batch begin."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ..record.ready_query import IsEndReached, ReadyQuery
from . import kill_when_lease_lost
from .lease import Lease


class StopRequestedError(Exception):
    """Error that ends a query at the start of a batch, after a stop of the job was requested."""


@dataclass
class RunningQuery:
    """State of one query.

    Attributes
    ----------
    stopping
        Set after a stop of the job was requested.
    again_at
        Time of the next attempt; None if none is planned.
    rebuilt
        The query while it is built again; None otherwise.
    sent_back
        The last batch with which the query was built again because its handler asked for it.
    interrupted
        True if the supervisor stopped it between two batches.
    reached, looked_at, done
        In a bounded run: whether a batch begins at the end or behind it, the time of the last look, and the result.
    """

    spec: ReadyQuery
    stopping: threading.Event
    lease: Lease | None = None
    query: StreamingQuery | None = None
    error: BaseException | None = None
    failed_batch: int | None = None
    attempts: int = 0
    again_at: float | None = None
    rebuilt: Future[ReadyQuery] | None = None
    sent_back: int | None = None
    interrupted: bool = False
    look: Future[None] | None = None
    checked_at: float = field(default_factory=time.monotonic)
    reached: IsEndReached | None = None
    looked_at: float = 0.0
    done: bool = False

    @property
    def is_ending(self) -> bool:
        """True if no further batch may begin."""
        return self.done or self.stopping.is_set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process a batch, unless the query is to end; called by ``foreachBatch``."""
        try:
            # A batch that has started is completed; the next one is left to the next start.
            if not self.is_ending and self.reached is not None:
                self.done = self.reached(batch_id)
            if self.is_ending:
                raise StopRequestedError(self.spec.name)
            kill_when_lease_lost.raise_if_lease_lost(self.lease)
            self.spec.handle(batch, batch_id)
        except BaseException as error:
            self.error, self.failed_batch = error, batch_id
            raise
        self.attempts = 0

    @property
    def failed_batch_field(self) -> dict[str, int]:
        """The failed batch, as a field of an event."""
        return {} if self.failed_batch is None else {"batch": self.failed_batch}
