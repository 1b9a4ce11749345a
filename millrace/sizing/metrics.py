"""The metrics of a running job, in one list for the core, the alarms, the dashboards and docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass

NAMESPACE = "Millrace"
"""CloudWatch namespace of all metrics of ours."""


@dataclass(frozen=True)
class Metric:
    """One metric that the core reports.

    Attributes
    ----------
    name
        In CloudWatch.
    unit
        CloudWatch's own word: ``Seconds``, ``Count``, ``Count/Second``.
    meaning
        One line.
    per_query
        With the dimensions ``job`` and ``query``; otherwise ``job`` alone.
    """

    name: str
    unit: str
    meaning: str
    per_query: bool = True


METRICS = (
    Metric("RecordAge", "Seconds", "commit of a batch minus the arrival of its oldest record"),
    Metric("BatchDuration", "Seconds", "a batch from its start to its commit"),
    Metric("Triggers", "Count", "1 each time a trigger ended, also when there was nothing to read"),
    Metric("InputRows", "Count", "records read by a batch"),
    Metric("ProcessedRowsPerSecond", "Count/Second", "records of a batch divided by its duration"),
    Metric("BadRecords", "Count", "dead letters that a batch landed"),
    Metric("DuplicateRecords", "Count", "records of a batch that were there already"),
    Metric("LimitedBatches", "Count", "1 for a batch that took all its limit allows: a backlog may hide"),
    Metric("RetriedTasks", "Count", "tasks of a batch that failed and were run again"),
    Metric("QueryFailures", "Count", "1 when a query ends with an error"),
    Metric("Starts", "Count", "1 each time the entry script begins", per_query=False),
)

BY_NAME = {metric.name: metric for metric in METRICS}
