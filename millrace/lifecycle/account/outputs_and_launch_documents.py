"""Stack outputs and launch documents of a deployment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

from botocore.exceptions import ClientError

from millrace.config.aws.resource_names import Names


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
    bucket, key = split_s3_url(url)
    content = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    if content.get("version") != 1:
        raise NotDeployedError(
            f"launch document {url} has format version {content.get('version')!r}, but this version of "
            "Millrace reads only 1; deploy the job again"
        )
    return LaunchDocument(url=url, content=content)
