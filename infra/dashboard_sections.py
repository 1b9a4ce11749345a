"""Sections of the dashboards, with charts from the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millrace.config.aws.resource_names import Names
from millrace.config.model import MskCluster
from millrace.config.sources.stream_metrics import StreamMetrics
from millrace.etl.launch.metric_names import BY_NAME
from millrace.sizing.alarms.alarms import BATCH_SHARE
from millrace.sizing.alarms.reported_metrics import metric_namespace, reporting_queries
from millrace.sizing.plan_model import JobPlan, Plan

_PARTS = {
    "LatestOffsetDuration": "latestOffset",
    "GetBatchDuration": "getBatch",
    "QueryPlanningDuration": "queryPlanning",
    "WalCommitDuration": "walCommit",
    "AddBatchDuration": "addBatch",
    "CommitOffsetsDuration": "commitOffsets",
}
"""Metric to the name that Spark's Structured Streaming tab has for it."""


_JOB_PANELS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...], str], ...] = (
    ("Age of records at commit", "s", (("RecordAge", "Maximum", ""),), "SLA"),
    (
        "Age of records at commit: half, 95 and 99 of 100",
        "s",
        tuple(("RecordAge", share, share) for share in ("p50", "p95", "p99")),
        "",
    ),
    ("Batch duration", "s", (("BatchDuration", "Average", ""),), "trigger"),
    ("Parts of a batch", "s", tuple((metric, "Average", part) for metric, part in _PARTS.items()), ""),
    ("Backlog in seconds", "s", (("BacklogSeconds", "Maximum", ""),), ""),
    ("Backlog in records", "short", (("BacklogRecords", "Maximum", ""),), ""),
    ("Time until the backlog is gone", "s", (("DrainTime", "Maximum", ""),), ""),
    (
        "Batches at their limit, and in a row",
        "short",
        (("LimitedBatches", "Sum", ""), ("LimitedInARow", "Maximum", "in a row")),
        "",
    ),
    ("Triggers ended", "short", (("Triggers", "Sum", ""),), ""),
    ("Records read", "short", (("InputRows", "Sum", ""),), ""),
    (
        "Records a second: coming in, and while working",
        "short",
        (("InputRowsPerSecond", "Average", "in"), ("ProcessedRowsPerSecond", "Average", "working")),
        "",
    ),
    (
        "Rows written, and left out by a transform",
        "short",
        (("WrittenRecords", "Sum", ""), ("FilteredRecords", "Sum", "left out")),
        "",
    ),
    ("Dead letters", "short", (("BadRecords", "Sum", ""),), "alarm"),
    ("Broken data rules", "short", (("BrokenRules", "Sum", ""),), "alarm"),
    ("Duplicates turned away", "short", (("DuplicateRecords", "Sum", ""),), ""),
    ("Behind the watermark", "s", (("WatermarkDelay", "Maximum", ""),), ""),
    ("Rows of state", "short", (("StateRows", "Maximum", ""),), ""),
    ("Memory of state", "bytes", (("StateMemory", "Maximum", ""),), ""),
    (
        "Rows that came too late, or too far ahead",
        "short",
        (("LateRows", "Sum", "late"), ("EarlyRows", "Sum", "ahead")),
        "alarm",
    ),
    ("Keys without an order", "short", (("UnorderedKeys", "Sum", ""),), "alarm"),
    ("Rows left out as repetitions", "short", (("RepeatedRows", "Sum", ""),), ""),
    ("Tasks run again", "short", (("RetriedTasks", "Sum", ""),), ""),
    (
        "Starts, failures, and samples lost",
        "short",
        (
            ("Starts", "Sum", "starts"),
            ("QueryFailures", "Sum", "failures"),
            ("QueryRetries", "Sum", "started again"),
            ("DroppedSamples", "Sum", "samples lost"),
        ),
        "",
    ),
)
"""Charts of a job: title, unit, lines (metric, statistic, label) and limits. One whose metrics no query reports is left out."""


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart.

    Attributes
    ----------
    summed_over
        A further dimension of the metric, over whose values the line is the sum.
    """

    label: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str
    summed_over: str | None = None


@dataclass(frozen=True)
class LimitLine:
    """A level of a chart: the threshold of an alarm, or a value of the plan."""

    label: str
    value: float


@dataclass(frozen=True)
class Panel:
    """One chart: its unit as Grafana names it, its lines and its limits."""

    title: str
    unit: str
    series: tuple[ChartLine, ...]
    limits: tuple[LimitLine, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading, such as ``Job flights``, and its charts."""

    title: str
    panels: tuple[Panel, ...]


def dashboard_sections(names: Names, plan: Plan) -> tuple[Section, ...]:
    """Return the sections of every job, stream and cluster.

    Parameters
    ----------
    plan
        Its triggers and latencies are drawn as limits.
    """
    return (
        *(Section(f"Job {job.name}", tuple(_job_panels(names, job))) for job in plan.jobs.values()),
        *(
            Section(f"Stream {name}", tuple(_stream_panels(names, name, stream.metrics, plan)))
            for name, stream in names.environment.streams.items()
            if stream.metrics is not None and stream.cross_account_role is None
        ),
        *(
            Section(f"Kafka cluster {name}", tuple(_cluster_panels(names, name)))
            for name, cluster in names.environment.kafka.items()
            if isinstance(cluster, MskCluster)
        ),
    )


def _job_panels(names: Names, job: JobPlan) -> Iterator[Panel]:
    queries = list(job.queries.values())
    limits = {
        "": (),
        "SLA": tuple(LimitLine(f"{q.name} SLA", q.latency_seconds.value) for q in queries),
        "trigger": tuple(
            LimitLine(
                f"{BATCH_SHARE:.0%} of {q.name}'s trigger", round(BATCH_SHARE * q.trigger_seconds.value, 3)
            )
            for q in queries
        ),
        "alarm": (LimitLine("alarm", 0),),
    }
    for title, unit, lines, limit in _JOB_PANELS:
        series = tuple(each for line in lines for each in _chart_lines_of_metric(names, job, *line))
        if series:
            yield Panel(title, unit, series, limits[limit])


def _chart_lines_of_metric(
    names: Names, job: JobPlan, metric: str, statistic: str, label: str
) -> Iterator[ChartLine]:
    """Yield the lines of a metric: one for each query that reports it, or one for the job."""
    dimensions = {"job": names.job(job.name)}
    space = metric_namespace(names.job(job.name))
    if not BY_NAME[metric].is_per_query:
        yield ChartLine(label or job.name, space, metric, dimensions, statistic)
    for query in reporting_queries(BY_NAME[metric], names.environment, job.name):
        yield ChartLine(f"{query} {label}".rstrip(), space, metric, dimensions | {"query": query}, statistic)


def _stream_panels(names: Names, name: str, metrics: StreamMetrics, plan: Plan) -> Iterator[Panel]:
    thresholds = {alarm.name: alarm.threshold for alarm in plan.alarms}
    dimensions = {metrics.dimension: names.stream(name)}
    for panel in metrics.panels:
        limit = thresholds.get(f"stream/{name}/{panel.alarm}")
        yield Panel(
            panel.title,
            panel.unit,
            tuple(
                ChartLine(label, metrics.namespace, metric, dimensions, how)
                for label, metric, how in panel.series
            ),
            () if limit is None else (LimitLine("alarm", limit),),
        )


def _cluster_panels(names: Names, name: str) -> Iterator[Panel]:
    topics = [
        stream
        for stream, each in names.environment.streams.items()
        # MSK has no figures for a pattern of topics.
        if each.cluster_name == name and each.topic_pattern is None
    ]
    cluster = names.environment.kafka[name]
    serverless = isinstance(cluster, MskCluster) and cluster.tier == "serverless"
    for title, unit, metric in (
        ("Messages in, a second", "short", "MessagesInPerSec"),
        ("Bytes in, a second", "Bps", "BytesInPerSec"),
        ("Bytes out, a second", "Bps", "BytesOutPerSec"),
    ):
        series = (
            ChartLine(
                stream,
                "AWS/Kafka",
                metric,
                {"Cluster Name": names.cluster(name), "Topic": names.stream(stream)},
                "Average",
                # Brokers report each topic by themselves (MSK developer guide, "Metrics for monitoring" of Standard and
                # of Express brokers).
                None if serverless else "Broker ID",
            )
            for stream in topics
        )
        yield Panel(title, unit, tuple(series))
