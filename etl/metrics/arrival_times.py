"""Arrival times of a batch's records: observed in the batch's own action, read from Spark's progress.

The summary is Spark's quantile sketch (``percentile_approx``, after Greenwald and Khanna), which
Spark merges over the tasks of a batch; CloudWatch merges batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .percentile_sketch import PercentileSketch

NAME = "millrace_arrivals"
"""Name of the observed figures in a progress event."""

COLUMN = "_arrived_at"

ACCURACY = 1000
"""Error of ranks: at most one thousandth."""

_TAIL, _BODY = 5, 19
SHARES = (0.01,) * _TAIL + (0.05,) * _BODY
"""Share of the records that each point represents, from the oldest: fine near p95 and p99 of the age."""

RANKS = tuple(round(sum(SHARES[:i]) + SHARES[i] / 2, 4) for i in range(len(SHARES)))
"""Ranks of the points in the order of arrival: each in the middle of its share."""


@dataclass(frozen=True)
class ArrivalTimes:
    """Arrival times of a batch's records, in milliseconds since 1970.

    Attributes
    ----------
    points
        Arrival times at :data:`RANKS`.
    """

    rows: int
    oldest: int
    youngest: int
    points: tuple[int, ...]

    @classmethod
    def from_observed_metrics(cls, observed: Mapping[str, Any]) -> ArrivalTimes | None:
        """Read a progress event's ``observedMetrics``; None if nothing was observed or no record has a time."""
        row = observed.get(NAME)
        if not row or row.get("oldest") is None:
            return None
        return cls(int(row["rows"]), int(row["oldest"]), int(row["youngest"]), tuple(map(int, row["points"])))

    def age_sketch(self, committed: float) -> PercentileSketch:
        """Return the ages, in seconds from arrival to a commit.

        A producer's or broker's clock may be ahead of the job's; no age is negative.

        Parameters
        ----------
        committed
            Time of the commit, in seconds since 1970.
        """
        oldest, *ages = (max(0.0, committed - at / 1000) for at in (self.oldest, *self.points))
        weighted = ((age, share * self.rows) for age, share in zip(ages, SHARES, strict=True))
        return PercentileSketch(tuple(sorted(weighted)), oldest)


def observe_arrivals(rows: DataFrame) -> DataFrame:
    """Observe the arrival times of the rows, if they have any; the rows do not change.

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
