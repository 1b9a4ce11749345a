"""What all rules share: how to walk a template and how to read a policy statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

Fault = tuple[list[str | int], str]
"""Where below the resource, and what is wrong."""


@dataclass(frozen=True)
class Resource:
    """One resource and the template around it."""

    name: str
    body: dict[str, Any]
    template: Template

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.body["Type"])

    def value(self, *path: str) -> Any:
        """Read a property, ``None`` where any part of the way is absent."""
        below: Any = self.body.get("Properties", {})
        for key in path:
            if not isinstance(below, dict):
                return None
            below = below.get(key)
        return below

    def others(self, kind: str) -> list[Resource]:
        """Give the template's resources of a type."""
        return [
            Resource(name, body, self.template) for name, body in self.template.get_resources([kind]).items()
        ]


class PolicyRule(CloudFormationLintRule):
    """A rule on every resource of some types; numbers from E9000 on are for rules of one's own."""

    kinds: ClassVar[tuple[str, ...]] = ()

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Check every resource of the rule's types."""
        return [
            RuleMatch(["Resources", name, *path], f"{self.shortdesc}: {message}")
            for name, body in cfn.get_resources().items()
            if self.selects(body["Type"])
            for path, message in self.faults(Resource(name, body, cfn))
        ]

    def selects(self, kind: str) -> bool:
        """Tell whether the rule is on a resource type."""
        return kind in self.kinds

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Give what is wrong with one resource."""
        raise NotImplementedError  # abstract: every rule says what a fault is


def properties(*path: str) -> list[str | int]:
    """Write a property's path as a match wants it."""
    return ["Properties", *path]


def listed(item: Any) -> list[Any]:
    """Undo CloudFormation's habit of writing a list of one as its item."""
    if item is None:
        return []
    return item if isinstance(item, list) else [item]


def allowed(document: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give a policy document's Allow statements with their places."""
    for index, statement in enumerate(listed((document or {}).get("Statement"))):
        if statement.get("Effect") == "Allow":
            yield index, statement


def condition_keys(statement: dict[str, Any]) -> set[str]:
    """Give the keys that a statement's conditions restrict, in lower case as IAM compares them.

    A condition that holds for a request without the key (``…IfExists``, ``Null``, ``ForAllValues``)
    or that names what is not wanted (``…Not…``) restricts nobody to an account.
    """
    return {
        key.lower()
        for operator, tests in statement.get("Condition", {}).items()
        if not operator.startswith(("ForAllValues", "Null")) and not operator.endswith("IfExists")
        if "Not" not in operator
        for key, wanted in tests.items()
        if wanted not in ("*", ["*"])
    }


def principals(statement: dict[str, Any], kind: str) -> list[Any]:
    """Give the principals of a kind (``AWS``, ``Service``, ``Federated``) that a statement names."""
    named = statement.get("Principal", {})
    if isinstance(named, str):
        return [named] if kind == "AWS" else []
    return listed(named.get(kind))


def refers_to(item: Any, logical_id: str) -> bool:
    """Tell whether a value is or contains a reference to a resource of the same template."""
    if isinstance(item, dict):
        if item.get("Ref") == logical_id:
            return True
        attribute = item.get("Fn::GetAtt")
        if attribute is not None and listed(attribute)[0] in (logical_id, f"{logical_id}.Arn"):
            return True
        return any(refers_to(below, logical_id) for below in item.values())
    return isinstance(item, list) and any(refers_to(below, logical_id) for below in item)
