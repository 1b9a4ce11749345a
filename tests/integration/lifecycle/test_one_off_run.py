"""One-off runs of a deployed job: a backfill, a replay and a benchmark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from millrace.lifecycle.account.deployed_environment import split_s3_url
from millrace.lifecycle.jobs.state_machine import execute_verb, find_state_machine_arn, run_job_once
from millrace.sizing.queries.benchmark_figures import read_result
from tests.integration.lifecycle.deployed_shop import EMR, GLUE, GLUE_KAFKA, Shop
from tests.integration.lifecycle.simulated_engines import Engines
from tests.unit.benchmark.synthetic_measurements import B, session

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def running(shop: Shop, engines: Engines) -> None:
    """All jobs run, whatever other tests have left them doing."""
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    for job in (GLUE, EMR, GLUE_KAFKA):
        assert execute_verb(shop.aws, job, "start", progress=lambda _: None).ok
    engines.asked.clear()


@pytest.mark.slow
def test_a_backfill_runs_once_in_place_of_its_job(shop: Shop, engines: Engines) -> None:
    asked = [("--backfill", "q"), ("--since", "2026-11-20T00:00:00+00:00"), ("--replace", "")]
    for job in (GLUE, EMR):
        said: list[str] = []
        ended = run_job_once(shop.aws, job, asked, progress=said.append, poll_seconds=0.1)
        assert ended.succeeded, ended
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
    assert (emr["mode"], emr["executionTimeoutMinutes"]) == ("BATCH", 10_080)
    given = emr["jobDriver"]["sparkSubmit"]["entryPointArguments"]
    assert given[-5:] == ["--backfill", "q", "--since", "2026-11-20T00:00:00+00:00", "--replace"]
    assert "--launch-document" in given


@pytest.mark.parametrize("job", [GLUE, pytest.param(EMR, marks=pytest.mark.slow)])
def test_no_run_is_started_with_code_or_settings_of_the_callers(
    shop: Shop, engines: Engines, job: str
) -> None:
    """Also not by a value that the entry script would read as a name, nor by another shape of the input."""
    assert execute_verb(shop.aws, job, "stop", progress=lambda _: None).ok
    engines.asked.clear()
    client, arn = shop.stack.client("stepfunctions"), find_state_machine_arn(shop.aws, job)
    own = f"{shop.names.checkpoints_url(job)}/_millrace/replays/1/corrected.jsonl"
    replay = {"name": "--replay", "value": "q"}
    for arguments in (
        [],
        replay["name"],
        ["--replay"],
        [replay, {"name": "--launch-document", "value": "s3://x/launch.json"}],
        [replay, {"name": "--extra-py-files", "value": "s3://x/a.zip"}],
        [replay, {"name": "--bind", "value": "checkpoints=s3://x"}],
        [{"name": "--id", "value": "--launch-document"}, {"name": "--since", "value": "s3://x/launch.json"}],
        [{"name": "--id", "value": ["a", "--launch-document", "s3://x"]}],
        [{"name": ["--id", "--launch-document"], "value": "s3://x"}],
        [replay, {"name": "--corrected", "value": "s3://elsewhere/corrected.jsonl"}],
        [{"name": "--benchmark", "value": own.replace(f"/{job}/", "/other/")}],
        [{"value": "q"}],
    ):
        started = client.start_execution(
            stateMachineArn=arn, input=json.dumps({"verb": "once", "arguments": arguments})
        )
        ended = until_ended(client, started["executionArn"])
        assert (ended["status"], ended.get("error")) == ("FAILED", "Millrace.WrongArguments"), arguments
    assert engines.calls("StartJobRun") == []
    # As it is asked for by `millrace replay`; then a second one, while the job runs.
    given = [("--replay", "q"), ("--corrected", own)]
    first = execute_verb(shop.aws, job, "once", progress=lambda _: None, arguments=given)
    assert (first.ok, first.outcome) == (True, "once"), first
    assert execute_verb(shop.aws, job, "start", progress=lambda _: None).ok
    second = execute_verb(shop.aws, job, "once", progress=lambda _: None, arguments=given)
    assert (second.ok, second.outcome) == (False, "Millrace.NotStopped")


def until_ended(client: Any, execution: str) -> dict[str, Any]:
    while (response := client.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(0.1)
    return dict(response)


@pytest.mark.slow
def test_a_replay_runs_once_in_place_of_its_job_and_tells_what_came_of_it(
    shop: Shop, engines: Engines, tmp_path: Path
) -> None:
    query = f"land-{GLUE}"
    said = {"event": "replayed", "job": GLUE, "query": query, "letters": 2, "good": 1, "bad": 1, "already": 0}
    logs, s3 = shop.stack.client("logs"), shop.stack.client("s3")
    read: list[bytes] = []
    group = f"/{shop.names.prefix}/jobs/{GLUE}/output"

    def say(_: str) -> None:
        """Read what such a run reads, and write what it says, where Glue writes it."""
        bucket, key = split_s3_url(engines.calls("StartJobRun")[0]["Arguments"]["--corrected"])
        read.append(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName="run")
        line = {
            "timestamp": int(time.time() * 1000),
            "message": json.dumps({**said, "unknown_ids": []}),
        }
        logs.put_log_events(logGroupName=group, logStreamName="run", logEvents=[line])

    engines.replays = say
    corrected = tmp_path / "corrected.jsonl"
    corrected.write_text('{"id": "a/0/1", "payload": "{}"}\n')
    given = (GLUE, "--id", "a/0/1", "--id", "a/0/2", "--corrected", str(corrected))
    assert shop.millrace("replay", *given).returncode == 2  # nobody says yes
    assert engines.asked == []
    done = shop.millrace("replay", *given, "--yes", "--json")
    assert done.returncode == 0, done.stderr[-1500:]
    outcome = json.loads(done.stdout)
    assert {key: outcome[key] for key in said} == said
    assert outcome["state"] == "SUCCEEDED"
    assert [name for name, _ in engines.asked] == ["BatchStopJobRun", "StartJobRun", "StartJobRun"]
    arguments = engines.calls("StartJobRun")[0]["Arguments"]
    # Glue takes each name once.
    assert (arguments["--replay"], arguments["--id"]) == (query, "a/0/1,a/0/2")
    assert read == [corrected.read_bytes()]
    bucket, folder = split_s3_url(f"{shop.names.checkpoints_url(GLUE)}/_millrace/replays")
    assert arguments["--corrected"].startswith(f"s3://{bucket}/{folder}/")
    # People's data lies there as long as the run takes.
    assert s3.list_objects_v2(Bucket=bucket, Prefix=folder)["KeyCount"] == 0


@pytest.mark.slow
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
        bucket, key = split_s3_url(url)
        asked = json.loads(store.get_object(Bucket=bucket, Key=key)["Body"].read())
        schedules.append(asked)
        measured = session(2, queries={f"land-{job}": 1}).model_dump_json()
        bucket, key = split_s3_url(asked["result"])
        store.put_object(Bucket=bucket, Key=key, Body=measured.encode())

    engines.measures = measure
    result = tmp_path / "measured.json"
    done = shop.millrace("bench", job, "--on", engine, "--yes", "--out", str(result))
    assert done.returncode == 0, done.stderr[-1500:]
    assert [name for name, _ in engines.asked] == calls
    (schedule,) = schedules
    assert {run["partitions"] for run in schedule["runs"]} == {1, 2}
    assert schedule["queries"] == [f"land-{job}"]
    written = read_result(result)
    assert written.core_seconds_per_record.value == pytest.approx(B, rel=0.1)
    assert len(engines.live(shop.names.job(job))) == 1


@pytest.mark.slow
def test_a_benchmark_that_is_not_wanted_or_cannot_be_stops_nothing(shop: Shop, engines: Engines) -> None:
    assert shop.millrace("bench", EMR, "--on", "emr").returncode == 2  # nobody says yes
    # A stream of shards cannot be read from its beginning again and again.
    refused = shop.millrace("bench", GLUE, "--on", "glue", "--yes")
    assert refused.returncode == 2
    assert "the benchmark on an engine cannot read a Kinesis stream" in refused.stderr
    assert engines.asked == []
