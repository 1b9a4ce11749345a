"""Versions of a deployed job, kept for a rollback where neither a job nor an operator can write.

A kept version is an object that is named by its SHA-256 and holds the template and the URL of the launch document. An SSM
parameter holds the digests in their order, one per version of the parameter. The object is held against its digest before
anything of it is used: CloudFormation deploys its template with the rights of the bootstrap
(``docs/design/deploy.md#upgrade-and-rollback``).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.account.outputs_and_launch_documents import (
    MISSING_OBJECT,
    ignoring_not_found_errors,
    split_s3_url,
)
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.deploy import deployed_template, read_deployed_url_and_document


class UpgradeError(RuntimeError):
    """An upgrade that was not started, or was rolled back; the message says what runs now."""


@dataclass(frozen=True)
class JobVersion:
    """A deployed version of a job.

    Attributes
    ----------
    at
        Time of its replacement.
    document_url
        URL of its launch document, whose name depends on its content.
    """

    job: str
    at: str
    document_url: str
    template: Template

    def read_launch_document(self, s3: Any) -> dict[str, Any]:
        """Read its launch document.

        Raises
        ------
        UpgradeError
            It no longer exists, so this version cannot be started.
        AwsError
            AWS refused the call.
        """
        bucket, key = split_s3_url(self.document_url)
        reading = translating_aws_errors(f"cannot read the launch document {self.document_url}")
        with reading, ignoring_not_found_errors(*MISSING_OBJECT):
            return dict(json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
        raise UpgradeError(
            f"the launch document {self.document_url} of {self.job} no longer exists (a lifecycle rule of CDK's "
            "bucket of assets deletes old versions); check out the version in git, and deploy it with `millrace "
            "upgrade`"
        )


def save_deployed_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Keep the deployed version of a job, before it is replaced.

    Raises
    ------
    UpgradeError
        Nothing is deployed.
    AwsError
        AWS refused a call.
    """
    version = read_deployed_version(aws, job)
    body = json.dumps({"version": 1, **asdict(version)}).encode()
    digest = hashlib.sha256(body).hexdigest()
    bucket, folder = split_s3_url(aws.names.versions_url(job))
    with translating_aws_errors(f"cannot save the deployed version of {job}"):
        aws.client("s3").put_object(Bucket=bucket, Key=f"{folder}/{digest}.json", Body=body)
        aws.client("ssm").put_parameter(
            Name=aws.names.versions_parameter(job),
            Type="String",
            Overwrite=True,
            Value=json.dumps({"sha256": digest, "document_url": version.document_url}),
        )
    return version


def read_deployed_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Read the deployed version of a job.

    Raises
    ------
    UpgradeError
        Nothing is deployed.
    AwsError
        AWS refused a call.
    """
    stack = aws.names.stack(f"job-{job}")
    with translating_aws_errors(f"cannot read stack {stack}"):
        template = deployed_template(aws.client("cloudformation"), stack)
    url = None if template is None else read_deployed_url_and_document(aws, stack)[0]
    if template is None or url is None:
        env = aws.names.environment.name
        raise UpgradeError(f"{job} is not deployed yet; deploy it with `millrace deploy --env {env}`")
    return JobVersion(job, f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}", url, template)


def find_previous_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Find the version that was deployed before the current one.

    Raises
    ------
    UpgradeError
        No earlier version was kept, or what was kept is not what was deployed.
    AwsError
        AWS refused a call.
    """
    now, parameter = read_deployed_version(aws, job), aws.names.versions_parameter(job)
    versions: list[dict[str, str]] = []
    with (
        translating_aws_errors(f"cannot read the list of deployed versions of {job}"),
        ignoring_not_found_errors("ParameterNotFound"),
    ):
        history = list_all(aws.client("ssm"), "get_parameter_history", "Parameters", Name=parameter)
        versions = [json.loads(each["Value"]) for each in history]
    for each in reversed(versions):
        if each["document_url"] != now.document_url:
            return _read_version(aws, job, each["sha256"])
    raise UpgradeError(f"{job} cannot be rolled back: SSM parameter {parameter} lists no earlier version")


def _read_version(aws: DeployedEnvironment, job: str, digest: str) -> JobVersion:
    place = f"{aws.names.versions_url(job)}/{digest}.json"
    bucket, key = split_s3_url(place)
    with (
        translating_aws_errors(f"cannot read the saved versions of {job}"),
        ignoring_not_found_errors(*MISSING_OBJECT),
    ):
        body = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        record = json.loads(body) if hashlib.sha256(body).hexdigest() == digest else None
        if record is not None and record["job"] == job:
            return JobVersion(job, record["at"], record["document_url"], record["template"])
        problem = "another digest than when it was kept" if record is None else f"job {record['job']!r}"
        raise UpgradeError(
            f"{place} is not the deployed version of {job}: it has {problem}, so somebody has changed the "
            "object; nothing was stopped or deployed. Find out who (the bucket's access logs), then check "
            "out the version in git and deploy it with `millrace upgrade`"
        )
    raise UpgradeError(
        f"the earlier version of {job} no longer exists: {place}; check out the version in git, and deploy it with "
        "`millrace upgrade`"
    )
