"""The supervisor stops queries if the lease is lost, and releases it at the end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job.supervise import RetryLimits, Supervisor
from tests.spark.job.test_supervise import ticking
from tests.spark.source_batches import Events


class Lent:
    """A lease that is taken away when a test says so."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.given_back = False

    def acquire(self) -> None:
        pass

    def loss_reason(self) -> str | None:
        return self.why

    def release(self) -> None:
        self.given_back = self.why is None


@pytest.mark.faults
def test_a_lost_lease_cuts_a_batch_short_and_lets_no_other_begin(spark: SparkSession, tmp_path: Path) -> None:
    events, lease, begun, ended = Events(), Lent(), threading.Event(), []

    def slow(batch: DataFrame, batch_id: int) -> None:
        if batch.isEmpty():
            return
        begun.set()
        # Until it is interrupted: the action is a task that sleeps.
        batch.rdd.foreach(lambda _row: time.sleep(10))
        ended.append(batch_id)

    def loses(_batch: DataFrame, _id: int) -> None:
        assert begun.wait(30)
        lease.why = "another run has taken it"

    killed: list[int] = []
    supervisor = Supervisor(
        spark,
        events.reporter,
        retries=RetryLimits(3),
        lease=lease,
        kill=lambda: killed.append(1),
        end_seconds=300,
    )
    status = supervisor.run_to_exit_status(
        [ticking(spark, "slow", tmp_path, slow), ticking(spark, "loses", tmp_path, loses)]
    )
    assert (status, ended, lease.given_back) == (1, [], False)
    failures = {e["query"]: (e["error"], e["error_class"]) for e in events.all() if e["event"] == "failed"}
    wanted = (
        "this run ends, because another process has taken over the lease on its checkpoints: another run has taken it",
        "LeaseLostError",
    )
    assert failures == {"slow": wanted, "loses": wanted}
    assert [e for e in events.all() if e["event"] == "retrying"] == []
    assert not spark.streams.active
    assert killed == []


@pytest.mark.faults
def test_a_batch_that_no_interruption_reaches_ends_with_the_process_when_the_lease_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would wait for its end, forever: it is in Python, or in a client that takes no notice."""
    events, lease, ended, told = Events(), Lent(), threading.Event(), list[list[Any]]()

    def deaf(_batch: DataFrame, _id: int) -> None:
        lease.why = "it could not be renewed for 25 s"
        ended.wait(60)

    def kill() -> None:
        told.append([(e["event"], e["query"], e["error_class"]) for e in events.all()[1:]])
        ended.set()

    supervisor = Supervisor(spark, events.reporter, lease=lease, kill=kill, end_seconds=0.5)
    assert supervisor.run_to_exit_status([ticking(spark, "deaf", tmp_path, deaf)]) == 1
    assert told == [[("failed", "deaf", "LeaseLostError")]]
    assert not lease.given_back


def test_a_lease_is_given_back_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    lease, killed = Lent(), list[int]()
    supervisor = Supervisor(spark, Events().reporter, lease=lease, kill=lambda: killed.append(1))
    query = ticking(spark, "one", tmp_path, lambda _b, _i: supervisor.request_stop())
    assert supervisor.run_to_exit_status([query]) == 0
    assert lease.given_back
    assert killed == []
