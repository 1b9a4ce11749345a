"""Metrics of a real query's batches have the values of Spark's progress."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.formats.base import UNCERTAIN
from millrace.etl.job.supervise import Supervisor
from millrace.etl.metrics.background_writer import BackgroundWriter
from millrace.etl.metrics.percentile_sketch import PercentileSketch
from millrace.etl.metrics.poll_query_progress import MetricsMonitor
from millrace.etl.metrics.publish_to_spark_metrics import SparkGauges
from millrace.etl.metrics.trigger_metrics import MetricSample
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import JVM_ERRORS
from millrace.etl.record.ready_query import ReadyQuery
from tests.spark.source_batches import Events

BATCHES, ROWS = 3, 4000
OLDEST = 400.0
"""Seconds that the first record is old; each next one is a tenth of a second younger."""


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, datetime]:
    """A stream of three files, each a batch, with times of arrival; and the moment that they are relative to."""
    now = datetime.now(UTC)
    for number in range(BATCHES):
        first = now - timedelta(seconds=OLDEST)
        (
            spark.range(ROWS)
            .selectExpr(
                "id", f"timestamp_micros({int(first.timestamp() * 1e6)} + id * 100000) AS _arrived_at"
            )
            .coalesce(1)
            .write.parquet(str(tmp_path / "in" / f"n={number}"))
        )
    reader = spark.readStream.schema("id LONG, _arrived_at TIMESTAMP").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(tmp_path / "in" / "*")), now


class Kept:
    def __init__(self) -> None:
        self.samples: list[MetricSample] = []

    def write(self, samples: Sequence[MetricSample]) -> None:
        self.samples += samples

    def batches(self, query: str) -> list[MetricSample]:
        return [s for s in self.samples if s.query == query and s.values.get("InputRows")]


def fails_once(batch: DataFrame, _id: int) -> None:
    """Write with a task that fails at its first attempt, as one that lost its executor does."""

    def once(part: object) -> list[int]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            raise OSError("connection reset")
        return [1]

    assert batch.sparkSession.sparkContext.parallelize([1, 2], 2).mapPartitions(once).count() == 2


def fails_on_purpose(batch: DataFrame) -> None:
    """Fail a job as the core does to write a batch another way: no metric counts its tasks."""
    with pytest.raises(JVM_ERRORS, match=UNCERTAIN):
        batch.selectExpr(f"raise_error('{UNCERTAIN}')").collect()


@pytest.mark.slow
def test_a_batch_is_measured_and_an_output_that_hangs_costs_it_nothing(
    spark: SparkSession, rows: tuple[DataFrame, datetime], tmp_path: Path
) -> None:
    frame, now = rows
    release, hanging, kept, events = threading.Event(), threading.Event(), Kept(), Events()

    def hang(_samples: Sequence[MetricSample]) -> None:
        hanging.set()
        release.wait()

    outputs = [BackgroundWriter("hangs", hang, room=1), BackgroundWriter("kept", kept.write)]
    supervisor = Supervisor(
        spark, events.reporter, MetricsMonitor(outputs, poll_seconds=0.1, close_seconds=2)
    )

    def handle(batch: DataFrame, batch_id: int) -> None:
        fails_once(batch, batch_id)
        fails_on_purpose(batch)
        assert batch.count() == ROWS
        if batch_id == BATCHES - 1:
            supervisor.request_stop()

    assert (
        supervisor.run_to_exit_status([ReadyQuery("aged", frame, handle, str(tmp_path / "checkpoint"), 0.0)])
        == 0
    )
    assert hanging.is_set()
    release.set()
    # The batches ran through, the other output was told of all, and of what the one that hangs lost.
    assert sum(s.values.get("DroppedSamples", 0) for s in kept.samples) > 0
    batches = kept.batches("aged")
    assert [b.batch for b in batches] == list(range(BATCHES))
    assert [b.values["InputRows"] for b in batches] == [ROWS] * BATCHES
    assert sum(b.values["RetriedTasks"] for b in batches) == BATCHES
    parts = ("AddBatch", "CommitOffsets", "GetBatch", "LatestOffset", "QueryPlanning", "WalCommit")
    for batch in batches:
        assert all(batch.values[f"{part}Duration"] >= 0 for part in parts)
        assert 0 < batch.values["AddBatchDuration"] < batch.values["BatchDuration"]
        assert batch.ages is not None
        assert sum(weight for _, weight in batch.ages.points) == pytest.approx(ROWS)
        # Without accounts a batch is committed when its trigger ends.
        exact = OLDEST + (batch.at - now.timestamp()) - np.arange(ROWS) / 10
        for q in (0.5, 0.95, 0.99, 1.0):
            off = 0.002 if q == 1.0 else 0.011 * OLDEST  # a hundredth of the ranks, and Spark's thousandth
            assert batch.ages.quantile(q) == pytest.approx(np.quantile(exact, q), abs=off)


def test_idle_triggers_state_and_a_failure_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    kept, events = Kept(), Events()
    monitor = MetricsMonitor([BackgroundWriter("kept", kept.write)], poll_seconds=0.1)
    events.reporter.add_listener(monitor.on_event)
    supervisor = Supervisor(spark, events.reporter, monitor)
    idle = spark.readStream.schema("id LONG").parquet(str(tmp_path / "empty"))
    ticking = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    distinct = ticking.withWatermark("timestamp", "1 second").dropDuplicates(["value", "timestamp"])

    def fails(batch: DataFrame, batch_id: int) -> None:
        assert batch.count() >= 0
        if batch_id == 3:
            raise ZeroDivisionError("no good")

    queries = [
        ReadyQuery("idle", idle, lambda *_: None, str(tmp_path / "a"), 0.1),
        ReadyQuery("fails", distinct, fails, str(tmp_path / "b"), 0.1),
    ]
    assert supervisor.run_to_exit_status(queries) == 1
    told = {q: [s.values for s in kept.samples if s.query == q] for q in ("idle", "fails")}
    assert sum(v["Triggers"] for v in told["idle"]) >= 1
    assert not any("InputRows" in v for v in told["idle"])
    assert [v["QueryFailures"] for v in told["fails"] if "QueryFailures" in v] == [1]
    assert max(v["StateRows"] for v in told["fails"] if "StateRows" in v) > 0
    assert max(v["StateMemory"] for v in told["fails"] if "StateMemory" in v) > 0
    assert max(v["WatermarkDelay"] for v in told["fails"] if "WatermarkDelay" in v) >= 0
    assert not any(s.ages for s in kept.samples), "no column tells when these rows arrived"


def test_gauges_stand_beside_sparks_own(spark: SparkSession) -> None:
    def gauges() -> dict[str, float]:
        sources = spark._jsc.sc().env().metricsSystem().getSourcesByName("AccumulatorSource")
        result: dict[str, float] = {}
        for index in range(sources.size()):
            held = sources.apply(index).metricRegistry().getGauges()
            result |= {str(name): float(held.get(name).getValue()) for name in held.keySet()}
        return result

    output = SparkGauges(spark)
    ages = PercentileSketch(tuple((float(n), 1.0) for n in range(1, 101)), 100.0)
    output.write(
        [
            MetricSample(0, None, {"Starts": 1}),
            MetricSample(0, "land", {"InputRows": 5, "BatchDuration": 4.0}, 1),
        ]
    )
    output.write([MetricSample(0, "land", {"InputRows": 7, "BatchDuration": 1.5, "BadRecords": 2}, 2, ages)])
    result = gauges()
    assert result["Starts"] == 1
    assert (result["land.InputRows"], result["land.BadRecords"]) == (12, 2), "totals add up"
    assert result["land.BatchDuration"] == 1.5, "a level is the last one"
    assert (result["land.RecordAge.p95"], result["land.RecordAge.max"]) == (95.5, 100.0)


def test_reporters_tell_their_listeners() -> None:
    heard: list[dict[str, object]] = []
    events = Events()
    reporter = EventReporter("job", events.reporter.stream)
    reporter.add_listener(lambda event: heard.append(dict(event)))
    reporter.emit("batch", query="q", batch=1)
    assert heard == events.all() == [{"event": "batch", "job": "job", "query": "q", "batch": 1}]
