"""Streaming queries of a Python program: the sources that it reads, and what it does with each until it is written."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millrace.advisor.programs.evaluate_access import (
    dotted_name,
    find_member,
)
from millrace.advisor.programs.evaluate_expressions import (
    StepLimitError,
)
from millrace.advisor.programs.interpreter import Interpreter
from millrace.advisor.programs.library_functions import (
    ROW_BY_ROW_METHODS,
    LaunchArguments,
    may_reshape,
)
from millrace.advisor.programs.possible_values import (
    DictValue,
    FunctionNode,
    LibraryName,
    MutableObject,
    NameScope,
    PayloadCall,
    ProgramFunction,
    ProgramInstance,
    ReaderOrWriter,
    Values,
    as_dictionary,
    contents_of,
    first_unknown,
    joined_alternatives,
    known_value,
    union_of_alternatives,
    unknown_value,
)
from millrace.advisor.programs.program_stream_model import (
    CATALOG,
    DECODERS,
    FORMAT,
    GLUE,
    SINK,
    TRIGGER,
    UNCLEAR_PAYLOAD,
    ProgramSource,
    ProgramStreams,
    Query,
    StreamingFrame,
    alternative_frame,
    joined_frame,
    names_of_columns,
    options_of_method,
    payload_calls_in,
    settings_of_method,
    with_lower_case_names,
)
from millrace.advisor.programs.python_values import as_option_values, definitions_and_values_used

LONGEST = 1024 * 1024
"""Characters of a program that is read; a longer one was not written by hand."""

_READS = ("load", "table", "json", "parquet", "csv", "text", "orc")
_STARTS = ("start", "toTable", "table")
_VIEWS = ("createOrReplaceTempView", "createTempView", "createOrReplaceGlobalTempView", "registerTempTable")
_GLUE = {
    "from_options": ("connection_type", "connection_options", "format", "format_options"),
    "from_catalog": ("database", "table_name", "redshift_tmp_dir", "transformation_ctx"),
}


def read_program_streams(text: str, launch: LaunchArguments) -> ProgramStreams:
    """Read a program.

    Parameters
    ----------
    text
        Its source.
    launch
        What its run is started with.
    """
    if len(text) > LONGEST:
        return ProgramStreams(why_not=f"a program of more than {LONGEST:,} characters")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except SyntaxError as error:
        python = f"no Python {sys.version_info.major}.{sys.version_info.minor}"
        return ProgramStreams(
            why_not=_language_other_than_python(text) or f"{python}: line {error.lineno}: {error.msg}"
        )
    except (ValueError, RecursionError, MemoryError):  # CPython's errors for code that is nested too deep
        return ProgramStreams(why_not="code that is nested too deep")
    reader = _StreamInterpreter(launch, tree)
    why_not = ""
    try:
        reader.run_statements(tree.body, reader.module)
        if not reader.sources:
            reader.call_uncalled_functions(tree)
    except StepLimitError:
        why_not = "a program with more branches than are followed"
    except RecursionError:
        why_not = "code that is nested too deep"
    return reader.program_streams(why_not)


def _language_other_than_python(text: str) -> str:
    """Return the other language that a text is written in."""
    if re.search(r"^\s*(object|class)\s+\w+.*\{|^\s*import\s+[\w.]+\.(_|\{)", text, re.MULTILINE):
        return "a program in Scala, and only Python is read"
    return (
        "a program in Java, and only Python is read"
        if re.search(r"\bpublic\s+(final\s+)?class\b", text)
        else ""
    )


class _StreamInterpreter(Interpreter):
    """Evaluation that keeps the streams of the program."""

    def __init__(self, launch: LaunchArguments, tree: ast.Module) -> None:
        super().__init__(launch)
        self._functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self._handed_on: dict[tuple[int, str], StreamingFrame] = {}
        self._handed_back = set[tuple[int, str]]()
        self._settings: dict[str, Values] = {}
        self.sources: dict[Any, ProgramSource] = {}
        self._queries: list[Query] = []
        self._views = NameScope()
        self._reads = 0
        self._doubtful = False

    def call_uncalled_functions(self, tree: ast.Module) -> None:
        """Call the functions that nothing in the program calls: something outside it may, and gets the streams that they return."""
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
        by_program = {dotted_name(each.func).rpartition(".")[2] for each in calls}
        for each in tree.body:
            body, owner = [each], None
            if isinstance(each, ast.ClassDef):
                name = ast.Name(each.name, lineno=each.lineno)
                made = self.evaluate_expression(ast.Call(name, [], [], lineno=each.lineno), self.module)
                body, owner = each.body, made[0].value
            for inner in body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner not in self.called:
                    function = replace(self.program_function(inner, self.module), owner=owner)
                    frame = _streaming_frames_as_one(self.call(function, [], DictValue(), inner.lineno))
                    if frame is not None and inner.name not in by_program:
                        self.hand_on(frame, f"what calls {inner.name}()", inner.lineno)

    def program_streams(self, why_not: str) -> ProgramStreams:
        """Return what was found, each source and query once however often its line was evaluated."""
        ordered = sorted(self.sources.values(), key=lambda one: one.line)
        handed_on = [
            self._query(line, frame, dict.fromkeys((FORMAT, TRIGGER), unknown_value(origin, line)))
            for (line, origin), frame in self._handed_on.items()
            if (line, origin) not in self._handed_back
        ]
        return ProgramStreams(
            tuple(ordered), tuple(self._queries), why_not, self._doubtful, tuple(handed_on), self._settings
        )

    def hand_on(self, frame: StreamingFrame, origin: str, line: int) -> StreamingFrame:
        """Note that a function which is not read is given a stream, and return what comes back."""
        if hasattr(builtins, re.split(r"\W", origin, maxsplit=1)[0]) or origin == "display()":
            return frame
        key = (line, origin)
        self._handed_back |= frame.handed_on - {key}
        self._handed_on[key] = joined_frame([self._handed_on.get(key, frame), frame])
        # What comes back may have any column under these names.
        return replace(frame, handed_on=frozenset([key]), columns=UNCLEAR_PAYLOAD)

    def _query(
        self,
        line: int,
        frame: StreamingFrame,
        options: Mapping[str, Values],
        function: FunctionNode | None = None,
    ) -> Query:
        sources = list(self.sources.values())
        read = tuple(sources[number] for number in sorted(frame.sources))
        payloads = frozenset((sources[number], call) for number, call in frame.payloads)
        return Query(line, read, options, function, frame.shaped, frame.lines, payloads)

    def _note_query(self, line: int, frame: StreamingFrame, options: DictValue) -> None:
        given = {key: as_option_values(value) for key, value in options.values.items()}
        sinks = options.values.get(SINK, ())
        if SINK in given:  # another round or attempt makes the same function anew
            given[SINK] = known_value(definitions_and_values_used(sinks, self.module), line)
        functions = [one for each in sinks if (one := self._function_of_sink(each.value)) is not None]
        for each in functions:
            frame = frame.after_call(line, self._payload_calls_of_function(each), shaped=False)
        made = self._query(line, frame, given, functions[0] if functions else None)
        if made in self._queries:  # another round or branch may have made its rows in another way
            same = self._queries.pop(self._queries.index(made))
            made = replace(same, lines=same.lines | made.lines, payloads=same.payloads | made.payloads)
        self._queries.append(made)
        self._doubtful |= frame.doubtful
        self._handed_back |= frame.handed_on

    def _payload_calls_of_function(self, function: FunctionNode) -> list[PayloadCall]:
        """Return the calls in a function, and in those that it calls by their names, that decode payloads."""
        pending, found = list[ast.AST]([function]), list[PayloadCall]()
        for each in pending:
            for inner in ast.walk(each):
                text = inner.value if isinstance(inner, ast.Constant) else None
                name = dotted_name(inner.func).rpartition(".")[2] if isinstance(inner, ast.Call) else ""
                called = self._functions.get(name)
                if called is not None and called not in pending:
                    pending.append(called)
                values = (
                    self.evaluate_expression(inner, self.module)
                    if isinstance(inner, ast.Call) and DECODERS.fullmatch(name)
                    else known_value(text, function.lineno)
                )
                found += payload_calls_in([values], function.lineno)
        return found

    def _function_of_sink(self, value: Any) -> FunctionNode | None:
        """Return the function that a sink is; of an object the one that a call of it runs, of a lambda the one that it calls."""
        if isinstance(value, ProgramInstance):
            value = next((each.value for each in find_member(value.of, "__call__") or ()), None)
        node: FunctionNode | None = value.node if isinstance(value, ProgramFunction) else None
        if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
            rows = {each.arg: unknown_value("rows", node.lineno) for each in node.args.args}
            called = self.evaluate_expression(node.body.func, NameScope(rows, value.scope))
            return next((each.value.node for each in called if isinstance(each.value, ProgramFunction)), node)
        return node

    def run_alternatives(self, ways: Sequence[Callable[[], bool]]) -> bool:
        reading: list[bool] = []

        def run_and_note_sources(way: Callable[[], bool]) -> bool:
            before = self._reads
            goes_on = way()
            reading.append(self._reads > before)
            return goes_on

        goes_on = super().run_alternatives([partial(run_and_note_sources, way) for way in ways])
        self._doubtful |= sum(reading) > 1
        return goes_on

    def streaming_attribute(self, values: Values, name: str, line: int) -> Values | None:
        if name == "readStream":
            return MutableObject.holding(ReaderOrWriter(line), line=line)
        if name == "writeStream":
            frame = _streaming_frames_as_one(values) or StreamingFrame()
            return MutableObject.holding(ReaderOrWriter(line, frame=frame), line=line)
        if name == "create_data_frame":
            return known_value(LibraryName("create_data_frame"), line)
        return None

    def call_streaming_method(
        self, of: Values, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values | None:
        streams = [each.value for each in contents_of(of) if isinstance(each.value, ReaderOrWriter)]
        if streams:
            return self._call_on_reader_or_writer(of, streams, name, arguments, named, line)
        glue = name.removeprefix("create_data_frame_")
        inside = any(each.value == LibraryName("create_data_frame") for each in of)
        if glue in _GLUE and (inside or glue != name):
            return self._read_by_glue(glue, arguments, named, line)
        if name == "forEachBatch":
            return self._note_query_of_for_each_batch(arguments, named, line)
        frame = _streaming_frames_as_one(of)
        if frame is not None:
            return self._call_on_frame(frame, name, arguments, named, line)
        for key, values in settings_of_method(name, arguments, named, line).items():
            self._settings[key] = union_of_alternatives(self._settings.get(key, ()), values)
        if name in ("sql", "table") and arguments:
            return self._frame_of_views(arguments[0], line)
        return None

    def _call_on_reader_or_writer(
        self,
        of: Values,
        streams: Sequence[ReaderOrWriter],
        name: str,
        arguments: Sequence[Values],
        named: DictValue,
        line: int,
    ) -> Values | None:
        frames = [each.frame for each in streams if each.frame is not None]
        if name in (_STARTS if frames else _READS):
            given = with_lower_case_names(named)
            if frames and name != "start":
                table = arguments[0] if arguments else unknown_value("a table", line)
                given = given.updated_with(DictValue({"table": table}))
            elif name not in ("load", "start"):
                given = given.updated_with(DictValue({FORMAT: known_value(name, line)}))
            options = joined_alternatives(each.options for each in streams).updated_with(given)
            if not frames:
                return self._frame_of_new_source(options, line)
            self._note_query(line, alternative_frame(frames), options)
            return known_value(LibraryName("streaming query"), line)
        options = options_of_method(name, arguments, named, line)

        def set_options(held: Any) -> tuple[Any, Values]:
            return (held.with_options(options) if isinstance(held, ReaderOrWriter) else held), ()

        objects = [each.value for each in of if isinstance(each.value, MutableObject)]
        self.evaluate_alternatives([partial(self.change_object, each, set_options) for each in objects])
        return of  # a reader or writer takes an option itself

    def _read_by_glue(self, call: str, arguments: Sequence[Values], named: DictValue, line: int) -> Values:
        names = _GLUE[call]
        options = DictValue(dict(zip(names, arguments, strict=False))).updated_with(named).values
        of_call = {GLUE: known_value(True, line)}
        if call == "from_catalog":
            of_call |= {each: options[each] for each in names[:2] if each in options}
            of_call[CATALOG] = known_value(True, line)
        else:
            of_call[FORMAT] = options.get("connection_type", unknown_value("no type", line))
        given = options.get("additional_options" if CATALOG in of_call else "connection_options", ())
        glue_options = with_lower_case_names(as_dictionary(given)).updated_with(DictValue(of_call))
        return self._frame_of_new_source(glue_options, line)

    def _note_query_of_for_each_batch(
        self, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        values = dict(zip(("frame", "batch_function", "options"), arguments, strict=False)) | dict(
            named.values
        )
        options = with_lower_case_names(as_dictionary(values.get("options", ())))
        more = {TRIGGER: options.values["windowsize"]} if "windowsize" in options.values else {}
        if "batch_function" in values:
            more[SINK] = values["batch_function"]
        frame = _streaming_frames_as_one(values.get("frame", ())) or StreamingFrame()
        self._note_query(line, frame, options.updated_with(DictValue(more)))
        return known_value(None, line)

    def _call_on_frame(
        self, frame: StreamingFrame, name: str, arguments: Sequence[Values], named: DictValue, line: int
    ) -> Values:
        if name in _VIEWS and arguments:
            for each in arguments[0]:
                self.state.store(self._views, str(each.value).lower(), known_value(frame, line))
            return known_value(None, line)
        if (
            name in ("transform", "pipe")
            and arguments
            and any(isinstance(each.value, ProgramFunction) for each in arguments[0])
        ):
            return self.call_each(arguments[0], [known_value(frame, line), *arguments[1:]], named, line)
        given = [
            *arguments,
            *named.values.values(),
            *([unknown_value(named.more, line)] if named.more else []),
        ]
        others = [_streaming_frames_as_one(each) for each in given]
        joined = joined_frame([frame, *(each for each in others if each is not None)])
        plain = name in ROW_BY_ROW_METHODS and not may_reshape(name, given, self.is_foreign)
        calls, names = payload_calls_in(given, line), names_of_columns(name, given)
        return known_value(joined.after_call(line, calls, names, shaped=not plain), line)

    def _frame_of_views(self, text: Values, line: int) -> Values | None:
        words = {
            word.lower()
            for each in text
            if isinstance(each.value, str)
            for word in re.findall(r"[\w.]+", each.value)
        }
        frames = [
            each.value
            for name, values in self._views.values.items()
            for each in values
            if name in words or any(word.endswith(f".{name}") for word in words)
        ]
        if not frames and first_unknown(text) is not None:  # a query that is not known may name any view
            frames = [each.value for values in self._views.values.values() for each in values]
        if not frames:
            return None
        calls, names = payload_calls_in([text], line), names_of_columns("sql", [text])
        return known_value(joined_frame(frames).after_call(line, calls, names, shaped=True), line)

    def _frame_of_new_source(self, options: DictValue, line: int) -> Values:
        values = {key: as_option_values(value) for key, value in options.values.items()}
        texts = ((key, frozenset(str(one.value) for one in value)) for key, value in values.items())
        identity = line, frozenset(texts), options.more
        self.sources.setdefault(identity, ProgramSource(line, values, options.more))
        self._reads += 1
        return known_value(StreamingFrame(frozenset([list(self.sources).index(identity)])), line)


def _streaming_frames_as_one(values: Values) -> StreamingFrame | None:
    """Return the streaming frames among values as one."""
    frames = [each.value for each in values if isinstance(each.value, StreamingFrame)]
    return alternative_frame(frames) if frames else None
