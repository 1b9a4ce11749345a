"""Model of a program's streams: sources, queries, DataFrames between them, columns that decode payloads, and options by the methods that set them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.advisor.programs.library_functions import single_texts, values_at_any_depth
from millrace.advisor.programs.possible_values import (
    MOST_ITEMS,
    MOST_VALUES,
    Alternative,
    DictValue,
    FunctionNode,
    LibraryName,
    PayloadCall,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    known_value,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
    with_item,
)
from millrace.advisor.programs.python_values import as_option_values

FORMAT, CATALOG, GLUE, TRIGGER, SINK = "format", "catalog", "glue", "trigger", "sink"
"""Options under which a source keeps its format, and that it is a table of the Data Catalog or read by Glue, and a query its trigger and
its sink.
"""


DECODERS = re.compile(r"\b(?:from_(avro|csv|json|protobuf|xml)|get_(json)_object|(json)_tuple)\b")
"""Functions of Spark that decode payloads."""

PAYLOAD_COLUMNS = {"kafka": "value", "kinesis": "data"}
"""The payload's column by the kind of a source."""

_DECODER_PARAMETERS = {
    "avro": ("data", "jsonFormatSchema", "options", "subject", "schemaRegistryAddress"),
    "protobuf": ("data", "messageName", "descFilePath", "options"),
}
"""Parameters of functions that decode, where others than of most; the last two of Avro are Databricks' own (its ``from_avro``)."""

_SETTINGS_OF_CALL = {"messageName": "message", "schemaRegistryAddress": "registry", "subject": "subject"}

UNCLEAR = "?"
"""A part of a column in SQL that the text does not tell."""

UNCLEAR_PAYLOAD = frozenset((each, UNCLEAR) for each in PAYLOAD_COLUMNS.values())

_LONGEST_COLUMN = 512
_DECODING_TEXT = re.compile(rf"{DECODERS.pattern}\s*\(", re.IGNORECASE)
_CAST_TEXT = re.compile(r"(?:(?:try_)?cast|decode|string|binary) ?\(", re.IGNORECASE)
_NAMED_TEXT = re.compile(r"(?:\s?select )?(.+?)(?: as |(?<=\)) )(\w+)(?: from .*)?", re.IGNORECASE)
_UTF_8 = re.compile(r"utf-?8", re.IGNORECASE)
_COLUMN_WITH_TYPE = re.compile(r"(?<![\w.$)\]])([\w.$]+) ?:: ?(\w+)")
_TYPE_AFTER_EXPRESSION = re.compile(r" ?:: ?\w+(?:\([\d ,]*\))?")
_SQL_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def column_of_values(values: Values) -> str:
    """Return the column that a function of Spark is given, in SQL and without its texts."""
    value = values[0].value if len(values) == 1 else None
    if isinstance(value, Unknown):
        return value.column or UNCLEAR
    if isinstance(value, LibraryName):  # rows.value, in a function that is not evaluated
        return value.path.rpartition(".")[2]
    return _sql_without_texts(str(value)) if isinstance(value, str | int) else UNCLEAR


def _sql_without_texts(sql: str) -> str:
    text = " ".join(_SQL_TEXT.sub(lambda text: _text_in_column(text[0][1:-1]), sql).replace("`", "").split())
    return _TYPE_AFTER_EXPRESSION.sub("", _COLUMN_WITH_TYPE.sub(r"CAST(\1 AS \2)", text))


def _text_in_column(text: str) -> str:
    """Return what stands for a text: the character set of a decoding is kept, as another one changes the payload."""
    return "UTF8" if _UTF_8.fullmatch(text) else UNCLEAR


def column_of_call(function: str, arguments: Sequence[Values]) -> str:
    """Return the column that a function of Spark gives, or a method of a column with that as its first argument, in SQL."""
    first = column_of_values(arguments[0] if arguments else ())
    if function in ("alias", "name") and len(arguments) > 1:
        return f"{first} AS {column_of_values(arguments[1])}"
    if function in ("astype", "cast", "col", "column", "expr", "lit"):
        return first
    others = [
        _text_in_column(" ".join(texts))
        if (texts := [one.value for one in each if isinstance(one.value, str)])
        else column_of_values(each)
        for each in arguments[1:]
    ]
    return f"{function}({', '.join([first, *others])})"[:_LONGEST_COLUMN]


def parts_of_list(text: str) -> list[str]:
    """Return what stands between commas outside brackets, up to the end of these brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def column_without_casts(text: str) -> str:
    """Return the column that casts of it and its new name stand for."""
    named = _NAMED_TEXT.fullmatch(text)
    column = (named[1] if named else text).strip()
    while call := _CAST_TEXT.match(column):
        inside = parts_of_list(column[call.end() :])
        charset = inside[1].strip() if call[0].lower().startswith("decode") and inside[1:] else "UTF8"
        if column[call.end() :] != f"{','.join(inside)})" or charset != "UTF8":
            break
        column = re.sub(r" as \w+ ?$", "", inside[0], flags=re.IGNORECASE).strip()
    return column


def names_of_columns(method: str, arguments: Sequence[Values]) -> Iterable[tuple[str, str]]:
    """Return the names that a method of a frame gives to columns, each with its column in SQL."""
    if method in ("withColumn", "withColumnRenamed") and len(arguments) > 1:
        name, column = arguments[:: 1 if method == "withColumn" else -1][:2]
        return [(column_of_values(name), column_of_values(column))]
    if method == "withColumns" and arguments:
        table = as_dictionary(arguments[0]).values
        return [(str(name), column_of_values(column)) for name, column in table.items()]
    texts = [
        part
        for value in values_at_any_depth(arguments)
        if isinstance(value, Unknown | str)
        for part in parts_of_list(column_of_values(known_value(value, 0)))
    ]
    return [(named[2], named[1]) for each in texts if (named := _NAMED_TEXT.fullmatch(each))]


def payload_calls_in(arguments: Iterable[Values], line: int) -> tuple[PayloadCall, ...]:
    """Return the calls that decode payloads among columns and the texts of columns."""
    calls: list[PayloadCall] = []
    for value in values_at_any_depth(arguments):
        if isinstance(value, Unknown):
            calls += value.payloads
        elif isinstance(value, str):
            text = _sql_without_texts(value)
            calls += [
                PayloadCall(
                    each[each.lastindex or 0].lower(), line, column=parts_of_list(text[each.end() :])[0]
                )
                for each in itertools.islice(_DECODING_TEXT.finditer(text), MOST_VALUES)
            ]
    return tuple(dict.fromkeys(calls))


def payload_calls(
    function: str, arguments: Sequence[Values], named: Mapping[str, Values], line: int
) -> tuple[PayloadCall, ...]:
    """Return the calls that decode payloads: a function of this name, and those among its arguments."""
    call = DECODERS.fullmatch(function)
    inside = payload_calls_in([*arguments, *named.values()], line)
    if call is None:
        return inside
    kind = call[call.lastindex or 0]
    parameters = _DECODER_PARAMETERS.get(kind, ("col", "schema", "options"))
    given = {**dict(zip(parameters, arguments, strict=False)), **named}
    of_call = {key: given[name] for name, key in _SETTINGS_OF_CALL.items() if name in given}
    settings = single_texts({**of_call, **as_dictionary(given.get("options", ())).values})
    return (*inside, PayloadCall(kind, line, settings, column_of_values(given.get(parameters[0], ()))))


@dataclass(frozen=True)
class StreamingFrame:
    """A streaming DataFrame.

    Attributes
    ----------
    sources
        Numbers of the sources that it comes from.
    doubtful
        Whether it comes from some of them only, and the text does not tell from which.
    shaped
        Whether its rows are others than the records.
    lines
        Of the calls that made it of what was read.
    handed_on
        Calls of functions that are not read from which it came back, each with its line.
    payloads
        Numbers of sources, each with a call that decodes its payloads.
    columns
        Names that calls gave to columns, each with its column in SQL, as far as that is known.
    """

    sources: frozenset[int] = frozenset()
    doubtful: bool = False
    shaped: bool = False
    lines: frozenset[int] = frozenset()
    handed_on: frozenset[tuple[int, str]] = frozenset()
    payloads: frozenset[tuple[int, PayloadCall]] = frozenset()
    columns: frozenset[tuple[str, str]] = frozenset()

    def after_call(
        self,
        line: int,
        payloads: Iterable[PayloadCall] = (),
        names: Iterable[tuple[str, str]] = (),
        *,
        shaped: bool,
    ) -> StreamingFrame:
        """Return the frame that a call makes of it, which may decode its payloads and give names to columns."""
        known = dict[str, str]()
        for name, column in self.columns:
            known[name] = UNCLEAR if name in known else column
        calls = [each._replace(column=_column_of_source(each.column, known)) for each in payloads]
        named = {name.lower(): _column_of_source(column, known) for name, column in names}
        columns = [*(each for each in self.columns if each[0] not in named), *named.items()]
        return replace(
            self,
            shaped=self.shaped or shaped,
            lines=self.lines | {line},
            payloads=self.payloads | {(source, call) for source in self.sources for call in calls},
            columns=frozenset(columns) if len(columns) < MOST_ITEMS else UNCLEAR_PAYLOAD,
        )


def _column_of_source(column: str, known: Mapping[str, str]) -> str:
    """Return a column with those of what was read in place of names that calls gave."""
    text = re.sub(r"[\w$]+", lambda name: known.get(name[0].lower(), name[0]), column_without_casts(column))
    return text if len(text) < _LONGEST_COLUMN else UNCLEAR


def joined_frame(frames: Sequence[StreamingFrame]) -> StreamingFrame:
    """Return the frame that is made of several."""
    sources, lines, handed_on, payloads, columns = (
        frozenset[Any]().union(*(getattr(each, name) for each in frames))
        for name in ("sources", "lines", "handed_on", "payloads", "columns")
    )
    doubtful, shaped = (any(getattr(each, name) for each in frames) for name in ("doubtful", "shaped"))
    return StreamingFrame(sources, doubtful, shaped, lines, handed_on, payloads, columns)


def alternative_frame(frames: Sequence[StreamingFrame]) -> StreamingFrame:
    """Return the frame that is one of several."""
    alternatives = joined_frame(frames)
    return replace(alternatives, doubtful=alternatives.doubtful or len({each.sources for each in frames}) > 1)


@dataclass(frozen=True, eq=False)
class ProgramSource:
    """A stream that a program reads.

    Attributes
    ----------
    line
        Of the call that reads it.
    options
        By their names in small letters, each with all its values.
    more
        Where further options come from that the text does not tell; empty if all are known.
    """

    line: int
    options: Mapping[str, Values]
    more: str = ""


@dataclass(frozen=True)
class Query:
    """A streaming query that a program starts.

    Attributes
    ----------
    line
        Of the call that starts it.
    sources
        The sources that it reads.
    options
        Of its writer, as for a source.
    function
        The function to which it gives each batch; None without one, or where the text does not tell.
    """

    line: int
    sources: tuple[ProgramSource, ...]
    options: Mapping[str, Values]
    function: FunctionNode | None = None
    shaped: bool = False
    """True if its rows are not the records as read: filtered, grouped, joined."""
    lines: frozenset[int] = field(default=frozenset(), compare=False)
    """Of the calls that make its rows of what was read."""
    payloads: frozenset[tuple[ProgramSource, PayloadCall]] = field(default=frozenset(), compare=False)
    """Calls that decode the payloads of a source."""


@dataclass(frozen=True)
class ProgramStreams:
    """A program's streams.

    Attributes
    ----------
    sources
        All sources, in the order of their lines.
    queries
        Queries that it starts.
    why_not
        Why the program, or the rest of it, was not read; empty where it was.
    doubtful
        Whether a query reads one of several sources, and the text does not tell which.
    handed_on
        Streams that are given to a function which is not read, as queries whose sink is not known.
    settings
        Spark settings that it sets, each with all its values.
    """

    sources: tuple[ProgramSource, ...] = ()
    queries: tuple[Query, ...] = ()
    why_not: str = ""
    doubtful: bool = False
    handed_on: tuple[Query, ...] = ()
    settings: Mapping[str, Values] = field(default_factory=dict)


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "option": ("key", "value"),
    "format": ("source",),
    "trigger": ("processingTime",),
    "foreachBatch": ("func",),
    "foreach": ("func",),
}
"""Methods that set an option, with their parameters."""


def _trigger_of_kind(kind: str, values: Values) -> Values:
    """Return the intervals of a trigger, or the name of another kind in small letters; a kind without a value is none."""
    return tuple(
        each
        if kind == "processingTime" or isinstance(each.value, Unknown)
        else Alternative(kind.lower(), each.line)
        for each in contents_of(values)
        if each.value not in (None, False)
    )


def with_lower_case_names(options: DictValue) -> DictValue:
    """Return options by their names in small letters."""
    return DictValue(
        {str(key).lower(): value for key, value in options.values.items()},
        options.more,
    )


def options_of_method(name: str, arguments: Sequence[Values], named: DictValue, line: int) -> DictValue:
    """Return the options that a method of a reader or writer sets; none for other methods."""
    if name == "options":
        return with_lower_case_names(named.updated_with(as_dictionary(arguments[0])) if arguments else named)
    if name not in _PARAMETERS:
        return DictValue()
    given = dict(zip(_PARAMETERS[name], arguments, strict=False)) | dict(named.values)
    if name == "trigger":
        kinds = [_trigger_of_kind(kind, value) for kind, value in given.items()]
        return DictValue(
            {TRIGGER: union_of_alternatives(*kinds) or unknown_value(named.more or "a trigger", line)}
        )
    value = given.get(_PARAMETERS[name][-1], ())
    if name != "option":
        return DictValue({FORMAT if name == "format" else SINK: value})
    key = given.get("key", ())
    if len(key) == 1 and not isinstance(key[0].value, Unknown):
        return DictValue({str(key[0].value).lower(): value})
    return DictValue({}, unknown_of_values(key, "an option of several names", line)[0].value.origin)


_SET = re.compile(r"\s*SET\s+(spark\.[\w.]+)\s*=\s*(.*?)[\s;]*", re.IGNORECASE)


def settings_of_method(
    name: str, arguments: Sequence[Values], named: DictValue, line: int
) -> dict[str, Values]:
    """Return the Spark settings that a method of a builder, a configuration or a session sets."""
    given = dict(zip(("key", "value"), arguments, strict=False)) | dict(named.values)
    table = DictValue()
    if name in ("setAll", "config") and len(given) == 1 and "conf" not in given:
        table = as_dictionary(next(iter(given.values())))
    elif name in ("set", "config") and {"key", "value"} <= given.keys():
        table = with_item(table, given["key"], given["value"])
    for text, _ in given.get("key", ()) if name == "sql" else ():
        if isinstance(text, str) and (found := _SET.fullmatch(text)):
            table = DictValue({found[1]: known_value(found[2], line)})
    return {
        key: tuple(each._replace(line=each.line or line) for each in as_option_values(values))
        for key, values in table.values.items()
        if str(key).startswith("spark.")
    }
