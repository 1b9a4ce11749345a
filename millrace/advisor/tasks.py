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
        *((name, np.float64) for name in ("launched", "finished", "run", "cpu", "gc")),
        *((name, np.int64) for name in ("records_read", "bytes_written")),
        *((name, np.int64) for name in ("shuffle_records_read", "shuffle_bytes_read")),
        *((name, np.int32) for name in ("index", "executor")),
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
    def records_read(self) -> Ints:
        """Records read from sources and caches."""
        return self.table["records_read"]

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
    def index(self) -> NDArray[np.int32]:
        """Number of the partition."""
        return self.table["index"]

    @property
    def failed(self) -> Flags:
        """True for failed attempts; a killed second copy of a task is not one."""
        return self.table["failed"]

    @property
    def speculative(self) -> Flags:
        """True for a second copy of a slow task."""
        return self.table["speculative"]


NO_TASKS = Tasks.of()
