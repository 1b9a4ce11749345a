"""Order of stacks, for exports that a deployment removes or changes while they are imported, and for names that move.

CloudFormation refuses an update that takes such an export away, and a resource whose name another stack still has. Pure functions over templates, except for
:func:`importing_stacks`, which calls AWS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.lifecycle.account.deployed_environment import ignoring_not_found_errors
from millrace.lifecycle.changes.refused_updates import (
    Template,
    names_moving_between_stacks,
    referenced_logical_ids,
    replaced_resources,
    values_of_key,
)


@dataclass(frozen=True)
class StackOrder:
    """Order of stacks that CloudFormation accepts.

    Attributes
    ----------
    first
        Stacks to deploy by themselves before all others: after that they no longer import what is removed, nor have the name of
        a resource that another stack creates.
    remove
        Stacks to remove before all others are deployed, for the same reason.
    refused
        A line for each stack that blocks the deployment in any order, with what to do.
    """

    first: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def stack_order(
    deployed: Mapping[str, Template | None],
    new: Mapping[str, Template],
    lasting: Iterable[str],
    removed: Collection[str] = (),
) -> StackOrder:
    """Find an order in which CloudFormation accepts a deployment.

    Parameters
    ----------
    deployed, new
        Templates by the stacks' names; the deployed ones include stacks that the assembly no longer has.
    lasting
        Stacks that hold data: nobody is asked to destroy one.
    removed
        Stacks that this deployment removes.
    """
    standing = {stack: template for stack, template in deployed.items() if template is not None}
    exported = {name for template in standing.values() for name in export_values(template)}
    gone = {name for stack in new for name in changed_exports(standing.get(stack), new[stack])}
    moves = names_moving_between_stacks(standing, new)
    # One that also takes names comes after those that give them: CDK's order by dependencies.
    givers = {giver for giver, _ in moves} - {taker for _, taker in moves}
    ways: dict[str, set[str]] = {each: set() for each in ("first", "destroy", "remove", "keep", "alone")}
    for stack, template in standing.items():
        blocked = imported_export_names(template) & gone
        if not blocked and stack not in givers:
            continue
        will = new.get(stack)
        if stack in removed:
            ways["remove"].add(stack)
        elif (
            will is not None
            and not imported_export_names(will) & gone
            and imported_export_names(will) <= exported
        ):
            ways["first"].add(stack)
        elif blocked:
            ways["keep" if stack in lasting else "destroy"].add(stack)
        else:
            ways["alone"].add(stack)
    return StackOrder(
        first=tuple(sorted(ways["first"])),
        remove=tuple(sorted(ways["remove"])),
        refused=(
            *(
                f"{stack} holds data and depends on what this change replaces; revert the change, or make another "
                "environment and move to it"
                for stack in sorted(ways["keep"])
            ),
            *(
                f"{stack} depends on what this change removes or replaces; run `{_destroy_command(stack, new)}` first, then deploy"
                for stack in sorted(ways["destroy"])
            ),
            *(
                f"{stack} has names that another stack takes over, and needs what this change adds elsewhere; deploy one of "
                "the two by itself first"
                for stack in sorted(ways["alone"])
            ),
            *(
                f"{giver} and {taker} exchange alarms; run `{_destroy_command(taker, new)}` first, then deploy"
                for giver, taker in sorted(moves)
                if giver < taker and (taker, giver) in moves
            ),
        ),
    )


def _destroy_command(stack: str, new: Mapping[str, Template]) -> str:
    # CDK finds only the stacks that the app still has.
    return f"{'cdk destroy' if stack in new else 'aws cloudformation delete-stack --stack-name'} {stack}"


def changed_exports(old: Template | None, new: Template) -> frozenset[str]:
    """Return the names of a stack's exports that an update removes or gives another value."""
    if old is None:
        return frozenset()
    moved = replaced_resources(old.get("Resources", {}), new.get("Resources", {})).keys()
    after = export_values(new)
    return frozenset(
        name
        for name, value in export_values(old).items()
        if name not in after or after[name] != value or moved & set(referenced_logical_ids(value))
    )


def export_values(template: Template) -> dict[str, Any]:
    """Return the values of a template's exports, by name."""
    return {
        output["Export"]["Name"]: output["Value"]
        for output in template.get("Outputs", {}).values()
        if isinstance(output.get("Export", {}).get("Name"), str)
    }


def imported_export_names(template: Template) -> frozenset[str]:
    """Return the names of the exports that a template imports."""
    return frozenset(name for name in values_of_key(template, "Fn::ImportValue") if isinstance(name, str))


def importing_stacks(cloudformation: Any, export: str) -> tuple[str, ...]:
    """Ask CloudFormation which stacks import an export.

    Raises
    ------
    botocore.exceptions.ClientError
        AWS refused the request.
    """
    with ignoring_not_found_errors("is not imported", "does not exist"):
        return tuple(cloudformation.list_imports(ExportName=export)["Imports"])
    return ()
