"""Evaluation of calls of the libraries that a program uses for its settings, and of those that are not read."""

from __future__ import annotations

import builtins
import re
from argparse import ArgumentError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millrace.advisor.programs import library_functions
from millrace.advisor.programs.evaluate_access import (
    list_of_values,
)
from millrace.advisor.programs.evaluate_expressions import (
    ExpressionEvaluator,
)
from millrace.advisor.programs.library_functions import (
    FUNCTIONS,
    LaunchArguments,
    may_reshape,
)
from millrace.advisor.programs.possible_values import (
    CONTENTS,
    Alternative,
    DictValue,
    LibraryName,
    ListValue,
    MutableObject,
    ProgramFunction,
    ProgramInstance,
    ReaderOrWriter,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    known_value,
    loop_values,
    union_of_alternatives,
    unknown_value,
    values_inside,
)
from millrace.advisor.programs.program_stream_model import (
    FORMAT,
    StreamingFrame,
    column_of_call,
    joined_frame,
    payload_calls,
)
from millrace.advisor.programs.python_values import (
    NoPythonValueError,
    compute_for_each_choice,
    condition_value,
    single_or_raise,
    to_python_value,
)

_DEEPEST = 24
"""Depth to which what a library may change is followed."""


class LibraryCallEvaluator(ExpressionEvaluator):
    """Evaluation of calls of libraries."""

    def __init__(self, launch: LaunchArguments) -> None:
        super().__init__(launch)
        self.foreign = set[str]()
        self._parsers: dict[str, list[tuple[list[Any], Mapping[str, Values]]]] = {}
        self._exact_parsers = set[str]()

    def call_each(self, callee: Values, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        """Return the results of a call of one of several functions."""
        return self.evaluate_alternatives(
            [partial(self.call, each.value, arguments, named, line) for each in callee]
        )

    def is_foreign(self, origin: str) -> bool:
        """Return whether something comes from a module that is neither Python's nor one of Spark and AWS."""
        root = re.split(r"\W", origin, maxsplit=1)[0]
        return root in self.foreign or ("*" in self.foreign and not hasattr(builtins, root))

    def forget_contents(self, values: Sequence[Iterable[Alternative]], origin: str, depth: int = 0) -> None:
        """Let lists, dictionaries and readers that are reached from values hold anything."""
        self.count_steps_or_raise(len(values))
        for each in (one for value in values for one in value):
            if isinstance(each.value, MutableObject):
                held = each.value.contents
                if isinstance(held[0].value, ReaderOrWriter):
                    lost: Values = tuple(
                        Alternative(self._reader_or_writer_handed_on(one.value, origin), one.line)
                        for one in held
                    )
                else:
                    lost = unknown_value(origin, each.line)
                if held != lost:
                    self.state.store(each.value, CONTENTS, lost)
                    self.forget_contents([held], origin, depth)
            elif isinstance(each.value, ListValue | DictValue) and depth < _DEEPEST:
                self.forget_contents(values_inside(each.value), origin, depth + 1)

    def _call_parser_method(
        self, path: str, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        if name in ("add_argument", "set_defaults"):  # which has no names
            names = [each[0].value if len(each) == 1 else None for each in arguments]
            self._parsers[path].append((names, named.values))
            return known_value(None, line)
        if name in ("parse_args", "parse_known_args"):
            given = arguments[0] if arguments else named.values.get("args", known_value(None, line))
            try:
                words = to_python_value(single_or_raise(given))
                if words is None:
                    words = to_python_value(single_or_raise(self.words))[1:]
                parsed = MutableObject.holding(
                    library_functions.parse_arguments(
                        self._parsers[path], words, allow_abbrev=path not in self._exact_parsers
                    ),
                    line=line,
                )
            except (ValueError, TypeError, ArgumentError, NoPythonValueError) as error:
                parsed = unknown_value(f"{name}() ({error})", line)
            rest = unknown_value("arguments that are not declared", line)
            return parsed if name == "parse_args" else known_value(ListValue((parsed, rest), tuple), line)
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return known_value(LibraryName(path), line)
        return unknown_value(f"{name}()", line)

    def _call_library(
        self, path: str, arguments: Sequence[Values], named: DictValue, line: int, handed_on: Values | None
    ) -> Values:
        last = path.rpartition(".")[2]
        match path:
            case "os.getenv":
                return library_functions.environment_variable(
                    self.environment[0].value.contents,
                    arguments[0] if arguments else (),
                    arguments[1] if len(arguments) > 1 else None,
                    line,
                )
            case "argparse.ArgumentParser":
                name = f"argparse.ArgumentParser#{len(self._parsers)}"
                above = loop_values(named.values.get("parents", ()), line) or ()
                self._parsers[name] = [
                    each
                    for values in above
                    for one in values
                    for each in self._parsers.get(getattr(one.value, "path", ""), ())
                ]
                if condition_value(named.values.get("allow_abbrev", ())) is False:
                    self._exact_parsers.add(name)
                return known_value(LibraryName(name), line)
            case "vars" if arguments:
                own = any(isinstance(each.value, ProgramInstance) for each in arguments[0])
                return self._attribute_values(arguments[0], "__dict__", line) if own else arguments[0]
            case "getattr" if len(arguments) > 1 and len(arguments[1]) == 1:
                found = self._attribute_values(arguments[0], str(arguments[1][0].value), line)
                return union_of_alternatives(found, *arguments[2:])
            case "re.compile":
                return (
                    known_value(ListValue((arguments[0],), tuple), line)
                    if arguments
                    else unknown_value("a pattern", line)
                )
            case "dict":
                base = as_dictionary(arguments[0]) if arguments else DictValue()
                return MutableObject.holding(base.updated_with(named), line=line)
            case "enumerate" | "zip" if not named.values and not named.more:
                several = [loop_values(each, line) for each in arguments]
                if path == "enumerate" and len(arguments) == 1 and several[0] is not None:
                    several.insert(0, [known_value(number, line) for number in range(len(several[0]))])
                if len(several) > 1 and None not in several:
                    rows = [
                        known_value(ListValue(each, tuple), line)
                        for each in zip(*(each or [] for each in several), strict=False)
                    ]
                    return list_of_values(rows, list, line)
            case "copy.copy" if arguments and all(
                isinstance(each.value, DictValue) for each in contents_of(arguments[0])
            ):
                return MutableObject.holding(*(each.value for each in contents_of(arguments[0])), line=line)
            case "list" | "tuple" | "copy.copy" if (
                len(arguments) == 1 and (items := loop_values(arguments[0], line)) is not None
            ):
                return list_of_values(items, tuple if path == "tuple" else list, line)
            case "setattr" if len(arguments) == 3:
                for each in arguments[1]:
                    self.assign_attribute(arguments[0], str(each.value), arguments[2])
                return known_value(None, line)
            case "print":
                return known_value(None, line)
            case "dotenv.load_dotenv":
                variables = as_dictionary(self.environment[0].value.contents)
                lost = replace(variables, more=f"{path}()")
                self.state.store(self.environment[0].value, CONTENTS, known_value(lost, line))
                return unknown_value(f"{path}()", line)
        if last == "getResolvedOptions":
            asked = arguments[1] if len(arguments) > 1 else named.values.get("options", ())
            names = [str(each.value) for value in loop_values(asked, line) or () for each in value]
            words = loop_values(arguments[0], line) if arguments else None
            try:
                given = [to_python_value(single_or_raise(each)) for each in words or ()]
            except NoPythonValueError:
                return unknown_value("arguments that the program changes", line)
            launch = self.launch if words is None else replace(self.launch, words=tuple(map(str, given)))
            return MutableObject.holding(library_functions.glue_resolved_options(launch, names), line=line)
        if last in ("field", "Field"):  # of a data class
            if "default_factory" in named.values:
                return self.call_each(named.values["default_factory"], [], DictValue(), line)
            return (
                arguments[0]
                if arguments
                else named.values.get("default", unknown_value("a field without a default", line))
            )
        if handed_on is not None:
            return handed_on
        if path in FUNCTIONS and not named.more and (not named.values or path == "json.dumps"):
            return compute_for_each_choice(FUNCTIONS[path], arguments, line, f"{path}()")
        reshapes = may_reshape(last, [*arguments, *named.values.values()])
        payloads = payload_calls(last, arguments, named.values, line)
        column = column_of_call(last, [*arguments, *named.values.values()])
        return known_value(Unknown(f"{path}()", reshapes, payloads=payloads, column=column), line)

    def _call_passed_functions(self, batch_arguments: Sequence[Values], named: DictValue, line: int) -> None:
        """Call the functions that a library is given, as a thread or a pool may call them."""
        passed = [(values, batch_arguments[place + 1 :]) for place, values in enumerate(batch_arguments)]
        for name, values in named.values.items():
            given = loop_values(named.values.get("args", ()), line) if name == "target" else None
            passed.append((values, given or []))
        for values, arguments in passed:
            for each in values:
                if isinstance(each.value, ProgramFunction):
                    call = partial(self.call, each.value, arguments, DictValue(), line)
                    self.evaluate_alternatives([call, lambda: ()])

    def _stream_passed_through(self, arguments: Iterable[Values], origin: str, line: int) -> Values | None:
        """Return the stream that an unknown function is called with: it gives it back, changed in a way that is not seen."""
        several = [each for value in arguments for each in value]
        inside = [
            one for each in contents_of(tuple(several)) for item in values_inside(each.value) for one in item
        ]
        frames = [each.value for each in (*several, *inside) if isinstance(each.value, StreamingFrame)]
        if frames:
            frame = joined_frame(frames).after_call(line, shaped=True)
            return known_value(self.hand_on(frame, origin, line), 0)
        streams = [each for each in several if isinstance(contents_of((each,))[0].value, ReaderOrWriter)]
        self.forget_contents([streams], origin)
        return tuple(streams[:1]) or None

    def _reader_or_writer_handed_on(self, of: ReaderOrWriter, origin: str) -> ReaderOrWriter:
        """Return a reader or writer after a function that may have set any of its options, and may have started it."""
        lost = of.with_options(DictValue({}, origin))
        if of.frame is None or any(line == of.line for line, _ in of.frame.handed_on):
            return lost
        values = {FORMAT: unknown_value(origin, of.line), **lost.options.values}
        frame = self.hand_on(of.frame, origin, of.line)
        return replace(lost, options=replace(lost.options, values=values), frame=frame)

    def hand_on(self, frame: StreamingFrame, origin: str, line: int) -> StreamingFrame:
        """Return what comes back from a function which is not read and is given a stream."""
        return frame
