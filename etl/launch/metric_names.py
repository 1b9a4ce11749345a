"""Metrics that a job reports: one list for the core, alarms, dashboards and the bill; ``docs/metrics.md`` describes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "Millrace"
"""First word of each job's CloudWatch namespace."""

Kind = Literal["total", "level", "spread"]
"""``total`` is summed over batches, ``level`` is the last batch's value, ``spread`` has a value for each record."""

Of = Literal["job", "query", "source", "kafka", "state", "latest", "letters", "rules"]
"""Reporter of a metric: the job, every query, or each query with a source, Kafka, state, latest_by, dead letters or rules."""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name
        Name in CloudWatch.
    unit
        CloudWatch's name for the unit.
    kind
        Aggregation of several batches' values.
    of
        Its reporter; the dimensions are ``job`` and ``query``, or ``job`` alone for a metric of a job.
    """

    name: str
    unit: Literal["Seconds", "Count", "Count/Second", "Bytes"]
    kind: Kind
    of: Of = "query"

    @property
    def is_per_query(self) -> bool:
        """True if the dimensions are ``job`` and ``query``; otherwise ``job`` alone."""
        return self.of != "job"


METRICS = (
    Metric("RecordAge", "Seconds", "spread"),
    Metric("BatchDuration", "Seconds", "level"),
    Metric("LatestOffsetDuration", "Seconds", "level"),
    Metric("GetBatchDuration", "Seconds", "level"),
    Metric("QueryPlanningDuration", "Seconds", "level"),
    Metric("WalCommitDuration", "Seconds", "level"),
    Metric("AddBatchDuration", "Seconds", "level"),
    Metric("CommitOffsetsDuration", "Seconds", "level"),
    Metric("Triggers", "Count", "total"),
    Metric("InputRows", "Count", "total"),
    Metric("InputRowsPerSecond", "Count/Second", "level"),
    Metric("ProcessedRowsPerSecond", "Count/Second", "level"),
    Metric("WrittenRecords", "Count", "total"),
    Metric("DuplicateRecords", "Count", "total"),
    Metric("BadRecords", "Count", "total", "letters"),
    Metric("BrokenRules", "Count", "total", "rules"),
    Metric("FilteredRecords", "Count", "level"),  # negative where a transform adds rows
    Metric("BacklogRecords", "Count", "level", "kafka"),
    Metric("BacklogSeconds", "Seconds", "level"),
    Metric("DrainTime", "Seconds", "level", "kafka"),
    Metric("LimitedBatches", "Count", "total", "source"),
    Metric("LimitedInARow", "Count", "level", "source"),
    Metric("RetriedTasks", "Count", "total"),
    Metric("WatermarkDelay", "Seconds", "level", "state"),
    Metric("StateRows", "Count", "level", "state"),
    Metric("StateMemory", "Bytes", "level", "state"),
    Metric("LateRows", "Count", "total", "state"),
    Metric("EarlyRows", "Count", "total", "state"),
    Metric("RepeatedRows", "Count", "total", "state"),
    Metric("UnorderedKeys", "Count", "total", "latest"),
    Metric("QueryFailures", "Count", "total"),
    Metric("QueryRetries", "Count", "total"),
    Metric("DroppedSamples", "Count", "total", "job"),
    Metric("Starts", "Count", "total", "job"),
)

BY_NAME = {metric.name: metric for metric in METRICS}
