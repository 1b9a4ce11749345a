"""Bounded runs of a job process what had arrived at their start, end, and continue where the last one ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import Job, RunResult

PERIOD = 600.0


@pytest.fixture
def job(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Job]:
    made = Job(spark, broker, tmp_path, 0, request.param)
    made.run_every_seconds = PERIOD
    yield made
    made.drop()


def batches(job: Job) -> int:
    return sum(event["event"] == "batch" for event in job.events)


def run_periods(spark: SparkSession, job: Job, periods: int, kills: tuple[int, ...]) -> None:
    """Play periods, of which some are killed when the last query has committed a batch that Spark has not noted."""
    for period in range(periods):
        for _ in range(1 + period % 2):
            job.send()
        killed = period in kills
        result = job.run(dies=killed)
        assert result.status == int(killed), result
        assert spark.streams.active == [], "nothing runs between"
        if not killed:
            assert job.wrong() == {}, period


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("job", ["land", "state"], indirect=True)
def test_a_killed_run_is_finished_by_the_next(spark: SparkSession, job: Job) -> None:
    run_periods(spark, job, 3, kills=(1,))
    assert job.run() == RunResult(0, "")
    assert batches(job) == 0, "nothing had arrived"


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("job", ["derive", "state", "latest", "join"], indirect=True)
def test_ten_periods_land_and_derive_each_record_once_and_in_order(spark: SparkSession, job: Job) -> None:
    run_periods(spark, job, 10, kills=(2, 3, 7))


@pytest.mark.slow
@pytest.mark.parametrize("job", ["land"], indirect=True)
def test_a_run_ends_while_records_keep_coming(job: Job) -> None:
    job.send()
    job.send()
    assert job.run(disturbed=job.send) == RunResult(0, "")
    assert 2 <= batches(job) <= 4, "what had arrived, and no more than the batch that covers it"
    assert set(job.wrong()) == {"lost"}, "what came later is left to the next run"
    assert job.run() == RunResult(0, "")
    assert job.wrong() == {}
