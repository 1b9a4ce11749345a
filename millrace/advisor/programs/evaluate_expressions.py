"""Evaluation of a program's expressions, with all values that they may have."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.library_functions import LaunchArguments, loop_values
from millrace.advisor.programs.possible_values import (
    MOST_ITEMS,
    Alternative,
    DictValue,
    LibraryName,
    ListValue,
    NameScope,
    ProgramClass,
    ProgramFunction,
    ProgramInstance,
    StreamingFrame,
    Unknown,
    Values,
    as_dictionary,
    compute_for_each_choice,
    condition_value,
    known_value,
    to_program_value,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
    with_item,
)

_STEPS = 100_000
"""Expressions and statements that are evaluated; a longer program is read up to there."""

_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: library_functions.percent_format,
    ast.BitOr: operator.or_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
}


class StepLimitError(Exception):
    """The program needs more steps than are evaluated."""


class ExpressionEvaluator(ABC):
    """Evaluation of expressions; :class:`~millrace.advisor.programs.interpreter.Interpreter` adds calls and statements.

    Parameters
    ----------
    launch
        What the program's run is started with.
    """

    def __init__(self, launch: LaunchArguments) -> None:
        self.launch = launch
        self.module = NameScope()
        self._steps = 0

    @abstractmethod
    def streaming_attribute(self, values: Values, name: str, line: int) -> Values | None:
        """Return a streaming attribute, such as ``readStream``; None for others."""

    @abstractmethod
    def call(self, callee: Any, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        """Return the result of a call."""

    @abstractmethod
    def evaluate_call(
        self, node: ast.Call, callee: Values, method: tuple[Values, str, ast.expr] | None, scope: NameScope
    ) -> Values:
        """Return the result of a call in the program's text."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Values, scope: NameScope) -> None:
        """Give a name, an attribute or an item its values."""

    def count_steps_or_raise(self, count: int = 1) -> None:
        """Count steps.

        Raises
        ------
        StepLimitError
            They are more than are evaluated.
        """
        self._steps += count
        if self._steps > _STEPS:
            raise StepLimitError

    def evaluate_expression(self, node: ast.expr, scope: NameScope) -> Values:
        """Return all values that an expression may have."""
        chain: list[ast.Attribute | ast.Call | ast.Subscript] = []
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):  # a chain of calls may be long
            chain.append(node)
            node = node.func if isinstance(node, ast.Call) else node.value
        result = self._evaluate_innermost_expression(node, scope)
        method: tuple[Values, str, ast.expr] | None = None
        for each in reversed(chain):
            self.count_steps_or_raise()
            if isinstance(each, ast.Call):
                result = self.evaluate_call(each, result, method, scope)
                method = None
                continue
            if method is not None:
                result = self._attribute_values(method[0], method[1], each.lineno)
                method = None
            if isinstance(each, ast.Attribute):
                method = result, each.attr, each.value
            else:
                result = self._evaluate_subscript(result, each, scope)
        return result if method is None else self._attribute_values(method[0], method[1], method[2].lineno)

    def _evaluate_innermost_expression(self, node: ast.expr, scope: NameScope) -> Values:
        self.count_steps_or_raise()
        line = node.lineno if hasattr(node, "lineno") else 0
        match node:
            case ast.Constant():
                return known_value(to_program_value(node.value, line), line)
            case ast.Name():
                return self._values_of_name(node.id, line, scope)
            case ast.JoinedStr():
                parts = [self.evaluate_expression(each, scope) for each in node.values]
                return (
                    compute_for_each_choice(lambda *texts: "".join(map(str, texts)), parts, line, "a text")
                    if parts
                    else known_value("", line)
                )
            case ast.FormattedValue():
                if node.format_spec is None:
                    return self.evaluate_expression(node.value, scope)
                return unknown_value("a formatted value", line)
            case ast.BinOp():
                return self._evaluate_binary(node, scope)
            case ast.BoolOp():
                return self._evaluate_boolean(node, scope)
            case ast.UnaryOp(op=ast.Not()):
                holds = condition_value(self.evaluate_expression(node.operand, scope))
                return unknown_value("a condition", line) if holds is None else known_value(not holds, line)
            case ast.UnaryOp(op=ast.USub()):
                return compute_for_each_choice(
                    operator.neg, [self.evaluate_expression(node.operand, scope)], line, "a number"
                )
            case ast.Compare():
                return self._evaluate_comparison(node, scope)
            case ast.IfExp():
                holds = condition_value(self.evaluate_expression(node.test, scope))
                ways = [node.body, node.orelse] if holds is None else [node.body if holds else node.orelse]
                return union_of_alternatives(*(self.evaluate_expression(each, scope) for each in ways))
            case ast.Dict():
                return known_value(self._evaluate_dict(node, scope), line)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._evaluate_list(node.elts, line, scope)
            case ast.Lambda():
                return known_value(ProgramFunction(node, scope), line)
            case ast.NamedExpr():
                value = self.evaluate_expression(node.value, scope)
                self.assign(node.target, value, scope)
                return value
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._evaluate_comprehension(node, scope)
            case ast.Await() | ast.Starred():
                return self.evaluate_expression(node.value, scope)
            case _:
                return unknown_value("an expression", line)

    def _values_of_name(self, name: str, line: int, scope: NameScope) -> Values:
        if name == "__name__":
            return known_value("__main__", line)
        place = scope.scope_of(name)
        values = () if place is None else place.values[name]
        return values or known_value(LibraryName(name), line)

    def _evaluate_list(self, elements: Iterable[ast.expr], line: int, scope: NameScope) -> Values:
        values: list[Values] = []
        for each in elements:
            value = self.evaluate_expression(each, scope)
            if isinstance(each, ast.Starred):
                parts = loop_values(value[0].value, line) if len(value) == 1 else None
                if parts is None:
                    return unknown_of_values(value, "a list", line)
                values += parts
            else:
                values.append(value)
        return known_value(ListValue(tuple(values[:MOST_ITEMS])), line)

    def _evaluate_dict(self, node: ast.Dict, scope: NameScope) -> DictValue:
        table = DictValue()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                table = table.updated_with(as_dictionary(self.evaluate_expression(value, scope)))
            else:
                table = with_item(
                    table, self.evaluate_expression(key, scope), self.evaluate_expression(value, scope)
                )
        return table

    def _evaluate_comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, scope: NameScope
    ) -> Values:
        [first, *others] = node.generators
        over = self.evaluate_expression(first.iter, scope)
        rounds = loop_values(over[0].value, node.lineno) if len(over) == 1 else None
        if rounds is None or others:
            return unknown_of_values(over, "a list", node.lineno)
        inner, items, table = NameScope({}, scope), list[Values](), DictValue()
        for each in rounds:
            self.assign(first.target, each, inner)
            if any(condition_value(self.evaluate_expression(test, inner)) is False for test in first.ifs):
                continue
            if isinstance(node, ast.DictComp):
                table = with_item(
                    table,
                    self.evaluate_expression(node.key, inner),
                    self.evaluate_expression(node.value, inner),
                )
            else:
                items.append(self.evaluate_expression(node.elt, inner))
        return known_value(table if isinstance(node, ast.DictComp) else ListValue(tuple(items)), node.lineno)

    def _evaluate_binary(self, node: ast.BinOp, scope: NameScope) -> Values:
        parts: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):  # a sum of many texts is nested to the left
            parts.append(first)
            first = first.left
        result = self.evaluate_expression(first, scope)
        for each in reversed(parts):
            other = self.evaluate_expression(each.right, scope)
            line = each.lineno
            if isinstance(each.op, ast.BitOr) and all(
                isinstance(one.value, DictValue) for one in (*result, *other)
            ):
                result = known_value(as_dictionary(result).updated_with(as_dictionary(other)), line)
            elif isinstance(each.op, ast.Mult):
                result = compute_for_each_choice(_product_unless_too_long, [result, other], line, "a product")
            elif type(each.op) in _OPERATORS:
                result = compute_for_each_choice(
                    _OPERATORS[type(each.op)], [result, other], line, "a value that is computed"
                )
            else:
                result = unknown_value("a value that is computed", line)
        return result

    def _evaluate_boolean(self, node: ast.BoolOp, scope: NameScope) -> Values:
        alternatives: list[Alternative] = []
        for each in node.values:
            value = self.evaluate_expression(each, scope)
            holds = condition_value(value)
            if holds is not None and holds == isinstance(node.op, ast.Or):
                return union_of_alternatives(alternatives, value)
            if holds is None or each is node.values[-1]:
                alternatives.extend(value)
        return union_of_alternatives(alternatives)

    def _evaluate_comparison(self, node: ast.Compare, scope: NameScope) -> Values:
        left, results = self.evaluate_expression(node.left, scope), list[bool]()
        for kind, right in zip(node.ops, node.comparators, strict=True):
            other = self.evaluate_expression(right, scope)
            if (
                isinstance(kind, ast.In | ast.NotIn)
                and len(other) == 1
                and isinstance(other[0].value, DictValue)
            ):
                table = other[0].value  # its keys may be known where its values are not
                other = (
                    unknown_value(table.more, 0)
                    if table.more
                    else known_value(to_program_value(list(table.values), 0), 0)
                )
            holds = condition_value(
                compute_for_each_choice(_OPERATORS[type(kind)], [left, other], node.lineno, "a condition")
            )
            if holds is None:
                return unknown_value("a condition", node.lineno)
            results.append(holds)
            left = other
        return known_value(all(results), node.lineno)

    def _evaluate_subscript(self, of: Values, node: ast.Subscript, scope: NameScope) -> Values:
        line = node.lineno
        if isinstance(node.slice, ast.Slice):
            bounds = [
                known_value(None, line) if each is None else self.evaluate_expression(each, scope)
                for each in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return compute_for_each_choice(
                lambda value, *at: value[slice(*at)], [of, *bounds], line, "a part of a value"
            )
        key = self.evaluate_expression(node.slice, scope)
        if not self.launch.ordered and dotted_name(node.value) in ("sys.argv", "argv"):
            return unknown_value("an argument by its place, and Glue has them in no order", line)
        return union_of_alternatives(*(self._value_of_key(each, key, line) for each in of))

    def _value_of_key(self, of: Alternative, key: Values, line: int) -> Values:
        if isinstance(of.value, StreamingFrame | Unknown):
            return (of,)
        if isinstance(of.value, LibraryName) and of.value.path == "os.environ":
            return library_functions.environment_variable(self.launch, key, None, line)
        alternatives: list[Alternative] = []
        for each in key:
            if isinstance(of.value, DictValue) and isinstance(each.value, str | int):
                missing = of.value.more or f"the key {each.value}, which the program does not set"
                alternatives.extend(of.value.values.get(each.value, unknown_value(missing, line)))
            elif isinstance(of.value, ListValue) and isinstance(each.value, int):
                inside = -len(of.value.values) <= each.value < len(of.value.values)
                alternatives.extend(
                    of.value.values[each.value]
                    if inside
                    else unknown_value(f"argument or item {each.value}, which is missing", line)
                )
            elif isinstance(each.value, Unknown):
                alternatives.append(each)
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
            attribute = value.scope.values.get(name)
            if attribute is not None:
                return attribute
            attribute = find_member(value.of, name)
            if attribute is None:
                return unknown_value(f"the attribute {name}, which the program does not set", line)
            bound = [self._bind_method(each, value) for each in attribute]
            if any(_has_decorator(each.value, "property", "cached_property") for each in bound):
                return union_of_alternatives(
                    *(self.call(each.value, [], DictValue(), line) for each in bound)
                )
            return tuple(bound)
        if isinstance(value, ProgramClass):
            attribute = find_member(value, name) or unknown_value(f"the attribute {name}", line)
            return tuple(
                self._bind_method(each, value) if _has_decorator(each.value, "classmethod") else each
                for each in attribute
            )
        if isinstance(value, LibraryName):
            return self._value_of_import(f"{value.path}.{name}", line)
        if isinstance(value, DictValue):  # options of argparse
            return self._value_of_key(of, known_value(name, line), line)
        if name == "value" and isinstance(value, str):  # of an enumeration
            return (of,)
        return (
            (of,)
            if isinstance(value, Unknown | StreamingFrame)
            else unknown_value(f"the attribute {name}", line)
        )

    def _value_of_import(self, path: str, line: int) -> Values:
        if path == "sys.argv":
            return known_value(to_program_value(["program", *self.launch.words], line), line)
        return known_value(LibraryName(path), line)

    @staticmethod
    def _bind_method(of: Alternative, owner: ProgramInstance | ProgramClass) -> Alternative:
        if not isinstance(of.value, ProgramFunction) or _has_decorator(of.value, "staticmethod"):
            return of
        if isinstance(owner, ProgramInstance):
            owner = owner.of if _has_decorator(of.value, "classmethod") else owner.itself or owner
        return Alternative(replace(of.value, owner=owner), of.line)


def find_member(of: ProgramClass, name: str) -> Values | None:
    """Return an attribute or method of a class or of those that it is made of."""
    if name in of.scope.values:
        return of.scope.values[name]
    return next((found for base in of.bases if (found := find_member(base, name)) is not None), None)


def _has_decorator(of: Any, *names: str) -> bool:
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


def _product_unless_too_long(one: Any, other: Any) -> Any:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one * other
    text, count = (one, other) if isinstance(one, str) else (other, one)
    if isinstance(text, str) and isinstance(count, int) and len(text) * max(count, 0) <= 4096:
        return text * count
    raise ValueError("no product")


def scope_defining_target(target: ast.expr, scope: NameScope) -> NameScope:
    """Return the scope in which the name of a changed value is."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    place = scope.scope_of(target.id) if isinstance(target, ast.Name) else None
    return place or scope
