"""When the records of a batch arrived: taken inside the batch's own action, read from Spark's progress.

The summary is Spark's own quantile sketch (``percentile_approx``, after Greenwald and Khanna), which
Spark merges over the tasks of a batch; CloudWatch puts batches together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .sketch import Sketch, of_points

NAME = "millrace_arrivals"
"""Of the observed figures in a progress event."""

COLUMN = "_arrived_at"

ACCURACY = 1000
"""Ranks are off by a thousandth at most."""

_TAIL, _BODY = 5, 19
SHARES = (0.01,) * _TAIL + (0.05,) * _BODY
"""Share of the records that each point stands for, from the oldest: fine where p95 and p99 of the age lie."""

RANKS = tuple(round(sum(SHARES[:i]) + SHARES[i] / 2, 4) for i in range(len(SHARES)))
"""Where in the order of arrival the points lie: in the middle of what each stands for."""


@dataclass(frozen=True)
class ArrivalTimes:
    """Arrival times of a batch's records, in milliseconds since 1970.

    Attributes
    ----------
    points
        At :data:`RANKS`.
    """

    rows: int
    oldest: int
    youngest: int
    points: tuple[int, ...]

    @classmethod
    def of(cls, observed: Mapping[str, Any]) -> ArrivalTimes | None:
        """Read a progress event's ``observedMetrics``; None where nothing was observed or nothing has a time."""
        row = observed.get(NAME)
        if not row or row.get("oldest") is None:
            return None
        return cls(int(row["rows"]), int(row["oldest"]), int(row["youngest"]), tuple(map(int, row["points"])))

    def ages(self, committed: float) -> Sketch:
        """Seconds from arrival to a commit.

        A producer's or broker's clock may be ahead of ours; no record is younger than nothing.

        Parameters
        ----------
        committed
            Seconds since 1970.
        """
        values = [max(0.0, committed - point / 1000) for point in self.points]
        return of_points(values, SHARES, self.rows, max(0.0, committed - self.oldest / 1000))


def observe_arrivals(rows: DataFrame) -> DataFrame:
    """Observe the arrival of the rows that pass here, where they carry it; the rows stay as they are.

    Parameters
    ----------
    rows
        A streaming DataFrame, before it is written.
    """
    if COLUMN not in rows.columns:
        return rows
    millis = F.expr(f"unix_millis({COLUMN})")
    return rows.observe(
        NAME,
        F.count(millis).alias("rows"),
        F.min(millis).alias("oldest"),
        F.max(millis).alias("youngest"),
        F.percentile_approx(millis, list(RANKS), ACCURACY).alias("points"),
    )
