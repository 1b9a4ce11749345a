"""Permissions in a template: each statement, trust, managed policy and boundary as one line, and what widens them.

Pure functions over templates: policies of roles, trust of roles, policies of keys, buckets, topics and endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millrace.lifecycle.update_rules import Template

POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
"""Types of resources that hold permissions alone: a role with many has managed policies."""

_LIMITS = ("Deny", "permissions boundary")
"""Beginnings of what takes permissions away; whoever removes it widens them."""


def permission_lines(template: Template) -> Iterator[str]:
    """Yield each permission of a template as a line: ``KIND NAME: ...``; statements of a role's policies without the name."""
    for name, resource in template.get("Resources", {}).items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        whose = "" if kind in POLICIES else f"{kind} {name}: "
        for arn in properties.get("ManagedPolicyArns", ()) if kind == "AWS::IAM::Role" else ():
            yield f"{whose}managed policy {_shown(arn)}"
        if "PermissionsBoundary" in properties:
            yield f"{whose}permissions boundary {_shown(properties['PermissionsBoundary'])}"
        for statement in _statements(properties):
            yield from (f"{whose}{line}" for line in _lines(statement))


def widenings(changes: Iterable[str]) -> list[str]:
    """Return those of the lines ``+ PERMISSION`` and ``- PERMISSION`` that give somebody more."""
    return [line for line in changes if (line[0] == "-") == (_permission(line[2:]).startswith(_LIMITS))]


def _permission(line: str) -> str:
    """Return a permission's line without the name of its resource."""
    return line.split(": ", 1)[1] if line.startswith("AWS::") else line


def _statements(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the statements of the policy documents at any place of a resource's properties."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "Statement":
                yield from _listed(inner)
            else:
                yield from _statements(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _statements(inner)


def _lines(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield what one statement says of each of its resources."""
    said = [statement["Effect"], *_named(statement, "Action"), *_named(statement, "NotAction")]
    to = [*_named(statement, "Principal", "to"), *_named(statement, "NotPrincipal", "to")]
    if condition := statement.get("Condition"):
        to.append(f"when {_shown(condition)}")
    for target in [*_listed(statement.get("Resource", [])), *_listed(statement.get("NotResource", []))]:
        without = "all but " if "NotResource" in statement else ""
        yield " ".join([*said, f"on {without}{_shown(target)}", *to])
    if "Resource" not in statement and "NotResource" not in statement:
        yield " ".join([*said, *to])


def _named(statement: Mapping[str, Any], key: str, word: str = "") -> list[str]:
    """Return the values of a statement's element in one text, none without it."""
    if key not in statement:
        return []
    values = ", ".join(map(_shown, _listed(statement[key])))
    return [" ".join(filter(None, (word, "all but" if key.startswith("Not") else "", values)))]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
