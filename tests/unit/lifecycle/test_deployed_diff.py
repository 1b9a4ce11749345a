"""Deployed stacks, read from moto's server, are compared with an assembly."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber

from millrace.cli.run.changes_report import change_lines, removal_questions
from millrace.lifecycle import deploy as deploying
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.deployment_changes import JobChange
from millrace.lifecycle.changes.undeclared_stacks import StackRemoval
from millrace.lifecycle.deploy import DeploymentChanges, _stop_application, compare_with_deployed
from millrace.verify.aws_target import AwsAccountTarget
from tests.unit.lifecycle.deployed_jobs import (
    BUCKET,
    CHECKPOINTS,
    new,
    stand,
    tagged,
    template,
    with_jobs,
    writing,
)

ROOT = Path(__file__).parents[3]


def document(workers: int) -> dict[str, Any]:
    return {"version": 1, "workers": {"max": workers}, "settings": {"queries": []}}


def assembly(folder: Path, workers: int) -> Path:
    name = f"{workers}.json"
    (folder / "hello-minimal-job-clicks.template.json").write_text(
        json.dumps(template(workers, f"s3://{BUCKET}/{name}"))
    )
    (folder / f"asset.{name}").write_text(json.dumps(document(workers)))
    return folder


def test_a_first_deployment_starts_everything(aws: DeployedEnvironment, tmp_path: Path) -> None:
    result = compare_with_deployed(aws, assembly(tmp_path, 3))
    assert [(job.job, job.before, job.after) for job in result.jobs] == [("clicks", "leave", "start")]
    assert result.stacks[0].new


def test_a_second_deployment_lists_changed_numbers_and_restarts(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="3.json", Body=json.dumps(document(3)))
    aws.client("cloudformation").create_stack(
        StackName="hello-minimal-job-clicks", TemplateBody=json.dumps(template(3, f"s3://{BUCKET}/3.json"))
    )
    assert not compare_with_deployed(aws, assembly(tmp_path, 3))
    (tmp_path / "hello-minimal-job-clicks.template.json").unlink()
    result = compare_with_deployed(aws, assembly(tmp_path, 5))
    assert result.numbers["clicks"] == ("workers.max: 3 → 5",)
    assert [(job.before, job.after) for job in result.jobs] == [("leave", "restart")]
    assert result.stacks[0].resources == ("~ AWS::SNS::Topic Topic: DisplayName",)


@pytest.mark.parametrize(
    ("shards", "updates"),
    [
        (1, ["provisioned, with 4 open shards", "4 to 2 shards", "2 to 1 shards"]),
        (4, []),
        (9, ["provisioned, with 4 open shards", "4 to 8 shards", "8 to 9 shards"]),
    ],
)
def test_an_on_demand_stream_becomes_provisioned_with_its_open_shards(
    aws: DeployedEnvironment, tmp_path: Path, shards: int, updates: list[str]
) -> None:
    """UpdateShardCount takes at most double and at least half of the open shards, which no template of an on-demand stream has."""

    def streams(**properties: Any) -> str:
        resource = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "hello-clicks", **properties}}
        return json.dumps({"Resources": {"Clicks": resource}})

    stack = "hello-minimal-streams"
    aws.client("cloudformation").create_stack(
        StackName=stack, TemplateBody=streams(StreamModeDetails={"StreamMode": "ON_DEMAND"})
    )
    for count in (2, 4):  # as Kinesis does by itself
        aws.client("kinesis").update_shard_count(
            StreamName="hello-clicks", TargetShardCount=count, ScalingType="UNIFORM_SCALING"
        )
    (tmp_path / f"{stack}.template.json").write_text(
        streams(StreamModeDetails={"StreamMode": "PROVISIONED"}, ShardCount=shards)
    )
    result = compare_with_deployed(aws, assembly(tmp_path, 3))
    stages = result.stages.get(stack, [])
    assert [what for what, _ in stages] == [f"hello-clicks: {each}" for each in updates]
    counts = [4]
    for _, step in stages:
        properties = step["Resources"]["Clicks"]["Properties"]
        assert properties["StreamModeDetails"] == {"StreamMode": "PROVISIONED"}
        counts.append(properties["ShardCount"])
    assert counts[-1] == shards or not stages
    assert all(after <= 2 * before <= 4 * after for before, after in itertools.pairwise(counts))


def test_a_stack_whose_first_creation_failed_is_new(aws: DeployedEnvironment, tmp_path: Path) -> None:
    """CloudFormation gives its template anyway."""
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="3.json", Body=json.dumps(document(3)))
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(
        StackName="hello-minimal-job-clicks", TemplateBody=json.dumps(template(3, f"s3://{BUCKET}/3.json"))
    )

    class Failed:
        def describe_stacks(self, **given: str) -> Any:
            (stack,) = cloudformation.describe_stacks(**given)["Stacks"]
            return {"Stacks": [{**stack, "StackStatus": "ROLLBACK_COMPLETE"}]}

        def __getattr__(self, name: str) -> Any:
            return getattr(cloudformation, name)

    failed = DeployedEnvironment(
        aws.names, lambda service: Failed() if service == "cloudformation" else aws.client(service)
    )
    result = compare_with_deployed(failed, assembly(tmp_path, 3))
    assert (result.stacks[0].new, result.jobs[0].after) == (True, "start")


def test_a_job_that_left_the_file_is_drained_and_its_stack_removed(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, clicks=writing("clicks"), gone=writing("gone", table="db.other"))
    result = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks")))
    assert result.refused == ()
    assert [(job.job, job.before, job.after) for job in result.jobs[:1]] == [("gone", "drain", "remove")]
    (removal,) = result.removals
    assert (removal.stack, removal.job, removal.first) == ("hello-minimal-job-gone", "gone", True)
    assert removal.stays == ("table or output db.other", f"checkpoints {CHECKPOINTS}/gone")
    (question, _) = removal_questions(result)
    assert question.startswith("Remove job gone?")
    assert "db.other" in question
    assert f"{CHECKPOINTS}/gone" in question


def test_another_environment_of_a_like_name_is_left_alone(aws: DeployedEnvironment, tmp_path: Path) -> None:
    stand(aws, clicks=writing("clicks"))
    aws.client("cloudformation").create_stack(
        StackName="hello-minimal-2-job-clicks",
        TemplateBody=json.dumps(tagged(template(1, "s3://x/y"), "hello", "minimal-2")),
    )
    assert compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks"))).removals == ()


class Verbs:
    """Verbs of state machines, noted with what is deployed and removed between them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.idle: tuple[str, ...] = ()

    def run(self, _aws: Any, job: str, what: str, **_: Any) -> dict[str, Any]:
        self.calls.append(f"{what} {job}")
        return {"desired_state": "stopped" if job in self.idle else "running"}

    def deploy(self, aws: DeployedEnvironment, changes: DeploymentChanges) -> tuple[str, ...]:
        return deploying.deploy_around_jobs_and_return_started(
            aws,
            changes,
            cdk_deploy=lambda: self.calls.append("deploy"),
            progress=lambda _: None,
            cdk_remove=lambda stack: self.calls.append(f"remove {stack}"),
        )


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> Verbs:
    result = Verbs()
    monkeypatch.setattr(deploying, "_run_verb", result.run)
    monkeypatch.setattr(deploying, "_stop_application", lambda *_: None)
    monkeypatch.setattr(deploying, "wait_until_healthy", lambda *_, **__: None)
    return result


def test_a_removed_job_is_drained_before_its_stack_goes_and_a_renamed_one_starts_after(
    aws: DeployedEnvironment, verbs: Verbs
) -> None:
    verbs.idle = ("idle",)
    result = DeploymentChanges(
        (),
        (
            JobChange("gone", "drain", "remove", ()),
            JobChange("idle", "drain", "remove", ()),
            JobChange("was", "drain", "remove", ()),
            JobChange("is", "leave", "start", (), "was"),
            JobChange("quiet", "leave", "start", (), "idle"),
        ),
        {},
        removals=(
            StackRemoval("job-was", "was", "is"),
            StackRemoval("p-streams", protected=True),
            StackRemoval("job-gone", "gone", first=True),
        ),
    )
    assert verbs.deploy(aws, result) == ("is",)
    assert [call for call in verbs.calls if not call.startswith("status")] == [
        *("drain gone", "drain was", "remove job-gone", "deploy", "remove job-was", "start is", "stop quiet")
    ]


def test_a_job_whose_name_another_takes_is_drained_first(aws: DeployedEnvironment, tmp_path: Path) -> None:
    """`second` leaves, and `third` takes its name."""
    stand(
        aws,
        clicks=writing("clicks"),
        second=writing("second", table="db.2"),
        third=writing("third", table="db.3"),
    )
    files = {"clicks": writing("clicks"), "second": writing("second", table="db.3", checkpoints="third")}
    result = compare_with_deployed(with_jobs(aws, *files), new(tmp_path, **files))
    jobs = {job.job: (job.before, job.after, job.continues) for job in result.jobs}
    assert jobs["third"] == ("drain", "remove", None)
    assert jobs["second"] == ("drain", "start", "third")
    (line,) = (line for line in change_lines(result) if line.startswith("job second"))
    assert f"drain, deploy, start: its checkpoints {CHECKPOINTS}/second are used no longer" in line
    assert result.refused == ()
    assert [removal.renamed_to for removal in result.removals] == ["second"]


@pytest.mark.parametrize("names", [("second", "third"), ("second", "clicks")], ids=["a chain", "a swap"])
def test_jobs_that_take_each_others_names_are_all_drained(
    aws: DeployedEnvironment, tmp_path: Path, names: tuple[str, str]
) -> None:
    stand(aws, clicks=writing("clicks"), second=writing("second", table="db.2"))
    first, second = names
    files = {
        first: writing(first, checkpoints="clicks"),
        second: writing(second, table="db.2", checkpoints="second"),
    }
    result = compare_with_deployed(with_jobs(aws, *files), new(tmp_path, **files))
    jobs = {job.job: (job.before, job.after, job.continues) for job in result.jobs}
    assert jobs[first] == ("drain", "start", "clicks")
    assert jobs[second] == ("leave" if second == "third" else "drain", "start", "second")
    assert {job.before for job in result.jobs if job.job in ("clicks", "second")} == {"drain"}


@pytest.mark.parametrize(
    ("idle", "calls"),
    [
        ((), ["drain v2", "drain job", "deploy", "remove job-v2", "start job"]),
        (("v2",), ["drain job", "deploy", "remove job-v2", "stop job"]),
        (("job",), ["drain v2", "deploy", "remove job-v2", "start job"]),
    ],
    ids=["both run", "only the one that goes", "only the one that takes the name"],
)
def test_a_job_runs_under_a_name_that_it_takes_as_it_ran_before(
    aws: DeployedEnvironment, verbs: Verbs, idle: tuple[str, ...], calls: list[str]
) -> None:
    changes = (JobChange("v2", "drain", "remove", ()), JobChange("job", "drain", "start", (), "v2"))
    verbs.idle = idle
    result = DeploymentChanges((), changes, {}, removals=(StackRemoval("job-v2", "v2", "job"),))
    verbs.deploy(aws, result)
    assert [call for call in verbs.calls if not call.startswith("status")] == calls


def test_a_renamed_job_that_runs_already_is_not_stopped_with_the_stack_that_stayed(
    aws: DeployedEnvironment, verbs: Verbs
) -> None:
    """The removal of the first stack failed: its job is stopped, and runs under the new name."""
    changes = (JobChange("was", "drain", "remove", ()), JobChange("is", "leave", "restart", (), "was"))
    verbs.idle = ("was",)
    result = DeploymentChanges((), changes, {}, removals=(StackRemoval("job-was", "was", "is"),))
    assert verbs.deploy(aws, result) == ("is",)


def test_an_application_is_stopped_before_it_changes(aws: DeployedEnvironment) -> None:
    emr = aws.client("emr-serverless")
    application = emr.create_application(releaseLabel="emr-7.13.0", type="SPARK", name="a")["applicationId"]
    emr.start_application(applicationId=application)
    body = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"ApplicationId": {"Value": application}},
    }
    aws.client("cloudformation").create_stack(
        StackName="hello-minimal-job-clicks", TemplateBody=json.dumps(body)
    )
    assert emr.get_application(applicationId=application)["application"]["state"] == "STARTED"
    said: list[str] = []
    _stop_application(aws, "clicks", said.append)
    assert emr.get_application(applicationId=application)["application"]["state"] == "STOPPED"
    assert said == ["clicks: stopping its application"]


@pytest.mark.parametrize("place", ["deploy", "verify"])
def test_an_application_that_is_being_stopped_is_not_stopped_again(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As after an interrupted deployment: EMR Serverless stops only what is STARTING or STARTED (gchq/sleeper#1212)."""
    stub = Stubber(aws.client("emr-serverless"))
    at = datetime(2026, 11, 1, tzinfo=UTC)
    told = {"applicationId": "00f", "arn": "a" * 60, "releaseLabel": "emr-7.13.0", "type": "SPARK"}
    if place == "verify":
        stub.add_response("list_job_runs", {"jobRuns": []})
    for state in ("STOPPING", "STOPPED"):
        answer = {"application": {**told, "state": state, "createdAt": at, "updatedAt": at}}
        stub.add_response("get_application", answer, {"applicationId": "00f"})
    monkeypatch.setattr(DeployedEnvironment, "job_outputs", lambda *_: {"ApplicationId": "00f"})
    here = DeployedEnvironment(
        aws.names, lambda service: stub.client if service == "emr-serverless" else aws.client(service)
    )
    with stub:
        if place == "deploy":
            _stop_application(here, "clicks", lambda _: None)
        else:
            AwsAccountTarget(here).end_all_runs("p", {"clicks": {"AWS::EMRServerless::Application": "00f"}})
    stub.assert_no_pending_responses()


def test_a_run_that_cannot_be_cancelled_any_more_is_waited_for(aws: DeployedEnvironment) -> None:
    """EMR Serverless refuses to cancel what is being cancelled or has ended (opensearch-project/sql#2577)."""
    stub = Stubber(aws.client("emr-serverless"))
    at = datetime(2026, 11, 1, tzinfo=UTC)
    run = {
        "applicationId": "00f",
        "jobRunId": "00r",
        "arn": "a" * 60,
        "createdBy": "c" * 20,
        "state": "CANCELLED",
    }
    run |= {"executionRole": "r" * 20, "stateDetails": "s", "releaseLabel": "emr-7.13.0"}
    listed = {key: value for key, value in run.items() if key != "jobRunId"}
    listed |= {"id": "00r", "state": "CANCELLING", "createdAt": at, "updatedAt": at}
    stub.add_response("list_job_runs", {"jobRuns": [listed]}, {"applicationId": "00f"})
    stub.add_client_error(
        "cancel_job_run", "ValidationException", "Job run 00r is not in a cancellable state"
    )
    driver = {"sparkSubmit": {"entryPoint": "main.py"}}
    answer = {"jobRun": {**run, "jobDriver": driver, "createdAt": at, "updatedAt": at}}
    stub.add_response("get_job_run", answer, {"applicationId": "00f", "jobRunId": "00r"})
    with stub:
        account = AwsAccountTarget(DeployedEnvironment(aws.names, lambda _: stub.client))
        assert account._kill_emr_runs("00f") == ["00r"]
    stub.assert_no_pending_responses()
