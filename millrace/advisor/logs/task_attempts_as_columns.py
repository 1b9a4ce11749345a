"""The task attempts of one stage, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

TASK = np.dtype(
    [
        *((name, np.float64) for name in ("launched", "finished", "run", "cpu", "gc")),
        *((name, np.int64) for name in ("records_read", "bytes_written")),
        *((name, np.int64) for name in ("shuffle_records_read", "shuffle_bytes_read")),
        *((name, np.int32) for name in ("index", "executor")),
        ("failed", np.bool_),
        ("killed", np.bool_),
    ]
)
"""One task attempt: see :class:`TaskAttempts`."""


class TaskAttempts:
    """The task attempts of one stage attempt, in the order of their ends: a column for each figure.

    It is one table instead of an array for each figure: an endless job has many stages of few tasks.

    Attributes
    ----------
    table
        A row of type :data:`TASK` for each attempt.
    launched, finished
        Launch and end of each task, in epoch seconds.
    run, gc
        Seconds of running on the executor, and of garbage collection.
    cpu
        Seconds of the JVM thread's CPU time, without that of a Python worker.
    records_read
        Records read from sources and caches.
    bytes_written
        Bytes written to files.
    shuffle_records_read, shuffle_bytes_read
        Read from a shuffle.
    index
        Number of the partition.
    failed
        True for failed attempts.
    killed
        True for attempts that were stopped, such as the slower of two copies of a task.
    """

    def __init__(self, table: NDArray[Any]) -> None:
        self.table = table

    @classmethod
    def from_columns(cls, **columns: Sequence[float] | NDArray[Any]) -> TaskAttempts:
        """Make tasks from columns of equal length; those left out are 0."""
        table = np.zeros(max((len(each) for each in columns.values()), default=0), TASK)
        for name, values in columns.items():
            table[name] = values
        return cls(table)

    def __len__(self) -> int:
        return len(self.table)

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name in (TASK.names or ()):
            return np.asarray(self.table[name])
        raise AttributeError(name)

    @property
    def durations(self) -> Floats:
        """Seconds from launch to end."""
        return np.asarray(self.finished - self.launched)

    @property
    def successful(self) -> TaskAttempts:
        """The attempts that did a partition's work: one of each partition, as Spark repeats a failed one and kills a second copy."""
        done = ~(self.failed | self.killed)
        return self if done.all() else TaskAttempts(self.table[done])

    @property
    def elapsed_seconds(self) -> float:
        """Seconds from the first launch to the last end; 0 without tasks."""
        return float(self.finished.max() - self.launched.min()) if len(self) else 0.0


NO_TASKS = TaskAttempts.from_columns()
