"""Evaluation of a program's calls: of its functions, its classes and the methods of its values."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.container_methods import call_container_method
from millrace.advisor.programs.evaluate_access import (
    find_member,
    has_own_method,
)
from millrace.advisor.programs.evaluate_library_calls import LibraryCallEvaluator
from millrace.advisor.programs.library_functions import (
    TEXT_METHODS,
    LaunchArguments,
    may_reshape,
)
from millrace.advisor.programs.possible_values import (
    ABSENT,
    CONTENTS,
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
    as_dictionary,
    contents_of,
    known_value,
    loop_values,
    replace_absent,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
)
from millrace.advisor.programs.program_state import Changes, Mark
from millrace.advisor.programs.program_stream_model import (
    column_of_call,
    payload_calls_in,
)
from millrace.advisor.programs.python_values import (
    compute_for_each_choice,
)
from millrace.config.checks.transforms import nodes_of_function

_DEEPEST = 24
"""Calls of the program's functions in one another."""


class PendingPart(NamedTuple):
    """A call, a loop or a round of it that is evaluated, and the states at which it is left before its end."""

    start: Mark
    exits: list[Changes]


class CallEvaluator(LibraryCallEvaluator):
    """Evaluation of calls."""

    def __init__(self, launch: LaunchArguments) -> None:
        super().__init__(launch)
        self.called: set[ast.AST] = set()
        self.pending: dict[type[ast.stmt], list[PendingPart]] = {
            ast.Return: [],
            ast.Break: [],
            ast.Continue: [],
        }

    @abstractmethod
    def call_streaming_method(
        self, of: Values, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values | None:
        """Return the result of a streaming method; None for others."""

    def evaluate_call(self, node: ast.Call, of: Values, scope: NameScope) -> Values:
        """Return the result of a call in the program's text, of a function or of a method of a value."""
        arguments: list[Values] = []
        named = DictValue()
        for each in node.args:
            value = self.evaluate_expression(each, scope)
            parts = loop_values(value, node.lineno) if isinstance(each, ast.Starred) else [value]
            if parts is None or named.more:
                named = DictValue({}, unknown_of_values(value, "arguments", node.lineno)[0].value.origin)
            else:
                arguments += parts
        for keyword in node.keywords:
            value = self.evaluate_expression(keyword.value, scope)
            given = as_dictionary(value) if keyword.arg is None else DictValue({keyword.arg: value})
            named = named.updated_with(given)
        if not isinstance(node.func, ast.Attribute):
            return self.call_each(of, arguments, named, node.lineno)
        name = node.func.attr
        if not any(has_own_method(each.value, name) for each in of):
            stream = self.call_streaming_method(of, name, arguments, named, node.lineno)
            if stream is not None:
                return stream
        return self.evaluate_alternatives(
            [partial(self.call_method, each, name, arguments, named, node.lineno) for each in of]
        )

    def change_object(self, of: MutableObject, change: Callable[[Any], tuple[Any, Values]]) -> Values:
        """Change what an object holds, whichever of its alternatives that is; return the results."""
        changes = [(each.line, *change(each.value)) for each in of.contents]
        contents = tuple(Alternative(held, line) for line, held, _ in changes)
        if contents != of.contents:
            self.state.store(of, CONTENTS, union_of_alternatives(contents))
        return union_of_alternatives(*(result for _, _, result in changes))

    def call_method(
        self, of: Alternative, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        """Return the result of a method."""
        value = of.value
        is_text = isinstance(value, str)
        is_list = any(isinstance(each.value, ListValue) for each in contents_of((of,)))
        computed = TEXT_METHODS if is_text else {"index", "count"} if is_list else ()
        if name in computed and not named.more:
            keywords = list(named.values)
            return compute_for_each_choice(
                lambda held, *rest: library_functions.bound_method(held, name)(
                    *rest[: len(rest) - len(keywords)],
                    **dict(zip(keywords, rest[len(rest) - len(keywords) :], strict=True)),
                ),
                [(of,), *arguments, *named.values.values()],
                line,
                f"{name}()" if is_list else "a text",
            )
        if isinstance(value, MutableObject):
            if name == "keys":  # it changes with the dictionary
                return (of,)
            if name == "get" and value is self.environment[0].value and arguments:
                default = arguments[1] if len(arguments) > 1 else None
                return library_functions.environment_variable(value.contents, arguments[0], default, line)
            return self.change_object(
                value, lambda held: call_container_method(held, name, arguments, named, line)
            )
        if isinstance(value, ListValue) and name in ("group", "groups"):  # a match of a pattern
            if name == "groups":
                return known_value(ListValue(value.values[1:], tuple), line)
            return self._value_of_key(of, arguments[0] if arguments else known_value(0, line), line)
        if isinstance(value, LibraryName) and value.path in self._parsers:
            return self._call_parser_method(value.path, name, arguments, named, line)
        if (
            isinstance(value, ListValue)
            and value.values
            and name in ("match", "search", "fullmatch", "sub", "split")
        ):
            return self.call(
                LibraryName(f"re.{name}"), [value.values[0], *arguments], named, line
            )  # a compiled pattern
        if isinstance(value, Unknown) and name in _LOGGING:
            return (of,)
        return self.call_each(self._attribute_of_alternative(of, name, line), arguments, named, line)

    def call_if_own(
        self, of: Alternative, name: str, arguments: Sequence[Values], named: DictValue
    ) -> Values:
        """Return the result of a method of a class of the program; of another value the value."""
        own = has_own_method(of.value, name)
        return self.call_method(of, name, arguments, named, of.line) if own else (of,)

    def call(self, callee: Any, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        """Return the result of a call."""
        self.count_steps_or_raise()
        if isinstance(callee, ProgramFunction):
            return self._call_program_function(callee, arguments, named, line)
        if isinstance(callee, ProgramClass):
            return self._make_instance(callee, arguments, named, line)
        if isinstance(callee, ProgramInstance):
            return self.call_if_own(Alternative(callee, line), "__call__", arguments, named)
        if callee == LibraryName("functools.partial") and arguments:
            return _partial_function(arguments, named, line)
        self._call_passed_functions(arguments, named, line)
        origin = callee.path if isinstance(callee, LibraryName) else getattr(callee, "origin", "")
        shown = f"{origin}()" if isinstance(callee, LibraryName) else _MISSING_METHOD.sub(r"\1()", origin)
        handed_on = self._stream_passed_through([*arguments, *named.values.values()], shown, line)
        if self.is_foreign(origin) or re.match(_CHANGING, origin):
            self.forget_contents([*arguments, *named.values.values()], f"{origin}(), which may change it")
        if isinstance(callee, LibraryName):
            return self._call_library(callee.path, arguments, named, line, handed_on)
        if handed_on is not None:
            return handed_on
        if not isinstance(callee, Unknown):
            return unknown_value("a call", line)
        given = [*arguments, *named.values.values()]
        reshapes = callee.reshapes or may_reshape("", given)
        payloads = payload_calls_in([known_value(callee, line), *given], line)
        of, _, method = callee.column.rpartition(".")
        column = callee.column and column_of_call(callee.column, given)
        if of and method.isidentifier():
            column = column_of_call(method, [known_value(replace(callee, column=of), line), *given])
        return known_value(replace(callee, reshapes=reshapes, payloads=payloads, column=column), line)

    def _call_program_function(
        self, callee: ProgramFunction, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        node = callee.node
        self.called.add(node)
        if len(self.pending[ast.Return]) >= _DEEPEST:
            return unknown_value("a function that calls itself", line)
        if isinstance(node, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(node.body, lineno=node.lineno)]
        else:
            body = [*node.body, ast.Return(None, lineno=line)]
        scope = NameScope({}, callee.scope)
        if isinstance(callee.owner, ProgramInstance):
            order = [callee.owner.of, *callee.owner.of.above]
            place = next((at for at, each in enumerate(order) if each.scope is callee.scope), 0)
            of = ProgramClass(order[place].node, NameScope(), tuple(order[place + 1 :]))
            scope.values["super"] = known_value(ProgramInstance(of, callee.owner.scope, callee.owner), line)
        owner = [] if callee.owner is None else [known_value(callee.owner, line)]
        self._bind_arguments(callee, [*owner, *arguments], named, scope)
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in nodes_of_function(node)):
            return unknown_value(f"what {getattr(node, 'name', 'a function')}() yields", line)
        start = self.state.mark()
        if not self.run_until(ast.Return, partial(self.run_statements, body, scope)):
            self.state.undo(start)
        return scope.values.get(CONTENTS) or unknown_value("a function that does not return", line)

    def run_until(self, exit_kind: type[ast.stmt], run: Callable[[], bool]) -> bool:
        """Evaluate what statements of a kind leave, and go on with the states at these too; return whether anything goes on."""
        part = PendingPart(self.state.mark(), [])
        self.pending[exit_kind].append(part)
        try:
            goes_on = run()
        finally:
            self.pending[exit_kind].pop()
        if part.exits:
            at_end = [self.changes_since(part.start)] if goes_on else []
            self.state.join(part.start, [*part.exits, *at_end])
        return goes_on or bool(part.exits)

    def leave(self, exit_kind: type[ast.stmt]) -> None:
        """Keep the state at a statement that leaves a call, a loop or a round of it."""
        for part in self.pending[exit_kind][-1:]:
            part.exits.append(self.changes_since(part.start))

    def changes_since(self, mark: Mark) -> Changes:
        """Return what has changed since a point, and count it."""
        changes = self.state.changes_since(mark)
        self.count_steps_or_raise(len(changes) // 4)
        return changes

    def _bind_arguments(
        self, callee: ProgramFunction, arguments: Sequence[Values], named: DictValue, scope: NameScope
    ) -> None:
        spec = callee.node.args
        plain_ones = [*spec.posonlyargs, *spec.args]
        defaults = dict(callee.defaults)
        given = {**named.values, **dict(zip([each.arg for each in plain_ones], arguments, strict=False))}
        for each in (*plain_ones, *spec.kwonlyargs):
            missing = defaults.get(each.arg, ())
            if named.more or not missing:
                origin = named.more or f"the parameter {each.arg}"
                missing = union_of_alternatives(missing, unknown_value(origin, callee.node.lineno))
            scope.values[each.arg] = replace_absent(given.get(each.arg, ABSENT), missing)
        if spec.vararg:
            rest = ListValue(tuple(arguments[len(plain_ones) :]), tuple)
            scope.values[spec.vararg.arg] = known_value(
                Unknown(named.more) if named.more else rest, callee.node.lineno
            )
        if spec.kwarg:
            own = {each.arg for each in (*plain_ones, *spec.kwonlyargs)}
            more = {key: value for key, value in named.values.items() if key not in own}
            scope.values[spec.kwarg.arg] = MutableObject.holding(
                DictValue(more, named.more), line=callee.node.lineno
            )

    def _make_instance(
        self, of: ProgramClass, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        made = ProgramInstance(of, NameScope(of_class=True))
        constructor = find_member(of, "__init__")
        if constructor is None:  # a data class, whose fields are its arguments
            fields = {
                each.target.id: (each, one.scope)
                for one in [of, *of.above][::-1]
                for each in one.node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
            for name, (each, scope) in fields.items():
                if isinstance(each.value, ast.Call):  # of a field's factory, once for each instance
                    made.scope.values[name] = self.evaluate_expression(each.value, scope)
            made.scope.values |= dict(zip(fields, arguments, strict=False)) | dict(named.values)
            constructor, arguments, named = find_member(of, "__post_init__") or (), [], DictValue()
        bound = tuple(self._bind_method(each, made) for each in constructor)
        self.call_each(bound, arguments, named, line)
        return known_value(made, line)


_MISSING_METHOD = re.compile(r"^the attribute (\w+), .*")
_LOGGING = frozenset({"critical", "debug", "error", "exception", "info", "log", "print", "warn", "warning"})
_CHANGING = r"((dict|list|set)\.|random\.shuffle|heapq\.|bisect\.insort|operator\.(set|del|i)|exec$|eval$)"
"""Functions of Python that change what they are given."""


def _partial_function(arguments: Sequence[Values], named: DictValue, line: int) -> Values:
    """Return the function that ``functools.partial`` makes."""
    held = {
        "called": arguments[0],
        "given": known_value(ListValue(tuple(arguments[1:]), tuple), line),
        "named": MutableObject.holding(named, line=line),
    }
    text = "lambda *more, **others: called(*given, *more, **{**named, **others})"
    call: Any = ast.increment_lineno(ast.parse(text, mode="eval"), line - 1)
    return known_value(ProgramFunction(call.body, NameScope(held)), line)
