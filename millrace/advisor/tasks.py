"""The task attempts of one stage, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TASK = np.dtype(
    [
        *((name, np.float64) for name in ("launched", "finished", "run", "cpu", "gc", "delay", "fetch_wait")),
        *((name, np.int64) for name in ("records_read", "bytes_read", "records_written", "bytes_written")),
        *((name, np.int64) for name in ("shuffle_records_read", "shuffle_bytes_read")),
        *((name, np.int64) for name in ("shuffle_records_written", "shuffle_bytes_written", "spilled")),
        *((name, np.int32) for name in ("index", "attempt", "executor")),
        ("failed", np.bool_),
        ("speculative", np.bool_),
    ]
)
"""One task attempt: see :class:`Tasks`."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """The task attempts of one stage attempt, in the order of their ends: a column for each figure.

    It is one table instead of an array for each figure: an endless job has many stages of few tasks.

    Attributes
    ----------
    table
        A row of type :data:`TASK` for each attempt.
    """

    table: NDArray[Any]

    @classmethod
    def of(cls, **columns: Sequence[float] | NDArray[Any]) -> Tasks:
        """Make tasks from columns of equal length; those left out are 0."""
        table = np.zeros(max((len(each) for each in columns.values()), default=0), TASK)
        for name, values in columns.items():
            table[name] = values
        return cls(table)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def launched(self) -> Floats:
        """Launch of each task, in epoch seconds."""
        return self.table["launched"]

    @property
    def finished(self) -> Floats:
        """End of each task, in epoch seconds."""
        return self.table["finished"]

    @property
    def duration(self) -> Floats:
        """Seconds from launch to end."""
        return self.finished - self.launched

    @property
    def run(self) -> Floats:
        """Seconds of running on the executor."""
        return self.table["run"]

    @property
    def cpu(self) -> Floats:
        """Seconds of the JVM thread's CPU time, without that of a Python worker."""
        return self.table["cpu"]

    @property
    def gc(self) -> Floats:
        """Seconds of garbage collection."""
        return self.table["gc"]

    @property
    def delay(self) -> Floats:
        """Seconds between the scheduler and the executor, beside running and (de)serialising."""
        return self.table["delay"]

    @property
    def fetch_wait(self) -> Floats:
        """Seconds of waiting for shuffled blocks."""
        return self.table["fetch_wait"]

    @property
    def records_read(self) -> Ints:
        """Records read from sources and caches."""
        return self.table["records_read"]

    @property
    def bytes_read(self) -> Ints:
        """Bytes read from sources and caches; 0 where a connector does not count."""
        return self.table["bytes_read"]

    @property
    def records_written(self) -> Ints:
        """Records written to files."""
        return self.table["records_written"]

    @property
    def bytes_written(self) -> Ints:
        """Bytes written to files."""
        return self.table["bytes_written"]

    @property
    def shuffle_records_read(self) -> Ints:
        """Records read from a shuffle."""
        return self.table["shuffle_records_read"]

    @property
    def shuffle_bytes_read(self) -> Ints:
        """Bytes read from a shuffle."""
        return self.table["shuffle_bytes_read"]

    @property
    def shuffle_records_written(self) -> Ints:
        """Records written to a shuffle."""
        return self.table["shuffle_records_written"]

    @property
    def shuffle_bytes_written(self) -> Ints:
        """Bytes written to a shuffle."""
        return self.table["shuffle_bytes_written"]

    @property
    def spilled(self) -> Ints:
        """Bytes spilled to disk."""
        return self.table["spilled"]

    @property
    def index(self) -> NDArray[np.int32]:
        """Number of the partition."""
        return self.table["index"]

    @property
    def attempt(self) -> NDArray[np.int32]:
        """Attempt, from 0."""
        return self.table["attempt"]

    @property
    def executor(self) -> NDArray[np.int32]:
        """Position in the history's executors; -1 where unknown."""
        return self.table["executor"]

    @property
    def failed(self) -> Flags:
        """True for failed attempts; a killed second copy of a task is not one."""
        return self.table["failed"]

    @property
    def speculative(self) -> Flags:
        """True for a second copy of a slow task."""
        return self.table["speculative"]


NO_TASKS = Tasks.of()
