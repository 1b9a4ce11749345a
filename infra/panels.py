"""Sections of the dashboards, with charts from the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millrace.config.model import MskCluster
from millrace.config.names import Names
from millrace.config.sources.metrics import StreamMetrics
from millrace.sizing.alarms import BATCH_SHARE
from millrace.sizing.metrics import BY_NAME, namespace, reporters
from millrace.sizing.model import JobPlan, Plan

_PARTS = {
    "LatestOffsetDuration": "latestOffset",
    "GetBatchDuration": "getBatch",
    "QueryPlanningDuration": "queryPlanning",
    "WalCommitDuration": "walCommit",
    "AddBatchDuration": "addBatch",
    "CommitOffsetsDuration": "commitOffsets",
}
"""Metric to the name that Spark's Structured Streaming tab has for it."""


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
    """A level of a chart: the threshold of an alarm, or a value of the plan."""

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
    """Return the sections of every job, stream and cluster.

    Parameters
    ----------
    plan
        Its triggers and latencies are drawn as limits.
    """
    return (
        *(Section(f"Job {job.name}", tuple(_job(names, job))) for job in plan.jobs.values()),
        *(
            Section(f"Stream {name}", tuple(_stream(names, name, stream.metrics, plan)))
            for name, stream in names.environment.streams.items()
            if stream.metrics is not None and stream.other_role is None
        ),
        *(
            Section(f"Kafka cluster {name}", tuple(_cluster(names, name)))
            for name, cluster in names.environment.kafka.items()
            if isinstance(cluster, MskCluster)
        ),
    )


def _job(names: Names, job: JobPlan) -> Iterator[Panel]:
    queries = list(job.queries.values())

    def ours(metric: str, statistic: str, label: str = "") -> tuple[Series, ...]:
        dimensions = {"job": names.job(job.name)}
        if not BY_NAME[metric].per_query:
            return (Series(label or job.name, namespace(names.job(job.name)), metric, dimensions, statistic),)
        return tuple(
            Series(
                f"{query} {label}".rstrip(),
                namespace(names.job(job.name)),
                metric,
                dimensions | {"query": query},
                statistic,
            )
            for query in reporters(BY_NAME[metric], names.environment, job.name)
        )

    def panel(title: str, unit: str, *series: Series, limits: tuple[Limit, ...] = ()) -> Iterator[Panel]:
        if series:
            yield Panel(title, unit, series, limits)

    yield Panel(
        "Age of records at commit",
        "s",
        ours("RecordAge", "Maximum"),
        tuple(Limit(f"{q.name} SLA", q.latency_seconds.value) for q in queries),
    )
    yield Panel(
        "Age of records at commit: half, 95 and 99 of 100",
        "s",
        tuple(series for p in ("p50", "p95", "p99") for series in ours("RecordAge", p, p)),
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
    yield Panel(
        "Parts of a batch",
        "s",
        tuple(series for metric, part in _PARTS.items() for series in ours(metric, "Average", part)),
    )
    yield from panel("Backlog in seconds", "s", *ours("BacklogSeconds", "Maximum"))
    yield from panel("Backlog in records", "short", *ours("BacklogRecords", "Maximum"))
    yield from panel("Time until the backlog is gone", "s", *ours("DrainTime", "Maximum"))
    yield from panel(
        "Batches at their limit, and in a row",
        "short",
        *ours("LimitedBatches", "Sum"),
        *ours("LimitedInARow", "Maximum", "in a row"),
    )
    yield Panel("Triggers ended", "short", ours("Triggers", "Sum"))
    yield Panel("Records read", "short", ours("InputRows", "Sum"))
    yield Panel(
        "Records a second: coming in, and while working",
        "short",
        (*ours("InputRowsPerSecond", "Average", "in"), *ours("ProcessedRowsPerSecond", "Average", "working")),
    )
    yield Panel(
        "Rows written, and left out by a transform",
        "short",
        (*ours("WrittenRecords", "Sum"), *ours("FilteredRecords", "Sum", "left out")),
    )
    yield from panel("Dead letters", "short", *ours("BadRecords", "Sum"), limits=(Limit("alarm", 0),))
    yield from panel("Broken data rules", "short", *ours("BrokenRules", "Sum"), limits=(Limit("alarm", 0),))
    yield Panel("Duplicates turned away", "short", ours("DuplicateRecords", "Sum"))
    yield from panel("Behind the watermark", "s", *ours("WatermarkDelay", "Maximum"))
    yield from panel("Rows of state", "short", *ours("StateRows", "Maximum"))
    yield from panel("Memory of state", "bytes", *ours("StateMemory", "Maximum"))
    yield from panel(
        "Rows that came too late, or too far ahead",
        "short",
        *ours("LateRows", "Sum", "late"),
        *ours("EarlyRows", "Sum", "ahead"),
        limits=(Limit("alarm", 0),),
    )
    yield Panel("Tasks run again", "short", ours("RetriedTasks", "Sum"))
    yield Panel(
        "Starts, failures, and samples lost",
        "short",
        (
            *ours("Starts", "Sum", "starts"),
            *ours("QueryFailures", "Sum", "failures"),
            *ours("QueryRetries", "Sum", "started again"),
            *ours("DroppedSamples", "Sum", "samples lost"),
        ),
    )


def _stream(names: Names, name: str, metrics: StreamMetrics, plan: Plan) -> Iterator[Panel]:
    thresholds = {alarm.name: alarm.threshold for alarm in plan.alarms}
    dimensions = {metrics.dimension: names.stream(name)}
    for panel in metrics.panels:
        limit = thresholds.get(f"stream/{name}/{panel.alarm}")
        yield Panel(
            panel.title,
            panel.unit,
            tuple(
                Series(label, metrics.namespace, metric, dimensions, how)
                for label, metric, how in panel.series
            ),
            () if limit is None else (Limit("alarm", limit),),
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
            # MSK has no figures for a pattern of topics.
            if each.cluster_name == name and each.matches is None
        )

    yield Panel("Messages in, a second", "short", topics("MessagesInPerSec"))
    yield Panel("Bytes in, a second", "Bps", topics("BytesInPerSec"))
    yield Panel("Bytes out, a second", "Bps", topics("BytesOutPerSec"))
