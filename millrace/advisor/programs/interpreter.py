"""Evaluation of a program's text: assignments, branches, loops, functions and classes, with all values that they may give.

Where a condition is known, its branch is followed; else both are, and what they assign has the values of both. Nothing of the program
is run: calls of libraries are computed only if they are in :mod:`millrace.advisor.programs.library_functions`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from millrace.advisor.programs.evaluate_calls import BlockEnd, CallEvaluator
from millrace.advisor.programs.evaluate_expressions import dotted_name, scope_defining_target
from millrace.advisor.programs.library_functions import loop_values
from millrace.advisor.programs.possible_values import (
    Alternative,
    NameScope,
    ProgramClass,
    ProgramFunction,
    ProgramInstance,
    Values,
    condition_value,
    known_value,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
    with_item,
)

_EXITS = {"sys.exit", "exit", "quit", "os._exit"}


class Interpreter(CallEvaluator):
    """Evaluation of one program."""

    def run_statements(self, body: Sequence[ast.stmt], scope: NameScope) -> BlockEnd:
        """Evaluate statements; return how they end."""
        for statement in body:
            ended = self._run_statement(statement, scope)
            if ended != BlockEnd.NEXT:
                return ended
        return BlockEnd.NEXT

    def _run_statement(self, node: ast.stmt, scope: NameScope) -> BlockEnd:
        self.count_steps_or_raise()
        match node:
            case ast.Assign():
                value = self.evaluate_expression(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self.assign(node.target, self.evaluate_expression(node.value, scope), scope)
            case ast.AugAssign():
                joined = ast.BinOp(node.target, node.op, node.value, lineno=node.lineno)
                self.assign(node.target, self.evaluate_expression(joined, scope), scope)
            case ast.Expr():
                self.evaluate_expression(node.value, scope)  # also in sys.exit(main())
                if isinstance(node.value, ast.Call) and dotted_name(node.value.func) in _EXITS:
                    return BlockEnd.FUNCTION_LEFT
            case ast.Return():
                self.returned[-1].extend(
                    self.evaluate_expression(node.value, scope)
                    if node.value
                    else known_value(None, node.lineno)
                )
                return BlockEnd.FUNCTION_LEFT
            case ast.Raise():
                if node.exc is not None:  # raise SystemExit(main())
                    self.evaluate_expression(node.exc, scope)
                return BlockEnd.FUNCTION_LEFT
            case ast.Break():
                self._breaks[-1].append(self._save_state())
                return BlockEnd.LOOP_LEFT
            case ast.Continue():
                return BlockEnd.ROUND_LEFT
            case ast.If():
                return self._run_branches(node.test, node.body, node.orelse, scope)
            case ast.For() | ast.AsyncFor():
                return self._run_loop(node, scope)
            case ast.While():
                return self._run_rounds_and_join_breaks(
                    lambda: self._run_any_number_of_rounds(
                        lambda: self._run_branches(node.test, node.body, [], scope), node.orelse, scope
                    )
                )
            case ast.Try() | ast.TryStar():
                return self._run_try(node, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self.evaluate_expression(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, value, scope)
                return self.run_statements(node.body, scope)
            case ast.Match():
                self.evaluate_expression(node.subject, scope)
                self._run_alternatives_and_join_states(
                    [lambda case=case: self.run_statements(case.body, scope) for case in node.cases]
                    + [lambda: BlockEnd.NEXT]
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.values[node.name] = known_value(ProgramFunction(node, scope), node.lineno)
            case ast.ClassDef():
                self._define_class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._run_import(node, scope)
            case ast.Global():
                scope.shared.update(node.names)
        return BlockEnd.NEXT

    def _run_import(self, node: ast.Import | ast.ImportFrom, scope: NameScope) -> None:
        for each in node.names:
            if isinstance(node, ast.Import):
                name = each.asname or each.name.partition(".")[0]
                path = each.name if each.asname else name
            else:
                name, path = each.asname or each.name, f"{node.module or ''}.{each.name}".lstrip(".")
            scope.values[name] = self._value_of_import(path, node.lineno)

    def _define_class(self, node: ast.ClassDef, scope: NameScope) -> None:
        inner = NameScope({}, scope)
        self.scopes.append(inner)
        bases = tuple(
            each.value
            for base in node.bases
            for each in self.evaluate_expression(base, scope)
            if isinstance(each.value, ProgramClass)
        )
        self.run_statements(node.body, inner)
        scope.values[node.name] = known_value(ProgramClass(node, inner, bases), node.lineno)

    def _run_branches(
        self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], scope: NameScope
    ) -> BlockEnd:
        holds = condition_value(self.evaluate_expression(test, scope))
        if holds is not None:
            return self.run_statements(body if holds else orelse, scope)
        return self._run_alternatives_and_join_states(
            [lambda: self.run_statements(body, scope), lambda: self.run_statements(orelse, scope)]
        )

    def _run_alternatives_and_join_states(self, ways: Sequence[Callable[[], BlockEnd]]) -> BlockEnd:
        """Evaluate several ways from the same state, and join their states; a way that ends the function does not count."""
        before = self._save_state()
        ends: list[tuple[BlockEnd, dict[NameScope, dict[str, Values]]]] = []
        for way in ways:
            self._restore_state(before)
            ended = way()
            ends.append((ended, self._save_state()))
        self._join_states(
            [state for ended, state in ends if ended != BlockEnd.FUNCTION_LEFT] or [ends[-1][1]]
        )
        return min(ended for ended, _ in ends)

    def _join_states(self, states: Sequence[dict[NameScope, dict[str, Values]]]) -> None:
        joined = states[0]
        for other in states[1:]:
            for scope, values in other.items():
                mine = joined.setdefault(scope, {})
                for name, each in values.items():
                    mine[name] = union_of_alternatives(mine[name], each) if name in mine else each
        self._restore_state(joined)

    def _run_any_number_of_rounds(
        self, once: Callable[[], BlockEnd], orelse: Sequence[ast.stmt], scope: NameScope
    ) -> BlockEnd:
        """Evaluate a loop of any number of rounds: what a second round changes once more is unknown."""

        def skip_loop() -> BlockEnd:
            return BlockEnd.NEXT

        ended = self._run_alternatives_and_join_states([once, skip_loop])
        first = self._save_state()
        self._run_alternatives_and_join_states([once, skip_loop])
        for each, values in self._save_state().items():
            for name, value in values.items():
                before = first.get(each, {}).get(name)
                if before is not None and len(union_of_alternatives(before, value)) > len(before):
                    each.values[name] = union_of_alternatives(
                        value, unknown_value("a value that a loop changes", value[0].line)
                    )
        return max(ended, self.run_statements(orelse, scope))

    def _run_rounds_and_join_breaks(self, body: Callable[[], BlockEnd]) -> BlockEnd:
        """Evaluate the rounds of a loop; where it may be left by ``break``, with the state at that point too."""
        self._breaks.append([])
        ended = body()
        states = self._breaks.pop()
        if states:
            self._join_states(
                [
                    *states,
                    *([] if ended in (BlockEnd.LOOP_LEFT, BlockEnd.FUNCTION_LEFT) else [self._save_state()]),
                ]
            )
        return BlockEnd.FUNCTION_LEFT if ended == BlockEnd.FUNCTION_LEFT and not states else BlockEnd.NEXT

    def _save_state(self) -> dict[NameScope, dict[str, Values]]:
        self.count_steps_or_raise(sum(len(each.values) for each in self.scopes) // 4)
        return {each: dict(each.values) for each in self.scopes}

    def _restore_state(self, state: Mapping[NameScope, dict[str, Values]]) -> None:
        for scope, values in state.items():
            scope.values = dict(values)

    def _run_loop(self, node: ast.For | ast.AsyncFor, scope: NameScope) -> BlockEnd:
        over = self.evaluate_expression(node.iter, scope)
        rounds = loop_values(over[0].value, node.lineno) if len(over) == 1 else None
        if rounds is None:

            def run_unknown_round() -> BlockEnd:
                self.assign(node.target, unknown_of_values(over, "a loop", node.lineno), scope)
                return self.run_statements(node.body, scope)

            return self._run_rounds_and_join_breaks(
                lambda: self._run_any_number_of_rounds(run_unknown_round, node.orelse, scope)
            )

        def run_all_rounds() -> BlockEnd:
            for each in rounds:
                self.assign(node.target, each, scope)
                ended = self.run_statements(node.body, scope)
                if ended in (BlockEnd.LOOP_LEFT, BlockEnd.FUNCTION_LEFT):
                    return ended
            return self.run_statements(node.orelse, scope)

        return self._run_rounds_and_join_breaks(run_all_rounds)

    def _run_try(self, node: ast.Try | ast.TryStar, scope: NameScope) -> BlockEnd:
        def run_handler(handler: ast.ExceptHandler) -> BlockEnd:
            if handler.name:
                scope.values[handler.name] = unknown_value("an exception", handler.lineno)
            return self.run_statements(handler.body, scope)

        ways: list[Callable[[], BlockEnd]] = [lambda: self.run_statements([*node.body, *node.orelse], scope)]
        ways += [lambda each=each: run_handler(each) for each in node.handlers]  # type: ignore[misc]
        ended = self._run_alternatives_and_join_states(ways)
        return max(ended, self.run_statements(node.finalbody, scope))

    def assign(self, target: ast.expr, value: Values, scope: NameScope) -> None:
        """Give a name, an attribute or an item its values."""
        match target:
            case ast.Name():
                (self.module if target.id in scope.shared else scope).values[target.id] = value
            case ast.Starred():
                self.assign(target.value, value, scope)
            case ast.Tuple() | ast.List():
                parts = loop_values(value[0].value, target.lineno) if len(value) == 1 else None
                if parts is None or len(parts) != len(target.elts):
                    parts = [unknown_of_values(value, "a part of a value", target.lineno)] * len(target.elts)
                for each, part in zip(target.elts, parts, strict=True):
                    self.assign(each, part, scope)
            case ast.Attribute():
                for owner in self.evaluate_expression(target.value, scope):
                    if isinstance(owner.value, ProgramInstance | ProgramClass):
                        owner.value.scope.values[target.attr] = value
            case ast.Subscript():
                key = self.evaluate_expression(target.slice, scope)
                changed = tuple(
                    Alternative(with_item(each.value, key, value), each.line)
                    for each in self.evaluate_expression(target.value, scope)
                )
                if isinstance(target.value, ast.Name | ast.Attribute | ast.Subscript):
                    self.assign(target.value, changed, scope_defining_target(target.value, scope))
