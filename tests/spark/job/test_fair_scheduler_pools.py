"""Queries of a job share its cores: each has a pool of the FAIR scheduler, in which all its Spark jobs run."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job.supervise import POOL, Supervisor
from millrace.etl.record.ready_query import ReadyQuery
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import Job, RunResult
from tests.spark.source_batches import Events

GROUP = "spark.jobGroup.id"


def pools_of(spark: SparkSession, run: str) -> set[str]:
    """The pools in which Spark ran the stages of a query, by the id of its run: a query's jobs are one group."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(run)]
    # The status store forgets the oldest stages.
    known = [stage for job in jobs if job for stage in job.stageIds if tracker.getStageInfo(stage)]
    stages = [store.lastStageAttempt(stage) for stage in known]
    return {each.schedulingPool() for each in stages if each.status().toString() == "COMPLETE"}


def ticking(
    spark: SparkSession, name: str, checkpoint: Path, handle: Callable[[DataFrame, int], None]
) -> ReadyQuery:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    return ReadyQuery(name, rows, handle, str(checkpoint / name), 0.1)


@pytest.mark.slow
def test_a_long_batch_leaves_cores_to_the_short_ones_of_another_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In one queue, the other query would wait for all 80 tasks; they end early when it has not waited."""
    long_job = threading.Event()
    during: list[int] = []
    runs: dict[str, str] = {}
    enough = tmp_path / "enough"
    supervisor = Supervisor(spark, Events().reporter)

    def long(batch: DataFrame, number: int) -> None:
        runs["long"] = batch.sparkSession.sparkContext.getLocalProperty(GROUP)
        if number:
            time.sleep(0.5)
            return
        long_job.set()
        tasks = batch.sparkSession.sparkContext.parallelize(range(80), 80)
        tasks.foreach(lambda _: None if enough.exists() else time.sleep(0.3))
        long_job.clear()
        supervisor.request_stop()

    def short(batch: DataFrame, number: int) -> None:
        runs["short"] = batch.sparkSession.sparkContext.getLocalProperty(GROUP)
        began_inside = long_job.is_set()
        batch.repartition(2).count()
        if began_inside and long_job.is_set():
            during.append(number)
            enough.touch()

    status = supervisor.run_to_exit_status(
        [ticking(spark, "long", tmp_path, long), ticking(spark, "short", tmp_path, short)]
    )
    assert status == 0
    assert during, "batches of the short query that began and ended inside the long job"
    assert {name: pools_of(spark, run) for name, run in runs.items()} == {
        "long": {"long"},
        "short": {"short"},
    }
    assert spark.sparkContext.getLocalProperty(POOL) is None


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Write Spark's event log meanwhile, and give its events afterwards."""
    jvm: Any = spark._jvm
    context, found = spark.sparkContext._jsc.sc(), list[dict[str, Any]]()
    conf = context.conf().clone()
    for key in ("compress", "rolling.enabled"):
        conf.set(f"spark.eventLog.{key}", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "pools", jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri()), conf
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield found
    finally:
        context.listenerBus().waitUntilEmpty(60_000)
        context.removeSparkListener(listener)
        listener.stop()
    found += [json.loads(line) for line in (folder / "pools").read_text().splitlines()]


@pytest.mark.slow  # the drill asks the same of its own logs each time
@pytest.mark.parametrize("kind", ["derive", "state", "latest", "join"])
def test_all_spark_jobs_of_a_query_have_its_pool_in_the_event_log(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, kind: str
) -> None:
    """Queries of the core, as a launch document has them: what they begin inside ``foreachBatch``, and in threads of their own, too."""
    job = Job(spark, broker, tmp_path, 0, kind)
    try:
        job.send()
        assert job.run() == RunResult(0, "")  # its tables are there
        job.send()
        with event_log(spark, tmp_path) as events:
            assert job.run() == RunResult(0, "")
        assert job.wrong() == {}
    finally:
        job.drop()
    names: dict[str, str] = {}
    jobs: list[dict[str, str]] = []
    for event in events:
        if event["Event"].endswith("QueryStartedEvent"):
            names[event["runId"]] = event["name"]
        elif event["Event"] == "SparkListenerJobStart" and names:
            jobs.append(event["Properties"])
    assert set(names.values()) == {"land", "derive"}
    pools = Counter(each.get(POOL) for each in jobs)
    assert {*pools} == {"land", "derive"}, pools
    grouped = [each for each in jobs if each.get(GROUP) in names]
    assert all(names[each[GROUP]] == each[POOL] for each in grouped)
    assert len(grouped) >= 0.5 * len(jobs) > 0
