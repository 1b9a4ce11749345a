"""Evaluation of a program's expressions, with all values that they may have."""

from __future__ import annotations

import ast
import itertools
import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.evaluate_access import (
    AccessEvaluator,
    list_of_values,
)
from millrace.advisor.programs.possible_values import (
    ABSENT,
    CONTENTS,
    LONGEST_TEXT,
    DictValue,
    FunctionNode,
    LibraryName,
    ListValue,
    MutableObject,
    NameScope,
    ProgramFunction,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    known_value,
    loop_values,
    unknown_of_values,
    unknown_value,
    with_item,
)
from millrace.advisor.programs.python_values import (
    compute_for_each_choice,
    condition_value,
    to_program_value,
)

_STEPS = 100_000
"""Expressions and statements that are evaluated; a longer program is read up to there."""


def _product_unless_too_long(one: Any, other: Any) -> Any:
    sizes = [len(each) if isinstance(each, str) else each for each in (one, other)]
    has_text = isinstance(one, str) or isinstance(other, str)
    if not all(isinstance(each, int | float) for each in sizes) or (
        has_text and sizes[0] * sizes[1] > LONGEST_TEXT
    ):
        raise ValueError("no product")
    return one * other


_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product_unless_too_long,
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
}


class StepLimitError(Exception):
    """The program needs more steps than are evaluated."""


class ExpressionEvaluator(AccessEvaluator):
    """Evaluation of expressions; :class:`~millrace.advisor.programs.interpreter.Interpreter` adds calls and statements."""

    @abstractmethod
    def assign_attribute(self, owners: Values, name: str, value: Values) -> None:
        """Give an attribute of objects its values."""

    @abstractmethod
    def evaluate_call(self, node: ast.Call, of: Values, scope: NameScope) -> Values:
        """Return the result of a call in the program's text, of a function or of a method of a value."""

    @abstractmethod
    def run_statements(self, body: Sequence[ast.stmt], scope: NameScope) -> bool:
        """Evaluate statements; return whether what follows is evaluated."""

    @abstractmethod
    def run_alternatives(self, ways: Sequence[Callable[[], bool]]) -> bool:
        """Evaluate several ways from the same state, and join the states of those that go on; return whether any does."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Values, scope: NameScope) -> None:
        """Give a name, an attribute or an item its values."""

    def evaluate_alternatives(self, ways: Sequence[Callable[[], Values]]) -> Values:
        """Return the values of several ways of which a run takes one."""
        if len(ways) == 1:
            return ways[0]()
        result = NameScope()

        def store_result(way: Callable[[], Values]) -> bool:
            self.state.store(result, CONTENTS, way())
            return True

        self.run_alternatives([partial(store_result, way) for way in ways])
        return result.values.get(CONTENTS, ())

    def program_function(self, node: FunctionNode, scope: NameScope) -> ProgramFunction:
        """Return the function that a definition makes, with its defaults as they are there."""
        spec = node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        defaults = [
            *zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True),
            *zip([each.arg for each in spec.kwonlyargs], spec.kw_defaults, strict=True),
        ]
        values = tuple(
            (name, self.evaluate_expression(each, scope)) for name, each in defaults if each is not None
        )
        return ProgramFunction(node, scope, defaults=values)

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
        for each, around in itertools.pairwise([*reversed(chain), None]):
            self.count_steps_or_raise()
            if isinstance(each, ast.Call):
                result = self.evaluate_call(each, result, scope)
            elif isinstance(each, ast.Subscript):
                result = self._evaluate_subscript(result, each, scope)
            elif isinstance(each, ast.Attribute) and not isinstance(around, ast.Call):
                result = self._attribute_values(result, each.attr, each.lineno)
        return result

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
                value = self.evaluate_expression(node.value, scope)
                if node.format_spec is None and node.conversion in _CONVERSIONS:
                    return compute_for_each_choice(_CONVERSIONS[node.conversion], [value], line, "a text")
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
                return self.evaluate_alternatives(
                    [partial(self.evaluate_expression, each, scope) for each in ways]
                )
            case ast.Dict():
                return MutableObject.holding(self._evaluate_dict(node, scope), line=line)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._evaluate_list(node, line, scope)
            case ast.Slice():
                nothing = ast.Constant(None, lineno=line)
                bounds = [node.lower or nothing, node.upper or nothing, node.step or nothing]
                values = tuple(self.evaluate_expression(each, scope) for each in bounds)
                return known_value(ListValue(values, slice), line)
            case ast.Lambda():
                return known_value(self.program_function(node, scope), line)
            case ast.NamedExpr():
                value = self.evaluate_expression(node.value, scope)
                while scope.of_comprehension and scope.above is not None:
                    scope = scope.above
                self.assign(node.target, value, scope)
                return value
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._evaluate_comprehension(node, scope)
            case ast.Await() | ast.Starred():
                return self.evaluate_expression(node.value, scope)
            case _:
                return unknown_value("an expression", line)

    def _values_of_name(self, name: str, line: int, scope: NameScope) -> Values:
        place = scope.scope_of(name)
        values = () if place is None else place.values[name]
        return values or known_value(LibraryName(name), line)

    def _evaluate_list(self, node: ast.List | ast.Tuple | ast.Set, line: int, scope: NameScope) -> Values:
        values: list[Values] = []
        for each in node.elts:
            value = self.evaluate_expression(each, scope)
            parts = loop_values(value, line) if isinstance(each, ast.Starred) else [value]
            if parts is None:
                return unknown_of_values(value, "a list", line)
            values += parts
        return list_of_values(values, _KINDS[type(node)], line)

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
        """Evaluate a comprehension as the loop that it stands for."""
        line = node.lineno
        over = self.evaluate_expression(node.generators[0].iter, scope)
        made, items = (ast.Name(name, lineno=line) for name in ("a comprehension", "its items"))
        empty = DictValue() if isinstance(node, ast.DictComp) else ListValue(())
        values = {made.id: MutableObject.holding(empty, line=line), items.id: over}
        inner = NameScope(values, scope, of_comprehension=True)
        body: list[ast.stmt]
        if isinstance(node, ast.DictComp):
            body = [ast.Assign([ast.Subscript(made, node.key, lineno=line)], node.value, lineno=line)]
        else:
            append = ast.Attribute(made, "append", lineno=line)
            body = [ast.Expr(ast.Call(append, [node.elt], [], lineno=line), lineno=line)]
        for each in reversed(node.generators):
            for test in reversed(each.ifs):
                body = [ast.If(test, body, [], lineno=line)]
            iterable = items if each is node.generators[0] else each.iter
            body = [ast.For(each.target, iterable, body, [], lineno=line)]
        self.run_statements(body, inner)
        held = contents_of(inner.values[made.id])
        if len(held) > 1 or isinstance(held[0].value, Unknown):
            origin = unknown_of_values(over, "a list of some of several items", line)[0].value.origin
            return known_value(Unknown(origin, library_functions.may_reshape("", [held])), line)
        is_set = isinstance(node, ast.SetComp)
        return list_of_values(held[0].value.values, set, line) if is_set else inner.values[made.id]

    def _evaluate_binary(self, node: ast.BinOp, scope: NameScope) -> Values:
        parts: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):  # a sum of many texts is nested to the left
            parts.append(first)
            first = first.left
        result = self.evaluate_expression(first, scope)
        for each in reversed(parts):
            other = self.evaluate_expression(each.right, scope)
            result = self.apply_operator(each.op, result, other, each.lineno)
        return result

    def apply_operator(self, kind: ast.operator, one: Values, other: Values, line: int) -> Values:
        """Return the result of an operator such as ``+``."""
        if isinstance(kind, ast.BitOr) and all(
            isinstance(each.value, DictValue) for each in contents_of((*one, *other))
        ):
            table = as_dictionary(one).updated_with(as_dictionary(other))
            return MutableObject.holding(table, line=line)
        if isinstance(kind, ast.Add) and (joined := _joined_lists(one, other, line)):
            return joined
        function = _OPERATORS.get(type(kind), _raise_not_computed)
        return compute_for_each_choice(function, [one, other], line, "a value that is computed")

    def _evaluate_boolean(self, node: ast.BoolOp, scope: NameScope) -> Values:
        first, *others = node.values
        value = self.evaluate_expression(first, scope)
        if not others:
            return value
        rest = ast.BoolOp(node.op, others, lineno=node.lineno)
        holds = condition_value(value)
        if isinstance(node.op, ast.Or) and all(getattr(each.value, "unset", False) for each in value):
            return self.evaluate_expression(rest, scope)
        if holds is None:
            return self.evaluate_alternatives([lambda: value, lambda: self.evaluate_expression(rest, scope)])
        return value if holds == isinstance(node.op, ast.Or) else self.evaluate_expression(rest, scope)

    def _evaluate_comparison(self, node: ast.Compare, scope: NameScope) -> Values:
        left, results = self.evaluate_expression(node.left, scope), list[bool | None]()
        for kind, right in zip(node.ops, node.comparators, strict=True):
            other = self.evaluate_expression(right, scope)
            results.append(self.compare(kind, left, other, node.lineno))
            if results[-1] is False:
                break
            left = other
        if False not in results and None in results:
            return unknown_value("a condition", node.lineno)
        return known_value(all(results), node.lineno)

    def compare(self, kind: ast.cmpop, left: Values, other: Values, line: int) -> bool | None:
        """Return whether a comparison holds; None if that is unknown."""
        if isinstance(kind, ast.Is | ast.IsNot):
            same = {_is_same(one.value, two.value) for one in left for two in other}
            is_same = same.pop() if len(same) == 1 else None
            return is_same if is_same is None or isinstance(kind, ast.Is) else not is_same
        if isinstance(kind, ast.In | ast.NotIn):
            inside = contents_of(other)
            if len(inside) == 1 and isinstance(inside[0].value, DictValue):
                table = inside[0].value  # its keys may be known where its values are not
                found = condition_value(
                    compute_for_each_choice(lambda key: key in table.values, [left], line, "a condition")
                )
                present = all(ABSENT[0] not in each for each in table.values.values())
                if (not found and (table.more or other[0].value is self.environment[0].value)) or not present:
                    return None
                return found if found is None or isinstance(kind, ast.In) else not found
            if len(inside) == 1 and isinstance(inside[0].value, ListValue):
                other = known_value(ListValue(inside[0].value.values, tuple), line)
        return condition_value(
            compute_for_each_choice(_OPERATORS[type(kind)], [left, other], line, "a condition")
        )


def _raise_not_computed(*_: Any) -> Any:
    raise ValueError("an operator that is not computed")


_CONVERSIONS: Mapping[int, Callable[[Any], str]] = {-1: str, ord("s"): str, ord("r"): repr, ord("a"): ascii}
_KINDS = {ast.List: list, ast.Tuple: tuple, ast.Set: set}


def _joined_lists(one: Values, other: Values, line: int) -> Values:
    """Return the list of the items of two, which may be of any values; none for others than lists."""
    both = [contents_of(one), contents_of(other)]
    if not all(len(each) == 1 and isinstance(each[0].value, ListValue) for each in both):
        return ()
    [first], [second] = both
    if first.value.kind is not second.value.kind or first.value.kind is set:
        return ()
    return list_of_values((*first.value.values, *second.value.values), first.value.kind, line)


def _is_same(one: Any, other: Any) -> bool | None:
    both = one, other
    certain = any(each is None or isinstance(each, bool) for each in both)
    lost = any(isinstance(each, Unknown | LibraryName) for each in both)
    return one is other if certain and not lost else None
