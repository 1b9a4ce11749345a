"""Stacks that are deployed and no longer in the environment's file, and what stays of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, ignoring_not_found_errors
from millrace.lifecycle.changes.deployment_changes import does_data_outlive_resource, resource_title
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.changes.table_writer_changes import output_names_and_checkpoints_url

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


_LAST = ("streams", "kafka", "history-image", "storage", "network", "lifecycle")
"""Stacks that others depend on: they are removed after those."""


@dataclass(frozen=True)
class StackRemoval:
    """A stack that a deployment removes.

    Attributes
    ----------
    job
        Its job; None for another stack.
    renamed_to
        The job that continues from its checkpoints.
    protected
        Whether its termination protection is on: it is left, as somebody wanted its data to stay.
    first
        Whether it is removed before the deployment, because it uses what that removes.
    stays, goes
        What outlives it, and data that is deleted with it.
    """

    stack: str
    job: str | None = None
    renamed_to: str | None = None
    protected: bool = False
    first: bool = False
    stays: tuple[str, ...] = ()
    goes: tuple[str, ...] = ()


def build_stack_removal(
    stack: str,
    template: Template,
    *,
    job: str | None,
    document: Mapping[str, Any] | None,
    renamed_to: str | None,
    protected: bool,
    first: bool,
) -> StackRemoval:
    """Describe the removal of a stack.

    Parameters
    ----------
    document
        Launch document of its job, which names its tables and checkpoints.
    """
    stays: list[str] = []
    goes: list[str] = []
    if document is not None:
        outputs, checkpoints = output_names_and_checkpoints_url(document)
        stays += [*(f"table or output {each}" for each in outputs), f"checkpoints {checkpoints}"]
    for name, resource in template.get("Resources", {}).items():
        if (survives := does_data_outlive_resource(resource)) is not None:
            (stays if survives else goes).append(resource_title(name, resource))
    return StackRemoval(
        stack,
        job,
        renamed_to,
        protected,
        first and renamed_to is None,
        tuple(stays),
        tuple(goes),
    )


def in_removal_order(removals: Collection[StackRemoval]) -> Iterator[StackRemoval]:
    """Yield the removals in an order that CloudFormation accepts: users of a stack before it; protected stacks not at all."""
    yield from sorted(
        (each for each in removals if not each.protected),
        key=lambda each: next((n for n, part in enumerate(_LAST, 1) if each.stack.endswith(f"-{part}")), 0),
    )
