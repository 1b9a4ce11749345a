"""What CloudWatch tells of a stream, as data: metrics, panels of a dashboard, alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Statistic = Literal["Maximum", "Sum"]


@dataclass(frozen=True)
class StreamPanel:
    """A panel of a stream.

    Attributes
    ----------
    unit
        As Grafana names it.
    series
        Label, metric and statistic of each line.
    alarm
        Whose threshold is drawn.
    """

    title: str
    unit: str
    series: tuple[tuple[str, str, Statistic], ...]
    alarm: str | None = None


@dataclass(frozen=True)
class StreamMetrics:
    """Metrics of a kind of stream.

    Attributes
    ----------
    namespace, dimension
        Of CloudWatch; the dimension's value is the stream's own name.
    age
        The metric that tells how old, in ms, the records are that its readers get.
    panels
        Of a dashboard.
    """

    namespace: str
    dimension: str
    age: str
    panels: tuple[StreamPanel, ...]


@dataclass(frozen=True)
class StreamReader:
    """A query that lands a stream: its share of the SLA and its trigger in seconds."""

    job: str
    query: str
    latency: float
    trigger: float
    fans_out: bool


@dataclass(frozen=True)
class StreamAlarm:
    """An alarm of a stream.

    Attributes
    ----------
    periods
        That are beyond the threshold.
    trigger
        Of the readers whose calls make its data, in seconds; None where each minute has some.
    """

    name: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: Statistic
    threshold: float
    periods: int
    trigger: float | None
    why: str


LATE_PERIODS = 3
"""In which records are late, before somebody is told."""
