"""Exports that a deployment removes or changes while a deployed stack imports them, and a possible order.

CloudFormation refuses both, and CDK deploys producers first. Pure functions over templates, except for
:func:`importers`, which calls AWS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.lifecycle.deployed import ignore_missing
from millrace.lifecycle.deployment_changes import Template

CREATED_ONLY = {
    "AWS::APS::Workspace": ("KmsKeyArn",),
    "AWS::EC2::SecurityGroup": ("GroupDescription", "GroupName", "VpcId"),
    "AWS::EC2::Subnet": (
        *("AvailabilityZone", "AvailabilityZoneId", "CidrBlock"),
        *("Ipv4IpamPoolId", "Ipv4NetmaskLength", "OutpostArn"),
        *("Ipv6IpamPoolId", "Ipv6Native", "Ipv6NetmaskLength", "VpcId"),
    ),
    "AWS::EC2::VPC": ("CidrBlock", "Ipv4IpamPoolId", "Ipv4NetmaskLength", "VpcEncryptionControl"),
    "AWS::KMS::Key": (),
    "AWS::S3::Bucket": ("BucketName", "BucketNamePrefix", "BucketNamespace"),
    "AWS::SNS::Topic": ("FifoTopic", "TopicName"),
}
"""Types of exported resources, and the properties whose change makes CloudFormation replace one: its resource types'
``createOnlyProperties``, with which a test compares this (tests/template/test_exports.py).
"""


@dataclass(frozen=True)
class StackOrder:
    """Order of stacks that CloudFormation accepts.

    Attributes
    ----------
    first
        Stacks to deploy by themselves before all others: after that they no longer import what is removed.
    refused
        A line for each stack that blocks the deployment in any order, with what to do.
    """

    first: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def stack_order(
    deployed: Mapping[str, Template | None], new: Mapping[str, Template], lasting: Iterable[str]
) -> StackOrder:
    """Find an order in which CloudFormation accepts a deployment.

    Parameters
    ----------
    deployed, new
        Templates by the stacks' names; the deployed ones include stacks that the assembly no longer has.
    lasting
        Stacks that hold data: nobody is asked to destroy one.
    """
    standing = {stack: template for stack, template in deployed.items() if template is not None}
    exported = {name for template in standing.values() for name in exports(template)}
    gone = {name for stack in new for name in changed_exports(standing.get(stack), new[stack])}
    ways = {"first": set[str](), "destroy": set[str](), "keep": set[str]()}
    for stack, template in standing.items():
        used = imports(template) & gone
        if not used:
            continue
        will = new.get(stack)
        if will is not None and not imports(will) & gone and imports(will) <= exported:
            ways["first"].add(stack)
        else:
            ways["keep" if stack in lasting else "destroy"].add(stack)
    return StackOrder(
        first=tuple(sorted(ways["first"])),
        refused=(
            *(
                f"{stack} holds data and depends on what this change replaces; revert the change, or make another "
                "environment and move to it"
                for stack in sorted(ways["keep"])
            ),
            *(
                f"{stack} depends on what this change removes or replaces; run `npx cdk destroy {stack}` first, then "
                "deploy"
                for stack in sorted(ways["destroy"])
            ),
        ),
    )


def changed_exports(old: Template | None, new: Template) -> frozenset[str]:
    """Return the names of a stack's exports that an update removes or gives another value."""
    if old is None:
        return frozenset()
    replaced = _replaced(old, new)
    after = exports(new)
    return frozenset(
        name
        for name, value in exports(old).items()
        if name not in after or after[name] != value or replaced & set(_resources(value))
    )


def exports(template: Template) -> dict[str, Any]:
    """Return the values of a template's exports, by name."""
    return {
        output["Export"]["Name"]: output["Value"]
        for output in template.get("Outputs", {}).values()
        if isinstance(output.get("Export", {}).get("Name"), str)
    }


def imports(template: Template) -> frozenset[str]:
    """Return the names of the exports that a template imports."""
    return frozenset(name for name in _taken(template, "Fn::ImportValue") if isinstance(name, str))


def importers(cloudformation: Any, export: str) -> tuple[str, ...]:
    """Ask CloudFormation which stacks import an export.

    Raises
    ------
    botocore.exceptions.ClientError
        AWS refused the request.
    """
    with ignore_missing("is not imported", "does not exist"):
        return tuple(cloudformation.list_imports(ExportName=export)["Imports"])
    return ()


def _replaced(old: Template, new: Template) -> set[str]:
    """Return the logical ids of replaced resources and of those that depend on them: a subnet is replaced with its VPC."""
    before, after = old.get("Resources", {}), new.get("Resources", {})
    found: set[str] = set()
    while True:
        more = {
            logical
            for logical in before.keys() & after.keys() - found
            for key in CREATED_ONLY.get(before[logical]["Type"], ())
            if before[logical].get("Properties", {}).get(key) != after[logical].get("Properties", {}).get(key)
            or found & set(_resources(after[logical].get("Properties", {}).get(key)))
        }
        if not more:
            return found
        found |= more


def _resources(value: Any) -> Iterator[str]:
    yield from _taken(value, "Ref")
    for taken in _taken(value, "Fn::GetAtt"):
        yield taken[0] if isinstance(taken, list) else str(taken).split(".")[0]


def _taken(value: Any, function: str) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == function:
                yield inner
            else:
                yield from _taken(inner, function)
    elif isinstance(value, list):
        for inner in value:
            yield from _taken(inner, function)
