"""Stacks that are deployed and no longer in the environment's file, and what stays of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.lifecycle.changes.deployment_changes import does_data_outlive_resource, resource_title
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.changes.table_writer_changes import output_names_and_checkpoints_url

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
        survives = does_data_outlive_resource(resource)
        if survives is not None:
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

    def removal_rank(each: StackRemoval) -> int:
        return next((number for number, part in enumerate(_LAST, 1) if each.stack.endswith(f"-{part}")), 0)

    yield from sorted((each for each in removals if not each.protected), key=removal_rank)
