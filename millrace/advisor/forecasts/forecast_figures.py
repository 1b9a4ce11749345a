"""Figures of forecasts, as ``millrace advise --json`` writes them and ``--score`` reads them."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.advisor.logs.statistics import Estimate
from millrace.config.base import Model

_NOISE = 0.01
"""Share of the arrivals by which a backlog may grow over half a run without being one."""

FIGURES: Mapping[str, str] = {
    "duration": "batch duration, median",
    "slow": "batch duration, p95",
    "age": "record age, median",
    "oldest": "record age, p95",
}
"""Figures that are forecast and scored, all in seconds."""


class QueryForecast(Model):
    """One query's figures, by :data:`FIGURES`, and their conditions.

    Attributes
    ----------
    figures
        Seconds; for a query that does not keep up, those of a run as long as the log, as ages grow with the run.
    trigger, limit, partitions, arriving
        Seconds, records of a batch, tasks that read, records a second.
    waiting
        Records that wait at the end of such a run.
    grows
        Records a second by which the backlog at batches' starts grows in the second half, without the records that arrived in
        the usual time between two batches; below zero it falls.
    ended
        Whether any batch ended in the simulated time, which is the log's; without one the figures are that time.
    """

    figures: dict[str, Estimate]
    trigger: float
    limit: float | None
    partitions: int
    arriving: float
    waiting: Estimate
    grows: Estimate
    ended: bool

    @property
    def keeps_up(self) -> bool:
        """True unless the complete interval of the backlog's growth is above a hundredth of the arrivals; less is chance."""
        return self.ended and self.grows.low <= _NOISE * self.arriving

    @property
    def falls(self) -> bool:
        """True if the complete interval of the backlog's growth is as far below zero."""
        return self.grows.high < -_NOISE * self.arriving

    def grows_faster_than(self, other: QueryForecast) -> bool:
        """Return whether the backlog grows faster than with the other forecast, beyond both intervals."""
        return not self.keeps_up and (other.keeps_up or self.grows.low > other.grows.high)

    def is_older_than(self, other: QueryForecast) -> bool:
        """Return whether the oldest records (p95) are older than with the other forecast, beyond both intervals."""
        return self.figures["oldest"].low > other.figures["oldest"].high


class Forecast(Model):
    """Forecast for one change, or for none.

    Attributes
    ----------
    changes
        As on the command line; empty for the job as it ran.
    cores, workers, dollars_month
        Of the job with the change.
    queries
        By name.
    """

    changes: tuple[str, ...]
    cores: int
    workers: int
    dollars_month: float | None
    queries: dict[str, QueryForecast]

    def __str__(self) -> str:
        return " ".join(self.changes) or "as it ran"
