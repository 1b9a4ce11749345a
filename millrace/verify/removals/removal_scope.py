"""Scope of a verification: the only resources that one ever deletes, and what is left of them.

Two marks must agree, and the verification sets both: the stack's tags, which CloudFormation stores and nobody sets by
accident, and the names, which start with a prefix that only that verification has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.config.base import grouped
from millrace.config.model import Environment
from millrace.lifecycle.account.real_cost import ENVIRONMENT, PROJECT
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.changes.stack_exports import export_values, imported_export_names
from millrace.verify.environment_copy import NAME, TAG, environment_identifier

_GONE = ("DELETE_COMPLETE",)
STACK, BUCKET, STREAM, LOG_GROUP, PARAMETER = "stack ", "bucket ", "stream ", "log group ", "parameter "
"""Prefixes of lines about what is left, before its name."""

_PENDING = ("PendingDeletion", "PendingReplicaDeletion")


@dataclass(frozen=True)
class VerificationScope:
    """All resources of one verification.

    Attributes
    ----------
    mark
        Mark of the verified environment (:func:`millrace.verify.environment_copy.environment_identifier`).
    name
        Name of the verification's own environment.
    prefix
        Prefix of every name in it.
    """

    mark: str
    name: str
    prefix: str

    @property
    def verified_environment_name(self) -> str:
        """Name of the verified environment."""
        return self.mark.rpartition("/")[2]

    def owns(self, name: str) -> bool:
        """Return whether a resource with this name belongs to it, if its tags agree, too."""
        return name.startswith(f"{self.prefix}-")

    @property
    def tags(self) -> dict[str, str]:
        """Tags of all its resources."""
        return {TAG: self.mark, ENVIRONMENT: self.name}


def all_stacks(client: Callable[[str], Any]) -> Iterator[Mapping[str, Any]]:
    """Return all stacks of the account and region."""
    return list_all(client("cloudformation"), "describe_stacks", "Stacks")


def tags_of_stack(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a stack from ``DescribeStacks``."""
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}


def verification_of_stack(stack: Mapping[str, Any], environment: Environment) -> VerificationScope | None:
    """Return the verification of an environment to which a stack belongs; None for any other stack.

    Parameters
    ----------
    stack
        Stack from ``DescribeStacks``.
    environment
        The verified environment.
    """
    tags = tags_of_stack(stack)
    name, project = tags.get(ENVIRONMENT, ""), tags.get(PROJECT, "")
    # Names contain only the start of a long project name; the mark has all of it.
    if tags.get(TAG) != environment_identifier(environment) or not NAME.fullmatch(name) or not project:
        return None
    if not environment.project.startswith(project):
        return None
    parts = (environment.governance.name_prefix, project, name)
    result = VerificationScope(
        environment_identifier(environment), name, "-".join(part for part in parts if part)
    )
    return result if result.owns(stack["StackName"]) else None


def find_verifications(
    client: Callable[[str], Any], environment: Environment
) -> dict[VerificationScope, list[str]]:
    """Return the stacks that verifications of an environment left, by verification.

    Raises
    ------
    AwsError
        CloudFormation refuses the request.
    """
    with translating_aws_errors("cannot list resources of earlier verifications"):
        return grouped(
            (scope, stack["StackName"])
            for stack in all_stacks(client)
            if stack["StackStatus"] not in _GONE
            and (scope := verification_of_stack(stack, environment)) is not None
        )


def removal_waves(templates: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return stacks in groups, in the order of their removal: no remaining stack imports from a stack of the current wave.

    Parameters
    ----------
    templates
        Templates by stack.
    """
    exported = {export: stack for stack, template in templates.items() for export in export_values(template)}
    uses = {
        stack: {exported[name] for name in imported_export_names(template) if name in exported} - {stack}
        for stack, template in templates.items()
    }
    left, order = set(templates), []
    while left:
        users = set[str]().union(*(uses[stack] for stack in left))
        # CloudFormation lets no two stacks import from each other; if they did, all the rest would be deleted at once.
        wave = sorted(left - users) or sorted(left)
        order.append(wave)
        left -= set(wave)
    return order


def list_leftovers(client: Callable[[str], Any], scope: VerificationScope) -> list[str]:
    """Return a line for each thing that is left of a verification: by tag, and by name where a tag may be missing.

    Keys that wait for their deletion do not count: they are disabled and cost nothing (KMS developer guide, "Deleting AWS
    KMS keys").

    Raises
    ------
    AwsError
        A service refuses the request.
    """
    return sorted({*_leftovers_by_name(client, scope), *_leftovers_by_tag(client, scope)})


def _leftovers_by_tag(client: Callable[[str], Any], scope: VerificationScope) -> Iterator[str]:
    filters = [{"Key": key, "Values": [value]} for key, value in scope.tags.items()]
    with translating_aws_errors("cannot list resources with the verification's tag"):
        tagging, kms = client("resourcegroupstaggingapi"), client("kms")
        for each in list_all(tagging, "get_resources", "ResourceTagMappingList", TagFilters=filters):
            arn = each["ResourceARN"]
            if ":cloudformation:" not in arn and not (
                ":kms:" in arn and kms.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"] in _PENDING
            ):
                yield arn


def _leftovers_by_name(client: Callable[[str], Any], scope: VerificationScope) -> Iterator[str]:
    with translating_aws_errors("cannot list resources with the verification's prefix"):
        for stack in all_stacks(client):
            if scope.owns(stack["StackName"]) and stack["StackStatus"] not in _GONE:
                yield f"{STACK}{stack['StackName']}"
        for bucket in client("s3").list_buckets()["Buckets"]:
            if scope.owns(bucket["Name"]):
                yield f"{BUCKET}{bucket['Name']}"
        streams = list_all(client("kinesis"), "list_streams", "StreamNames")
        yield from (f"{STREAM}{name}" for name in streams if scope.owns(name))
        yield from (f"{LOG_GROUP}{name}" for name in list_log_groups(client("logs"), scope))
        yield from (f"{PARAMETER}{name}" for name in list_parameters(client("ssm"), scope))


def list_log_groups(logs: Any, scope: VerificationScope) -> list[str]:
    """Return the log groups of a verification; Glue creates some itself, which no stack knows."""
    prefix = f"/{scope.prefix}/"
    groups = list_all(logs, "describe_log_groups", "logGroups", logGroupNamePrefix=prefix)
    return [group["logGroupName"] for group in groups]


def list_parameters(ssm: Any, scope: VerificationScope) -> list[str]:
    """Return the parameters of a verification, which its state machines write."""
    below = {"Path": f"/{scope.prefix}/", "Recursive": True}
    return [each["Name"] for each in list_all(ssm, "get_parameters_by_path", "Parameters", **below)]


UNKNOWN = "all that begins with "
"""Prefix of a line about remains that nobody searched for; there may be stacks among them."""


def can_clean_command_find(remains: Iterable[str]) -> bool:
    """Return whether ``--clean`` can find what is left: it needs stacks."""
    return any(each.startswith((STACK, UNKNOWN)) for each in remains)
