"""CloudWatch metrics of a stream as data: metrics, dashboard panels, alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Statistic = Literal["Maximum", "Sum"]


@dataclass(frozen=True)
class StreamPanel:
    """A dashboard panel of a stream.

    Attributes
    ----------
    unit
        Unit with Grafana's name.
    series
        Label, metric and statistic of each line.
    alarm
        Alarm whose threshold is drawn.
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
        Names in CloudWatch; the dimension's value is the stream's own name.
    age
        Metric of the age, in ms, of the records that its readers get.
    panels
        Panels of a dashboard.
    """

    namespace: str
    dimension: str
    age: str
    panels: tuple[StreamPanel, ...]


@dataclass(frozen=True)
class StreamReaderTiming:
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
        Number of periods beyond the threshold.
    trigger
        Trigger in seconds of the readers whose calls produce its data; None if each minute has data.
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
"""Number of periods with late records before an alarm."""
