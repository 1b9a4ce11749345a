"""Kept versions of a job, and the one to which a rollback goes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, split_s3_url
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.changes.deployment_changes import StackChange
from millrace.lifecycle.deploy import DeploymentChanges
from millrace.lifecycle.upgrade_or_rollback_job import (
    JobVersion,
    UpgradeError,
    changed_shared_stacks,
    find_previous_version,
    read_deployed_version,
    rollback_changes,
    save_deployed_version,
)

JOB = "clicks"


def template(url: str) -> dict[str, Any]:
    return {"Resources": {}, "Outputs": {"LaunchDocument": {"Value": url}}}


@dataclass
class Deployed:
    """CloudFormation with one stack, or none; S3 is the server's."""

    aws: DeployedEnvironment
    url: str | None = None

    def client(self, service: str) -> Any:
        return self if service == "cloudformation" else self.aws.client(service)

    def get_template(self, StackName: str, TemplateStage: str) -> dict[str, Any]:
        assert TemplateStage == "Original"
        self.describe_stacks(StackName)
        return {"TemplateBody": template(str(self.url))}

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        if self.url is None:
            message = f"Stack with id {StackName} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "DescribeStacks")
        return {"Stacks": [{"Outputs": [{"OutputKey": "LaunchDocument", "OutputValue": self.url}]}]}

    def deploy(self, url: str) -> None:
        s3, (bucket, key) = self.aws.client("s3"), split_s3_url(url)
        s3.create_bucket(Bucket=bucket)
        s3.put_object(
            Bucket=bucket, Key=key, Body=json.dumps({"of": url, "settings": {"queries": []}}).encode()
        )
        self.url = url


@pytest.fixture
def stack(aws: DeployedEnvironment) -> Deployed:
    aws.client("s3").create_bucket(Bucket=aws.names.bucket("checkpoints"))
    return Deployed(aws)


@pytest.fixture
def deployed(stack: Deployed) -> DeployedEnvironment:
    return DeployedEnvironment(stack.aws.names, stack.client)


def test_a_job_goes_back_to_what_was_deployed_before_and_forward_again(
    stack: Deployed, deployed: DeployedEnvironment
) -> None:
    stack.deploy("s3://assets/1.json")
    with pytest.raises(
        UpgradeError,
        match=r"clicks cannot be rolled back: SSM parameter /hello-minimal/jobs/clicks/versions lists no earlier version",
    ):
        find_previous_version(deployed, JOB)
    for url in ("s3://assets/2.json", "s3://assets/3.json"):
        save_deployed_version(deployed, JOB)
        stack.deploy(url)
    back = find_previous_version(deployed, JOB)
    assert (back.document_url, back.template) == ("s3://assets/2.json", template("s3://assets/2.json"))
    assert back.read_launch_document(deployed.client("s3"))["of"] == "s3://assets/2.json"
    # Its document may be gone, and AWS may refuse it.
    s3 = deployed.client("s3")
    s3.delete_object(Bucket="assets", Key="2.json")
    with pytest.raises(
        UpgradeError, match=r"s3://assets/2\.json of clicks no longer exists .*`millrace upgrade`"
    ):
        back.read_launch_document(s3)
    with pytest.raises(AwsError, match="NoSuchBucket"):
        JobVersion(JOB, "", "s3://no-such-bucket/2.json", {}).read_launch_document(s3)
    # What it takes the place of is kept too.
    save_deployed_version(deployed, JOB)
    stack.deploy(back.document_url)
    assert find_previous_version(deployed, JOB).document_url == "s3://assets/3.json"
    # The same again is no version of before.
    save_deployed_version(deployed, JOB)
    assert find_previous_version(deployed, JOB).document_url == "s3://assets/3.json"


def test_a_job_that_is_not_deployed_has_no_versions(deployed: DeployedEnvironment) -> None:
    with pytest.raises(
        UpgradeError, match=r"clicks is not deployed yet; deploy it with `millrace deploy --env minimal`"
    ):
        read_deployed_version(deployed, JOB)


def test_a_version_that_somebody_forged_is_not_deployed(
    stack: Deployed, deployed: DeployedEnvironment
) -> None:
    stack.deploy("s3://assets/1.json")
    save_deployed_version(deployed, JOB)
    stack.deploy("s3://assets/2.json")
    s3, (bucket, folder) = deployed.client("s3"), split_s3_url(deployed.names.versions_url(JOB))
    (kept,) = (each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"])
    honest = s3.get_object(Bucket=bucket, Key=kept)["Body"].read()
    # As the job's role could write it before, and under the name of the version that is deployed next.
    forged = json.dumps({**json.loads(honest), "template": template("s3://assets/1.json") | {"Metadata": {}}})
    for key in ("clicks/_millrace/versions/29991231T000000000000Z-f.json", f"{folder}/f.json"):
        s3.put_object(Bucket=bucket, Key=key, Body=forged.encode())
    assert find_previous_version(deployed, JOB).template == template("s3://assets/1.json")
    s3.put_object(Bucket=bucket, Key=kept, Body=forged.encode())
    with pytest.raises(
        UpgradeError, match="has another digest than when it was kept, so somebody has changed the object"
    ):
        find_previous_version(deployed, JOB)
    # A version of another job is none of this one, even if its digest is right.
    other = json.dumps({**json.loads(honest), "job": "orders"}).encode()
    digest = hashlib.sha256(other).hexdigest()
    s3.put_object(Bucket=bucket, Key=f"{folder}/{digest}.json", Body=other)
    told = {"sha256": digest, "document_url": "s3://assets/1.json"}
    name = deployed.names.versions_parameter(JOB)
    deployed.client("ssm").put_parameter(Name=name, Type="String", Overwrite=True, Value=json.dumps(told))
    with pytest.raises(UpgradeError, match="has job 'orders', so somebody has changed the object"):
        find_previous_version(deployed, JOB)
    s3.delete_object(Bucket=bucket, Key=f"{folder}/{digest}.json")
    with pytest.raises(UpgradeError, match=r"no longer exists: s3://.*/_versions/clicks/"):
        find_previous_version(deployed, JOB)


def test_a_rollback_shows_what_changes(stack: Deployed, deployed: DeployedEnvironment) -> None:
    role = {"Type": "AWS::IAM::Role", "Properties": {"ManagedPolicyArns": ["arn:aws:iam::aws:policy/Admin"]}}
    stack.deploy("s3://assets/1.json")
    before = save_deployed_version(deployed, JOB)
    stack.deploy("s3://assets/2.json")
    result = rollback_changes(
        deployed, JobVersion(JOB, "", before.document_url, {"Resources": {"Door": role}})
    )
    assert result.stacks[0].resources == ("+ AWS::IAM::Role Door",)
    assert result.stacks[0].permissions == (
        "+ AWS::IAM::Role Door: managed policy arn:aws:iam::aws:policy/Admin",
        "+ AWS::IAM::Role Door: no permissions boundary",
    )
    assert result.jobs[0].after == "restart"
    assert result.numbers[JOB] == ("of: s3://assets/2.json → s3://assets/1.json",)


def test_what_other_jobs_stand_on_is_not_changed_by_an_upgrade() -> None:
    def change(part: str, *resources: str) -> StackChange:
        return StackChange(f"hello-dev-{part}", False, resources, ())

    result = DeploymentChanges(
        (
            change("streams", "~ stream"),
            change("storage"),
            change("observability", "~ alarm"),
            change("job-clicks", "~"),
        ),
        (),
        {},
    )
    assert changed_shared_stacks(result, "hello-dev") == ("hello-dev-streams",)
