"""Removal of security controls from a template.

A mutation is data: what resources it is about, the way to the control, and the change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.policy.assembly import Template

Step = str | int | dict[str, Any]
"""A key, a place in a list, or what an item of a list (all of them, if empty) contains at least."""


@dataclass(frozen=True)
class Remove:
    """Take the property away."""

    def apply(self, holder: Any, key: Any) -> None:
        """Change the holder."""
        del holder[key]


@dataclass(frozen=True)
class Put:
    """Put a value in the property's place, also where there was none."""

    value: Any

    def apply(self, holder: Any, key: Any) -> None:
        """Change the holder."""
        holder[key] = copy.deepcopy(self.value)


@dataclass(frozen=True)
class Append:
    """Add an item to the list that the property is."""

    value: Any

    def apply(self, holder: Any, key: Any) -> None:
        """Change the holder."""
        holder[key] = [*holder[key], copy.deepcopy(self.value)]


@dataclass(frozen=True)
class Mutation:
    """One control that is removed.

    Attributes
    ----------
    name
        What goes, in words.
    kind
        The resources' type.
    path
        The way to the property from the resource.
    change
        What happens to it.
    only
        Prefixes of logical ids; all resources of the type without.
    beside
        Resources that are added, by logical id: then the resource that is found is only the anchor
        to which ``{"Ref": "ANCHOR"}`` refers.
    """

    name: str
    kind: str
    path: tuple[Step, ...]
    change: Remove | Put | Append
    only: tuple[str, ...] = ()
    beside: dict[str, Any] = field(default_factory=dict)

    def places(self, template: Template) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Give logical id and exact path of everything in a template that the mutation can change."""
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == self.kind and (not self.only or logical_id.startswith(self.only)):
                for path in _expand(resource, self.path, optional=isinstance(self.change, Put)):
                    yield logical_id, path

    def applied(self, template: Template, logical_id: str, path: tuple[Any, ...]) -> Template:
        """Return the template without the control at one place."""
        changed = copy.deepcopy(template)
        if not path:
            del changed["Resources"][logical_id]
            return changed
        holder = changed["Resources"][logical_id]
        for step in path[:-1]:
            holder = holder[step]
        self.change.apply(holder, path[-1])
        for name, resource in self.beside.items():
            changed["Resources"][name] = _anchored(resource, logical_id)
        return changed


def _expand(found: Any, path: tuple[Step, ...], *, optional: bool) -> Iterator[tuple[Any, ...]]:
    if not path:
        yield ()
        return
    step, rest = path[0], path[1:]
    if isinstance(step, dict):
        for index, item in enumerate(found):
            if _contains(item, step):
                yield from ((index, *below) for below in _expand(item, rest, optional=optional))
    elif isinstance(found, list):
        if isinstance(step, int) and step < len(found):
            yield from ((step, *below) for below in _expand(found[step], rest, optional=optional))
    elif isinstance(found, dict) and step in found:
        yield from ((step, *below) for below in _expand(found[step], rest, optional=optional))
    elif isinstance(found, dict) and optional and not rest:
        yield (step,)


def _contains(item: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(item, dict) and all(
            key in item and _contains(item[key], value) for key, value in wanted.items()
        )
    if isinstance(item, list) and isinstance(wanted, str):
        return wanted in item
    return bool(item == wanted)


def _anchored(value: Any, logical_id: str) -> Any:
    if value == {"Ref": "ANCHOR"}:
        return {"Ref": logical_id}
    if isinstance(value, dict):
        return {key: _anchored(below, logical_id) for key, below in value.items()}
    if isinstance(value, list):
        return [_anchored(below, logical_id) for below in value]
    return value
