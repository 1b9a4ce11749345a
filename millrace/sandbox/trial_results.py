"""Results of a trial: what each table holds, by the ledger of sent records and by one batch of the transform."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from millrace.sandbox.records.ledger import LedgerComparison

_LETTERS = 100
"""Dead letters among which an example is chosen."""


@dataclass(frozen=True)
class DerivedTableComparison:
    """Comparison of a derived table with one batch of its transform over all landed records.

    Attributes
    ----------
    rows
        Rows of that batch.
    lost, doubled, different, unknown
        Rows that the table lacks, has more than once, has with other values, or has without any such record.
    pending
        Rows that the table lacks because they are written when the watermark has passed them.
    left_out
        Columns that are not compared, since two runs of the transform differ in them.
    differing
        Columns with differences.
    reason
        Why there is no comparison; None where there is one.
    """

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    unknown: int = 0
    pending: int = 0
    left_out: Sequence[str] = ()
    differing: Sequence[str] = ()
    reason: str | None = None

    @property
    def is_wrong(self) -> bool:
        """True if the table has other rows than the batch."""
        return bool(self.lost or self.doubled or self.different or self.unknown)


@dataclass(frozen=True)
class LandingAfterKill:
    """Landing of records that were sent after the kill.

    Attributes
    ----------
    recovery_seconds
        From kill -9 to the next commit of the job.
    p50_seconds, p95_seconds, records
        Quantiles of the seconds from arrival to commit, over the records that arrived after that commit; NaN without any.
    """

    recovery_seconds: float
    p50_seconds: float
    p95_seconds: float
    records: int


@dataclass(frozen=True)
class TableAfterTrial:
    """Content of a table after a trial.

    Attributes
    ----------
    first_seconds
        Seconds from the command's start to the first row; None for a table without rows, while others have some.
    example
        One row, by column, if any; without the core's own columns.
    account
        Account of a landing table whose query reads its streams from the beginning, by the ledger of the sent records.
    comparison
        Comparison of a derived table; None for other tables.
    after_kill
        For a landing table; None where no records were sent after the kill.
    letter
        One dead letter of a landing table, if any: its columns ``_id``, ``_stage``, ``_error``, ``_bytes``.
    """

    rows: int
    first_seconds: float | None
    example: Mapping[str, Any]
    account: LedgerComparison | None
    comparison: DerivedTableComparison | None = None
    after_kill: LandingAfterKill | None = None
    letter: Mapping[str, Any] | None = None

    @property
    def is_wrong(self) -> bool:
        """True if a record is lost or doubled, or a row is another one."""
        return any(
            (self.account and self.account.has_lost_or_doubled, self.comparison and self.comparison.is_wrong)
        )


def example_row(table: Table) -> Mapping[str, Any]:
    """Return a row of a table that has some, without the core's own columns."""
    (row,) = table.scan(limit=1).to_arrow().slice(0, 1).to_pylist()
    return {name: value for name, value in row.items() if not name.startswith("_")}


def example_dead_letter(table: Table) -> Mapping[str, Any] | None:
    """Return a dead letter of a landing table, of some the one with the most bytes; None where there is none."""
    columns = ("_id", "_stage", "_error", "_bytes")
    letters = table.scan(row_filter="_error is not null", selected_fields=columns, limit=_LETTERS).to_arrow()
    return max(letters.to_pylist(), key=lambda letter: len(letter["_bytes"] or b""), default=None)


def landing_after_kill(table: Table, recovery_seconds: float, recovered: datetime) -> LandingAfterKill:
    """Measure the age of the records that arrived after a time when their snapshot was committed.

    A batch stamps its rows when it starts to write; the first snapshot after that stamp is its own.
    """
    commits = np.sort(np.array([snapshot.timestamp_ms for snapshot in table.snapshots()], dtype=np.int64))
    rows = table.scan(selected_fields=("_arrived_at", "_landed_at")).to_arrow()
    arrived, stamped = (
        rows[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
        for name in ("_arrived_at", "_landed_at")
    )
    live = arrived > recovered.timestamp() * 1000
    own = np.clip(np.searchsorted(commits, stamped[live], side="left"), 0, len(commits) - 1)
    ages = (commits[own] - arrived[live]) / 1000.0
    p50, p95 = np.percentile(ages, (50, 95)).round(2) if ages.size else (math.nan, math.nan)
    return LandingAfterKill(recovery_seconds, float(p50), float(p95), int(ages.size))
