"""``millrace scan`` lists all streaming jobs of an account, from moto or answers that botocore validates."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import Stubber
from typer.testing import CliRunner

from millrace.advisor.existing.account_scan import (
    UsageWindow,
    scan_emr_jobs,
    scan_glue_jobs,
    with_event_log_figures,
)
from millrace.cli.app import app
from millrace.config import ConfigurationError
from tests.page_without_browser import drawn
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import history, twice
from tests.unit.advisor.test_import_figures_from_event_log import reading

NOW = datetime(2026, 11, 27, tzinfo=UTC)
WINDOW = UsageWindow(NOW - timedelta(days=30), NOW)
REGION = "eu-central-1"
PROGRAM = """
import sys
from awsglue.utils import getResolvedOptions
args = getResolvedOptions(sys.argv, ["JOB_NAME"])
servers = "b-1.example.com:9094,b-2.example.com:9094"
rows = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "orders")
    .option("kafka.security.protocol", "SSL").load()
)
rows.writeStream.trigger(processingTime="10 seconds").format("iceberg").toTable("lake.orders")
"""

Clients = Callable[[str], Any]


@pytest.fixture
def account(server: str, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """An account of moto, in a region in which no other test has jobs."""
    values = {"endpoint_url": server, "access_key_id": "test", "secret_access_key": "test"}
    for key, value in values.items():
        monkeypatch.setenv(f"AWS_{key.upper()}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    make: Any = boto3.client
    return lambda service: make(service)


def make_job(clients: Clients, name: str, kind: str = "gluestreaming", **more: Any) -> str:
    glue = clients("glue")
    glue.create_job(
        Name=name,
        Role="theirs",
        Command={"Name": kind, "ScriptLocation": "s3://scanned/orders.py"},
        GlueVersion="4.0",
        WorkerType="G.1X",
        NumberOfWorkers=9,
        **more,
    )
    return str(glue.start_job_run(JobName=name)["JobRunId"])


def scan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["scan", *arguments])


def test_an_account_of_glue_jobs(account: Clients, tmp_path: Path) -> None:
    logs = {"--enable-spark-ui": "true", "--spark-event-logs-path": "s3://scanned/logs/"}
    s3 = account("s3")
    s3.create_bucket(Bucket="scanned", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="scanned", Key="orders.py", Body=PROGRAM.encode())
    made = {"orders": reading({"1": "orders"}), "doubled": history(twice(cached=False))}
    for name, ran in made.items():
        run = make_job(account, name, DefaultArguments=logs, Tags={"team": name})
        log = write(ran, tmp_path / "log").read_bytes()
        s3.put_object(Bucket="scanned", Key=f"logs/{run}", Body=log)
    make_job(account, "silent")
    make_job(account, "nightly", kind="glueetl")
    ended = scan("--json", "--html", str(tmp_path / "page.html"))
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    jobs = {each["name"]: each for each in document["jobs"]}
    assert set(jobs) == {*made, "silent"}
    orders, doubled = (jobs[each] for each in made)
    assert (orders["version"], orders["workers"], orders["source"]) == ("4.0", "9 G.1X", "glue:orders")
    assert orders["last_batch"].startswith("2023-11-14T22:18")
    assert orders["plan_usd_month"] > 0, orders["notes"]
    assert (doubled["finding"]["kind"], doubled["plan_usd_month"]) == ("rows-counted-twice", None)
    assert "--rate N" in doubled["notes"][0]
    assert "--spark-event-logs-path" in jobs["silent"]["notes"][0]
    assert jobs["silent"]["plan_usd_month"] is None
    page = drawn((tmp_path / "page.html").read_text())
    assert all(words in page for words in (*made, "silent", "rows-counted-twice"))
    told = scan("--tag", "team=doubled").stdout
    assert "1 streaming job," in told.splitlines()[0]
    assert "millrace advise --glue-job doubled" in told
    assert "silent" not in told


def glue_run(name: str, begun: datetime, ended: datetime | None, **more: Any) -> dict[str, Any]:
    run = {"Id": name, "StartedOn": begun, "JobRunState": "SUCCEEDED" if ended else "RUNNING", **more}
    return run | ({"CompletedOn": ended} if ended else {})


def test_the_use_of_glue_runs_is_that_within_the_time_that_is_asked(account: Clients) -> None:
    day = timedelta(days=1)
    job = {
        "Name": "orders",
        "Command": {"Name": "gluestreaming"},
        "GlueVersion": "4.0",
        "WorkerType": "G.025X",
        "NumberOfWorkers": 8,
        "DefaultArguments": {"--enable-auto-scaling": "true"},
    }
    runs = [
        glue_run("c", NOW - 2 * day, None),
        glue_run("b", NOW - 40 * day, NOW - 20 * day, DPUSeconds=864_000.0),
        glue_run("a", NOW - 50 * day, NOW - 40 * day, DPUSeconds=1e9),
    ]
    stub = Stubber(account("glue"))
    stub.add_response("get_jobs", {"Jobs": [job]}, {})
    stub.add_response("get_job_runs", {"JobRuns": runs[:1], "NextToken": "more"}, {"JobName": "orders"})
    stub.add_response("get_job_runs", {"JobRuns": runs[1:]}, {"JobName": "orders", "NextToken": "more"})
    with stub:
        [found] = scan_glue_jobs(lambda _: stub.client, "us-east-1", WINDOW, {})
    # Two days of eight quarters of a DPU, and the half of ten DPU-days that the second run took.
    assert found.usd == pytest.approx(0.44 * (2 * 24 * 2 + 10 * 24 / 2))
    assert found.at_most
    assert found.is_running
    assert found.run == "c"


def test_runs_of_emr_serverless_are_jobs_by_their_names(account: Clients) -> None:
    about = {"applicationId": "00f", "arn": "a" * 60, "createdAt": NOW, "updatedAt": NOW}
    app_ = {
        **about,
        "releaseLabel": "emr-7.5.0",
        "type": "SPARK",
        "state": "STARTED",
        "tags": {"team": "air"},
    }
    listed = {"id": "00f", "arn": "a" * 60, "releaseLabel": "emr-7.5.0", "type": "SPARK", "state": "STARTED"}
    run = {
        **about,
        "createdBy": "c" * 20,
        "executionRole": "r" * 20,
        "stateDetails": "s",
        "releaseLabel": "emr-7.5.0",
    }
    times = [
        ("s1", "orders", NOW - timedelta(days=60), NOW - timedelta(days=50), "FAILED"),
        ("s2", "orders", NOW - timedelta(days=50), NOW, "RUNNING"),
        ("s3", "clicks", NOW - timedelta(days=1), NOW, "SUCCESS"),
    ]
    summaries = [
        {
            **run,
            "id": id_,
            "name": name,
            "mode": "STREAMING",
            "createdAt": begun,
            "updatedAt": ended,
            "state": state,
        }
        for id_, name, begun, ended, state in times
    ]
    stub = Stubber(account("emr-serverless"))
    stub.add_response(
        "list_applications", {"applications": [{**listed, "createdAt": NOW, "updatedAt": NOW}]}, {}
    )
    stub.add_response("get_application", {"application": app_}, {"applicationId": "00f"})
    stub.add_response("list_job_runs", {"jobRuns": summaries}, {"applicationId": "00f", "mode": "STREAMING"})
    used = {"vCPUHour": 100.0, "memoryGBHour": 400.0, "storageGBHour": 0.0}
    conf = "--conf spark.executor.cores=2 --conf spark.dynamicAllocation.maxExecutors=7"
    driver = {"sparkSubmit": {"entryPoint": "s3://theirs/orders.py", "sparkSubmitParameters": conf}}
    for each in summaries[1:]:
        whole = {key: value for key, value in each.items() if key != "id"}
        answer = {**whole, "jobRunId": each["id"], "jobDriver": driver, "billedResourceUtilization": used}
        stub.add_response("get_job_run", {"jobRun": answer}, {"applicationId": "00f", "jobRunId": each["id"]})
    with stub:
        orders, clicks = scan_emr_jobs(lambda _: stub.client, "us-east-1", WINDOW, {"team": "air"})
        stub.assert_no_pending_responses()
    price = 100 * 0.052624 + 400 * 0.0057785
    assert orders.usd == pytest.approx(price * 30 / 50)
    assert clicks.usd == pytest.approx(price)
    assert (orders.state, clicks.is_running, orders.source) == ("RUNNING", False, "emr:00f/s2")
    assert orders.workers == "7 executors of 2 vCPU"


def refuse(account: Clients, service: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a service refuse a call as IAM does."""
    make: Any = boto3.Session.client

    def client(session: Any, name: str, *arguments: Any, **more: Any) -> Any:
        made = make(session, name, *arguments, **more)
        if name == service:
            stub = Stubber(made)
            stub.add_client_error(call, "AccessDeniedException", f"not authorized to perform {call}")
            stub.activate()
        return made

    monkeypatch.setattr(boto3.Session, "client", client)


def test_what_may_not_be_read_is_named_and_the_rest_is_shown(
    account: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(account, "emr-serverless", "list_applications", monkeypatch)
    ended = scan("--no-logs")
    assert ended.exit_code == 0
    assert "jobs of EMR Serverless are not known" in ended.stdout
    assert "list_applications" in ended.stdout
    refuse(account, "glue", "get_jobs", monkeypatch)
    assert scan("--no-logs").exit_code == 1


def test_a_job_whose_runs_may_not_be_read_is_not_said_to_have_never_run(account: Clients) -> None:
    stub = Stubber(account("glue"))
    stub.add_response("get_jobs", {"Jobs": [{"Name": "hidden", "Command": {"Name": "gluestreaming"}}]}, {})
    stub.add_client_error("get_job_runs", "AccessDeniedException", "not authorized")
    with stub:
        [found] = scan_glue_jobs(lambda _: stub.client, "us-east-1", WINDOW, {})
        [note] = with_event_log_figures(found, lambda _: stub.client, "us-east-1").notes
    assert note.startswith("its runs cannot be listed")
    assert (found.usd, found.is_running) == (None, False)


def test_a_run_that_waits_and_a_lost_connection_cost_no_other_job(
    account: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [{"Name": name, "Command": {"Name": "gluestreaming"}} for name in ("waits", "lost", "runs")]
    stub = Stubber(account("glue"))
    stub.add_response("get_jobs", {"Jobs": [{"Name": "old"}, *jobs]}, {})
    for name, state in (("waits", "WAITING"), ("runs", "RUNNING")):
        stub.add_response(
            "get_job_runs", {"JobRuns": [{"Id": "jr_1", "JobRunState": state}]}, {"JobName": name}
        )
    call = stub.client._make_api_call

    def lose(operation: str, given: Any) -> Any:
        if given.get("JobName") == "lost":
            raise ReadTimeoutError(endpoint_url="https://glue")
        return call(operation, given)

    monkeypatch.setattr(stub.client, "_make_api_call", lose)
    with stub:
        found = list(scan_glue_jobs(lambda _: stub.client, "us-east-1", WINDOW, {}))
    assert [(each.name, each.state, each.usd) for each in found] == [
        ("waits", "WAITING", 0.0),
        ("lost", "", None),
        ("runs", "RUNNING", 0.0),
    ]
    assert found[1].notes[0].startswith("its runs cannot be listed (Read timeout")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--tag", "team"], "--tag"), (["--region", "mars-north-1"], "--region"), (["--days", "0"], "--days")],
)
def test_wrong_options(account: Clients, arguments: list[str], named: str) -> None:
    ended = scan(*arguments)
    assert ended.exit_code == 2 or isinstance(ended.exception, ConfigurationError)
    assert named in f"{ended.output}{ended.exception}"


def test_a_region_is_asked_for_where_the_configuration_has_none(
    account: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    ended = scan()
    assert isinstance(ended.exception, ConfigurationError), ended.exception
    assert "--region" in str(ended.exception)
