"""Evaluation of a program's assignments: to names, attributes, items and slices."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from typing import Any

from millrace.advisor.programs.evaluate_access import (
    find_member,
    has_decorator,
    has_own_method,
    list_of_values,
)
from millrace.advisor.programs.evaluate_calls import CallEvaluator
from millrace.advisor.programs.possible_values import (
    Alternative,
    DictValue,
    MutableObject,
    NameScope,
    ProgramClass,
    ProgramInstance,
    Values,
    known_value,
    loop_values,
    unknown_of_values,
)


class AssignmentEvaluator(CallEvaluator):
    """Evaluation of a program's assignments: to names, attributes, items and slices."""

    def _augmented_value(self, node: ast.AugAssign, scope: NameScope) -> Values:
        """Return the value of a name after ``+=`` and others; a list or a dictionary is changed itself."""
        of = self.evaluate_expression(node.target, scope)
        by = self.evaluate_expression(node.value, scope)

        def augment(each: Alternative) -> Values:
            if not isinstance(each.value, MutableObject):
                return self.apply_operator(node.op, (each,), by, node.lineno)
            name = _IN_PLACE.get(type(node.op), "an operator")
            self.call_method(each, name, [by], DictValue(), node.lineno)
            return (each,)

        return self.evaluate_alternatives([partial(augment, each) for each in of])

    def assign(self, target: ast.expr, value: Values, scope: NameScope) -> None:
        """Give a name, an attribute or an item its values."""
        match target:
            case ast.Name():
                self._assign_name(target.id, value, scope)
            case ast.Starred():
                self.assign(target.value, value, scope)
            case ast.Tuple() | ast.List():
                self._assign_parts(target, value, scope)
            case ast.Attribute():
                self.assign_attribute(self.evaluate_expression(target.value, scope), target.attr, value)
            case ast.Subscript():
                of = self.evaluate_expression(target.value, scope)
                key = self.evaluate_expression(target.slice, scope)
                change = partial(self._change_item, "__setitem__", [key, value])
                self.evaluate_alternatives([partial(change, each) for each in of])

    def _assign_name(self, name: str, value: Values | None, scope: NameScope) -> None:
        self.state.store(scope.shared.get(name, scope), name, value)

    def _assign_parts(self, target: ast.Tuple | ast.List, value: Values, scope: NameScope) -> None:
        parts = loop_values(value, target.lineno)
        star = next((n for n, each in enumerate(target.elts) if isinstance(each, ast.Starred)), None)
        if parts is not None and star is not None and len(parts) >= len(target.elts) - 1:
            after = star + len(parts) - len(target.elts) + 1
            starred = list_of_values(parts[star:after], list, target.lineno)
            parts = [*parts[:star], starred, *parts[after:]]
        if parts is None or len(parts) != len(target.elts):
            parts = [unknown_of_values(value, "a part of a value", target.lineno)] * len(target.elts)
        for each, part in zip(target.elts, parts, strict=True):
            self.assign(each, part, scope)

    def _change_item(self, name: str, arguments: Sequence[Values], of: Alternative) -> Values:
        has_items = isinstance(of.value, MutableObject) or has_own_method(of.value, name)
        return self.call_method(of, name, arguments, DictValue(), of.line) if has_items else ()

    def assign_attribute(self, owners: Values, name: str, value: Values) -> None:
        """Give an attribute of objects its values."""

        def set_attribute(of: Alternative) -> Values:
            owner: Any = of.value
            if isinstance(owner, ProgramInstance | ProgramClass):
                members = find_member(owner.of if isinstance(owner, ProgramInstance) else owner, name) or ()
                if any(has_decorator(each.value, "setter") for each in members):
                    return self.call_method(of, name, [value], DictValue(), of.line)
                self.state.store(owner.scope, name, value)
                return ()
            return self._change_item("__setitem__", [known_value(name, of.line), value], of)

        self.evaluate_alternatives([partial(set_attribute, each) for each in owners])

    def _delete(self, target: ast.expr, scope: NameScope) -> None:
        match target:
            case ast.Name():
                self._assign_name(target.id, None, scope)
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._delete(each, scope)
            case ast.Attribute():
                for owner in self.evaluate_expression(target.value, scope):
                    if isinstance(owner.value, ProgramInstance | ProgramClass):
                        self.state.store(owner.value.scope, target.attr, None)
            case ast.Subscript():
                of = self.evaluate_expression(target.value, scope)
                key = self.evaluate_expression(target.slice, scope)
                change = partial(self._change_item, "__delitem__", [key])
                self.evaluate_alternatives([partial(change, each) for each in of])


_IN_PLACE = {ast.Add: "__iadd__", ast.BitOr: "__ior__"}
