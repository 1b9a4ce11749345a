"""The supervisor isolates failures of queries, and a stop lets the current batch end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.job import jvm_shutdown_hook
from millrace.etl.job.running_query import RunningQuery
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.record.errors import (
    MOST_LINES,
    LossError,
    NoAnswerError,
    RestartQueryError,
    StartError,
    describe_error,
)
from millrace.etl.record.ready_query import ReadyQuery
from tests.spark.source_batches import Events


def ticking(
    spark: SparkSession, name: str, checkpoint: Path, handle: Callable[[DataFrame, int], None]
) -> ReadyQuery:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    return ReadyQuery(name, rows, handle, str(checkpoint / name), 0.1)


@pytest.mark.faults
def test_one_query_fails_and_the_other_finishes_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    events, begun, finished = Events(), threading.Event(), threading.Event()

    def slow(_batch: DataFrame, _id: int) -> None:
        begun.set()
        time.sleep(1.5)
        finished.set()

    def fails(_batch: DataFrame, _id: int) -> None:
        assert begun.wait(20)
        raise ZeroDivisionError("no good")

    supervisor = Supervisor(spark, events.reporter)
    status = supervisor.run_to_exit_status(
        [ticking(spark, "slow", tmp_path, slow), ticking(spark, "fails", tmp_path, fails)]
    )
    assert status == 1
    assert finished.is_set()
    assert [e["query"] for e in events.all() if e["event"] == "started"] == ["slow", "fails"]
    failures = [e for e in events.all() if e["event"] == "failed"]
    assert [(e["query"], e["batch"], e["error"], e["error_class"]) for e in failures] == [
        ("fails", 0, "no good", "ZeroDivisionError")
    ]
    assert not spark.streams.active


class Interrupted:
    """A query that was stopped between two triggers, just as the next one had begun to read."""

    isActive = True
    status: ClassVar = {"isTriggerActive": False}

    def __init__(self, said: str) -> None:
        self._said = said

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception:
        return RuntimeError(self._said)


@pytest.mark.parametrize(
    ("said", "fails"),
    [
        ("java.nio.channels.ClosedByInterruptException", False),
        ("AbortedException: Thread was interrupted", False),
        ("the disk is gone", True),
    ],
)
def test_a_trigger_that_a_stop_interrupts_is_no_failure(spark: SparkSession, said: str, fails: bool) -> None:
    events = Events()
    supervisor = Supervisor(spark, events.reporter)
    supervisor.request_stop()
    query: Any = Interrupted(said)
    spec = ReadyQuery("idle", spark.range(0), lambda _b, _i: None, "nowhere", 0.1)
    running = RunningQuery(spec, supervisor._stopping, query=query)
    assert supervisor._wait_for_all_and_return_if_failed([running]) is fails
    assert [event["event"] for event in events.all()] == (["failed"] if fails else [])


@pytest.mark.faults
def test_a_source_that_cannot_be_read_is_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    events = Events()
    rows = spark.readStream.format("text").load(str(tmp_path / "in*"))
    (tmp_path / "input").mkdir()
    (tmp_path / "checkpoint").write_text("a file where a folder should be")
    query = ReadyQuery("broken", rows, lambda _b, _i: None, str(tmp_path / "checkpoint" / "x"), 0.1)
    assert Supervisor(spark, events.reporter).run_to_exit_status([query]) == 1
    assert events.last()["event"] == "failed"
    assert events.last()["query"] == "broken"
    assert "batch" not in events.last()
    assert_readable(events.last()["error"])


@pytest.mark.faults
def test_a_query_that_fails_is_started_again_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Twice no, then yes; the other query continues meanwhile, and the batch that failed is the one that comes."""
    events, others, seen = Events(), [], []
    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(2, first_seconds=0.5))

    def fails_twice(_batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        if len(seen) in (1, 2):
            raise ZeroDivisionError("no good")
        if len(seen) >= 4:
            supervisor.request_stop()

    status = supervisor.run_to_exit_status(
        [
            ticking(spark, "steady", tmp_path, lambda _b, _i: others.append(len(seen))),
            ticking(spark, "fails", tmp_path, fails_twice),
        ]
    )
    assert status == 0
    assert seen[:4] == [0, 0, 0, 1]
    assert {1, 2} & set(others), "the other query waited"
    retries = [e for e in events.all() if e["event"] == "retrying"]
    assert [(e["query"], e["batch"], e["attempt"], e["of"], e["error"]) for e in retries] == [
        ("fails", 0, 1, 2, "no good"),
        ("fails", 0, 2, 2, "no good"),
    ]
    assert retries[1]["seconds"] > retries[0]["seconds"]
    assert not [e for e in events.all() if e["event"] == "failed"]


@pytest.mark.faults
def test_a_query_that_goes_on_failing_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    events, seen = Events(), []

    def fails(_batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        raise ZeroDivisionError("no good")

    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(1, first_seconds=0.1))
    assert supervisor.run_to_exit_status([ticking(spark, "fails", tmp_path, fails)]) == 1
    assert seen == [0, 0]
    assert [e["event"] for e in events.all()] == ["started", "retrying", "failed"]


@pytest.mark.faults
def test_a_retry_while_the_source_is_away_is_a_retry_too(spark: SparkSession, tmp_path: Path) -> None:
    """Who is asked when a source is opened again may be away as well; the other query continues meanwhile."""
    events, seen, others = Events(), list[int](), list[int]()
    supervisor = Supervisor(
        spark, events.reporter, retries=RetryLimits(4, first_seconds=0.1, longest_seconds=0.1)
    )
    answers: list[Exception | None] = [
        StartError("stream flights: no endpoint"),
        OSError("checkpoint: 503"),
        None,
    ]

    def handle(_batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        if len(seen) == 1:
            raise ZeroDivisionError("no good")
        supervisor.request_stop()

    def built() -> ReadyQuery:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return query

    query = replace(ticking(spark, "flights", tmp_path, handle), rebuild=built)
    steady = ticking(spark, "steady", tmp_path, lambda _b, _i: others.append(len(answers)))
    assert supervisor.run_to_exit_status([query, steady]) == 0
    assert (seen, answers) == ([0, 0], [])
    told = [(e["event"], e["attempt"], e["error_class"]) for e in events.all() if "error" in e]
    assert told == [
        ("retrying", 1, "ZeroDivisionError"), ("retrying", 2, "NoAnswerError"), ("retrying", 3, "OSError"),
    ]  # fmt: skip
    assert others


@pytest.mark.faults
def test_a_service_that_keeps_silent_at_a_retry_delays_no_retry_of_another_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked, other_again, in_time = threading.Event(), threading.Event(), list[bool]()
    supervisor = Supervisor(spark, Events().reporter, retries=RetryLimits(1, first_seconds=0.1))

    def silent() -> ReadyQuery:
        asked.set()
        in_time.append(other_again.wait(15))
        return waits

    def fails_once(_batch: DataFrame, _id: int) -> None:
        if not in_time:
            raise ZeroDivisionError("no good")
        supervisor.request_stop()

    def other(_batch: DataFrame, _id: int) -> None:
        if not asked.is_set():
            assert asked.wait(30)
            raise ZeroDivisionError("no good either")
        other_again.set()

    waits = replace(ticking(spark, "waits", tmp_path, fails_once), rebuild=silent)
    assert supervisor.run_to_exit_status([waits, ticking(spark, "other", tmp_path, other)]) == 0
    assert in_time == [True]


@pytest.mark.faults
@pytest.mark.parametrize("most", [0, 1])
def test_a_source_that_is_away_when_limits_change_is_asked_again_within_the_retries(
    spark: SparkSession, tmp_path: Path, most: int
) -> None:
    events, seen = Events(), list[int]()
    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(most, first_seconds=0.1))
    answers = [StartError("stream flights: no endpoint")]

    def handle(_batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        if len(seen) == 1:
            raise RestartQueryError("stream flights now has 2 shards (before: 1)")
        supervisor.request_stop()

    def built() -> ReadyQuery:
        while answers:
            raise answers.pop()
        return query

    query = replace(ticking(spark, "flights", tmp_path, handle), rebuild=built)
    assert supervisor.run_to_exit_status([query]) == 1 - most
    told = [(e["event"], e.get("error")) for e in events.all()[1:]]
    ends = ("retrying", "stream flights: no endpoint") if most else ("failed", "stream flights: no endpoint")
    assert told == [("reopened", None), ends]


@pytest.mark.faults
def test_a_batch_that_asks_for_a_restart_again_and_again_is_retried_within_the_retries(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, seen = Events(), []

    def asks(_batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        raise RestartQueryError("other ends")

    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(1, first_seconds=0.1))
    assert supervisor.run_to_exit_status([ticking(spark, "asks", tmp_path, asks)]) == 1
    assert [e["event"] for e in events.all()] == ["started", "reopened", "retrying", "failed"]
    assert seen == [0, 0, 0]


def fails_in_spark(batch: DataFrame, _id: int) -> None:
    failing = F.raise_error(F.lit("503 Slow Down")).cast("int")
    batch.sparkSession.range(1).select(failing.alias("n")).collect()


def test_a_loss_is_not_retried(spark: SparkSession, tmp_path: Path) -> None:
    events = Events()

    def loses(_batch: DataFrame, _id: int) -> None:
        raise LossError("stream flights, shard 1: positions 5 to 9 are gone")

    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(3, first_seconds=0.1))
    assert supervisor.run_to_exit_status([ticking(spark, "loses", tmp_path, loses)]) == 1
    assert [e["event"] for e in events.all()] == ["started", "failed"]
    assert "positions 5 to 9 are gone" in events.last()["error"]


def test_the_wait_doubles_up_to_its_bound() -> None:
    retries = RetryLimits(9, first_seconds=1, longest_seconds=6)
    for attempt, least in ((1, 1), (2, 2), (3, 4), (4, 6), (9, 6)):
        assert least <= retries.seconds_before_attempt(attempt) <= 1.2 * least


def assert_readable(error: str) -> None:
    lines = error.splitlines()
    assert 1 <= len(lines) <= MOST_LINES
    assert [line for line in lines if line.lstrip().startswith("at ") or "more" in line[:12]] == []
    assert len(set(lines)) == len(lines)


def test_a_failed_write_says_query_batch_and_reason_without_a_stack(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A fault on an executor, wrapped by Spark four times over, each time with its stack."""
    events = Events()

    def writes(batch: DataFrame, _id: int) -> None:
        failing = F.raise_error(F.lit("s3a://lake/data/00001.parquet: 503 Slow Down"))
        rows = batch.sparkSession.range(4).select(failing.cast("int").alias("n"))
        rows.write.mode("append").parquet(str(tmp_path / "out"))

    status = Supervisor(spark, events.reporter).run_to_exit_status(
        [ticking(spark, "writes", tmp_path, writes)]
    )
    assert status == 1
    event = events.last()
    assert (event["event"], event["query"], event["batch"]) == ("failed", "writes", 0)
    assert_readable(event["error"])
    # Spark 4 lifts the cause out of "Task 0 in stage ..." by itself, and adds its SQLSTATE.
    assert "s3a://lake/data/00001.parquet: 503 Slow Down" in event["error"].splitlines()[-1]


def test_a_cause_of_python_is_kept_and_a_long_chain_loses_its_middle() -> None:
    def chain(length: int) -> Exception:
        error = ValueError("0")
        for n in range(1, length):
            error, error.__cause__ = ValueError(str(n)), error
        return error

    assert describe_error(chain(3)) == "2\n1\n0"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(chain(30)).splitlines() == ["29", "28", "27", "26", "25", "...", "3", "2", "1", "0"]


def test_a_requested_stop_lets_the_batch_end_and_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    events = Events()
    supervisor = Supervisor(spark, events.reporter)
    finished: list[int] = []

    def slow(_batch: DataFrame, batch_id: int) -> None:
        supervisor.request_stop()
        time.sleep(1.0)
        finished.append(batch_id)

    assert supervisor.run_to_exit_status([ticking(spark, "slow", tmp_path, slow)]) == 0
    assert finished == [0]
    assert [e["event"] for e in events.all()] == ["started"]
    # The batch that was let end is committed: the next start continues after it.
    assert (tmp_path / "slow" / "commits" / "0").exists()


def test_a_query_whose_source_nobody_reads_whole_is_stopped_for_good(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also while no batch comes; and one that cannot be asked is told of, and asked again."""
    events, answers = Events(), [NoAnswerError("no broker"), None, LossError("no job reads 4")]

    def check() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    (tmp_path / "empty").mkdir()
    idle = spark.readStream.format("text").load(str(tmp_path / "empty"))
    query = ReadyQuery("shared", idle, lambda _b, _i: None, str(tmp_path / "shared"), 0.1, check=check)
    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(3), check_seconds=0.3)
    assert supervisor.run_to_exit_status([query]) == 1
    assert not answers
    told = [(e["event"], e["error"]) for e in events.all() if "error" in e]
    assert told == [("unchecked", "no broker"), ("failed", "no job reads 4")]
    assert not spark.streams.active


@pytest.mark.faults
def test_icebergs_pools_work_on_while_a_shutdown_waits_for_a_batch(spark: SparkSession) -> None:
    """Their hooks run beside ours, and would have them refuse what the batch still asks."""
    jvm_shutdown_hook.remove_iceberg_pool_shutdown_hooks(spark)
    assert jvm_shutdown_hook.remove_iceberg_pool_shutdown_hooks(spark) == 0
    jvm: Any = spark._jvm
    pool = jvm.org.apache.iceberg.util.ThreadPools.newExitingWorkerPool("of-a-test", 1)
    try:
        assert jvm_shutdown_hook.remove_iceberg_pool_shutdown_hooks(spark) == 1
    finally:
        pool.shutdown()
