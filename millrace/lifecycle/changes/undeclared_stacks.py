"""The deployed stacks of an environment that its file no longer names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.account.outputs_and_launch_documents import ignoring_not_found_errors
from millrace.lifecycle.changes.refused_updates import Template

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
    template: Template
    protected: bool


def deployed_template(cloudformation: Any, stack: str) -> Template | None:
    """Read a stack's deployed template; None without such a stack."""
    with ignoring_not_found_errors("does not exist"):
        body = cloudformation.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
        return dict(json.loads(body) if isinstance(body, str) else body)
    return None


def existing_stack_states(cloudformation: Any, prefix: str) -> dict[str, str]:
    """Return the states of the stacks that exist and whose names begin with ``PREFIX-``, by name."""
    return {
        stack["StackName"]: stack["StackStatus"]
        for stack in list_all(cloudformation, "list_stacks", "StackSummaries")
        if stack["StackName"].startswith(f"{prefix}-")
        and stack["StackStatus"] not in (*NEVER_MADE, "DELETE_COMPLETE")
    }


def stacks_beside_assembly(
    aws: DeployedEnvironment, assembly_stacks: Collection[str]
) -> Iterator[DeployedStack]:
    """Find the stacks of an environment beside those that are known.

    They have a name that begins as the environment's names do, and resources with its tags. The stacks themselves have no tags, as
    CloudFormation would hand those on to resources whose tags cannot change.

    Raises
    ------
    botocore.exceptions.ClientError
        AWS refused a request.
    """
    cloudformation, names = aws.client("cloudformation"), aws.names
    tags = {("millrace:project", names.environment.project), ("millrace:environment", names.environment.name)}
    for name in sorted(existing_stack_states(cloudformation, names.prefix).keys() - set(assembly_stacks)):
        template = deployed_template(cloudformation, name)
        resources = (template or {}).get("Resources", {}).values()
        if template is not None and any(tags <= set(_tag_pairs(each)) for each in resources):
            described = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
            yield DeployedStack(name, template, bool(described.get("EnableTerminationProtection")))


def _tag_pairs(resource: Any) -> Iterator[tuple[str, str]]:
    tags = resource.get("Properties", {}).get("Tags", ())
    yield from (
        tags.items() if isinstance(tags, dict) else ((str(t.get("Key")), str(t.get("Value"))) for t in tags)
    )
