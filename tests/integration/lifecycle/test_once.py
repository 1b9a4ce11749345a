"""Runs of a deployed job that have something to do once: a backfill, a benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.lifecycle.deployed import split_url
from millrace.lifecycle.once import run_once
from millrace.lifecycle.verbs import execute
from millrace.sizing.measured import read
from tests.integration.lifecycle.engines import Engines
from tests.integration.lifecycle.shop import EMR, GLUE, GLUE_KAFKA, Shop
from tests.unit.benchmark.made import B, session


@pytest.fixture(autouse=True)
def running(shop: Shop, engines: Engines) -> None:
    """All jobs run, whatever other tests have left them doing."""
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    for job in (GLUE, EMR, GLUE_KAFKA):
        assert execute(shop.aws, job, "start", progress=lambda _: None).ok
    engines.asked.clear()


def test_a_backfill_runs_once_in_place_of_its_job(shop: Shop, engines: Engines) -> None:
    asked = [("--backfill", "q"), ("--since", "2026-11-20T00:00:00+00:00"), ("--replace", "")]
    for job in (GLUE, EMR):
        said: list[str] = []
        ended = run_once(shop.aws, job, asked, progress=said.append, poll_seconds=0.1)
        assert ended.well, ended
        assert f"{job}: asking the run to end" in said
        (live,) = engines.live(shop.names.job(job))
        assert live != ended.run
    names = [name for name, _ in engines.asked]
    assert names == [
        "BatchStopJobRun",
        "StartJobRun",
        "StartJobRun",
        "CancelJobRun",
        "StartJobRun",
        "StartJobRun",
    ]
    glue, again, emr, _ = engines.calls("StartJobRun")
    assert glue == {"JobName": shop.names.job(GLUE), "Arguments": dict(asked)}
    assert again == {"JobName": shop.names.job(GLUE)}
    assert emr["mode"] == "BATCH"
    given = emr["jobDriver"]["sparkSubmit"]["entryPointArguments"]
    assert given[-5:] == ["--backfill", "q", "--since", "2026-11-20T00:00:00+00:00", "--replace"]
    assert "--launch-document" in given


@pytest.mark.parametrize(
    ("job", "engine", "calls"),
    [
        (EMR, "emr", ["CancelJobRun", "StartJobRun", "StartJobRun"]),
        (GLUE_KAFKA, "glue", ["BatchStopJobRun", "StartJobRun", "StartJobRun"]),
    ],
)
def test_a_benchmark_runs_once_on_the_jobs_own_engine(
    shop: Shop, engines: Engines, tmp_path: Path, job: str, engine: str, calls: list[str]
) -> None:
    store = shop.stack.client("s3")
    schedules = []

    def measure(url: str) -> None:
        """Write what such a job measures, where the schedule asks for it."""
        bucket, key = split_url(url)
        asked = json.loads(store.get_object(Bucket=bucket, Key=key)["Body"].read())
        schedules.append(asked)
        measured = session(2, queries={f"land-{job}": 1}).model_dump_json()
        bucket, key = split_url(asked["result"])
        store.put_object(Bucket=bucket, Key=key, Body=measured.encode())

    engines.measures = measure
    result = tmp_path / "measured.json"
    done = shop.millrace("bench", job, "--on", engine, "--yes", "--out", str(result))
    assert done.returncode == 0, done.stderr[-1500:]
    assert [name for name, _ in engines.asked] == calls
    (schedule,) = schedules
    assert {run["partitions"] for run in schedule["runs"]} == {1, 2}
    assert schedule["queries"] == [f"land-{job}"]
    written = read(result)
    assert written.core_seconds_per_record.value == pytest.approx(B, rel=0.1)
    assert len(engines.live(shop.names.job(job))) == 1


def test_a_benchmark_that_is_not_wanted_or_cannot_be_stops_nothing(shop: Shop, engines: Engines) -> None:
    assert shop.millrace("bench", EMR, "--on", "emr").returncode == 1  # nobody says yes
    # A stream of shards cannot be read from its beginning again and again.
    refused = shop.millrace("bench", GLUE, "--on", "glue", "--yes")
    assert refused.returncode == 2
    assert "a Kafka topic, to be measured there" in refused.stderr
    assert engines.asked == []
