"""Deployed stacks, read from moto's server, are compared with an assembly."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber

from millrace.cli.run.changes_report import removal_questions
from millrace.config import Environment, Names
from millrace.lifecycle import deploy as deploying
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.deployment_changes import JobChange
from millrace.lifecycle.changes.stack_removals import StackRemoval
from millrace.lifecycle.deploy import DeploymentChanges, _stop_application, compare_with_deployed
from millrace.verify.aws_target import AwsAccountTarget

ROOT = Path(__file__).parents[3]
BUCKET = "assets"


def template(workers: int, url: str) -> dict[str, Any]:
    return {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": f"{workers}"}}},
        "Outputs": {"LaunchDocument": {"Value": url}},
    }


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


def writing(
    job: str, *, table: str = "db.t", checkpoints: str = "", partitions: Any = None
) -> dict[str, Any]:
    source = {"kind": "kafka", "topic": "t", "connection": "c", "reading": {"partitions": partitions}}
    query = {"kind": "land", "name": "land", "routes": [{"source": source}], "table": table}
    settings = {"checkpoints": f"s3://checkpoints/{checkpoints or job}", "queries": [query]}
    return {"version": 1, "settings": settings}


def stand(aws: DeployedEnvironment, **jobs: dict[str, Any]) -> None:
    """Deploy jobs with launch documents, with the tags that their resources have."""
    s3 = aws.client("s3")
    for bucket in (BUCKET, aws.names.bucket("checkpoints")):
        s3.create_bucket(Bucket=bucket)
    environment = aws.names.environment
    for job, content in jobs.items():
        s3.put_object(Bucket=BUCKET, Key=f"old-{job}.json", Body=json.dumps(content))
        body = tagged(template(1, f"s3://{BUCKET}/old-{job}.json"), environment.project, environment.name)
        aws.client("cloudformation").create_stack(
            StackName=aws.names.stack(f"job-{job}"), TemplateBody=json.dumps(body)
        )


def tagged(body: dict[str, Any], project: str, environment: str) -> dict[str, Any]:
    """Return a template whose resources have the tags of an environment."""
    tags = {"millrace:project": project, "millrace:environment": environment}
    for resource in body["Resources"].values():
        resource["Properties"]["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return body


def new(folder: Path, **jobs: dict[str, Any]) -> Path:
    for job, content in jobs.items():
        (folder / f"hello-minimal-job-{job}.template.json").write_text(
            json.dumps(template(1, f"s3://{BUCKET}/new-{job}.json"))
        )
        (folder / f"asset.new-{job}.json").write_text(json.dumps(content))
    return folder


def test_a_job_that_left_the_file_is_drained_and_its_stack_removed(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, clicks=writing("clicks"), gone=writing("gone", table="db.other"))
    result = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks")))
    assert result.refused == ()
    assert [(job.job, job.before, job.after) for job in result.jobs[:1]] == [("gone", "drain", "remove")]
    (removal,) = result.removals
    assert (removal.stack, removal.job, removal.first) == ("hello-minimal-job-gone", "gone", True)
    assert removal.stays == ("table or output db.other", "checkpoints s3://checkpoints/gone")
    (question, _) = removal_questions(result)
    assert question.startswith("Remove job gone?")
    assert "db.other" in question
    assert "s3://checkpoints/gone" in question


def test_another_environment_of_a_like_name_is_left_alone(aws: DeployedEnvironment, tmp_path: Path) -> None:
    stand(aws, clicks=writing("clicks"))
    aws.client("cloudformation").create_stack(
        StackName="hello-minimal-2-job-clicks",
        TemplateBody=json.dumps(tagged(template(1, "s3://x/y"), "hello", "minimal-2")),
    )
    assert compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks"))).removals == ()


@pytest.mark.parametrize(
    ("given", "continues", "refused"),
    [
        ({}, None, "`renamed_from: before`"),
        ({"checkpoints": "before"}, "before", None),
        ({"table": "db.other"}, None, None),
        ({"partitions": [0, 1]}, None, None),
    ],
    ids=["a rename that is not written", "a rename", "another table", "a split"],
)
def test_a_table_has_one_owner(
    aws: DeployedEnvironment,
    tmp_path: Path,
    given: dict[str, Any],
    continues: str | None,
    refused: str | None,
) -> None:
    stand(aws, before=writing("before"))
    result = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks", **given)))
    assert [job.continues for job in result.jobs if job.job == "clicks"] == [continues]
    assert [removal.renamed_to for removal in result.removals] == ["clicks" if continues else None]
    assert bool(result.refused) == bool(refused)
    assert all(str(refused) in line for line in result.refused)
    # After a failure between the deployment and the removal both exist: the new one still starts.
    if continues:
        url = f"s3://{BUCKET}/new-clicks.json"
        aws.client("s3").put_object(Bucket=BUCKET, Key="new-clicks.json", Body=b"{}")
        aws.client("s3").put_object(
            Bucket=BUCKET, Key="new-clicks.json", Body=json.dumps(writing("clicks", **given))
        )
        aws.client("cloudformation").create_stack(
            StackName="hello-minimal-job-clicks", TemplateBody=json.dumps(template(1, url))
        )
        again = compare_with_deployed(aws, tmp_path)
        assert [(job.job, job.after) for job in again.jobs] == [("before", "remove"), ("clicks", "start")]


def test_a_query_whose_checkpoint_was_carried_over_may_write_the_table(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, clicks=writing("clicks", table="db.other"), before=writing("before"))
    folder = new(tmp_path, clicks=writing("clicks"), before=writing("before", table="db.third"))
    aws = DeployedEnvironment(Names(with_jobs(aws, "clicks", "before"), aws.names.account), aws.client)
    (line,) = compare_with_deployed(aws, folder).refused
    assert "`millrace checkpoint move before land clicks/land --env minimal`" in line
    for log in ("offsets", "commits"):
        aws.client("s3").put_object(
            Bucket=aws.names.bucket("checkpoints"), Key=f"clicks/land/{log}/0", Body=b"v1\n{}\n{}"
        )
    assert compare_with_deployed(aws, folder).refused == ()


def with_jobs(aws: DeployedEnvironment, *names: str) -> Environment:
    (job,) = aws.names.environment.jobs.values()
    return aws.names.environment.model_copy(update={"jobs": dict.fromkeys(names, job)})


def test_a_removed_job_is_drained_before_its_stack_goes_and_a_renamed_one_starts_after(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def verb(_aws: Any, job: str, what: str, **_: Any) -> dict[str, Any]:
        calls.append(f"{what} {job}")
        return {"desired_state": "stopped" if job == "idle" else "running"}

    monkeypatch.setattr(deploying, "_run_verb", verb)
    monkeypatch.setattr(deploying, "_stop_application", lambda *_: None)
    monkeypatch.setattr(deploying, "wait_until_healthy", lambda *_, **__: None)
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
    started = deploying.deploy_around_jobs_and_return_started(
        aws,
        result,
        cdk_deploy=lambda: calls.append("deploy"),
        progress=lambda _: None,
        cdk_remove=lambda stack: calls.append(f"remove {stack}"),
    )
    assert started == ("is",)
    assert [call for call in calls if not call.startswith("status")] == [
        *("drain gone", "drain was", "remove job-gone", "deploy", "remove job-was", "start is", "stop quiet")
    ]


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
    monkeypatch.setattr(deploying, "read_stack_outputs", lambda *_: {"ApplicationId": "00f"})
    here = DeployedEnvironment(
        aws.names, lambda service: stub.client if service == "emr-serverless" else None
    )
    with stub:
        if place == "deploy":
            _stop_application(here, "clicks", lambda _: None)
        else:
            AwsAccountTarget(here)._stop_application("00f")
    stub.assert_no_pending_responses()


def test_a_run_that_cannot_be_cancelled_any_more_is_waited_for(aws: DeployedEnvironment) -> None:
    """EMR Serverless refuses to cancel what is being cancelled or has ended (opensearch-project/sql#2577)."""
    stub = Stubber(aws.client("emr-serverless"))
    stub.add_client_error(
        "cancel_job_run", "ValidationException", "Job run 00r is not in a cancellable state"
    )
    at = datetime(2026, 11, 1, tzinfo=UTC)
    run = {
        "applicationId": "00f",
        "jobRunId": "00r",
        "arn": "a" * 60,
        "createdBy": "c" * 20,
        "state": "CANCELLED",
    }
    run |= {"executionRole": "r" * 20, "stateDetails": "s", "releaseLabel": "emr-7.13.0"}
    driver = {"sparkSubmit": {"entryPoint": "main.py"}}
    answer = {"jobRun": {**run, "jobDriver": driver, "createdAt": at, "updatedAt": at}}
    stub.add_response("get_job_run", answer, {"applicationId": "00f", "jobRunId": "00r"})
    with stub:
        AwsAccountTarget(DeployedEnvironment(aws.names, lambda _: stub.client))._kill_emr_run("00f", ["00r"])
    stub.assert_no_pending_responses()
