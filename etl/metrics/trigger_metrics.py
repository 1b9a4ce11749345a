"""Metrics of a trigger from Spark's progress and the batch's accounts; no Spark is needed here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from .arrival_times import ArrivalTimes
from .percentile_sketch import PercentileSketch

PARTS = MappingProxyType(
    {
        "latestOffset": "LatestOffsetDuration",
        # Name in Spark's older source API, which Glue's and the sandbox's Kinesis connectors implement.
        "getOffset": "LatestOffsetDuration",
        "getBatch": "GetBatchDuration",
        "queryPlanning": "QueryPlanningDuration",
        "walCommit": "WalCommitDuration",
        "addBatch": "AddBatchDuration",
        "commitOffsets": "CommitOffsetsDuration",
    }
)
"""Metrics by Spark's names in ``StreamingQueryProgress.durationMs``."""


EARLY = "millrace_early"
"""Name prefix of observed figures; their ``rows`` are records too far ahead of their arrival for a watermark."""


@dataclass(frozen=True)
class BacklogInputs:
    """Facts about the sources of a query that its backlog metrics need.

    Attributes
    ----------
    counted
        True if its offsets are numbers by topic and partition, which show a reached limit directly.
    limit
        Most records of a shard in a batch, if the query reads a single stream.
    """

    counted: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class MetricSample:
    """Metrics at one time.

    Attributes
    ----------
    at
        Seconds since 1970.
    query
        None for metrics of the complete job.
    batch
        Spark's id; None where no batch ran.
    values
        Value by metric.
    ages
        Ages of the batch's records at their commit, in seconds.
    """

    at: float
    query: str | None
    values: Mapping[str, float]
    batch: int | None = None
    ages: PercentileSketch | None = None


@dataclass
class TriggerMeter:
    """Meter for the triggers of one query, in their order.

    Parameters
    ----------
    origin
        Properties of its sources.
    """

    query: str
    origin: BacklogInputs
    _in_a_row: int = field(default=0, init=False)
    _before: tuple[float, int] | None = field(default=None, init=False)

    def measure(
        self, progress: Mapping[str, Any], accounts: Mapping[str, Any] | None, retried: int
    ) -> MetricSample:
        """Measure one trigger.

        Parameters
        ----------
        progress
            A ``StreamingQueryProgress`` of Spark 3.5 to 4, decoded from JSON.
        accounts
            The batch's event (``docs/launch-document.md``); None where no batch ran.
        retried
            Tasks that failed since the trigger before.
        """
        begun = epoch_seconds(progress["timestamp"])
        parts: Mapping[str, float] = progress["durationMs"]
        length = parts.get("triggerExecution", 0) / 1000
        values: dict[str, float] = {"Triggers": 1}
        values |= _backlog_records_metric(self.origin, progress)
        values |= _state_and_watermark_metrics(progress, begun)
        if "addBatch" not in parts:
            return MetricSample(begun + length, self.query, values)
        rows = (
            int(accounts["read"])
            if accounts and "read" in accounts
            else sum(s["numInputRows"] for s in progress["sources"])
        )
        values |= {
            "BatchDuration": length,
            "InputRows": rows,
            "InputRowsPerSecond": sum(_finite_rate(s.get("inputRowsPerSecond")) for s in progress["sources"]),
            "ProcessedRowsPerSecond": rows / length if length else 0.0,
            "RetriedTasks": retried,
        }
        values |= {name: parts[part] / 1000 for part, name in PARTS.items() if part in parts}
        values |= _account_metrics(accounts)
        arrivals = ArrivalTimes.from_observed_metrics(progress.get("observedMetrics") or {}) if rows else None
        values |= self._backlog_metrics(progress, values, arrivals, begun)
        values |= self._batch_limit_metrics(progress, values, rows)
        committed = epoch_seconds(accounts["committed_at"]) if accounts else begun + length
        ages = _record_ages(arrivals, values, accounts, committed)
        return MetricSample(committed, self.query, values, int(progress["batchId"]), ages)

    def _backlog_metrics(
        self,
        progress: Mapping[str, Any],
        values: Mapping[str, float],
        arrivals: ArrivalTimes | None,
        begun: float,
    ) -> dict[str, float]:
        figures: dict[str, float] = {}
        waiting = values.get("BacklogRecords")
        if waiting == 0:
            figures["BacklogSeconds"] = 0.0
        elif arrivals is not None:
            figures["BacklogSeconds"] = max(0.0, begun - arrivals.youngest / 1000)
        if waiting is None:
            return figures
        newest = sum(_offsets_by_partition(progress, "latestOffset").values())
        before, self._before = self._before, (begun, newest)
        if waiting == 0:
            figures["DrainTime"] = 0.0
        elif before is not None and begun > before[0]:
            arriving = max(0.0, (newest - before[1]) / (begun - before[0]))
            spare = values["ProcessedRowsPerSecond"] - arriving
            # If more arrives than is processed, there is no drain time.
            if spare > 0:
                figures["DrainTime"] = waiting / spare
        return figures

    def _batch_limit_metrics(
        self, progress: Mapping[str, Any], values: Mapping[str, float], rows: int
    ) -> dict[str, float]:
        if self.origin.counted and "BacklogRecords" in values:
            limited = values["BacklogRecords"] > 0
        elif self.origin.limit is not None:
            # Kinesis' connectors write an offset as an object with one key per shard.
            offsets = (_offset_as_object(source.get("endOffset")) for source in progress["sources"])
            shards = sum(key.startswith("shardId-") for offset in offsets for key in offset)
            limited = shards > 0 and rows >= shards * self.origin.limit
        else:
            return {}
        self._in_a_row = self._in_a_row + 1 if limited else 0
        return {"LimitedBatches": int(limited), "LimitedInARow": self._in_a_row}


def epoch_seconds(moment: str) -> float:
    """Read a time in ISO 8601 as seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


_ACCOUNTS = {
    "landed": "WrittenRecords",
    "written": "WrittenRecords",
    "duplicates": "DuplicateRecords",
    "bad": "BadRecords",
    "filtered": "FilteredRecords",
    "unordered": "UnorderedKeys",
}
"""Metrics by the names in a batch's event; each kind of query has its own names."""


def _account_metrics(accounts: Mapping[str, Any] | None) -> dict[str, float]:
    if not accounts:
        return {}
    figures = {name: accounts[key] for key, name in _ACCOUNTS.items() if key in accounts}
    if "refused" in accounts:
        # A row that a sink refused is a dead letter too.
        figures["BadRecords"] = figures.get("BadRecords", 0) + accounts["refused"]
    if "rules" in accounts:
        figures["BrokenRules"] = sum(accounts["rules"].values())
    return figures


def _record_ages(
    arrivals: ArrivalTimes | None,
    values: Mapping[str, float],
    accounts: Mapping[str, Any] | None,
    committed: float,
) -> PercentileSketch | None:
    if arrivals is None:
        return None
    if values.get("WrittenRecords") == 0 and values.get("DuplicateRecords"):
        return None  # a replay: a run that has ended committed all of it before
    ages = arrivals.age_sketch(committed)
    # A partial replay: the written records are younger than the oldest one read.
    most = accounts.get("max_age_seconds") if accounts else None
    return ages if most is None else ages.with_values_capped_at(max(0.0, float(most)))


def _backlog_records_metric(origin: BacklogInputs, progress: Mapping[str, Any]) -> dict[str, float]:
    newest = _offsets_by_partition(progress, "latestOffset") if origin.counted else {}
    if not newest:
        return {}
    read = _offsets_by_partition(progress, "endOffset")
    return {"BacklogRecords": sum(max(0, end - read.get(key, end)) for key, end in newest.items())}


def _offsets_by_partition(progress: Mapping[str, Any], which: str) -> dict[tuple[str, str], int]:
    """Return the offset of each topic and partition, of all sources."""
    return {
        (topic, partition): int(value)
        for source in progress["sources"]
        for topic, partitions in _offset_as_object(source.get(which)).items()
        for partition, value in partitions.items()
    }


def _offset_as_object(offset: Any) -> Mapping[str, Any]:
    """Return an offset as an object; an empty one for anything else."""
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return parsed if isinstance(parsed, Mapping) else {}


def _state_and_watermark_metrics(progress: Mapping[str, Any], begun: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    operators = progress.get("stateOperators") or []
    if operators:
        figures["StateRows"] = sum(o["numRowsTotal"] for o in operators)
        figures["StateMemory"] = sum(o["memoryUsedBytes"] for o in operators)
        dropped = (o.get("customMetrics", {}).get("numDroppedDuplicateRows") for o in operators)
        if repeated := [count for count in dropped if count is not None]:
            figures["RepeatedRows"] = sum(repeated)
        figures["LateRows"] = sum(o.get("numRowsDroppedByWatermark", 0) for o in operators)
    early = [row for name, row in (progress.get("observedMetrics") or {}).items() if name.startswith(EARLY)]
    if early:
        figures["EarlyRows"] = sum(row["rows"] for row in early if row)
    watermark = (progress.get("eventTime") or {}).get("watermark")
    # Spark's watermark is 1970 before the first event.
    if watermark is not None and (at := _epoch_seconds_of_event_time(watermark)) > 0:
        # Negative if it is ahead of the clock; then all new records are late.
        figures["WatermarkDelay"] = begun - at
    return figures


def _epoch_seconds_of_event_time(moment: str) -> float:
    """Read an event's time; for a year that Python does not support, return the last time that it supports."""
    year = moment.removeprefix("+").partition("-")[0]
    return _LAST if len(year) > 4 else epoch_seconds(moment)


_LAST = datetime.max.replace(tzinfo=UTC).timestamp()


def _finite_rate(value: Any) -> float:
    """Return a rate of Spark's; for a first batch Spark has none and writes NaN, as text or not at all."""
    number = float(value or 0.0)
    return number if number == number and number != float("inf") else 0.0
