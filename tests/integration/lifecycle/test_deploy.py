"""``millrace deploy`` and the verbs, from the first deployment on, as processes of their own.

CDK deploys a small environment to LocalStack; the machines run there as they were deployed.
The two engines of ``simulated_engines.py`` begin and end runs and write the metrics that jobs write.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.run.changes_report import change_lines
from millrace.cli.run.shared_cdk_steps import cdk_deploy_all as deploy_assembly
from millrace.lifecycle.account.deployed_environment import read_stack_outputs
from millrace.lifecycle.changes.assembly_with_other_templates import write_assembly_with_templates
from millrace.lifecycle.changes.deployment_changes import JobChange
from millrace.lifecycle.deploy import (
    DeployError,
    DeploymentChanges,
    compare_with_deployed,
    deploy_around_jobs_and_return_started,
)
from millrace.lifecycle.jobs.state_machine import execute_verb, find_state_machine_arn
from millrace.lifecycle.upgrade_or_rollback_job import (
    UpgradeError,
    find_previous_version,
    read_deployed_version,
    upgrade_job_and_tell_if_started,
)
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.toolchain import state_folder
from tests.integration.lifecycle.deployed_shop import (
    AGE_SECONDS,
    EMR,
    GLUE,
    GLUE_KAFKA,
    SLOWEST_SECONDS,
    Shop,
)
from tests.integration.lifecycle.other_job_version import another_version, tell_failure, update_stack
from tests.integration.lifecycle.simulated_engines import Engines
from tests.unit.lifecycle.test_aws_error_messages import refusing

# What is deployed, started, told and refused is in tests/unit/lifecycle/test_deployed_diff.py, against moto.
pytestmark = pytest.mark.slow


def test_an_account_that_is_not_bootstrapped_is_told(shop: Shop) -> None:
    assert (shop.before.returncode, shop.before.stdout) == (1, "")
    told = shop.before.stderr.splitlines()
    account = localstack.ACCOUNT
    assert f"bootstrap: cdk bootstrap aws://{account}/us-east-1" in told
    assert told[-1] == (
        f"millrace deploy: bootstrap: account {account} is not bootstrapped for CDK in us-east-1; nothing was "
        "deployed or stopped"
    )


def test_a_first_deployment_shows_deploys_starts_and_watches(shop: Shop, engines: Engines) -> None:
    done = shop.first
    assert done.returncode == 0, done.stderr[-1500:]
    shown = done.stdout.splitlines()
    for job in (GLUE, EMR):
        assert f"stack shop-shop-job-{job} (new)" in shown
        assert f"job {job}: deploy, start: is new" in shown
        assert f"{job}: healthy, every query ends its triggers; records: {AGE_SECONDS} s old" in done.stderr
    assert any(": Allow glue:BatchStopJobRun, glue:GetJobRun" in line for line in shown)
    assert shown[-1] == f"deployed shop; started: {GLUE}, {EMR}, {GLUE_KAFKA}"
    glue, emr = engines.calls("StartJobRun")[:2]
    assert glue == {"JobName": shop.names.job(GLUE)}
    assert (emr["name"], emr["mode"]) == (shop.names.job(EMR), "STREAMING")
    # Alarms of jobs that run act, all of them.
    assert {on for job in (GLUE, EMR) for on in shop.alarms(job).values()} == {True}


def test_a_change_drains_what_must_be_replaced_and_restarts_what_got_another_number(
    shop: Shop, engines: Engines
) -> None:
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    engines.asked.clear()
    text = shop.file.read_text()
    changed = text.replace("architecture: x86_64", "architecture: arm64").replace(
        "trigger: 10s", "trigger: 20s", 1
    )
    shop.file.write_text(changed)
    done = shop.millrace("deploy", "--yes")
    assert done.returncode == 0, done.stderr[-1500:]
    shown, told = done.stdout, done.stderr.splitlines()
    # An application cannot change its architecture: its run is drained, and it is stopped, before.
    assert f"job {EMR}: drain, deploy, restart: its application changes" in shown
    assert told.index(f"{EMR}: asking the run to end") < told.index("deploying")
    assert told.index(f"{EMR}: stopping its application") < told.index("deploying")
    assert told.index("deploying") < told.index(f"{EMR}: starting a run")
    # A number is in the launch document: the run continues until the new document is there.
    assert f"job {GLUE}: deploy, restart: its launch document changes" in shown
    assert "  settings.queries[0].trigger_seconds: 10.0 → 20.0" in shown.splitlines()
    assert told.index("deploying") < told.index(f"{GLUE}: asking the run to end")
    assert shown.splitlines()[-1] == f"deployed shop; started: {GLUE}, {EMR}"
    assert [name for name, _ in engines.asked] == [
        "CancelJobRun",
        "StopApplication",
        "BatchStopJobRun",
        "StartJobRun",
        "StartJobRun",
    ]
    (cancel,) = engines.calls("CancelJobRun")
    assert cancel["shutdownGracePeriodInSeconds"] == "1800"
    # What is deployed is what was asked for, so that the same again is nothing.
    assert change_lines(compare_with_deployed(shop.aws, assembly_of(shop))) == ["nothing changes"]


def assembly_of(shop: Shop) -> Path:
    """What the newest command synthesised; each has a folder of its own."""
    return max(
        (state_folder() / "deploy" / shop.file.stem).glob("*/manifest.json"), key=os.path.getmtime
    ).parent


@pytest.mark.faults
def test_a_run_that_ends_without_being_asked_is_started_again_by_its_event(
    shop: Shop, engines: Engines
) -> None:
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    ended = {job: engines.crash(shop.names.job(job)) for job in (GLUE, EMR)}
    application = read_stack_outputs(shop.stack.client("cloudformation"), shop.names.stack(f"job-{EMR}"))[
        "ApplicationId"
    ]
    events = [
        (
            "aws.glue",
            "Glue Job State Change",
            {"jobName": shop.names.job(GLUE), "jobRunId": ended[GLUE], "state": "FAILED"},
        ),
        (
            "aws.emr-serverless",
            "EMR Serverless Job Run State Change",
            {"applicationId": application, "jobRunId": ended[EMR], "state": "FAILED"},
        ),
    ]
    shop.stack.client("events").put_events(
        Entries=[
            {"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}
            for source, kind, detail in events
        ]
    )
    deadline = time.monotonic() + 90
    while not all(engines.live(shop.names.job(job)) for job in (GLUE, EMR)):
        assert time.monotonic() < deadline, "not started again"
        time.sleep(1)
    states = shop.stack.client("stepfunctions")
    for job in (GLUE, EMR):
        (run,) = engines.live(shop.names.job(job))
        assert run != ended[job]
        response = states.list_executions(stateMachineArn=find_state_machine_arn(shop.aws, job))["executions"]
        given = [
            json.loads(states.describe_execution(executionArn=each["executionArn"])["input"])
            for each in response
        ]
        # The schedule looks for runs that ended too, and may come in the same moment.
        assert {"verb": "restart", "reason": f"run {ended[job]} ended as FAILED"} in given


@pytest.mark.parametrize(
    ("status", "code", "message", "said"),
    [
        (403, "ExpiredToken", "The security token included in the request is expired", "sign in again"),
        (403, "AccessDenied", "User: x is not authorized to perform: sts:x", "ask for that permission"),
    ],
)
def test_what_cdk_itself_is_refused_is_told_with_what_to_do(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, status: int, code: str, message: str, said: str
) -> None:
    with refusing(status, code, message) as url:
        for key, value in shop.stack.environment_variables().items():
            monkeypatch.setenv(key, value.replace(shop.stack.endpoint, url))
        with pytest.raises(DeployError, match=r"^cdk deploy ended with status 1\n") as refused:
            deploy_assembly(assembly_of(shop), (), {}, imports=False)
    assert f"what to do: {said}" in str(refused.value)
    assert "    at " not in str(refused.value)


def verbs(shop: Shop, engines: Engines, job: str) -> dict[str, Any]:
    """Run one verb after the other; tell what each said, and how the alarms stood."""
    result: dict[str, Any] = {"status": shop.millrace("status", job, "--json")}
    result["run"] = json.loads(result["status"].stdout)["run"]
    result["stop"] = shop.millrace("stop", job)
    result["alarms when stopped"] = shop.alarms(job)
    result["start"] = shop.millrace("start", job)
    result["alarms when running"] = shop.alarms(job)
    result["drain"] = shop.millrace("drain", job, "--json")
    result["after"] = shop.millrace("status", job)
    return result


def test_a_schema_that_no_table_takes_is_refused_before_anything_is_stopped(
    shop: Shop, engines: Engines
) -> None:
    """The deployed table has a column that nothing fills any more; another one lacks a field, which would be added."""
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    text = shop.file.read_text()
    headers = [{"id": 21, "name": "key", "type": "string"}, {"id": 22, "name": "value", "type": "binary"}]
    landed: dict[str, Any] = dict.fromkeys(("_id", "_source", "_shard", "_position"), "string")
    landed |= {"_key": "binary"}
    landed |= {"_headers": {"type": "list", "element": {"type": "struct", "fields": headers}}}
    landed |= {"_arrived_at": "timestamptz", "_hash": "long", "_landed_at": "timestamptz"}
    landed |= {"session": "string", "page": "string", "clicked_at": "timestamptz"}
    landed |= {"_bytes": "binary", "_stage": "string", "_error": "string"}
    database, bucket = shop.names.database, shop.names.bucket("lake")
    for table, columns in (
        ("clicks_landed", landed),
        ("orders_landed", {**landed, "referrer": "string", "colour": "string"}),
    ):
        fields = [{"id": n, "name": c, "type": kind} for n, (c, kind) in enumerate(columns.items(), 1)]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        body = json.dumps({"format-version": 2, "current-schema-id": 0, "schemas": [schema]})
        key = f"warehouse/{database}.db/{table}/metadata/1.metadata.json"
        shop.stack.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
        engines.tables[f"{database}.{table}"] = f"s3://{bucket}/{key}"
    engines.asked.clear()
    try:
        shop.file.write_text(re.sub("trigger: [0-9]+s", "trigger: 30s", text))
        done = shop.millrace("deploy", "--yes")
    finally:
        shop.file.write_text(text)
        engines.tables = {}
    assert done.returncode == 2, done.stderr[-1500:]
    assert f"table {database}.clicks_landed: ADD COLUMN `referrer` string" in done.stdout.splitlines()
    refused = done.stderr.splitlines()
    assert "millrace deploy: no job was stopped and nothing was deployed, for these reasons:" in refused
    assert any(
        line.startswith(
            f"job {EMR}, query land-orders: table lake.{database}.orders_landed: has column colour, which the schema lacks"
        )
        and "name another table and replay into it" in line
        for line in refused
    ), refused
    assert engines.asked == []


def test_status_stop_start_and_drain_of_running_jobs(shop: Shop, engines: Engines) -> None:
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    engines.asked.clear()
    with ThreadPoolExecutor(2) as pool:
        both = dict(
            zip((GLUE, EMR), pool.map(lambda job: verbs(shop, engines, job), (GLUE, EMR)), strict=True)
        )
    for job, ending, ended in ((GLUE, "STOPPING", "STOPPED"), (EMR, "CANCELLING", "CANCELLED")):
        result = both[job]
        assert {result[verb].returncode for verb in ("status", "stop", "start", "drain", "after")} == {0}, (
            result
        )
        before = json.loads(result["status"].stdout)
        assert (before["state"], before["desired_state"]) == ("RUNNING", "running")
        # Asked once, seen while it was ending, and not called stopped before it had ended.
        assert engines.seen[result["run"]][-3:] == ["RUNNING", ending, ended]
        assert result["stop"].stdout == f"{job}: stopped: no run is active\n"
        said = result["stop"].stderr.splitlines()
        assert said.count(f"{job}: asking the run to end") == 1
        assert said.count(f"{job}: waiting until the run has ended") >= 1
        silent = {name for name, acts in result["alarms when stopped"].items() if not acts}
        assert silent == {f"shop-shop/job/{job}/land-{job}/no-batch"}
        assert set(result["alarms when running"].values()) == {True}
        assert result["start"].stdout.startswith(f"{job}: running: run ")
        assert result["start"].stdout.endswith(" is RUNNING\n")
        drained = json.loads(result["drain"].stdout)
        assert (drained["outcome"], drained["state"], drained["alarms"]) == ("stopped", "NONE", "off")
        assert result["after"].stdout == f"{job}: status: desired state: stopped; no run\n"
    # Half as much again as the slowest batch took, and 15 s. A drain waits as long as there is.
    grace = [int(call["shutdownGracePeriodInSeconds"]) for call in engines.calls("CancelJobRun")]
    assert grace == [math.ceil(SLOWEST_SECONDS * 1.5) + 15, 1800]


def test_a_job_that_somebody_stopped_stays_stopped(shop: Shop, engines: Engines) -> None:
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    assert execute_verb(shop.aws, GLUE, "stop", progress=lambda _: None).ok
    engines.asked.clear()
    said: list[str] = []
    change = DeploymentChanges((), (JobChange(GLUE, "leave", "restart", ("number",)),), {})
    assert (
        deploy_around_jobs_and_return_started(shop.aws, change, cdk_deploy=lambda: None, progress=said.append)
        == ()
    )
    assert f"{GLUE}: stays stopped, as it was" in said
    assert engines.asked == []


@pytest.mark.faults
def test_what_was_drained_for_a_deployment_that_failed_is_started_again(shop: Shop, engines: Engines) -> None:
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    assert execute_verb(shop.aws, GLUE, "start", progress=lambda _: None).ok
    engines.asked.clear()

    def fail() -> None:
        raise DeployError("cdk deploy ended with status 1")

    change = DeploymentChanges((), (JobChange(GLUE, "drain", "restart", ("stream clicks goes",)),), {})
    with pytest.raises(DeployError, match=f"status 1\n{GLUE} had been drained and started again as before"):
        deploy_around_jobs_and_return_started(shop.aws, change, cdk_deploy=fail, progress=lambda _: None)
    assert [name for name, _ in engines.asked] == ["BatchStopJobRun", "StartJobRun"]
    assert execute_verb(shop.aws, GLUE, "status", progress=lambda _: None).answer["state"] == "RUNNING"


@pytest.mark.faults
def test_an_upgrade_that_fails_is_taken_back(
    shop: Shop, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version's run tells a failure; CloudFormation alone deploys, from the assemblies that are written."""
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]
    assert execute_verb(shop.aws, EMR, "start", progress=lambda _: None).ok
    before, well = read_deployed_version(shop.aws, EMR), engines.plays
    new = another_version(shop, EMR, before)

    def plays(job: str) -> None:
        newest = max((run for run in engines.runs.values() if run.job == job), key=lambda run: run.begun)
        if new.document_url in newest.driver["sparkSubmit"]["entryPointArguments"]:
            tell_failure(shop, EMR)
        else:
            well(job)

    monkeypatch.setattr(engines, "plays", plays)
    stack = shop.names.stack(f"job-{EMR}")
    assembly = assembly_of(shop)
    said: list[str] = []
    engines.asked.clear()
    with pytest.raises(UpgradeError) as failed:
        upgrade_job_and_tell_if_started(
            shop.aws,
            DeploymentChanges(
                (), (JobChange(EMR, "leave", "restart", ("its launch document changes",)),), {}
            ),
            EMR,
            assembly=write_assembly_with_templates(assembly, {stack: new.template}, tmp_path / "new"),
            cdk_deploy=lambda written, name: update_stack(shop, written, name),
            progress=said.append,
        )
    assert str(failed.value).splitlines() == [
        "deployed, but not healthy:",
        f"{EMR}: a query failed after the start: land-orders: the new version cannot; "
        f"`millrace logs {EMR} --env shop --errors` shows the stack trace",
        f"{EMR} is rolled back: the previous version runs and is healthy",
    ]
    assert [name for name, _ in engines.asked] == ["CancelJobRun", "StartJobRun"] * 2
    started = [
        call["jobDriver"]["sparkSubmit"]["entryPointArguments"] for call in engines.calls("StartJobRun")
    ]
    for given, url in zip(started, (new.document_url, before.document_url), strict=True):
        assert url in given
    tokens = {call["clientToken"] for call in engines.calls("StartJobRun")}
    assert len(tokens) == 2
    assert read_deployed_version(shop.aws, EMR).document_url == before.document_url
    assert any(line.startswith(f"{EMR}: rolling back to the previous version: ") for line in said)
    # What failed is nothing to roll back to.
    with contextlib.suppress(UpgradeError):
        assert find_previous_version(shop.aws, EMR).document_url not in (
            before.document_url,
            new.document_url,
        )
