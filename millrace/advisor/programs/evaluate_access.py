"""Evaluation of attributes, items and slices."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.advisor.programs.possible_values import (
    MOST_ITEMS,
    Alternative,
    DictValue,
    LibraryName,
    ListValue,
    MutableObject,
    NameScope,
    ProgramClass,
    ProgramFunction,
    ProgramInstance,
    Unknown,
    Values,
    contents_of,
    known_value,
    union_of_alternatives,
    unknown_value,
)
from millrace.advisor.programs.program_state import ProgramState
from millrace.advisor.programs.program_stream_model import (
    StreamingFrame,
    column_of_values,
    payload_calls_in,
)
from millrace.advisor.programs.python_values import (
    NoPythonValueError,
    compute_for_each_choice,
    single_or_raise,
    to_program_value,
    to_python_value,
)


class AccessEvaluator(ABC):
    """Evaluation of attributes, items and slices.

    Parameters
    ----------
    launch
        What the program's run is started with.
    """

    def __init__(self, launch: LaunchArguments) -> None:
        self.launch = launch
        self.module = NameScope({"__name__": known_value("__main__", 0)})
        self.state = ProgramState()
        self.environment = MutableObject.holding(
            DictValue({name: known_value(value, 0) for name, value in launch.variables.items()}), line=0
        )
        self.words = known_value(to_program_value(["program", *launch.words], 0), 0)
        self._steps = 0

    @abstractmethod
    def streaming_attribute(self, values: Values, name: str, line: int) -> Values | None:
        """Return a streaming attribute, such as ``readStream``; None for others."""

    @abstractmethod
    def evaluate_expression(self, node: ast.expr, scope: NameScope) -> Values:
        """Return all values that an expression may have."""

    @abstractmethod
    def forget_contents(self, values: Sequence[Iterable[Alternative]], origin: str, depth: int = 0) -> None:
        """Let lists, dictionaries and readers that are reached from values hold anything."""

    @abstractmethod
    def call(self, callee: Any, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        """Return the result of a call."""

    def _evaluate_subscript(self, of: Values, node: ast.Subscript, scope: NameScope) -> Values:
        line = node.lineno
        key = self.evaluate_expression(node.slice, scope)
        by_place = dotted_name(node.value) in ("sys.argv", "argv") and not isinstance(node.slice, ast.Slice)
        if by_place and not self.launch.ordered:
            return unknown_value("an argument by its place, and Glue has them in no order", line)
        return union_of_alternatives(*(self._value_of_key(each, key, line) for each in of))

    def _value_of_key(self, of: Alternative, key: Values, line: int) -> Values:
        if isinstance(of.value, Unknown):
            column = of.value.column and f"getitem({of.value.column})"
            return (of._replace(value=replace(of.value, column=column)),)
        if isinstance(of.value, StreamingFrame):
            return _part_of_frame(of.value, key, line)
        if isinstance(of.value, MutableObject):
            if of.value is self.environment[0].value:
                return library_functions.environment_variable(of.value.contents, key, None, line)
            return union_of_alternatives(*(self._value_of_key(each, key, line) for each in of.value.contents))
        alternatives: list[Alternative] = []
        for each in key:
            if isinstance(of.value, DictValue) and isinstance(each.value, str | int):
                missing = unknown_value(f"the key {each.value}, which the program does not set", line)
                alternatives.extend(of.value.value_of_key(each.value, missing))
            elif isinstance(each.value, Unknown):
                alternatives.append(each)
            elif isinstance(of.value, ListValue) and of.value.kind is not set:
                alternatives.extend(_item_or_slice(of.value, each.value, line))
            else:
                alternatives.extend(
                    compute_for_each_choice(operator.getitem, [(of,), (each,)], line, "an item")
                )
        return union_of_alternatives(alternatives)

    def _attribute_values(self, owner: Values, name: str, line: int) -> Values:
        stream = self.streaming_attribute(owner, name, line)
        return (
            stream
            if stream is not None
            else union_of_alternatives(*(self._attribute_of_alternative(each, name, line) for each in owner))
        )

    def _attribute_of_alternative(self, of: Alternative, name: str, line: int) -> Values:
        value = of.value
        if isinstance(value, ProgramInstance):
            for each, held in list(value.scope.values.items()) if name == "__dict__" else ():
                lost = unknown_value("an attribute that may be set in __dict__", line)
                self.state.store(value.scope, each, union_of_alternatives(held, lost))
            if name in value.scope.values:
                return value.scope.values[name]
            missing = unknown_value(f"the attribute {name}, which the program does not set", line)
            attribute = find_member(value.of, name) or missing
            bound = [self._bind_method(each, value) for each in attribute]
            if any(has_decorator(each.value, "property", "cached_property") for each in bound):
                return union_of_alternatives(
                    *(self.call(each.value, [], DictValue(), line) for each in bound)
                )
            return tuple(bound)
        if isinstance(value, ProgramClass):
            attribute = find_member(value, name) or unknown_value(f"the attribute {name}", line)
            return tuple(
                self._bind_method(each, value) if has_decorator(each.value, "classmethod") else each
                for each in attribute
            )
        if isinstance(value, LibraryName):
            return self._value_of_import(f"{value.path}.{name}", line)
        if isinstance(value, MutableObject) and not any(
            isinstance(each.value, DictValue) and name in each.value.values for each in value.contents
        ):  # a method that may be called later
            self.forget_contents([(of,)], f"{name}(), which may change it")
        if isinstance(value, MutableObject):  # options of argparse
            return self._value_of_key(of, known_value(name, line), line)
        if isinstance(value, StreamingFrame):  # na drops, fills or replaces values
            return _part_of_frame(value, known_value(None if name == "na" else name, line), line)
        if isinstance(value, Unknown):
            return (of._replace(value=replace(value, column=value.column and f"{value.column}.{name}")),)
        is_member = name == "value" and isinstance(value, str)  # of an Enum
        return (of,) if is_member else unknown_value(f"the attribute {name}", line)

    def _value_of_import(self, path: str, line: int) -> Values:
        if path in ("sys.argv", "os.environ"):
            return self.words if path == "sys.argv" else self.environment
        return known_value(LibraryName(path), line)

    @staticmethod
    def _bind_method(of: Alternative, owner: ProgramInstance | ProgramClass) -> Alternative:
        if not isinstance(of.value, ProgramFunction) or has_decorator(of.value, "staticmethod"):
            return of
        if isinstance(owner, ProgramInstance):
            owner = owner.of if has_decorator(of.value, "classmethod") else owner.itself or owner
        return Alternative(replace(of.value, owner=owner), of.line)


def method_resolution_order(bases: Sequence[ProgramClass]) -> tuple[ProgramClass, ...]:
    """Return the classes that a class of these bases is made of, in Python's order (C3); of bases without one, depth first."""
    chains = [*([each, *each.above] for each in bases), [*bases]]
    order: list[ProgramClass] = []
    while chains := [rest for chain in chains if (rest := [each for each in chain if each not in order])]:
        later = {each for chain in chains for each in chain[1:]}
        order.append(next((chain[0] for chain in chains if chain[0] not in later), chains[0][0]))
    return tuple(order)


def find_member(of: ProgramClass, name: str) -> Values | None:
    """Return an attribute or method of a class or of those that it is made of."""
    return next((each.scope.values[name] for each in (of, *of.above) if name in each.scope.values), None)


def has_own_method(of: Any, name: str) -> bool:
    """Return whether a value is an object of the program whose class has a method."""
    return isinstance(of, ProgramInstance) and find_member(of.of, name) is not None


def has_decorator(of: Any, *names: str) -> bool:
    """Return whether a value is a function with one of these decorators."""
    node = of.node if isinstance(of, ProgramFunction) else None
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        dotted_name(each).rpartition(".")[2] in names for each in node.decorator_list
    )


def dotted_name(node: ast.expr) -> str:
    """Return a name with its attributes, ``sys.argv``; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 8:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""


def _part_of_frame(frame: StreamingFrame, key: Values, line: int) -> Values:
    """Return a column by its name or number, a selection of columns, or the rows of a condition.

    A shaped frame may be what a function that is not read made of several: a part of it is one of them.
    """
    kinds = {type(each.value) for each in contents_of(key)}
    if kinds <= {str, int} and not frame.shaped:
        return known_value(Unknown("a column", column=column_of_values(key)), line)
    plain = kinds <= {str, int, ListValue} and not library_functions.may_reshape("", [key])
    return known_value(frame.after_call(line, payload_calls_in([key], line), shaped=not plain), line)


def _item_or_slice(of: ListValue, key: Any, line: int) -> Values:
    try:
        at = to_python_value(key)
        found: Any = of.values[at]
    except (NoPythonValueError, IndexError, TypeError, ValueError):
        missing = f"argument or item {key}, which is missing" if isinstance(key, int) else "a part of a value"
        return unknown_value(missing, line)
    return list_of_values(found, of.kind, line) if isinstance(at, slice) else found


def list_of_values(items: Sequence[Values], kind: type, line: int) -> Values:
    """Return a new list, tuple or set of values; a set has each once."""
    if len(items) > MOST_ITEMS:
        return unknown_value("a list that is too long", line)
    if kind is set:
        try:
            plain = [to_python_value(single_or_raise(each)) for each in items]
            items = [items[plain.index(each)] for each in dict.fromkeys(plain)]
        except (NoPythonValueError, TypeError):
            return unknown_value("a set", line)
    content = ListValue(tuple(items), kind)
    return known_value(content, line) if kind is tuple else MutableObject.holding(content, line=line)
