"""The deployed stacks of an environment, found by its tags and not by what its file names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millrace.lifecycle.state_machine import Aws

NEVER_MADE = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "REVIEW_IN_PROGRESS")
"""States of a stack whose first creation failed or did not begin; CDK deletes it and creates it again."""


@dataclass(frozen=True)
class DeployedStack:
    """A stack that exists.

    Attributes
    ----------
    protected
        Whether its termination protection is on.
    """

    name: str
    protected: bool


def deployed_stacks(aws: Aws) -> tuple[DeployedStack, ...]:
    """Find the stacks with the environment's tags, those included that its file no longer has.

    The names are searched first: a request for the tags of every stack of an account would need a permission on all of them.

    Raises
    ------
    botocore.exceptions.ClientError
        AWS refused a request.
    """
    cloudformation, names = aws.client("cloudformation"), aws.names
    tags = {
        "millrace:project": names.environment.project,
        "millrace:environment": names.environment.name,
    }
    pages = cloudformation.get_paginator("list_stacks").paginate()
    found = sorted(
        stack["StackName"]
        for page in pages
        for stack in page["StackSummaries"]
        if stack["StackName"].startswith(f"{names.prefix}-")
        and stack["StackStatus"] not in (*NEVER_MADE, "DELETE_COMPLETE")
    )
    described = [cloudformation.describe_stacks(StackName=name)["Stacks"][0] for name in found]
    return tuple(
        DeployedStack(each["StackName"], bool(each.get("EnableTerminationProtection")))
        for each in described
        if tags.items() <= _tags(each).items()
    )


def _tags(stack: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
