"""What is kept of deployed versions, and to which one a job is taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle.deploy import Changes
from millrace.lifecycle.deployed import split_url
from millrace.lifecycle.deployment_changes import StackChange
from millrace.lifecycle.problems import AwsError
from millrace.lifecycle.state_machine import Aws
from millrace.lifecycle.upgrade import (
    UpgradeError,
    Version,
    current,
    deployed_version,
    previous,
    shared_stacks,
)

JOB = "clicks"


def template(url: str) -> dict[str, Any]:
    return {"Resources": {}, "Outputs": {"LaunchDocument": {"Value": url}}}


@dataclass
class Deployed:
    """CloudFormation with one stack, or none; S3 is the server's."""

    aws: Aws
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
        s3, (bucket, key) = self.aws.client("s3"), split_url(url)
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key=key, Body=json.dumps({"of": url}).encode())
        self.url = url


@pytest.fixture
def stack(aws: Aws) -> Deployed:
    aws.client("s3").create_bucket(Bucket=aws.names.bucket("checkpoints"))
    return Deployed(aws)


@pytest.fixture
def deployed(stack: Deployed) -> Aws:
    return Aws(stack.aws.names, stack.client)


def test_a_job_goes_back_to_what_was_deployed_before_and_forward_again(
    stack: Deployed, deployed: Aws
) -> None:
    stack.deploy("s3://assets/1.json")
    with pytest.raises(
        UpgradeError, match=r"no earlier version of clicks was kept: s3://.*/clicks/_millrace/versions/"
    ):
        previous(deployed, JOB)
    for url in ("s3://assets/2.json", "s3://assets/3.json"):
        deployed_version(deployed, JOB)
        stack.deploy(url)
    back = previous(deployed, JOB)
    assert (back.document_url, back.template) == ("s3://assets/2.json", template("s3://assets/2.json"))
    assert back.document(deployed.client("s3")) == {"of": "s3://assets/2.json"}
    # Its document may be gone, and AWS may refuse it.
    s3 = deployed.client("s3")
    s3.delete_object(Bucket="assets", Key="2.json")
    with pytest.raises(
        UpgradeError, match=r"s3://assets/2\.json of clicks no longer exists .*`millrace upgrade`"
    ):
        back.document(s3)
    with pytest.raises(AwsError, match="NoSuchBucket"):
        Version(JOB, "", "s3://no-such-bucket/2.json", {}).document(s3)
    # What it takes the place of is kept too.
    deployed_version(deployed, JOB)
    stack.deploy(back.document_url)
    assert previous(deployed, JOB).document_url == "s3://assets/3.json"
    # The same again is no version of before.
    deployed_version(deployed, JOB)
    assert previous(deployed, JOB).document_url == "s3://assets/3.json"


def test_a_job_that_is_not_deployed_has_no_versions(deployed: Aws) -> None:
    with pytest.raises(
        UpgradeError, match=r"clicks is not deployed yet: `millrace deploy --env minimal` deploys it"
    ):
        current(deployed, JOB)


def test_what_other_jobs_stand_on_is_not_changed_by_an_upgrade() -> None:
    def change(part: str, *resources: str) -> StackChange:
        return StackChange(f"hello-dev-{part}", False, resources, ())

    found = Changes(
        (
            change("streams", "~ stream"),
            change("storage"),
            change("observability", "~ alarm"),
            change("job-clicks", "~"),
        ),
        (),
        {},
    )
    assert shared_stacks(found, "hello-dev") == ("hello-dev-streams",)
