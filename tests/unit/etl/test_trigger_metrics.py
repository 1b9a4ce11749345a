"""From Spark's progress and the accounts of a batch to metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.etl.metrics.arrival_times import RANKS
from millrace.etl.metrics.trigger_metrics import BacklogInputs, MetricSample, TriggerMeter, epoch_seconds

BEGUN = "2026-11-21T06:28:15.000Z"
PARTS = {
    "triggerExecution": 4000,
    "queryPlanning": 30,
    "getBatch": 10,
    "commitOffsets": 120,
    "latestOffset": 250,
}
PARTS |= {"addBatch": 3400, "walCommit": 160}
KAFKA, KINESIS, TABLE = BacklogInputs(counted=True), BacklogInputs(limit=500), BacklogInputs()


def progress(*, sources: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    """As ``StreamingQueryProgress.json`` of Spark 3.5 has it, without what nobody reads."""
    source = {"startOffset": None, "endOffset": None, "latestOffset": None, "numInputRows": 1000}
    source |= {"inputRowsPerSecond": 100.0, "processedRowsPerSecond": 250.0, "metrics": {}}
    whole = {"name": "land", "timestamp": BEGUN, "batchId": 7, "durationMs": PARTS, "eventTime": {}}
    whole |= {"stateOperators": [], "observedMetrics": {}}
    return {**whole, "sources": [source | s for s in sources or [{}]], **changes}


def idle(**changes: Any) -> dict[str, Any]:
    return progress(durationMs={"triggerExecution": 5, "latestOffset": 3}, **changes)


def offsets(*values: int) -> dict[str, dict[str, int]]:
    return {"topic": {str(n): value for n, value in enumerate(values)}}


def kafka(end: tuple[int, ...], latest: tuple[int, ...], **changes: Any) -> dict[str, Any]:
    return progress(sources=[{"endOffset": offsets(*end), "latestOffset": offsets(*latest)}], **changes)


LANDED = {"event": "batch", "query": "land", "batch": 7, "read": 1000, "duplicates": 100, "landed": 900}
LANDED |= {"good": 880, "bad": 20, "seconds": 3.2, "committed_at": "2026-11-21T06:28:18.500Z"}


def arrivals(oldest: str, youngest: str, rows: int = 1000) -> dict[str, Any]:
    first, last = epoch_seconds(oldest) * 1000, epoch_seconds(youngest) * 1000
    points = [round(first + rank * (last - first)) for rank in RANKS]
    return {"millrace_arrivals": {"rows": rows, "oldest": first, "youngest": last, "points": points}}


def measured(
    origin: BacklogInputs, *told: dict[str, Any], accounts: dict[str, Any] | None = None
) -> MetricSample:
    meter = TriggerMeter("land", origin)
    samples = [meter.measure(each, accounts, 0) for each in told]
    return samples[-1]


def test_a_batch_and_its_parts() -> None:
    sample = TriggerMeter("land", TABLE).measure(progress(), LANDED, 3)
    assert (sample.query, sample.batch) == ("land", 7)
    assert sample.at == epoch_seconds("2026-11-21T06:28:18.500Z")
    assert dict(sample.values) == {
        "Triggers": 1,
        "BatchDuration": 4.0,
        "InputRows": 1000,
        "InputRowsPerSecond": 100.0,
        "ProcessedRowsPerSecond": 250.0,
        "RetriedTasks": 3,
        "LatestOffsetDuration": 0.25,
        "GetBatchDuration": 0.01,
        "QueryPlanningDuration": 0.03,
        "WalCommitDuration": 0.16,
        "AddBatchDuration": 3.4,
        "CommitOffsetsDuration": 0.12,
        "WrittenRecords": 900,
        "DuplicateRecords": 100,
        "BadRecords": 20,
    }


def test_a_derive_batch_has_its_own_accounts() -> None:
    line = {"read": 9, "duplicates": 2, "filtered": 3, "written": 4, "committed_at": BEGUN}
    values = measured(TABLE, progress(), accounts=line).values
    assert [values[k] for k in ("InputRows", "WrittenRecords", "DuplicateRecords", "FilteredRecords")] == [
        9,
        4,
        2,
        3,
    ]
    assert "BadRecords" not in values


def test_an_old_kind_of_source_calls_its_first_part_otherwise() -> None:
    parts = {k: v for k, v in PARTS.items() if k != "latestOffset"} | {"getOffset": 700}
    assert measured(KINESIS, progress(durationMs=parts)).values["LatestOffsetDuration"] == 0.7


def test_a_trigger_with_nothing_to_read_ended_all_the_same() -> None:
    sample = measured(TABLE, idle())
    assert dict(sample.values) == {"Triggers": 1}
    assert sample.batch is None


def test_a_first_batch_has_no_rate_yet() -> None:
    for rate in (float("nan"), "NaN", None, float("inf")):
        values = measured(TABLE, progress(sources=[{"inputRowsPerSecond": rate}])).values
        assert values["InputRowsPerSecond"] == 0.0


def test_backlog_of_kafka_is_told_by_offsets_whatever_their_form() -> None:
    told = kafka((10, 20), (15, 40))
    assert measured(KAFKA, told).values["BacklogRecords"] == 25
    for source in told["sources"]:  # as the event log has them
        source |= {k: json.dumps(source[k]) for k in ("endOffset", "latestOffset")}
    assert measured(KAFKA, told).values["BacklogRecords"] == 25
    assert measured(KAFKA, kafka((10, 20), (15, 40, 5))).values["BacklogRecords"] == 25, "a new partition"
    assert "BacklogRecords" not in measured(TABLE, told).values
    assert "BacklogRecords" not in measured(KAFKA, progress()).values


def test_backlog_in_time_is_how_long_ago_the_youngest_read_arrived() -> None:
    seen = arrivals("2026-11-21T06:20:00.000Z", "2026-11-21T06:27:15.000Z")
    behind = kafka((10,), (5000,), observedMetrics=seen)
    assert measured(KAFKA, behind).values["BacklogSeconds"] == 60.0
    assert measured(KAFKA, kafka((10,), (10,), observedMetrics=seen)).values["BacklogSeconds"] == 0.0
    assert measured(KINESIS, progress(observedMetrics=seen)).values["BacklogSeconds"] == 60.0
    assert "BacklogSeconds" not in measured(KINESIS, progress()).values


def test_drain_time_is_the_backlog_over_what_is_spare() -> None:
    first = kafka((1000,), (5000,))
    # 10 s later 500 more have arrived: 50 a second, against 250 that are processed.
    second = kafka((2000,), (5500,), timestamp="2026-11-21T06:28:25.000Z")
    assert "DrainTime" not in measured(KAFKA, first).values, "nobody knows what arrives"
    assert measured(KAFKA, first, second).values["DrainTime"] == pytest.approx(3500 / 200)
    growing = kafka((2000,), (9000,), timestamp="2026-11-21T06:28:25.000Z")
    assert "DrainTime" not in measured(KAFKA, first, growing).values
    done = kafka((5500,), (5500,), timestamp="2026-11-21T06:28:25.000Z")
    assert measured(KAFKA, first, done).values["DrainTime"] == 0.0


def test_a_limit_that_is_hit_is_counted_in_a_row() -> None:
    meter = TriggerMeter("land", KAFKA)
    told = [kafka((1,), (9,)), kafka((2,), (9,)), kafka((9,), (9,)), kafka((10,), (20,))]
    result = [meter.measure(each, None, 0).values for each in told]
    assert [v["LimitedBatches"] for v in result] == [1, 1, 0, 1]
    assert [v["LimitedInARow"] for v in result] == [1, 2, 0, 1]


def test_a_kinesis_batch_is_limited_when_every_shard_is() -> None:
    position = {"metadata": {"batchId": "2"}, "shardId-000000000000": {}, "shardId-000000000001": {}}
    for rows, limited in ((1000, 1), (999, 0)):
        told = progress(sources=[{"endOffset": json.dumps(position), "numInputRows": rows}])
        assert measured(KINESIS, told).values["LimitedBatches"] == limited
    assert "LimitedBatches" not in measured(TABLE, progress()).values


def test_ages_at_the_commit() -> None:
    seen = arrivals("2026-11-21T06:28:08.500Z", "2026-11-21T06:28:14.500Z")
    ages = measured(TABLE, progress(observedMetrics=seen), accounts=LANDED).ages
    assert ages is not None
    assert ages.quantile(1) == pytest.approx(10.0)
    assert ages.quantile(0.5) == pytest.approx(7.0, abs=0.2)
    late = measured(TABLE, progress(observedMetrics=seen)).ages  # without accounts: at the trigger's end
    assert late is not None
    assert late.quantile(1) == pytest.approx(10.5)


def test_what_an_earlier_run_committed_is_not_old_now() -> None:
    seen = arrivals("2026-11-21T06:00:00.000Z", "2026-11-21T06:28:14.500Z")
    whole = LANDED | {"landed": 0, "duplicates": 1000, "good": 0, "bad": 0}
    assert measured(TABLE, progress(observedMetrics=seen), accounts=whole).ages is None
    part = measured(TABLE, progress(observedMetrics=seen), accounts=LANDED | {"max_age_seconds": 4.5}).ages
    assert part is not None
    assert part.most == 4.5


def test_state_and_watermark() -> None:
    state = {"numRowsTotal": 70, "memoryUsedBytes": 4096, "numRowsDroppedByWatermark": 3}
    told = progress(stateOperators=[state, state], eventTime={"watermark": "2026-11-21T06:27:45.000Z"})
    values = measured(TABLE, told).values
    assert [values[k] for k in ("StateRows", "StateMemory", "LateRows")] == [140, 8192, 6]
    assert values["WatermarkDelay"] == 30.0
    ahead = progress(eventTime={"watermark": "287168-01-01T00:00:00.000Z"})
    assert measured(TABLE, ahead).values["WatermarkDelay"] < -(10**11), (
        "a watermark that makes all late looks well"
    )
    seen = progress(observedMetrics={"millrace_early": {"rows": 2}, "millrace_earlyjoined": {"rows": 1}})
    assert measured(TABLE, seen).values["EarlyRows"] == 3
    unset = progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    assert "WatermarkDelay" not in measured(TABLE, unset).values
