"""Evaluation of a program's text: assignments, branches, loops, functions and classes, with all values that they may give.

Where a condition is known, its branch is followed; else both are, and what they assign has the values of both. Nothing of the program
is run: calls of libraries are computed only if they are in :mod:`millrace.advisor.programs.library_functions`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from functools import partial

from millrace.advisor.programs.evaluate_access import (
    dotted_name,
    method_resolution_order,
)
from millrace.advisor.programs.evaluate_assignments import AssignmentEvaluator
from millrace.advisor.programs.possible_values import (
    CONTENTS,
    DictValue,
    NameScope,
    ProgramClass,
    ProgramFunction,
    ProgramInstance,
    Unknown,
    Values,
    first_unknown,
    known_value,
    loop_values,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
)
from millrace.advisor.programs.program_state import Changes, Place
from millrace.advisor.programs.python_values import condition_value

_EXITS = {"sys.exit", "exit", "quit", "os._exit"}
_LIBRARIES = {"awsglue", "boto3", "botocore", "delta", "py4j", "pyspark"}
"""Libraries beside Python's own that leave lists and dictionaries as they are given."""
_MOST_ROUNDS = 20
"""Rounds of a ``while`` whose condition is known, and of a ``for`` over a list that grows, that are evaluated one by one."""


class Interpreter(AssignmentEvaluator):
    """Evaluation of one program."""

    def run_statements(self, body: Sequence[ast.stmt], scope: NameScope) -> bool:
        """Evaluate statements; return whether what follows them is evaluated."""
        return all(self._run_statement(each, scope) for each in body)

    def _run_statement(self, node: ast.stmt, scope: NameScope) -> bool:
        self.count_steps_or_raise()
        match node:
            case ast.Assign():
                value = self.evaluate_expression(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self.assign(node.target, self.evaluate_expression(node.value, scope), scope)
            case ast.AugAssign():
                self.assign(node.target, self._augmented_value(node, scope), scope)
            case ast.Expr():
                self.evaluate_expression(node.value, scope)  # also in sys.exit(main())
                return not (isinstance(node.value, ast.Call) and dotted_name(node.value.func) in _EXITS)
            case ast.Return():
                value = known_value(None, node.lineno)
                if node.value is not None:
                    value = self.evaluate_expression(node.value, scope)
                self.state.store(scope, CONTENTS, value)
                self.leave(ast.Return)
                return False
            case ast.Raise():
                if node.exc is not None:  # raise SystemExit(main())
                    self.evaluate_expression(node.exc, scope)
                return False
            case ast.Break() | ast.Continue():
                self.leave(type(node))
                return False
            case ast.If():
                return self._run_by_condition(
                    condition_value(self.evaluate_expression(node.test, scope)),
                    partial(self.run_statements, node.body, scope),
                    partial(self.run_statements, node.orelse, scope),
                )
            case ast.For() | ast.AsyncFor():
                return self.run_until(ast.Break, partial(self._run_for, node, scope))
            case ast.While():
                return self.run_until(ast.Break, partial(self._run_while, node, scope))
            case ast.Try() | ast.TryStar():
                return self._run_try(node, scope)
            case ast.With() | ast.AsyncWith():
                return self._run_with(node, scope)
            case ast.Match():
                subject = self.evaluate_expression(node.subject, scope)
                for each in node.cases:
                    run_case = partial(self._run_case, each, subject, scope)
                    self.run_alternatives([run_case, lambda: True])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                made = known_value(self.program_function(node, scope), node.lineno)
                self._assign_name(node.name, self._decorated_value(made, node, scope), scope)
            case ast.ClassDef():
                self._define_class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._run_import(node, scope)
            case ast.Global():
                scope.shared |= dict.fromkeys(node.names, self.module)
            case ast.Nonlocal():
                above = scope.above or scope
                scope.shared |= {name: above.scope_of(name) or above for name in node.names}
            case ast.Delete():
                for target in node.targets:
                    self._delete(target, scope)
        return True

    def _run_import(self, node: ast.Import | ast.ImportFrom, scope: NameScope) -> None:
        for each in node.names:
            if isinstance(node, ast.Import):
                name = each.asname or each.name.partition(".")[0]
                path = each.name if each.asname else name
            else:
                name, path = each.asname or each.name, f"{node.module or ''}.{each.name}".lstrip(".")
            root = path.partition(".")[0]
            if root not in _LIBRARIES and root not in sys.stdlib_module_names:
                self.foreign.update({root, name} if name == "*" else {root})
            self._assign_name(name, self._value_of_import(path, node.lineno), scope)

    def _decorated_value(
        self, value: Values, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: NameScope
    ) -> Values:
        """Return a function or class after the decorators of the program; those of libraries leave it as it is."""
        for each in reversed(node.decorator_list):
            name = dotted_name(each.func if isinstance(each, ast.Call) else each)
            if name.rpartition(".")[2] in (
                "udf",
                "pandas_udf",
            ):  # it gets columns, and is called with their values
                return known_value(Unknown(f"{node.name}()", column="udf"), node.lineno)
            decorators = self.evaluate_expression(each, scope)
            if any(isinstance(one.value, ProgramFunction | ProgramClass) for one in decorators):
                value = self.call_each(decorators, [value], DictValue(), node.lineno)
        return value

    def _define_class(self, node: ast.ClassDef, scope: NameScope) -> None:
        inner = NameScope({}, scope, of_class=True)
        bases = tuple(
            each.value
            for base in node.bases
            for each in self.evaluate_expression(base, scope)
            if isinstance(each.value, ProgramClass)
        )
        self.run_statements(node.body, inner)
        made = known_value(ProgramClass(node, inner, method_resolution_order(bases)), node.lineno)
        self._assign_name(node.name, self._decorated_value(made, node, scope), scope)

    def _run_by_condition(
        self, holds: bool | None, then: Callable[[], bool], otherwise: Callable[[], bool]
    ) -> bool:
        if holds is None:
            return self.run_alternatives([then, otherwise])
        return then() if holds else otherwise()

    def run_alternatives(self, ways: Sequence[Callable[[], bool]]) -> bool:
        """Evaluate several ways from the same state, and join the states of those that go on; return whether any does."""
        start = self.state.mark()
        states: list[Changes] = []
        for way in ways:
            if way():
                states.append(self.changes_since(start))
            self.state.undo(start)
        self.state.join(start, states)
        return bool(states)

    def _run_round(self, body: Sequence[ast.stmt], scope: NameScope) -> bool:
        """Evaluate a round of the present loop; return whether another may follow."""
        return self.run_until(ast.Continue, partial(self.run_statements, body, scope))

    def _run_any_number_of_rounds(self, once: Callable[[], bool]) -> None:
        """Evaluate rounds until another one tells nothing new: what the second or a later one changes once more is unknown."""
        ways: list[Callable[[], bool]] = [once, lambda: True]
        self.run_alternatives(ways)
        grown = True
        while grown:
            start, grown = self.state.mark(), False
            self.run_alternatives(ways)
            for (scope, name), before in self.state.values_before(start).items():
                values = scope.root.values.get(name)
                if scope.age > start.age or values is None or (before and first_unknown(before)):
                    continue
                if union_of_alternatives(before or (), values) != union_of_alternatives(before or ()):
                    grown = True
                    lost = unknown_value("a value that a loop changes", values[0].line) if before else ()
                    self.state.store(scope, name, union_of_alternatives(values, lost))

    def _run_for(self, node: ast.For | ast.AsyncFor, scope: NameScope) -> bool:
        over = self.evaluate_expression(node.iter, scope)
        number, longest = 0, 0
        while (items := loop_values(over, node.lineno)) is not None:  # a round may change the list
            longest = longest or len(items) + _MOST_ROUNDS
            if number >= len(items):
                return self.run_statements(node.orelse, scope)
            if number > longest:
                break
            self.assign(node.target, items[number], scope)
            if not self._run_round(node.body, scope):
                return False
            number += 1

        def run_unknown_round() -> bool:
            self.assign(node.target, unknown_of_values(over, "a loop", node.lineno), scope)
            return self._run_round(node.body, scope)

        self._run_any_number_of_rounds(run_unknown_round)
        return self.run_statements(node.orelse, scope)

    def _run_while(self, node: ast.While, scope: NameScope) -> bool:
        for _ in range(_MOST_ROUNDS):
            start = self.state.mark()
            holds = condition_value(self.evaluate_expression(node.test, scope))
            if holds is False:
                return self.run_statements(node.orelse, scope)
            if holds is None or isinstance(node.test, ast.Constant):
                self.state.undo(start)
                break
            if not self._run_round(node.body, scope):
                return False

        def run_round_if_it_may_run() -> bool:
            holds = condition_value(self.evaluate_expression(node.test, scope))
            return holds is not False and self._run_round(node.body, scope)

        self._run_any_number_of_rounds(run_round_if_it_may_run)
        if condition_value(self.evaluate_expression(node.test, scope)) is True:
            return False  # only a break, a return or an error ends it
        return self.run_statements(node.orelse, scope)

    def _run_try(self, node: ast.Try | ast.TryStar, scope: NameScope) -> bool:
        states = [each[-1].exits for each in self.pending.values() if each]
        earlier = [len(each) for each in states]
        in_body: dict[Place, Values] = {}

        def run_body() -> bool:
            goes_on = self.run_statements([*node.body, *node.orelse], scope)
            in_body.update(log)
            return goes_on

        def run_handler(handler: ast.ExceptHandler) -> bool:
            self.state.store_any_of(in_body)  # an error may come after any of its statements
            if handler.name:
                self._assign_name(handler.name, unknown_value("an exception", handler.lineno), scope)
            return self.run_statements(handler.body, scope)

        with self.state.log_changes() as log:
            goes_on = self.run_alternatives(
                [run_body, *(partial(run_handler, each) for each in node.handlers)]
            )
        if not node.finalbody:
            return goes_on

        def run_final(after_error: bool) -> bool:
            if after_error:
                self.state.store_any_of(log)
            return self.run_statements(node.finalbody, scope) and not after_error

        with self.state.log_changes() as final:
            goes_on = self.run_alternatives(
                [partial(run_final, each) for each in ([False, True] if goes_on else [True])]
            )
        for several, number in zip(states, earlier, strict=True):
            for changes in several[number:]:  # it runs before a return, too
                for (inside, name), values in final.items():
                    before = changes.get((inside, name)) or inside.root.values.get(name, ())
                    changes[inside, name] = union_of_alternatives(before, values)
        return goes_on

    def _run_with(self, node: ast.With | ast.AsyncWith, scope: NameScope) -> bool:
        """Evaluate ``with`` as the ``try`` that it stands for."""
        [item, *others], line = node.items, node.lineno
        body: list[ast.stmt] = [ast.With(others, node.body, lineno=line)] if others else node.body
        managers = self.evaluate_expression(item.context_expr, scope)
        entered = self.evaluate_alternatives(
            [partial(self.call_if_own, each, "__enter__", [], DictValue()) for each in managers]
        )
        if item.optional_vars is not None:
            self.assign(item.optional_vars, entered, scope)
        call = item.context_expr
        if isinstance(call, ast.Call) and dotted_name(call.func).rpartition(".")[2] == "suppress":
            return self._run_try(
                ast.Try(body, [ast.ExceptHandler(None, None, [], lineno=line)], [], []), scope
            )
        if not any(isinstance(each.value, ProgramInstance) for each in managers):
            return self.run_statements(body, scope)
        manager = ast.Name(f"manager in line {line}, column {call.col_offset}", lineno=line)
        self._assign_name(manager.id, managers, scope)
        leave = ast.Attribute(manager, "__exit__", lineno=line)
        leave_call = ast.Call(leave, [ast.Constant(None, lineno=line)] * 3, [], lineno=line)
        raise_again = ast.If(leave_call, [], [ast.Raise(lineno=line)], lineno=line)
        handlers = [ast.ExceptHandler(None, None, [raise_again], lineno=line)]
        return self._run_try(ast.Try(body, handlers, [ast.Expr(leave_call, lineno=line)], []), scope)

    def _run_case(self, case: ast.match_case, subject: Values, scope: NameScope) -> bool:
        """Evaluate what a case of ``match`` does if its pattern fits, which nobody looks at."""
        for each in ast.walk(case.pattern):
            name = getattr(each, "name", None) or getattr(each, "rest", None)
            if isinstance(name, str):
                part = unknown_of_values(subject, "a part of a value", case.pattern.lineno)
                self._assign_name(name, subject if each is case.pattern else part, scope)
        guard = case.guard or ast.Constant(True, lineno=case.pattern.lineno)
        return self.run_statements([ast.If(guard, case.body, [], lineno=guard.lineno)], scope)
