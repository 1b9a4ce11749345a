"""Evaluation of a program's calls: of its own functions and classes, and of the libraries that it uses for its settings."""

from __future__ import annotations

import ast
from abc import abstractmethod
from argparse import ArgumentError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.evaluate_expressions import (
    ExpressionEvaluator,
    find_member,
    scope_defining_target,
)
from millrace.advisor.programs.library_functions import FUNCTIONS, TEXT_METHODS, LaunchArguments, loop_values
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
    ReaderOrWriter,
    StreamingFrame,
    Unknown,
    Values,
    as_dictionary,
    compute_for_each_choice,
    joined_frame,
    known_value,
    union_of_alternatives,
    unknown_value,
)

_DEEPEST = 24
"""Calls of the program's functions in one another."""


class BlockEnd(IntEnum):
    """End of a block: it goes on; it leaves a loop's round, or the loop; it returns or raises."""

    NEXT = 0
    ROUND_LEFT = 1
    LOOP_LEFT = 2
    FUNCTION_LEFT = 3


class CallEvaluator(ExpressionEvaluator):
    """Evaluation of calls."""

    def __init__(self, launch: LaunchArguments) -> None:
        super().__init__(launch)
        self.called: set[ast.AST] = set()
        self.scopes = [self.module]
        self.returned: list[list[Alternative]] = []
        self._breaks: list[list[dict[NameScope, dict[str, Values]]]] = [[]]
        self._parsers: dict[str, list[tuple[list[Any], Mapping[str, Values]]]] = {}

    @abstractmethod
    def call_streaming_method(
        self, of: Values, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values | None:
        """Return the result of a streaming method; None for others."""

    @abstractmethod
    def run_statements(self, body: Sequence[ast.stmt], scope: NameScope) -> BlockEnd:
        """Evaluate statements; return how they end."""

    def evaluate_call(
        self, node: ast.Call, callee: Values, method: tuple[Values, str, ast.expr] | None, scope: NameScope
    ) -> Values:
        """Return the result of a call in the program's text."""
        arguments: list[Values] = []
        for each in node.args:
            value = self.evaluate_expression(each, scope)
            if isinstance(each, ast.Starred):
                arguments += loop_values(value[0].value, node.lineno) or []
            else:
                arguments.append(value)
        named = DictValue()
        for keyword in node.keywords:
            value = self.evaluate_expression(keyword.value, scope)
            given = as_dictionary(value) if keyword.arg is None else DictValue({keyword.arg: value})
            named = named.updated_with(given)
        if method is None:
            return union_of_alternatives(
                *(self.call(each.value, arguments, named, node.lineno) for each in callee)
            )
        of, name, target = method
        own = any(
            isinstance(each.value, ProgramInstance) and find_member(each.value.of, name) is not None
            for each in of
        )
        if not own:
            stream = self.call_streaming_method(of, name, arguments, named, node.lineno)
            if stream is not None:
                if isinstance(target, ast.Name) and all(
                    isinstance(each.value, ReaderOrWriter) for each in (*of, *stream)
                ):
                    self.assign(
                        target, stream, scope_defining_target(target, scope)
                    )  # a reader or writer takes an option itself
                return stream
        changed = _collection_after_method(of, name, arguments, named)
        if changed is not None:
            if isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
                self.assign(target, changed, scope_defining_target(target, scope))
            return changed if name == "setdefault" else known_value(None, node.lineno)
        return union_of_alternatives(
            *(self._call_method_of_value(each, name, arguments, named, node.lineno) for each in of)
        )

    def _call_method_of_value(
        self, of: Alternative, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        value = of.value
        if isinstance(value, str) and name in TEXT_METHODS:
            keywords = list(named.values)
            return compute_for_each_choice(
                lambda text, *rest: library_functions.text_method_as_function(name)(
                    text,
                    *rest[: len(rest) - len(keywords)],
                    **dict(zip(keywords, rest[len(rest) - len(keywords) :], strict=True)),
                ),
                [(of,), *arguments, *named.values.values()],
                line,
                "a text",
            )
        if isinstance(value, DictValue):
            return self._call_dict_method(of, name, arguments, line)
        if isinstance(value, ListValue) and name in ("group", "groups"):  # a match of a pattern
            if name == "groups":
                return known_value(ListValue(value.values[1:]), line)
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
        return union_of_alternatives(
            *(
                self.call(each.value, arguments, named, line)
                for each in self._attribute_of_alternative(of, name, line)
            )
        )

    def _call_dict_method(self, of: Alternative, name: str, arguments: Sequence[Values], line: int) -> Values:
        table: DictValue = of.value
        if name == "get" and arguments:
            default = arguments[1] if len(arguments) > 1 else known_value(None, line)
            missing = unknown_value(table.more, line) if table.more else default
            return union_of_alternatives(
                *(
                    (key,) if isinstance(key.value, Unknown) else table.values.get(key.value, missing)
                    for key in arguments[0]
                )
            )
        if table.more and name in ("items", "keys", "values"):
            return unknown_value(table.more, line)
        if name == "items":
            pairs = tuple(
                known_value(ListValue((known_value(key, line), value)), line)
                for key, value in table.values.items()
            )
            return known_value(ListValue(pairs), line)
        if name == "values":
            return known_value(ListValue(tuple(table.values.values())), line)
        return (of,) if name in ("copy", "keys", "asDict") else unknown_value(f"{name}()", line)

    def _call_parser_method(
        self, path: str, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        if name == "add_argument":
            names = [each[0].value if len(each) == 1 else None for each in arguments]
            self._parsers[path].append((names, named.values))
            return known_value(None, line)
        if name in ("parse_args", "parse_known_args"):
            try:
                parsed = known_value(
                    library_functions.parse_arguments(self._parsers[path], self.launch), line
                )
            except (ValueError, TypeError, ArgumentError) as error:
                parsed = unknown_value(f"{name}() ({error})", line)
            return (
                parsed
                if name == "parse_args"
                else known_value(ListValue((parsed, known_value(ListValue(()), line))), line)
            )
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return known_value(LibraryName(path), line)
        return unknown_value(f"{name}()", line)

    def call(self, callee: Any, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        """Return the result of a call."""
        self.count_steps_or_raise()
        if isinstance(callee, ProgramFunction):
            return self._call_program_function(callee, arguments, named, line)
        if isinstance(callee, ProgramClass):
            return self._make_instance(callee, arguments, named, line)
        if isinstance(callee, ProgramInstance):
            own = find_member(callee.of, "__call__")
            called = [
                replace(each.value, owner=callee)
                for each in own or ()
                if isinstance(each.value, ProgramFunction)
            ]
            return union_of_alternatives(
                *(self._call_program_function(each, arguments, named, line) for each in called)
            ) or known_value(callee, line)
        self._call_passed_functions(arguments, named, line)
        handed_on = self._stream_passed_through([*arguments, *named.values.values()])
        if not isinstance(callee, LibraryName):
            if handed_on is not None:
                return handed_on
            return (
                (Alternative(callee, line),) if isinstance(callee, Unknown) else unknown_value("a call", line)
            )
        return self._call_library(callee.path, arguments, named, line, handed_on)

    def _call_library(
        self, path: str, arguments: Sequence[Values], named: DictValue, line: int, handed_on: Values | None
    ) -> Values:
        last = path.rpartition(".")[2]
        match path:
            case "os.getenv" | "os.environ.get":
                return library_functions.environment_variable(
                    self.launch,
                    arguments[0] if arguments else (),
                    arguments[1] if len(arguments) > 1 else None,
                    line,
                )
            case "argparse.ArgumentParser":
                name = f"argparse.ArgumentParser#{len(self._parsers)}"
                self._parsers[name] = []
                return known_value(LibraryName(name), line)
            case "vars":
                return arguments[0] if arguments else unknown_value("vars()", line)
            case "re.compile":
                return (
                    known_value(ListValue((arguments[0],)), line)
                    if arguments
                    else unknown_value("a pattern", line)
                )
            case "dict":
                base = as_dictionary(arguments[0]) if arguments else DictValue()
                return known_value(base.updated_with(named), line)
            case "print":
                return known_value(None, line)
        if last == "getResolvedOptions":
            asked = arguments[1] if len(arguments) > 1 else named.values.get("options", ())
            names = [
                str(each.value)
                for one in asked
                for value in loop_values(one.value, line) or ()
                for each in value
            ]
            return known_value(library_functions.glue_resolved_options(self.launch, names), line)
        if last in ("field", "Field"):  # of a data class
            if "default_factory" in named.values:
                made = named.values["default_factory"]
                return union_of_alternatives(*(self.call(each.value, [], DictValue(), line) for each in made))
            return (
                arguments[0]
                if arguments
                else named.values.get("default", unknown_value("a field without a default", line))
            )
        if handed_on is not None:
            return handed_on
        if path in FUNCTIONS and (not named.values or path == "json.dumps"):
            return compute_for_each_choice(FUNCTIONS[path], arguments, line, f"{path}()")
        return unknown_value(f"{path}()", line)

    def _call_passed_functions(self, batch_arguments: Sequence[Values], named: DictValue, line: int) -> None:
        """Call the functions that a library is given, as a thread or a pool calls them."""
        for place, values in enumerate(batch_arguments):
            for each in values:
                if isinstance(each.value, ProgramFunction):
                    self.call(each.value, batch_arguments[place + 1 :], DictValue(), line)
        for name, values in named.values.items():
            arguments = named.values.get("args", ()) if name == "target" else ()
            parts = loop_values(arguments[0].value, line) if len(arguments) == 1 else None
            for each in values:
                if isinstance(each.value, ProgramFunction):
                    self.call(each.value, parts or [], DictValue(), line)

    def _stream_passed_through(self, arguments: Iterable[Values]) -> Values | None:
        """Return the stream that an unknown function is called with: it gives it back, changed in a way that is not seen."""
        several = [each.value for value in arguments for each in value]
        inside = [
            one.value
            for each in several
            if isinstance(each, ListValue)
            for item in each.values
            for one in item
        ]
        frames = [each for each in (*several, *inside) if isinstance(each, StreamingFrame)]
        if frames:
            return known_value(replace(joined_frame(frames), shaped=True), 0)
        stream = next((each for each in several if isinstance(each, ReaderOrWriter)), None)
        if stream is None:
            return None
        options = replace(
            stream.options, more=stream.options.more or "a function that is not in this program"
        )
        return known_value(replace(stream, options=options), stream.line)

    def _call_program_function(
        self, callee: ProgramFunction, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        node = callee.node
        self.called.add(node)
        if len(self.returned) >= _DEEPEST:
            return unknown_value("a function that calls itself", line)
        if isinstance(node, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(node.body, lineno=node.lineno)]
        else:
            body = node.body
        scope = NameScope({}, callee.scope)
        if isinstance(callee.owner, ProgramInstance):
            of = next(
                (each for each in _class_and_bases(callee.owner.of) if each.scope is callee.scope),
                callee.owner.of,
            )
            of = ProgramClass(of.node, NameScope(), of.bases)
            scope.values["super"] = known_value(ProgramInstance(of, callee.owner.scope, callee.owner), line)
        self._bind_arguments(
            callee,
            [*([] if callee.owner is None else [known_value(callee.owner, line)]), *arguments],
            named,
            scope,
        )
        self.scopes.append(scope)
        self.returned.append([])
        try:
            self.run_statements(body, scope)
        finally:
            self.scopes = [each for each in self.scopes if each is not scope]
            result = self.returned.pop()
        return union_of_alternatives(result) if result else known_value(None, line)

    def _bind_arguments(
        self, callee: ProgramFunction, arguments: Sequence[Values], named: DictValue, scope: NameScope
    ) -> None:
        spec = callee.node.args
        plain_ones = [*spec.posonlyargs, *spec.args]
        defaults = dict(zip([each.arg for each in plain_ones[::-1]], spec.defaults[::-1], strict=False))
        defaults |= {
            each.arg: value
            for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if value is not None
        }
        for place, each in enumerate([*plain_ones, *spec.kwonlyargs]):
            if place < len(arguments) and place < len(plain_ones):
                value = arguments[place]
            elif each.arg in named.values:
                value = named.values[each.arg]
            elif each.arg in defaults:
                value = self.evaluate_expression(defaults[each.arg], callee.scope)
            else:
                value = unknown_value(named.more or f"the parameter {each.arg}", callee.node.lineno)
            scope.values[each.arg] = value
        if spec.vararg:
            scope.values[spec.vararg.arg] = known_value(
                ListValue(tuple(arguments[len(plain_ones) :])), callee.node.lineno
            )
        if spec.kwarg:
            own = {each.arg for each in (*plain_ones, *spec.kwonlyargs)}
            more = {key: value for key, value in named.values.items() if key not in own}
            scope.values[spec.kwarg.arg] = known_value(DictValue(more, named.more), callee.node.lineno)

    def _make_instance(
        self, of: ProgramClass, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        made = ProgramInstance(of, NameScope())
        self.scopes.append(made.scope)
        constructor = find_member(of, "__init__")
        if constructor is not None:
            for each in constructor:
                if isinstance(each.value, ProgramFunction):
                    self._call_program_function(replace(each.value, owner=made), arguments, named, line)
        else:  # a data class, whose fields are its arguments
            fields = [
                each.target.id
                for each in of.node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            ]
            made.scope.values |= dict(zip(fields, arguments, strict=False)) | dict(named.values)
        return known_value(made, line)


def _class_and_bases(start: ProgramClass) -> Iterator[ProgramClass]:
    """Yield a class and those that it is made of."""
    yield start
    for each in start.bases:
        yield from _class_and_bases(each)


def _collection_after_method(
    of: Values, name: str, arguments: Sequence[Values], named: DictValue
) -> Values | None:
    """Return a list or dictionary after a method that changes it; None for other methods."""
    values = []
    for each in of:
        value = each.value
        if isinstance(value, DictValue) and name == "update":
            changed: Any = value.updated_with(
                as_dictionary(arguments[0]) if arguments else DictValue()
            ).updated_with(named)
        elif (
            isinstance(value, ListValue) and name == "append" and arguments and len(value.values) < MOST_ITEMS
        ):
            changed = ListValue((*value.values, arguments[0]))
        elif isinstance(value, ListValue) and name == "extend" and arguments:
            changed = ListValue((*value.values, *(loop_values(arguments[0][0].value, 0) or ())))
        else:
            return None
        values.append(Alternative(changed, each.line))
    return tuple(values) or None
