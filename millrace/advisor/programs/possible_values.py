"""Values of a program's expressions, as far as its text and the job's arguments tell.

An expression has several values where branches differ; each keeps the line that it comes from.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

MOST_VALUES = 16
"""Values of one expression that are kept; with more it is unknown."""

LONGEST_TEXT = 4096
"""Characters of a text in a program, such as an option."""

MOST_ITEMS = 1000
"""Items of a list or keys of a dictionary that are kept."""


class Alternative(NamedTuple):
    """One value of an expression, and the line that it comes from."""

    value: Any
    line: int


Values = tuple[Alternative, ...]
"""All values that an expression may have."""


@dataclass(frozen=True)
class Unknown:
    """A value that the text does not tell, with its origin in words: ``args.topic``."""

    origin: str


@dataclass(frozen=True)
class ListValue:
    """A list or a tuple."""

    values: tuple[Values, ...]


@dataclass(frozen=True)
class DictValue:
    """A dictionary, or options by name.

    Attributes
    ----------
    more
        Where further keys come from that the text does not tell; empty if all keys are known.
    """

    values: Mapping[Any, Values] = field(default_factory=dict)
    more: str = ""

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def updated_with(self, other: DictValue) -> DictValue:
        """Return the table with the other's values in place of its own."""
        return DictValue({**self.values, **other.values}, self.more or other.more)

    def with_alternatives_of(self, other: DictValue) -> DictValue:
        """Return the values of both, key by key; a key that one lacks may be without a value."""
        absent: Values = (Alternative(None, 0),)
        keys = [*self.values, *(each for each in other.values if each not in self.values)]
        return DictValue(
            {
                key: union_of_alternatives(self.values.get(key, absent), other.values.get(key, absent))
                for key in keys[:MOST_ITEMS]
            },
            self.more or other.more,
        )


@dataclass(frozen=True)
class LibraryName:
    """Something that the program imports or Python has: ``os.environ``."""

    path: str


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
    """

    sources: frozenset[int] = frozenset()
    doubtful: bool = False
    shaped: bool = False


def joined_frame(frames: Sequence[StreamingFrame]) -> StreamingFrame:
    """Return the frame that is made of several."""
    return StreamingFrame(
        frozenset[int]().union(*(each.sources for each in frames)),
        any(each.doubtful for each in frames),
        any(each.shaped for each in frames),
    )


def alternative_frame(frames: Sequence[StreamingFrame]) -> StreamingFrame:
    """Return the frame that is one of several."""
    alternatives = joined_frame(frames)
    return replace(alternatives, doubtful=alternatives.doubtful or len({each.sources for each in frames}) > 1)


@dataclass(frozen=True)
class ReaderOrWriter:
    """A reader or a writer of streams while its options are set."""

    line: int
    options: DictValue = field(default_factory=DictValue)
    frame: StreamingFrame | None = None
    """Of a writer; None for a reader."""


@dataclass(eq=False)
class NameScope:
    """Names and their values, in a function, a class, an object or the module."""

    values: dict[str, Values] = field(default_factory=dict)
    above: NameScope | None = None
    shared: set[str] = field(default_factory=set)
    """Names that belong to the module (``global``)."""

    def scope_of(self, name: str) -> NameScope | None:
        """Return the scope that has a name, this one or one above."""
        scope: NameScope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.above
        return scope


@dataclass(frozen=True)
class ProgramFunction:
    """A function of the program; with an object, its method."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: NameScope
    owner: Any = None


@dataclass(frozen=True)
class ProgramClass:
    """A class of the program."""

    node: ast.ClassDef
    scope: NameScope
    """Its attributes and methods."""
    bases: tuple[ProgramClass, ...] = ()


@dataclass(frozen=True)
class ProgramInstance:
    """An object of a class of the program; ``super()`` is one of the classes above with the same attributes."""

    of: ProgramClass
    scope: NameScope
    itself: ProgramInstance | None = None


class NoPythonValueError(Exception):
    """A value that Python has no counterpart for here."""


def known_value(value: Any, line: int) -> Values:
    """Return a single value."""
    return (Alternative(value, line),)


def unknown_value(origin: str, line: int) -> Values:
    """Return a value that the text does not tell."""
    return (Alternative(Unknown(origin), line),)


def union_of_alternatives(*several: Iterable[Alternative]) -> Values:
    """Return the alternatives of several values, each once."""
    alternatives: dict[Any, Alternative] = {}
    for each in itertools.chain(*several):
        alternatives.setdefault((type(each.value), each.value), each)
    if len(alternatives) > MOST_VALUES:
        return unknown_value(
            f"one of {len(alternatives)} values", min(each.line for each in alternatives.values())
        )
    return tuple(alternatives.values())


def first_unknown(values: Values) -> Alternative | None:
    """Return an alternative that is unknown; None if all are known."""
    return next((each for each in values if isinstance(each.value, Unknown)), None)


def to_python_value(value: Any) -> Any:
    """Return a value as Python's own.

    Raises
    ------
    NoPythonValueError
        It is not a text, a number, or a list or a dictionary of such, or a part of it has several values.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, ListValue):
        return [to_python_value(single_or_raise(each)) for each in value.values]
    if isinstance(value, DictValue) and not value.more:
        return {key: to_python_value(single_or_raise(each)) for key, each in value.values.items()}
    raise NoPythonValueError


def single_or_raise(values: Values) -> Any:
    """Return the one value.

    Raises
    ------
    NoPythonValueError
        There are several, or none.
    """
    if len(values) != 1:
        raise NoPythonValueError
    return values[0].value


def to_program_value(value: Any, line: int) -> Any:
    """Return one of Python's values as a value of the program; an unknown one if it is too large or of another kind."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= LONGEST_TEXT else Unknown("a number that is too long")
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else Unknown("a text that is too long")
    if isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        return ListValue(tuple(known_value(to_program_value(each, line), line) for each in value))
    if isinstance(value, Mapping) and len(value) <= MOST_ITEMS:
        return DictValue(
            {key: known_value(to_program_value(each, line), line) for key, each in value.items()}
        )
    return Unknown("a value of another kind")


def as_option_values(values: Values) -> Values:
    """Return the values that an option can have: texts and numbers; others are unknown, as a name of another module is."""
    return tuple(
        each
        if each.value is None or isinstance(each.value, bool | int | float | str | Unknown)
        else Alternative(
            Unknown(each.value.path if isinstance(each.value, LibraryName) else "a value of another kind"),
            each.line,
        )
        for each in values
    )


def compute_for_each_choice(
    function: Callable[..., Any], operands: Iterable[Values], line: int, origin: str
) -> Values:
    """Apply a function of Python to each choice of alternatives; its errors and unknown operands give unknown values."""
    alternatives: list[Alternative] = []
    for choice in itertools.islice(itertools.product(*operands), MOST_VALUES + 1):
        lost = first_unknown(choice)
        if lost is not None:
            alternatives.append(lost)
            continue
        at = max((each.line for each in choice), default=line) or line
        try:
            result = function(*(to_python_value(each.value) for each in choice))
        except Exception:  # the value is not plain, or the program's Python raises it too
            alternatives.append(Alternative(Unknown(origin), line))
        else:
            alternatives.append(Alternative(to_program_value(result, at), at))
    return union_of_alternatives(alternatives)


def condition_value(values: Values) -> bool | None:
    """Return whether a condition holds; None if that is unknown."""
    try:
        truths = {bool(to_python_value(each.value)) for each in values}
    except NoPythonValueError:
        return None
    return truths.pop() if len(truths) == 1 else None


def unknown_of_values(values: Values, origin: str, line: int) -> Values:
    """Return the unknown alternative of values as a value of its own; if all are known, one of this origin."""
    lost = first_unknown(values)
    return unknown_value(origin, line) if lost is None else (lost,)


def as_dictionary(values: Values) -> DictValue:
    """Return a dictionary of all alternatives, as far as they are known."""
    tables = []
    for each in values:
        table = each.value
        if not isinstance(table, DictValue):
            origin = table.origin if isinstance(table, Unknown) else "a value that is no dictionary"
            table = DictValue({}, origin)
        tables.append(table)
    return joined_alternatives(tables)


def joined_alternatives(tables: Iterable[DictValue]) -> DictValue:
    """Return a table that is one of several, with all values that its keys may have; an empty one without any."""
    joined, *others = [*tables] or [DictValue()]
    for each in others:
        joined = joined.with_alternatives_of(each)
    return joined


def with_item(of: Any, key: Values, value: Values) -> Any:
    """Return a list or dictionary in which an item has another value."""
    if (
        isinstance(of, ListValue)
        and len(key) == 1
        and isinstance(key[0].value, int)
        and -len(of.values) <= key[0].value < len(of.values)
    ):
        values = list(of.values)
        values[key[0].value] = value
        return ListValue(tuple(values))
    if not isinstance(of, DictValue):
        return of
    if len(key) == 1 and isinstance(key[0].value, str | int):
        return DictValue({**of.values, key[0].value: value}, of.more) if len(of.values) < MOST_ITEMS else of
    return DictValue(of.values, unknown_of_values(key, "a key of several values", 0)[0].value.origin)
