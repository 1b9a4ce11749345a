"""Queries side by side: isolation of failures, and an end that does not cut a batch short."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from etl.supervise import Query, Supervisor
from tests.spark.batches import Events


def ticking(
    spark: SparkSession, name: str, checkpoint: Path, handle: Callable[[DataFrame, int], None]
) -> Query:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    return Query(name, rows, handle, str(checkpoint / name), 0.1)


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
    status = supervisor.run(
        [ticking(spark, "slow", tmp_path, slow), ticking(spark, "fails", tmp_path, fails)]
    )
    assert status == 1
    assert finished.is_set()
    assert [e["query"] for e in events.all() if e["event"] == "started"] == ["slow", "fails"]
    failures = [e for e in events.all() if e["event"] == "failed"]
    assert [(e["query"], e["error"], e["error_class"]) for e in failures] == [
        ("fails", "no good", "ZeroDivisionError")
    ]
    assert not spark.streams.active


def test_a_source_that_cannot_be_read_is_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    events = Events()
    rows = spark.readStream.format("text").load(str(tmp_path / "in*"))
    (tmp_path / "input").mkdir()
    (tmp_path / "checkpoint").write_text("a file where a folder should be")
    query = Query("broken", rows, lambda _b, _i: None, str(tmp_path / "checkpoint" / "x"), 0.1)
    assert Supervisor(spark, events.reporter).run([query]) == 1
    assert events.last()["event"] == "failed"
    assert events.last()["query"] == "broken"


def test_a_requested_stop_lets_the_batch_end_and_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    events = Events()
    supervisor = Supervisor(spark, events.reporter)
    finished: list[int] = []

    def slow(_batch: DataFrame, batch_id: int) -> None:
        supervisor.stop()
        time.sleep(1.0)
        finished.append(batch_id)

    assert supervisor.run([ticking(spark, "slow", tmp_path, slow)]) == 0
    assert finished == [0]
    assert [e["event"] for e in events.all()] == ["started"]
    # The batch that was let end is committed: the next start goes on after it.
    assert (tmp_path / "slow" / "commits" / "0").exists()
