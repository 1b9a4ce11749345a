"""What the dashboards show, once for CloudWatch and once for Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.config.model import KinesisStream, MskCluster
from millrace.config.names import Names
from millrace.sizing.alarms import BATCH_SHARE
from millrace.sizing.metrics import BY_NAME, NAMESPACE
from millrace.sizing.model import JobPlan, Plan

_PERIOD = 60
_WIDTH, _HEIGHT, _COLUMNS = 8, 6, 3


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str


@dataclass(frozen=True)
class Limit:
    """A level of a chart at which an alarm goes off, or which the plan has set."""

    label: str
    value: float


@dataclass(frozen=True)
class Panel:
    """One chart: its unit as Grafana names it, its lines and its limits."""

    title: str
    unit: str
    series: tuple[Series, ...]
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading, such as ``Job flights``, and its charts."""

    title: str
    panels: tuple[Panel, ...]


def sections(names: Names, plan: Plan) -> tuple[Section, ...]:
    """Return what there is to see of every job, stream and cluster.

    Parameters
    ----------
    names
        The deployed names.
    plan
        Its triggers and latencies are drawn as limits.
    """
    return (
        *(Section(f"Job {job.name}", tuple(_job(names, job))) for job in plan.jobs.values()),
        *(
            Section(f"Stream {name}", tuple(_stream(names, name, plan)))
            for name, stream in names.environment.streams.items()
            if isinstance(stream, KinesisStream) and stream.read_role is None
        ),
        *(
            Section(f"Kafka cluster {name}", tuple(_cluster(names, name)))
            for name, cluster in names.environment.kafka.items()
            if isinstance(cluster, MskCluster)
        ),
    )


def _job(names: Names, job: JobPlan) -> Iterator[Panel]:
    queries = list(job.queries.values())

    def ours(metric: str, statistic: str) -> tuple[Series, ...]:
        if not BY_NAME[metric].per_query:
            return (Series(job.name, NAMESPACE, metric, {"job": names.job(job.name)}, statistic),)
        return tuple(
            Series(q.name, NAMESPACE, metric, {"job": names.job(job.name), "query": q.name}, statistic)
            for q in queries
        )

    yield Panel(
        "Age of records at commit",
        "s",
        ours("RecordAge", "Maximum"),
        tuple(Limit(f"{q.name} SLA", q.latency_seconds.value) for q in queries),
    )
    yield Panel(
        "Batch duration",
        "s",
        ours("BatchDuration", "Average"),
        tuple(
            Limit(f"{BATCH_SHARE:.0%} of {q.name}'s trigger", round(BATCH_SHARE * q.trigger_seconds.value, 3))
            for q in queries
        ),
    )
    yield Panel("Triggers ended", "short", ours("Triggers", "Sum"))
    yield Panel("Records read", "short", ours("InputRows", "Sum"))
    yield Panel("Records a second while working", "short", ours("ProcessedRowsPerSecond", "Average"))
    yield Panel("Dead letters", "short", ours("BadRecords", "Sum"), (Limit("alarm", 0),))
    yield Panel("Duplicates turned away", "short", ours("DuplicateRecords", "Sum"))
    yield Panel("Batches at their limit", "short", ours("LimitedBatches", "Sum"))
    yield Panel("Tasks run again", "short", ours("RetriedTasks", "Sum"))
    yield Panel("Starts and failures", "short", (*ours("Starts", "Sum"), *ours("QueryFailures", "Sum")))


def _stream(names: Names, name: str, plan: Plan) -> Iterator[Panel]:
    def kinesis(label: str, metric: str, statistic: str) -> Series:
        return Series(label, "AWS/Kinesis", metric, {"StreamName": names.stream(name)}, statistic)

    age = next((a for a in plan.alarms if a.name == f"stream/{name}/iterator-age"), None)
    yield Panel(
        "Behind the newest record",
        "ms",
        (kinesis("iterator age", "GetRecords.IteratorAgeMilliseconds", "Maximum"),),
        () if age is None else (Limit("alarm", age.threshold),),
    )
    yield Panel(
        "Records",
        "short",
        (kinesis("in", "IncomingRecords", "Sum"), kinesis("out", "GetRecords.Records", "Sum")),
    )
    yield Panel(
        "Turned away",
        "short",
        (
            kinesis("writes", "WriteProvisionedThroughputExceeded", "Sum"),
            kinesis("reads", "ReadProvisionedThroughputExceeded", "Sum"),
        ),
    )


def _cluster(names: Names, name: str) -> Iterator[Panel]:
    def topics(metric: str) -> tuple[Series, ...]:
        return tuple(
            Series(
                stream,
                "AWS/Kafka",
                metric,
                {"Cluster Name": names.cluster(name), "Topic": names.stream(stream)},
                "Sum",
            )
            for stream, each in names.environment.streams.items()
            if each.kind == "kafka" and each.cluster == name
        )

    yield Panel("Messages in, a second", "short", topics("MessagesInPerSec"))
    yield Panel("Bytes in, a second", "Bps", topics("BytesInPerSec"))
    yield Panel("Bytes out, a second", "Bps", topics("BytesOutPerSec"))


def cloudwatch_body(shown: tuple[Section, ...], region: str, alarm_arns: tuple[str, ...]) -> dict[str, Any]:
    """Write the sections as the body of a CloudWatch dashboard.

    Parameters
    ----------
    shown
        From :func:`sections`.
    region
        Where the metrics are.
    alarm_arns
        Alarms whose states stand at the top.
    """
    widgets: list[dict[str, Any]] = [
        {
            "type": "alarm",
            "x": 0,
            "y": 0,
            "width": _WIDTH * _COLUMNS,
            "height": _HEIGHT,
            # 100 alarms are all that one widget shows.
            "properties": {
                "title": "Alarms",
                "alarms": list(alarm_arns[:100]),
                "sortBy": "stateUpdatedTimestamp",
            },
        }
    ]
    top = _HEIGHT
    for section in shown:
        widgets.append(
            {
                "type": "text",
                "x": 0,
                "y": top,
                "width": _WIDTH * _COLUMNS,
                "height": 1,
                "properties": {"markdown": f"## {section.title}"},
            }
        )
        top += 1
        for number, panel in enumerate(section.panels):
            widgets.append(
                {
                    "type": "metric",
                    "x": number % _COLUMNS * _WIDTH,
                    "y": top + number // _COLUMNS * _HEIGHT,
                    "width": _WIDTH,
                    "height": _HEIGHT,
                    "properties": {
                        "title": panel.title,
                        "region": region,
                        "view": "timeSeries",
                        "period": _PERIOD,
                        "metrics": [_cloudwatch_series(series) for series in panel.series],
                        "annotations": {
                            "horizontal": [
                                {"label": each.label, "value": each.value} for each in panel.limits
                            ]
                        },
                        "yAxis": {"left": {"min": 0}},
                    },
                }
            )
        top += -(-len(section.panels) // _COLUMNS) * _HEIGHT
    return {"widgets": widgets}


def _cloudwatch_series(series: Series) -> list[Any]:
    dimensions = [part for pair in series.dimensions.items() for part in pair]
    return [
        series.namespace,
        series.metric,
        *dimensions,
        {"label": series.label, "stat": series.statistic},
    ]


def grafana(shown: tuple[Section, ...], *, title: str, uid: str, region: str) -> dict[str, Any]:
    """Write the sections as a Grafana dashboard over a CloudWatch data source.

    Parameters
    ----------
    shown
        From :func:`sections`.
    title, uid
        Of the dashboard; an import with the same uid replaces it.
    region
        Where the metrics are.

    Returns
    -------
    dict
        JSON model of Grafana 10 and later (schema 39); the data source is a variable.
    """
    panels: list[dict[str, Any]] = []
    top = 0
    for section in shown:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": section.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1},
            }
        )
        top += 1
        for number, panel in enumerate(section.panels):
            position = {
                "x": number % _COLUMNS * _WIDTH,
                "y": top + number // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            }
            panels.append(_grafana_panel(panel, len(panels) + 1, position, region))
        top += -(-len(section.panels) // _COLUMNS) * _HEIGHT
    source = {
        "name": "cloudwatch",
        "label": "CloudWatch",
        "type": "datasource",
        "query": "cloudwatch",
        "current": {},
        "hide": 0,
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["millrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source]},
        "panels": panels,
    }


def _grafana_panel(panel: Panel, number: int, position: dict[str, int], region: str) -> dict[str, Any]:
    source = {"type": "cloudwatch", "uid": "${cloudwatch}"}
    levels = sorted({limit.value for limit in panel.limits})
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": "; ".join(f"{limit.label}: {limit.value:g}" for limit in panel.limits),
        "datasource": source,
        "gridPos": position,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"thresholdsStyle": {"mode": "line" if levels else "off"}},
                "thresholds": {
                    "mode": "absolute",
                    "steps": [
                        {"color": "green", "value": None},
                        *({"color": "red", "value": level} for level in levels),
                    ],
                },
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": f"Q{index}",
                "datasource": source,
                "queryMode": "Metrics",
                "metricQueryType": 0,
                "metricEditorMode": 0,
                "namespace": series.namespace,
                "metricName": series.metric,
                "dimensions": dict(series.dimensions),
                "matchExact": True,
                "statistic": series.statistic,
                "period": str(_PERIOD),
                "region": region,
                "label": series.label,
            }
            for index, series in enumerate(panel.series)
        ],
    }


def to_text(document: dict[str, Any]) -> str:
    """Write a dashboard as a file, the same bytes for the same content."""
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
