"""State of a program while it is evaluated: what its names and objects hold, and how the states of several branches are joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from millrace.advisor.programs.possible_values import (
    CONTENTS,
    MutableObject,
    NameScope,
    Values,
    next_age,
    union_of_alternatives,
    unknown_value,
    values_inside,
)

Place = tuple[NameScope, str]
"""A name in its scope, or what an object holds."""

Changes = dict[Place, Values | None]
"""What places hold after a part of the program; None for a name that is deleted."""


class Mark(NamedTuple):
    """A point of the evaluation: the number of changes before it, and the age of what is made after it."""

    position: int
    age: int


class ProgramState:
    """Names and objects of a program, with a journal of their changes, by which a branch is undone and joined with others."""

    def __init__(self) -> None:
        self._journal: list[tuple[NameScope, str, Values | None]] = []
        self._logs: list[dict[Place, Values]] = []

    def store(self, scope: NameScope, name: str, values: Values | None) -> None:
        """Give a name its values; None deletes it."""
        scope = scope.root
        before = scope.values.get(name)
        self._journal.append((scope, name, before))
        for log in self._logs:
            log[scope, name] = union_of_alternatives(log.get((scope, name), before or ()), values or ())
        _put(scope, name, values)

    def mark(self) -> Mark:
        """Return the present point."""
        return Mark(len(self._journal), next_age())

    def changes_since(self, mark: Mark) -> Changes:
        """Return what has changed since a point, with what the new objects among it hold."""
        changes = {
            (scope.root, name): scope.root.values.get(name)
            for scope, name, _ in self._journal[mark.position :]
        }
        seen, pending = set[int](), [each for each in changes.values() if each]
        while pending:
            values = pending.pop()
            if id(values) in seen:
                continue
            seen.add(id(values))
            for each in values:
                root = each.value.root if isinstance(each.value, MutableObject) else None
                if root is None:
                    pending += values_inside(each.value)
                elif root.age > mark.age and (root, CONTENTS) not in changes:
                    changes[root, CONTENTS] = root.values[CONTENTS]
                    pending.append(root.values[CONTENTS])
        return changes

    def values_before(self, mark: Mark) -> Changes:
        """Return what the places that have changed since a point held there."""
        since = reversed(self._journal[mark.position :])
        return {(scope.root, name): before for scope, name, before in since}

    def undo(self, mark: Mark) -> None:
        """Return to an earlier point."""
        while len(self._journal) > mark.position:
            scope, name, before = self._journal.pop()
            _put(scope.root, name, before)

    @contextmanager
    def log_changes(self) -> Iterator[dict[Place, Values]]:
        """Yield a table that takes all values of places that change meanwhile, also those of branches that are undone."""
        log: dict[Place, Values] = {}
        self._logs.append(log)
        yield log
        self._logs.pop()

    def store_any_of(self, log: dict[Place, Values]) -> None:
        """Let each place have one of the values of a log."""
        for (scope, name), values in log.items():
            self.store(scope, name, values)

    def join(self, mark: Mark, ways: Sequence[Changes]) -> None:
        """Return to a point and go on from the states of several ways from there, each place with the values of all."""
        self.undo(mark)
        if len(ways) > 1:
            _merge_new_objects(mark, ways)
        joined: dict[Place, list[Values | None]] = {}
        for number, way in enumerate(ways):
            for (scope, name), values in way.items():
                root = scope.root
                before = None if root.age > mark.age else root.values.get(name)
                joined.setdefault((root, name), [before] * len(ways))[number] = values
        for (scope, name), several in joined.items():
            present = [each for each in several if each is not None]
            values = union_of_alternatives(*present) if present else None
            lacking = len(present) < len(several) and scope.of_class and scope.age < mark.age
            if values is not None and lacking:  # the class may have it
                values += unknown_value("an attribute that a branch sets", values[0].line)
            self.store(scope, name, values)


def _merge_new_objects(mark: Mark, ways: Sequence[Changes]) -> None:
    """Make one object of those that a name has in different ways: a run makes only one of them."""
    members: dict[NameScope, set[int]] = {}
    roots = [{scope.root for scope, _ in way} for way in ways]
    for place in {place: None for way in ways for place in way}:
        objects = [
            (number, of)
            for number, way in enumerate(ways)
            if (of := _single_new_object(way.get(place), mark)) is not None
            and sum(of in each for each in roots) == 1
        ]
        for number, other in objects[1:]:
            first = objects[0][1].root
            group = members.setdefault(first, {objects[0][0]})
            if number not in group and other not in members:
                group.add(number)
                other.merged = first


def _single_new_object(values: Values | None, mark: Mark) -> NameScope | None:
    if values is None or len(values) != 1 or not isinstance(values[0].value, MutableObject):
        return None
    root = values[0].value.root
    return root if root.age > mark.age else None


def _put(scope: NameScope, name: str, values: Values | None) -> None:
    if values is None:
        scope.values.pop(name, None)
    else:
        scope.values[name] = values
