"""Names of the metrics that a job reports; ``docs/metrics.md`` describes each, and a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "Millrace"
"""First word of each job's CloudWatch namespace."""

Kind = Literal["total", "level", "spread"]
"""``total`` is summed over batches, ``level`` is the last batch's value, ``spread`` has a value for each record."""


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
    per_query
        True for the dimensions ``job`` and ``query``; false for ``job`` alone.
    """

    name: str
    unit: Literal["Seconds", "Count", "Count/Second", "Bytes"]
    kind: Kind
    per_query: bool = True


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
    Metric("BadRecords", "Count", "total"),
    Metric("BrokenRules", "Count", "total"),
    Metric("FilteredRecords", "Count", "level"),  # negative where a transform adds rows
    Metric("BacklogRecords", "Count", "level"),
    Metric("BacklogSeconds", "Seconds", "level"),
    Metric("DrainTime", "Seconds", "level"),
    Metric("LimitedBatches", "Count", "total"),
    Metric("LimitedInARow", "Count", "level"),
    Metric("RetriedTasks", "Count", "total"),
    Metric("WatermarkDelay", "Seconds", "level"),
    Metric("StateRows", "Count", "level"),
    Metric("StateMemory", "Bytes", "level"),
    Metric("LateRows", "Count", "total"),
    Metric("EarlyRows", "Count", "total"),
    Metric("RepeatedRows", "Count", "total"),
    Metric("UnorderedKeys", "Count", "total"),
    Metric("QueryFailures", "Count", "total"),
    Metric("QueryRetries", "Count", "total"),
    Metric("DroppedSamples", "Count", "total", per_query=False),
    Metric("Starts", "Count", "total", per_query=False),
)

BY_NAME = {metric.name: metric for metric in METRICS}
