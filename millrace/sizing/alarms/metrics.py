"""Metrics of a running job: one list for alarms, dashboards, the bill and docs/metrics.md.

The core has the same names in ``etl.metrics.metric_names``; it imports nothing of ours, and a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, Query, SourceQueryBase


def metric_namespace(job: str) -> str:
    """Return the CloudWatch namespace of a job's metrics; its role may write in no other, because alarms depend on them.

    Parameters
    ----------
    job
        Deployed name.

    Examples
    --------
    >>> metric_namespace("flights-prod-departures")
    'Millrace/flights-prod-departures'
    """
    return f"Millrace/{job}"


Of = Literal["job", "query", "source", "kafka", "state", "latest", "letters", "rules"]
"""Reporter of a metric: the job, every query, or each query with a source, Kafka, state, latest_by, dead letters or rules."""


@dataclass(frozen=True)
class Metric:
    """One metric that the core reports.

    Attributes
    ----------
    name
        Name in CloudWatch.
    unit
        CloudWatch's name of the unit: ``Seconds``, ``Count``, ``Count/Second``, ``Bytes``.
    meaning
        One line.
    of
        Its reporter; the dimensions are ``job`` and ``query``, or ``job`` alone for a metric of a job.
    """

    name: str
    unit: str
    meaning: str
    of: Of = "query"

    @property
    def per_query(self) -> bool:
        """True if the dimensions are ``job`` and ``query``; otherwise ``job`` alone."""
        return self.of != "job"


METRICS = (
    Metric(
        "RecordAge",
        "Seconds",
        "commit of a batch minus the arrival of its records; the maximum is the oldest",
    ),
    Metric("BatchDuration", "Seconds", "a batch from its start to its commit"),
    Metric("LatestOffsetDuration", "Seconds", "the part of it that asks the source for its end"),
    Metric("GetBatchDuration", "Seconds", "the part that makes a DataFrame of the offsets"),
    Metric("QueryPlanningDuration", "Seconds", "the part that plans"),
    Metric("WalCommitDuration", "Seconds", "the part that writes the offsets to the checkpoint"),
    Metric("AddBatchDuration", "Seconds", "the part that reads, decodes and writes"),
    Metric("CommitOffsetsDuration", "Seconds", "the part that writes the commit to the checkpoint"),
    Metric(
        "Triggers",
        "Count",
        "1 each time a trigger ended, also when there was nothing to read; 0 when a query begins",
    ),
    Metric("InputRows", "Count", "records read by a batch"),
    Metric(
        "InputRowsPerSecond", "Count/Second", "records of a batch divided by the time since the one before"
    ),
    Metric("ProcessedRowsPerSecond", "Count/Second", "records of a batch divided by its duration"),
    Metric("WrittenRecords", "Count", "rows that a batch added to its table"),
    Metric("DuplicateRecords", "Count", "records of a batch that were there already"),
    Metric("BadRecords", "Count", "dead letters of a batch", "letters"),
    Metric("BrokenRules", "Count", "times that a record of a batch broke a data rule", "rules"),
    Metric("FilteredRecords", "Count", "records that a transform left out; negative where it adds some"),
    Metric(
        "BacklogRecords",
        "Count",
        "records that waited in the topic when a batch had taken its share",
        "kafka",
    ),
    Metric(
        "BacklogSeconds",
        "Seconds",
        "how long ago the youngest record of a batch arrived at its start; 0 without backlog",
    ),
    Metric(
        "DrainTime",
        "Seconds",
        "backlog divided by what is processed beyond what arrives; none while it grows",
        "kafka",
    ),
    Metric(
        "LimitedBatches",
        "Count",
        "1 for a batch that took all its limit allows: a backlog may hide",
        "source",
    ),
    Metric("LimitedInARow", "Count", "such batches one after the other, up to this one", "source"),
    Metric("RetriedTasks", "Count", "tasks of a batch that failed and were run again"),
    Metric(
        "WatermarkDelay",
        "Seconds",
        "start of a trigger minus the watermark; negative where it is ahead",
        "state",
    ),
    Metric("StateRows", "Count", "rows in the state store", "state"),
    Metric("StateMemory", "Bytes", "memory of the state store", "state"),
    Metric("LateRows", "Count", "rows that came behind the watermark and were dropped", "state"),
    Metric("EarlyRows", "Count", "records too far ahead of their arrival, kept from the watermark", "state"),
    Metric("RepeatedRows", "Count", "rows that state.distinct left out as repetitions", "state"),
    Metric(
        "UnorderedKeys",
        "Count",
        "keys of latest_by whose records came from several partitions, in one batch or one after the other, without order",
        "latest",
    ),
    Metric("QueryFailures", "Count", "1 when a query ends with an error"),
    Metric("QueryRetries", "Count", "1 each time a query that failed is started again, alone"),
    Metric(
        "DroppedSamples", "Count", "samples that an output was too slow to take, or could not write", "job"
    ),
    Metric("Starts", "Count", "1 each time the entry script begins", "job"),
)

BY_NAME = {metric.name: metric for metric in METRICS}


def reporting_queries(metric: Metric, environment: Environment, job: str) -> tuple[str, ...]:
    """Return the queries of a job that report a metric; none for a metric of the job itself.

    Parameters
    ----------
    metric
        One of :data:`METRICS`.
    job
        Name of a job in the environment.
    """
    return tuple(
        name
        for name, query in environment.jobs[job].queries.items()
        if _reports_metric(metric.of, environment, query)
    )


def metric_count(environment: Environment) -> int:
    """Return the number of metrics that an environment sends; each combination of name and dimensions counts as one."""
    kinds = Counter(metric.of if metric.per_query else "job" for metric in METRICS)
    return len(environment.jobs) * kinds.pop("job") + sum(
        number * _reports_metric(of, environment, query)
        for *_, query in environment.queries
        for of, number in kinds.items()
    )


def _reports_metric(kinds: str, environment: Environment, query: Query) -> bool:
    if kinds == "rules":
        return any(
            each.all_rules(environment.value_locations.root)
            for each in query.stream_readings_by_place.values()
        )
    reads = isinstance(query, SourceQueryBase)
    return {
        "job": False,
        "query": True,
        "source": reads,
        "kafka": isinstance(query, SourceQueryBase)
        and all(environment.streams[name].counted for name in query.source_stream_names),
        "letters": reads or (isinstance(query, DeriveQuery) and query.dead_letters is not None),
        "state": isinstance(query, DeriveQuery) and query.state is not None,
        "latest": isinstance(query, DeriveQuery) and query.latest_by is not None,
    }[kinds]
