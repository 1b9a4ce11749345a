"""After a deployment jobs are started, left stopped and watched, and failures are reported."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle import upgrade_or_rollback_job as upgrading
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.deployment_changes import JobChange
from millrace.lifecycle.deploy import (
    DeployError,
    DeploymentChanges,
    UnhealthyDeploymentError,
    UnknownHealthError,
    changes_without_start_of_new_jobs,
    deploy_around_jobs_and_return_started,
)
from millrace.lifecycle.upgrade_or_rollback_job import UpgradeError
from tests.unit.lifecycle.test_health import put_metric

JOB = "clicks"
QUICK: dict[str, Any] = {"progress": lambda _: None, "poll_seconds": 0.01, "patience_seconds": 0.2}


@dataclass
class Deployed:
    """A job's stack and state machine; metrics are the server's, as soon as they are not refused."""

    aws: DeployedEnvironment
    refusals: float = 0
    answer: tuple[str, int] = ("Throttling", 400)
    refused: int = 0
    verbs: list[str] = field(default_factory=list)
    desired_state: str = "stopped"
    url: str = "s3://assets/1.json"
    ends: dict[str, BaseException | None] = field(default_factory=dict)
    """What the look at a job's verb ends with, by both: the machine has begun by then."""

    def client(self, service: str) -> Any:
        if service in ("cloudformation", "stepfunctions"):
            return self
        if service == "cloudwatch" and self.refusals > 0:
            self.refusals -= 1
            self.refused += 1
            code, status = self.answer
            told: Any = {
                "Error": {"Code": code, "Message": "no"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            }
            raise ClientError(told, "GetMetricData")
        return self.aws.client(service)

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        given = {"StateMachineArn": StackName.rpartition("-")[2], "LaunchDocument": self.url}
        return {"Stacks": [{"Outputs": [{"OutputKey": k, "OutputValue": v} for k, v in given.items()]}]}

    def get_template(self, **_: str) -> dict[str, Any]:
        return {"TemplateBody": {"Resources": {}, "Outputs": {"LaunchDocument": {"Value": self.url}}}}

    def start_execution(self, input: str, stateMachineArn: str) -> dict[str, str]:  # noqa: A002
        verb = json.loads(input)["verb"]
        if verb != "status":
            self.verbs.append(verb if stateMachineArn == JOB else f"{verb} {stateMachineArn}")
            self.desired_state = "running" if verb == "start" else "stopped"
        return {"executionArn": f"{verb} {stateMachineArn}"}

    def describe_execution(self, executionArn: str) -> dict[str, str]:
        if (end := self.ends.get(executionArn)) is not None:
            raise end
        answer = {"outcome": "done", "message": "done", "desired_state": self.desired_state, "run": "r"}
        return {"status": "SUCCEEDED", "output": json.dumps(answer)}

    def get_paginator(self, _: str) -> Deployed:
        return self

    def paginate(self, **_: Any) -> tuple[()]:
        return ()

    @property
    def place(self) -> DeployedEnvironment:
        return DeployedEnvironment(self.aws.names, self.client)


def throttled(operation: str) -> ClientError:
    return ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, operation)


def change(after: Any) -> DeploymentChanges:
    return DeploymentChanges((), (JobChange(JOB, "leave", after, ("is new",)),), {})


@pytest.fixture
def deployed(aws: DeployedEnvironment) -> Deployed:
    put_metric(aws, "Triggers", 1, 90)  # in the minute after the start, from which on it counts
    return Deployed(aws)


def test_a_new_job_is_deployed_without_being_started_and_stays_so(deployed: Deployed) -> None:
    asked = changes_without_start_of_new_jobs(change("start"))
    assert asked
    assert (
        deploy_around_jobs_and_return_started(deployed.place, asked, cdk_deploy=lambda: None, **QUICK) == ()
    )
    assert deployed.verbs == ["stop"]
    # The next deployment, as with the offsets at which another job ended, leaves it stopped as well.
    assert (
        deploy_around_jobs_and_return_started(
            deployed.place, change("restart"), cdk_deploy=lambda: None, **QUICK
        )
        == ()
    )
    assert "start" not in deployed.verbs
    assert changes_without_start_of_new_jobs(change("restart")) == change("restart")


def test_a_look_that_is_refused_is_taken_again(deployed: Deployed) -> None:
    deployed.refusals = 3
    said: list[str] = []
    started = deploy_around_jobs_and_return_started(
        deployed.place, change("start"), cdk_deploy=lambda: None, **(QUICK | {"progress": said.append})
    )
    assert started == (JOB,)
    refused = [line for line in said if "its health cannot be read" in line]
    assert len(refused) == 1
    assert "AWS is throttling GetMetricData" in refused[0]


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (("AccessDenied", 403), False),
        (("ExpiredToken", 403), False),
        (("InvalidParameterValue", 400), False),
        (("InternalFailure", 500), True),
        (("ServiceUnavailable", 503), True),
    ],
)
def test_what_would_be_refused_again_is_not_waited_for(
    deployed: Deployed, answer: tuple[str, int], passes: bool
) -> None:
    deployed.answer, deployed.refusals = answer, 3
    if passes:
        assert deploy_around_jobs_and_return_started(
            deployed.place, change("start"), cdk_deploy=lambda: None, **QUICK
        ) == (JOB,)
    else:
        with pytest.raises(UnknownHealthError, match="is started, but its health is unknown"):
            deploy_around_jobs_and_return_started(
                deployed.place, change("start"), cdk_deploy=lambda: None, **QUICK
            )
    assert deployed.refused == (3 if passes else 1)


def test_a_job_that_cannot_be_looked_at_is_started_and_not_said_to_be_unwell(deployed: Deployed) -> None:
    deployed.refusals = float("inf")
    with pytest.raises(
        UnknownHealthError,
        match=r"(?s)is started, but its health is unknown.*`millrace status.*`millrace rollback",
    ):
        deploy_around_jobs_and_return_started(
            deployed.place, change("start"), cdk_deploy=lambda: None, **QUICK
        )


def test_an_upgrade_that_cannot_be_watched_is_not_taken_back(deployed: Deployed, tmp_path: Path) -> None:
    s3 = deployed.aws.client("s3")
    for bucket in ("assets", deployed.aws.names.bucket("checkpoints")):
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket="assets", Key="1.json", Body=b"{}")
    deployed.desired_state, deployed.refusals = "running", float("inf")
    brought: list[Path] = []
    with pytest.raises(UnknownHealthError):
        upgrading.upgrade_job_and_tell_if_started(
            deployed.place,
            change("restart"),
            JOB,
            assembly=tmp_path,
            cdk_deploy=lambda assembly, _: brought.append(assembly),
            **QUICK,
        )
    assert brought == [tmp_path]
    assert deployed.verbs == ["drain", "start"]


def test_a_version_that_was_taken_back_and_cannot_be_watched_is_not_to_be_taken_back_further(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    """The version before it was deployed before that one: `millrace rollback` would leave it, too."""
    deployed, s3 = Deployed(aws, desired_state="running"), aws.client("s3")
    for bucket in ("assets", aws.names.bucket("checkpoints")):
        s3.create_bucket(Bucket=bucket)
    for name in ("1", "2"):
        s3.put_object(
            Bucket="assets",
            Key=f"{name}.json",
            Body=json.dumps({"of": name, "settings": {"queries": []}}).encode(),
        )
    stack = aws.names.stack(f"job-{JOB}")
    file = {"h": {"source": {"path": f"{stack}.template.json"}}}
    (tmp_path / f"{stack}.template.json").write_text("{}")
    (tmp_path / f"{stack}.assets.json").write_text(json.dumps({"files": file}))
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": {stack: {}, f"{stack}.assets": {}}}))

    def bring(assembly: Path, _: str) -> None:
        if assembly == tmp_path:
            deployed.url = "s3://assets/2.json"
        else:
            deployed.url, deployed.refusals = "s3://assets/1.json", float("inf")

    with pytest.raises(UpgradeError) as told:
        upgrading.upgrade_job_and_tell_if_started(
            deployed.place, change("restart"), JOB, assembly=tmp_path, cdk_deploy=bring, **QUICK
        )
    assert deployed.verbs == ["drain", "start", "drain", "start"]
    assert (
        f"{JOB} is rolled back, but it is unknown whether the previous version is healthy: deployed"
        in str(told.value)
    )
    assert "`millrace status --env minimal JOB` shows it" in str(told.value)
    assert "rollback" not in str(told.value)


def test_a_job_that_ends_no_trigger_is_unwell(aws: DeployedEnvironment) -> None:
    with pytest.raises(UnhealthyDeploymentError, match="no trigger has ended yet"):
        deploy_around_jobs_and_return_started(
            Deployed(aws).place, change("start"), cdk_deploy=lambda: None, **QUICK
        )


def drains(*jobs: str) -> DeploymentChanges:
    return DeploymentChanges(
        (), tuple(JobChange(job, "drain", "restart", ("stream s goes",)) for job in jobs), {}
    )


@pytest.mark.parametrize("end", [throttled("DescribeExecution"), KeyboardInterrupt()])
def test_a_drain_that_cannot_be_watched_leaves_no_job_stopped(
    aws: DeployedEnvironment, end: BaseException
) -> None:
    """The machine notes first of all that the job is to stay stopped, and the next deployment would leave it so."""
    deployed, said = Deployed(aws, desired_state="running", ends={f"drain {JOB}": end}), list[str]()
    with pytest.raises((DeployError, KeyboardInterrupt)) as told:
        deploy_around_jobs_and_return_started(
            deployed.place, drains(JOB), cdk_deploy=lambda: None, progress=said.append
        )
    assert (deployed.verbs, deployed.desired_state) == (["drain", "start"], "running")
    assert "\nclicks had been drained and started again as before" in f"{told.value}\n" + "\n".join(said)


def test_a_deployment_that_is_interrupted_starts_again_what_it_drained(aws: DeployedEnvironment) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    deployed = Deployed(aws, desired_state="running")
    with pytest.raises(KeyboardInterrupt):
        deploy_around_jobs_and_return_started(
            deployed.place, drains(JOB, "b"), cdk_deploy=interrupted, progress=lambda _: None
        )
    assert deployed.verbs == ["drain", "drain b", "start", "start b"]


def test_one_job_that_does_not_start_again_keeps_no_other_from_it(aws: DeployedEnvironment) -> None:
    def refused() -> None:
        raise DeployError("cdk deploy ended with status 1")

    deployed = Deployed(aws, desired_state="running", ends={f"start {JOB}": throttled("DescribeExecution")})
    with pytest.raises(DeployError) as told:
        deploy_around_jobs_and_return_started(
            deployed.place, drains(JOB, "b"), cdk_deploy=refused, progress=lambda _: None
        )
    assert deployed.verbs == ["drain", "drain b", "start", "start b"]
    _, well, badly = str(told.value).split("\n")
    assert well.startswith("b had been drained and started again")
    assert badly.startswith("clicks was drained, and did not start again")
    assert badly.endswith("`millrace start --env minimal clicks`")


def test_what_was_deployed_before_another_stack_failed_begins_with_it(aws: DeployedEnvironment) -> None:
    """No later deployment finds anything to change there."""

    def partly() -> None:
        raise DeployError("cdk deploy ended with status 1")

    jobs = {"clicks": "restart", "new": "start", "late": "start", "held": "stop"}
    result = DeploymentChanges(
        (), tuple(JobChange(job, "leave", after, ("",)) for job, after in jobs.items()), {}
    )  # type: ignore[arg-type]
    still = replace(
        result,
        jobs=tuple(replace(job, after="start" if job.job == "late" else "leave") for job in result.jobs),
    )
    deployed = Deployed(aws, desired_state="running")
    with pytest.raises(DeployError) as told:
        deploy_around_jobs_and_return_started(
            deployed.place, result, cdk_deploy=partly, progress=lambda _: None, look_again=lambda: still
        )
    assert deployed.verbs == ["drain", "start", "start new", "stop held"]
    assert str(told.value).split("\n")[2:] == [
        f"{job} was deployed anyway, and started: `millrace status --env minimal {job}`"
        for job in ("clicks", "new")
    ]


@pytest.mark.parametrize("end", [throttled("DescribeExecution"), KeyboardInterrupt()])
def test_a_job_that_cannot_be_drained_after_the_deployment_runs_on_and_is_told_how_to_begin_anew(
    aws: DeployedEnvironment, end: BaseException
) -> None:
    deployed, said = Deployed(aws, desired_state="running", ends={f"drain {JOB}": end}), list[str]()
    with pytest.raises((UnhealthyDeploymentError, KeyboardInterrupt)) as told:
        deploy_around_jobs_and_return_started(
            deployed.place, change("restart"), cdk_deploy=lambda: None, **(QUICK | {"progress": said.append})
        )
    assert (deployed.verbs, deployed.desired_state) == (["drain", "start"], "running")
    told_all = f"{told.value}\n" + "\n".join(said)
    assert re.search(r"`millrace stop --env minimal \w+`, then `millrace start --env minimal \w+`", told_all)
    assert "deploy again" not in told_all


def test_a_job_that_did_not_start_after_the_deployment_is_told_with_what_starts_it(
    aws: DeployedEnvironment,
) -> None:
    deployed = Deployed(aws, desired_state="running", ends={f"start {JOB}": throttled("DescribeExecution")})
    for after in ("start", "restart"):
        with pytest.raises(
            UnhealthyDeploymentError,
            match=r"clicks is stopped; start it with `millrace start --env minimal clicks`",
        ):
            deploy_around_jobs_and_return_started(
                deployed.place, change(after), cdk_deploy=lambda: None, **QUICK
            )
    # Where it cannot be drained either, it is told so, too.
    deployed.ends[f"drain {JOB}"] = throttled("DescribeExecution")
    with pytest.raises(
        UnhealthyDeploymentError, match=r"did not start again .*`millrace start --env minimal clicks`"
    ):
        deploy_around_jobs_and_return_started(
            deployed.place, change("restart"), cdk_deploy=lambda: None, **QUICK
        )
