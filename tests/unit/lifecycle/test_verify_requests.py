"""Requests of `millrace verify` to moto's server and to simulated Glue and EMR Serverless."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, NotDeployedError
from millrace.lifecycle.account.real_cost import ENVIRONMENT, PROJECT
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sandbox.kill_and_restart_jobs import DrillError
from millrace.sizing import plan
from millrace.verify import aws_target, sandbox_target
from millrace.verify.aws_target import PATIENCE, AwsAccountTarget
from millrace.verify.environment_copy import (
    TAG,
    VerificationCopy,
    VerificationSettings,
    write_verification_environment,
)
from millrace.verify.removals import removal
from millrace.verify.removals.removal import empty_bucket, remove_verification
from millrace.verify.removals.removal_scope import find_verifications, list_leftovers
from millrace.verify.run import scope_of_copy
from tests.integration.lifecycle.simulated_engines import Engines, serving

ROOT = Path(__file__).parents[3]
ACCOUNT, NAME = "123456789012", "verify-0a1b"
APPLICATION = "00fapp"

Client = Callable[[str], Any]


@pytest.fixture
def engines() -> Iterator[Engines]:
    with serving(Engines()) as both:
        yield both


@pytest.fixture
def client(aws: DeployedEnvironment, engines: Engines) -> Client:
    """Glue and EMR Serverless are the tests' own, all other services moto's."""

    @functools.cache
    def made(service: str) -> Any:
        if service not in ("glue", "emr-serverless"):
            return aws.client(service)
        make: Any = boto3.client
        return make(
            service,
            endpoint_url=engines.url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    return made


@pytest.fixture
def copy(tmp_path: Path) -> VerificationCopy:
    model = load("dev", root=ROOT)
    return write_verification_environment(
        model, NAME, account=ACCOUNT, settings=VerificationSettings(), root=ROOT, folder=tmp_path,
        clusters=sandbox_target.sandbox_cluster_sections(model), without_kafka=True,
    )  # fmt: skip


@pytest.fixture
def account(client: Client, copy: VerificationCopy) -> AwsAccountTarget:
    aws = DeployedEnvironment(Names(load("dev", root=ROOT), ACCOUNT), client)
    patience = dataclasses.replace(PATIENCE, remove=20, vanish=2, end=5)
    return AwsAccountTarget(aws, plan(copy.environment), poll_seconds=0.01, patience=patience)


def tags(name: str, of: str = "flights/dev") -> list[dict[str, str]]:
    return [
        {"Key": key, "Value": value}
        for key, value in {TAG: of, ENVIRONMENT: name, PROJECT: of.partition("/")[0]}.items()
    ]


def deploy(client: Client, prefix: str, given: list[dict[str, str]]) -> None:
    """Storage, a stream that needs it, and a job that needs both."""
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": f"{prefix}-lake"}}
    # A plain value: moto makes a deleted resource again when it is asked for an output that refers to it.
    export = {"O": {"Value": f"{prefix}-lake", "Export": {"Name": f"{prefix}-storage:O"}}}
    stream = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": f"{prefix}-kinesis", "ShardCount": 1}}
    topic = {
        "Type": "AWS::SNS::Topic",
        "Properties": {
            "TopicName": f"{prefix}-alerts",
            "DisplayName": {"Fn::ImportValue": f"{prefix}-storage:O"},
        },
    }
    outputs = {"ApplicationId": {"Value": APPLICATION}}
    for part, template in {
        "storage": {"Resources": {"Bucket": bucket}, "Outputs": export},
        "streams": {"Resources": {"Stream": stream}},
        "job-emr": {"Resources": {"Topic": topic}, "Outputs": outputs},
    }.items():
        client("cloudformation").create_stack(
            StackName=f"{prefix}-{part}", TemplateBody=json.dumps(template), Tags=given
        )
    for number in range(3):
        client("s3").put_object(Bucket=f"{prefix}-lake", Key=f"data/{number}", Body=b"x")
    client("logs").create_log_group(logGroupName=f"/{prefix}/jobs/emr/output")
    client("ssm").put_parameter(Name=f"/{prefix}/jobs/emr/wish", Value="running", Type="String")


def everything(client: Client) -> set[str]:
    return {
        *(stack["StackName"] for stack in client("cloudformation").describe_stacks()["Stacks"]),
        *(bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]),
        *(topic["TopicArn"] for topic in client("sns").list_topics()["Topics"]),
        *client("kinesis").list_streams()["StreamNames"],
        *(group["logGroupName"] for group in client("logs").describe_log_groups()["logGroups"]),
        *(each["Name"] for each in client("ssm").describe_parameters()["Parameters"]),
    }


def test_only_what_bears_both_marks_is_taken_away(
    client: Client, copy: VerificationCopy, account: AwsAccountTarget
) -> None:
    prefix = copy.names.prefix
    # The model itself, another verification's, one of another model, one of another project, and one that has our name
    # and no tag.
    others: dict[str, list[dict[str, str]]] = {
        "flights-dev": [],
        "flights-verify-ffff": tags("verify-ffff"),
        "flights-verify-eeee": tags("verify-eeee", of="flights/prod"),
        "orders-verify-dddd": tags("verify-dddd", of="orders/dev"),
        f"{prefix}0": tags(NAME),
    }
    for other, given in others.items():
        deploy(client, other, given)
    before = everything(client)
    deploy(client, prefix, tags(NAME))
    assert {each.name for each in find_verifications(client, load("dev", root=ROOT))} == {NAME, "verify-ffff"}
    said: list[str] = []
    removed = remove_verification(account, scope_of_copy(copy), say=said.append, poll_seconds=0.01)
    assert everything(client) == before
    assert (removed.objects, removed.remains) == (3, ())
    order = [line for line in said if line.startswith("deleting f")]
    assert order == [f"deleting {prefix}-job-emr, {prefix}-streams", f"deleting {prefix}-storage"]
    assert {each.name for each in find_verifications(client, load("dev", root=ROOT))} == {"verify-ffff"}


def test_a_log_that_comes_back_is_deleted_again(
    client: Client, copy: VerificationCopy, account: AwsAccountTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(client, copy.names.prefix, tags(NAME))
    group = f"/{copy.names.prefix}/jobs/glue/error"
    looked: list[int] = []

    def late(*given: Any) -> list[str]:
        """Engines deliver what they have left when the group is gone."""
        if not looked:
            client("logs").create_log_group(logGroupName=group)
        looked.append(1)
        return list_leftovers(*given)

    monkeypatch.setattr(removal, "list_leftovers", late)
    # A wait that ends when nothing is left, on a machine of any load.
    account.patience = dataclasses.replace(account.patience, vanish=60)
    result = remove_verification(account, scope_of_copy(copy), say=lambda _: None, poll_seconds=0.01)
    assert (result.remains, everything(client)) == ((), set())


def test_what_is_left_behind_is_seen(client: Client, copy: VerificationCopy) -> None:
    own = scope_of_copy(copy)
    assert list_leftovers(client, own) == []
    given = {each["Key"]: each["Value"] for each in tags(NAME)}
    client("sns").create_topic(Name="renamed", Tags=tags(NAME))
    client("s3").create_bucket(Bucket=f"{own.prefix}-lost-its-tag")
    client("logs").create_log_group(logGroupName=f"/{own.prefix}/jobs/glue/error")
    key = client("kms").create_key(Tags=[{"TagKey": k, "TagValue": v} for k, v in given.items()])[
        "KeyMetadata"
    ]
    result = list_leftovers(client, own)
    assert f"bucket {own.prefix}-lost-its-tag" in result
    assert f"log group /{own.prefix}/jobs/glue/error" in result
    assert any(each.endswith(":renamed") for each in result)
    assert any(key["KeyId"] in each for each in result)
    # One that waits for its deletion costs nothing and does nothing.
    client("kms").schedule_key_deletion(KeyId=key["KeyId"], PendingWindowInDays=7)
    assert not any(key["KeyId"] in each for each in list_leftovers(client, own))


def test_a_bucket_of_another_name_is_left_even_in_a_stack_of_ours(
    client: Client, copy: VerificationCopy, account: AwsAccountTarget
) -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "somebody-s-lake"}}
    client("cloudformation").create_stack(
        StackName=f"{copy.names.prefix}-storage",
        TemplateBody=json.dumps({"Resources": {"B": bucket}}),
        Tags=tags(NAME),
    )
    client("s3").put_object(Bucket="somebody-s-lake", Key="precious", Body=b"x")
    with pytest.raises(
        DrillError,
        match=r"is not deleted: the name of its bucket somebody-s-lake does not begin with",
    ):
        remove_verification(account, scope_of_copy(copy), say=lambda _: None, poll_seconds=0.01)
    assert client("s3").get_object(Bucket="somebody-s-lake", Key="precious")["Body"].read() == b"x"


def test_all_versions_of_a_bucket_s_objects_go(client: Client) -> None:
    s3 = client("s3")
    assert empty_bucket(s3, "never-made") == 0
    s3.create_bucket(Bucket="versions")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for number in range(3):
        s3.put_object(Bucket="versions", Key=f"data/{number % 2}", Body=b"x")
    s3.delete_object(Bucket="versions", Key="data/0")
    # Three versions of two objects; the mark of a deletion is no object.
    assert empty_bucket(s3, "versions") == 3
    left = s3.list_object_versions(Bucket="versions")
    assert (left.get("Versions", []), left.get("DeleteMarkers", [])) == ([], [])


def test_runs_are_killed_without_grace_and_ended_for_good(
    client: Client, copy: VerificationCopy, account: AwsAccountTarget, engines: Engines
) -> None:
    names, prefix = copy.names, copy.names.prefix
    deploy(client, prefix, tags(NAME))
    client("glue").start_job_run(JobName=names.job("glue"))
    emr = {
        "applicationId": APPLICATION,
        "executionRoleArn": "arn:aws:iam::123456789012:role/x",
        "name": "emr",
    }
    driver = {"sparkSubmit": {"entryPoint": "s3://b/main.py", "entryPointArguments": []}}
    client("emr-serverless").start_job_run(clientToken=uuid4().hex, jobDriver=driver, **emr)
    engines.asked.clear()
    account.kill_run(names, "glue")
    account.kill_run(names, "emr")
    (stop,), (cancel,) = engines.calls("BatchStopJobRun"), engines.calls("CancelJobRun")
    assert stop["JobName"] == names.job("glue")
    assert cancel["shutdownGracePeriodInSeconds"] == "0"
    assert engines.live(names.job("glue")) == engines.live("emr") == []
    with pytest.raises(DrillError, match="has no run that the verification could kill"):
        account.kill_run(names, "glue")

    client("glue").start_job_run(JobName=names.job("glue"))
    client("emr-serverless").start_job_run(clientToken=uuid4().hex, jobDriver=driver, **emr)
    account.end_all_runs(
        prefix,
        {
            "glue": {"AWS::Glue::Job": names.job("glue")},
            "emr": {"AWS::EMRServerless::Application": APPLICATION},
        },
    )
    assert engines.live(names.job("glue")) == engines.live("emr") == []
    assert APPLICATION in engines.stopped_applications
    # Their rules start no job that nobody wants.
    for job in ("glue", "emr"):
        result = client("ssm").get_parameter(Name=f"/{prefix}/jobs/{job}/wish")["Parameter"]["Value"]
        assert result == "stopped"


def test_runs_that_the_engine_counted_are_billed_as_it_counted(
    client: Client,
    copy: VerificationCopy,
    account: AwsAccountTarget,
    engines: Engines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deploy(client, copy.names.prefix, tags(NAME))
    name = copy.names.job("glue")
    for extra in ({"DPUSeconds": 720.0, "ExecutionTime": 360}, {"ExecutionTime": 90}):
        client("glue").start_job_run(JobName=name)
        (run,) = engines.live(name)
        shown = engines._glue_run

        def as_counted(
            each: Any, run: str = run, extra: dict[str, Any] = extra, shown: Any = shown
        ) -> dict[str, Any]:
            told: dict[str, Any] = shown(each)
            return told | (extra if each.id == run else {})

        monkeypatch.setattr(engines, "_glue_run", as_counted)
        client("glue").batch_stop_job_run(JobName=name, JobRunIds=[run])
        while engines.live(name):
            client("glue").get_job_run(JobName=name, RunId=run)
    second, first = account.billed_runs(copy.names, "glue")
    assert (first.billed, first.counted, first.seconds) == ({"glue.dpu_hour": 0.2}, True, 360)
    # Two workers of one DPU for 90 s.
    assert second.billed["glue.dpu_hour"] == pytest.approx(180 / 3600)
    assert not second.counted


def test_nothing_is_made_where_cdk_shards_or_the_name_are_lacking(
    client: Client, copy: VerificationCopy, account: AwsAccountTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotDeployedError, match="not bootstrapped"):
        account.check_can_deploy(copy)
    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    monkeypatch.setattr(account, "_check_engines_answer", lambda _: None)
    account.check_can_deploy(copy)
    with monkeypatch.context() as patch:
        patch.setattr(aws_target, "SHARDS", 10**6)
        with pytest.raises(AwsError, match="shards are left in us-east-1, but 2000000 are needed"):
            account.check_can_deploy(copy)
    deploy(client, copy.names.prefix, [])
    with pytest.raises(AwsError, match="already exists; repeat the command"):
        account.check_can_deploy(copy)
