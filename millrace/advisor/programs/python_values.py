"""Values of a program as Python's own, and the other way round."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from millrace.advisor.programs.possible_values import (
    ABSENT,
    LONGEST_TEXT,
    MOST_ITEMS,
    MOST_VALUES,
    Alternative,
    DictValue,
    LibraryName,
    ListValue,
    MutableObject,
    NameScope,
    ProgramFunction,
    ProgramInstance,
    Unknown,
    Values,
    contents_of,
    first_unknown,
    known_value,
    union_of_alternatives,
    values_inside,
)

_MOST_PARTS, _DEEPEST = 20_000, 50
"""Parts of a value that is made Python's own, and their depth."""


class NoPythonValueError(Exception):
    """A value that Python has no counterpart for here."""


def to_python_value(value: Any) -> Any:
    """Return a value as Python's own.

    Raises
    ------
    NoPythonValueError
        It is not a text, a number, or a list or a dictionary of such, or a part of it has several values.
    """
    return _to_python_value(value, itertools.repeat(None, _MOST_PARTS))


def _to_python_value(value: Any, budget: Iterator[None], depth: int = 0) -> Any:
    if depth > _DEEPEST or next(budget, False) is False:  # it holds itself, or one value very often
        raise NoPythonValueError
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, MutableObject):
        value = single_or_raise(value.contents)

    def inner(values: Values) -> Any:
        return _to_python_value(single_or_raise(values), budget, depth + 1)

    if isinstance(value, ListValue) and (
        value.kind is not set or len(value.values) < 2
    ):  # sets have no order
        items = [inner(each) for each in value.values]
        return slice(*items) if value.kind is slice else value.kind(items)
    if isinstance(value, DictValue) and not value.more:
        return {key: inner(each) for key, each in value.values.items()}
    raise NoPythonValueError


def definitions_and_values_used(values: Values, module: NameScope) -> frozenset[Any]:
    """Return where functions are defined, and the plain values that they use of objects and of functions around them, outside the module."""
    used, pending = set[Any](), list[Any]([each.value for each in values])
    for value in pending:
        inside: list[Values] = [*values_inside(value)]
        if isinstance(value, ProgramFunction):
            used.add((type(value.node), value.node.lineno, value.node.col_offset))
            inside = [known_value(value.owner, 0), *dict(value.defaults).values()]
            names = {each.id for each in ast.walk(value.node) if isinstance(each, ast.Name)}
            places = [(name, value.scope.scope_of(name)) for name in sorted(names)]
            inside += [place.values[name] for name, place in places if place not in (None, module)]
        elif isinstance(value, ProgramInstance):
            used.add(value.of.node)
            inside = [*value.scope.values.values()]
        elif isinstance(value, MutableObject):
            inside = [value.contents]
        elif not inside:
            used.add((type(value), value))
        pending += [each.value for several in inside for each in several if each.value not in pending]
    return frozenset(used)


def single_or_raise(values: Values) -> Any:
    """Return the one value.

    Raises
    ------
    NoPythonValueError
        There are several, or none.
    """
    if len(values) != 1:
        raise NoPythonValueError
    return values[0].value


def to_program_value(value: Any, line: int) -> Any:
    """Return one of Python's values as a value of the program; an unknown one if it is too large or of another kind."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= LONGEST_TEXT else Unknown("a number that is too long")
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else Unknown("a text that is too long")
    if isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        items = tuple(known_value(to_program_value(each, line), line) for each in value)
        if isinstance(value, tuple):
            return ListValue(items, tuple)
        return MutableObject.holding(ListValue(items), line=line)[0].value
    if isinstance(value, Mapping) and len(value) <= MOST_ITEMS:
        table = {key: known_value(to_program_value(each, line), line) for key, each in value.items()}
        return MutableObject.holding(DictValue(table), line=line)[0].value
    return Unknown("a value of another kind")


def as_option_values(values: Values) -> Values:
    """Return the values that an option can have: texts and numbers; others are unknown, as a name of another module is."""
    return tuple(
        Alternative(None, 0)
        if each in ABSENT
        else each
        if each.value is None or isinstance(each.value, bool | int | float | str | Unknown)
        else Alternative(
            Unknown(each.value.path if isinstance(each.value, LibraryName) else "a value of another kind"),
            each.line,
        )
        for each in values
    )


def compute_for_each_choice(
    function: Callable[..., Any], operands: Iterable[Values], line: int, origin: str
) -> Values:
    """Apply a function of Python to each choice of alternatives; its errors and unknown operands give unknown values."""
    alternatives: list[Alternative] = []
    choices = itertools.product(*(contents_of(each) for each in operands))
    for choice in itertools.islice(choices, MOST_VALUES + 1):
        lost = first_unknown(choice)
        if lost is not None:
            alternatives.append(lost._replace(value=replace(lost.value, column="")))
            continue
        at = max((each.line for each in choice), default=line) or line
        try:
            result = function(*(to_python_value(each.value) for each in choice))
        except Exception:  # the value is not plain, or the program's Python raises it too
            alternatives.append(Alternative(Unknown(origin), line))
        else:
            alternatives.append(Alternative(to_program_value(result, at), at))
    return union_of_alternatives(alternatives)


def condition_value(values: Values) -> bool | None:
    """Return whether a condition holds; None if that is unknown."""
    try:
        truths = {_truth_or_raise(each.value) for each in contents_of(values)}
    except NoPythonValueError:
        return None
    return truths.pop() if len(truths) == 1 else None


def _truth_or_raise(value: Any) -> bool:
    if isinstance(value, DictValue):
        certain = any(ABSENT[0] not in each for each in value.values.values())
        if not certain and (value.values or value.more):
            raise NoPythonValueError
        return certain
    return bool(value.values if isinstance(value, ListValue) else to_python_value(value))
