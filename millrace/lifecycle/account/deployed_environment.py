"""A deployed environment: its names, clients for its account, stack outputs and launch documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlparse

from botocore.exceptions import ClientError

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment
from millrace.lifecycle.aws_error_messages import CredentialsError, translating_aws_errors


@dataclass(frozen=True)
class DeployedEnvironment:
    """A deployment of an environment on AWS.

    Attributes
    ----------
    client
        Makes a boto3 client of a service for the environment's region.
    """

    names: Names
    client: Callable[[str], Any]

    def job_outputs(self, job: str) -> dict[str, str]:
        """Read the outputs of a job's stack.

        Raises
        ------
        NotDeployedError
            There is no such stack.
        """
        return read_stack_outputs(self.client("cloudformation"), self.names.stack(f"job-{job}"))


def connect_to_account(environment: Environment) -> DeployedEnvironment:
    """Return clients for an environment, after a check of the credentials' account; if the file names none, for theirs.

    Raises
    ------
    CredentialsError
        There are none, they have expired, or they belong to another account.
    """

    @cache  # a client takes longer to make than most requests
    def make_client(service: str) -> Any:
        import boto3

        make: Any = boto3.client  # the type checker does not know the service
        return make(service, region_name=environment.region)

    with translating_aws_errors("cannot tell to whom these AWS credentials belong"):
        account = make_client("sts").get_caller_identity()["Account"]
    if environment.account is not None and account != environment.account:
        raise CredentialsError(
            f"environment {environment.name} belongs to account {environment.account}, but these credentials belong "
            f"to account {account}; sign in to the first one (AWS_PROFILE)"
        )
    return DeployedEnvironment(Names(environment, account), make_client)


class NotDeployedError(RuntimeError):
    """A stack or its launch document does not exist; the message says which."""


@dataclass(frozen=True)
class LaunchDocument:
    """A job's launch document, read from the deployment (``docs/launch-document.md``)."""

    url: str
    content: dict[str, Any]


def split_s3_url(url: str) -> tuple[str, str]:
    """Split ``s3://bucket/key`` into bucket and key."""
    parts = urlparse(url)
    return parts.netloc, parts.path.lstrip("/")


def read_s3_object(s3: Any, url: str) -> bytes:
    """Read an object of S3 by its URL."""
    bucket, key = split_s3_url(url)
    return bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


MISSING_OBJECT = ("NoSuchKey", "404")
"""Error codes of S3 for an object that does not exist."""


@contextmanager
def ignoring_not_found_errors(*signs: str) -> Iterator[None]:
    """Ignore the error of a request whose subject does not exist, and leave the block; other errors pass.

    Parameters
    ----------
    signs
        Error codes, or parts of messages of several words, that say so.
    """
    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"].get("Code"), error.response["Error"].get("Message", "")
        # A message has the account's id, in which the digits of a code may occur.
        if code not in signs and not any(" " in sign and sign in message for sign in signs):
            raise


def read_stack_outputs(cloudformation: Any, stack: str) -> dict[str, str]:
    """Read a stack's outputs.

    Raises
    ------
    NotDeployedError
        There is no such stack.
    """
    with ignoring_not_found_errors("does not exist"):
        result = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("Outputs", ())
        return {output["OutputKey"]: output["OutputValue"] for output in result}
    raise NotDeployedError(
        f"stack {stack} is not deployed: deploy its environment first (`millrace deploy --env ENV`)"
    )


def read_launch_document(cloudformation: Any, s3: Any, names: Names, job: str) -> LaunchDocument:
    """Read a deployed job's launch document.

    Raises
    ------
    NotDeployedError
        The job's stack is not deployed, names no document, or the document is of another version.
    """
    stack = names.stack(f"job-{job}")
    if (url := read_stack_outputs(cloudformation, stack).get("LaunchDocument")) is None:
        raise NotDeployedError(
            f"stack {stack} was deployed by a version of Millrace without launch documents; deploy it again"
        )
    content = json.loads(read_s3_object(s3, url))
    if content.get("version") != 1:
        raise NotDeployedError(
            f"launch document {url} has format version {content.get('version')!r}, but this version of "
            "Millrace reads only 1; deploy the job again"
        )
    return LaunchDocument(url=url, content=content)
