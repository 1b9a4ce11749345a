"""Model of a program's streams: sources, queries, DataFrames between them, and options by the methods that set them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.advisor.programs.possible_values import (
    Alternative,
    DictValue,
    FunctionNode,
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
        Numbers of sources, each with the first call that decodes its payloads.
    """

    sources: frozenset[int] = frozenset()
    doubtful: bool = False
    shaped: bool = False
    lines: frozenset[int] = frozenset()
    handed_on: frozenset[tuple[int, str]] = frozenset()
    payloads: frozenset[tuple[int, PayloadCall]] = frozenset()

    def after_call(self, line: int, payload: PayloadCall | None = None, *, shaped: bool) -> StreamingFrame:
        """Return the frame that a call makes of it, whose columns may decode its payloads."""
        decoded = {source for source, _ in self.payloads}
        new = frozenset((each, payload) for each in self.sources - decoded if payload is not None)
        return replace(
            self, shaped=self.shaped or shaped, lines=self.lines | {line}, payloads=self.payloads | new
        )


def joined_frame(frames: Sequence[StreamingFrame]) -> StreamingFrame:
    """Return the frame that is made of several."""
    sources, lines, handed_on, payloads = (
        frozenset[Any]().union(*(getattr(each, name) for each in frames))
        for name in ("sources", "lines", "handed_on", "payloads")
    )
    doubtful, shaped = (any(getattr(each, name) for each in frames) for name in ("doubtful", "shaped"))
    return StreamingFrame(sources, doubtful, shaped, lines, handed_on, payloads)


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
    """The first call that decodes the payloads of a source."""


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
