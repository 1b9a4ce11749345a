"""Values of a program's expressions, as far as its text and the job's arguments tell.

An expression has several values where branches differ; each keeps the line that it comes from.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from millrace.advisor.programs.program_stream_model import StreamingFrame

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


class PayloadCall(NamedTuple):
    """A call of Spark that decodes payloads, such as ``from_avro``.

    Attributes
    ----------
    settings
        Its options; None for an unknown one.
    column
        The column that it decodes, in SQL.
    """

    kind: str
    line: int
    settings: tuple[tuple[str, str | None], ...] = ()
    column: str = ""


@dataclass(frozen=True)
class Unknown:
    """A value that the text does not tell, with its origin in words: ``args.topic``."""

    origin: str
    reshapes: bool = False
    """Whether it is a column that makes several rows of one, or one of several."""
    unset: bool = False
    """Whether a run has None in its place, as the job's settings do not name it: ``or`` gives the program's default."""
    payloads: tuple[PayloadCall, ...] = ()
    """The calls that decode payloads and of which it is a result."""
    column: str = ""
    """The column that it is, in SQL; empty where that is not known."""


ABSENT: Values = (Alternative(Unknown("a key that a branch sets"), 0),)
"""The value of a key that a dictionary may have or not."""


@dataclass(frozen=True)
class ListValue:
    """Items of a list, a tuple or a set; bounds of a slice."""

    values: tuple[Values, ...]
    kind: type = list

    def __hash__(self) -> int:
        return len(self.values)  # items in one another are too many to follow


@dataclass(frozen=True)
class DictValue:
    """Items of a dictionary, or options by name.

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
        values = dict(self.values)
        if other.more:  # any key may be among the others
            lost = unknown_value(other.more, 0)
            values = {key: union_of_alternatives(value, lost) for key, value in values.items()}
        values |= {
            key: replace_absent(value, self.values.get(key, ABSENT)) for key, value in other.values.items()
        }
        return DictValue(values, self.more or other.more)

    def value_of_key(self, key: Any, missing: Values) -> Values:
        """Return the value of a key, with the missing one where the key may be absent."""
        missing = unknown_value(self.more, 0) if self.more else missing
        return replace_absent(self.values.get(key, ABSENT), missing)

    def with_alternatives_of(self, other: DictValue) -> DictValue:
        """Return the values of both, key by key; a key that one lacks may be without a value."""
        keys = [*self.values, *(each for each in other.values if each not in self.values)]
        return DictValue(
            {
                key: union_of_alternatives(self.values.get(key, ABSENT), other.values.get(key, ABSENT))
                for key in keys[:MOST_ITEMS]
            },
            self.more or other.more,
        )


@dataclass(frozen=True)
class LibraryName:
    """Something that the program imports or Python has: ``os.environ``."""

    path: str


@dataclass(frozen=True)
class ReaderOrWriter:
    """A reader or a writer of streams while its options are set."""

    line: int
    options: DictValue = field(default_factory=DictValue)
    frame: StreamingFrame | None = None
    """Of a writer; None for a reader."""

    def with_options(self, options: DictValue) -> ReaderOrWriter:
        """Return it with further options; those that the text does not tell leave the known ones as they are."""
        known = self.options.updated_with(replace(options, more=""))
        return replace(self, options=replace(known, more=known.more or options.more))


_AGES = itertools.count()


def next_age() -> int:
    """Return the number of a scope, an object or a point in the order in which they are made."""
    return next(_AGES)


@dataclass(eq=False)
class NameScope:
    """Names and their values, in a function, a class, an object or the module."""

    values: dict[str, Values] = field(default_factory=dict)
    above: NameScope | None = None
    of_class: bool = False
    """Whether its names are attributes, which functions inside do not see."""
    of_comprehension: bool = False
    """Whether it has only the names of a comprehension's loops."""
    shared: dict[str, NameScope] = field(default_factory=dict)
    """Names that belong to a scope above (``global``, ``nonlocal``)."""
    age: int = field(default_factory=next_age)
    """Number in the order in which scopes, objects and points are made."""
    merged: NameScope | None = None
    """The object that this one is the same as, once branches that made one each are joined."""

    def scope_of(self, name: str) -> NameScope | None:
        """Return the scope that has a name, this one or one above."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.shared:
                return scope.shared[name].scope_of(name)
            if name in scope.values and (scope is self or not scope.of_class):
                return scope
            scope = scope.above
        return None

    @property
    def root(self) -> NameScope:
        """The object that this one has become, or itself."""
        scope = self
        while scope.merged is not None:
            scope = scope.merged
        return scope


class MutableObject(NameScope):
    """A list, set, dictionary, reader or writer: something that a program changes under each of its names."""

    @classmethod
    def holding(cls, *contents: Any, line: int) -> Values:
        """Return a new object as a value."""
        return known_value(cls({CONTENTS: tuple(Alternative(each, line) for each in contents)}), line)

    @property
    def contents(self) -> Values:
        """Alternatives of its content, each of them immutable."""
        return self.root.values[CONTENTS]


CONTENTS = ""
"""The name of what an object holds."""


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class ProgramFunction:
    """A function of the program; with an object, its method."""

    node: FunctionNode
    scope: NameScope
    owner: Any = None
    defaults: tuple[tuple[str, Values], ...] = ()
    """Values of its parameters at its definition."""


@dataclass(frozen=True, eq=False)
class ProgramClass:
    """A class of the program."""

    node: ast.ClassDef
    scope: NameScope
    """Its attributes and methods."""
    above: tuple[ProgramClass, ...] = ()
    """The classes that it is made of, in the order in which Python looks for a method."""


@dataclass(frozen=True)
class ProgramInstance:
    """An object of a class of the program; ``super()`` is one of the classes above with the same attributes."""

    of: ProgramClass
    scope: NameScope
    itself: ProgramInstance | None = None


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
        value = each.value.root if isinstance(each.value, MutableObject) else each.value
        alternatives.setdefault((type(value), value), Alternative(value, each.line))
    if len(alternatives) > MOST_VALUES:
        return unknown_value(
            f"one of {len(alternatives)} values", min(each.line for each in alternatives.values())
        )
    return tuple(alternatives.values())


def replace_absent(values: Values, missing: Values) -> Values:
    """Return values with others in place of an absent one."""
    present = [each for each in values if each.value is not ABSENT[0].value]
    return values if len(present) == len(values) else union_of_alternatives(present, missing)


def contents_of(values: Values) -> Values:
    """Return what objects hold in place of the objects; other values as they are."""
    if not any(isinstance(each.value, MutableObject) for each in values):
        return values
    return union_of_alternatives(
        *(each.value.contents if isinstance(each.value, MutableObject) else (each,) for each in values)
    )


def values_inside(value: Any) -> Sequence[Values]:
    """Return the items of a list, the values of a dictionary, or the options of a reader or writer; none of other values."""
    if isinstance(value, ReaderOrWriter):
        return values_inside(value.options)
    if isinstance(value, DictValue):
        return list(value.values.values())
    return value.values if isinstance(value, ListValue) else ()


def first_unknown(values: Values) -> Alternative | None:
    """Return an alternative that is unknown, a column that reshapes before others; None if all are known."""
    unknown = [each for each in contents_of(values) if isinstance(each.value, Unknown)]
    return max(unknown, key=lambda each: each.value.reshapes, default=None)


def unknown_of_values(values: Values, origin: str, line: int) -> Values:
    """Return the unknown alternative of values as a value of its own; if all are known, one of this origin."""
    lost = first_unknown(values)
    return unknown_value(origin, line) if lost is None else (lost,)


def as_dictionary(values: Values) -> DictValue:
    """Return a dictionary of all alternatives, as far as they are known; pairs are its items."""
    return joined_alternatives([_as_table(each.value) for each in contents_of(values)])


def _as_table(value: Any) -> DictValue:
    if isinstance(value, DictValue):
        return value
    parts = [contents_of(each) for each in value.values] if isinstance(value, ListValue) else [()]
    pairs = [each[0].value for each in parts if len(each) == 1 and len(values_inside(each[0].value)) == 2]
    if len(pairs) == len(parts) and all(isinstance(each, ListValue) for each in pairs):
        table = DictValue()
        for pair in pairs:
            table = with_item(table, *pair.values)
        return table
    return DictValue({}, value.origin if isinstance(value, Unknown) else "a value that is no dictionary")


def joined_alternatives(tables: Iterable[DictValue]) -> DictValue:
    """Return a table that is one of several, with all values that its keys may have; an empty one without any."""
    joined, *others = [*tables] or [DictValue()]
    for each in others:
        joined = joined.with_alternatives_of(each)
    return joined


def loop_values(values: Values, line: int) -> list[Values] | None:
    """Return the values over which a loop runs; None if they are unknown."""
    contents = contents_of(values)
    value = contents[0].value if len(contents) == 1 else None
    if isinstance(value, ListValue) and (
        value.kind is not set or len(value.values) < 2
    ):  # sets have no order
        return list(value.values)
    if isinstance(value, DictValue) and not value.more:
        certain = not any(ABSENT[0] in each for each in value.values.values())
        return [known_value(key, line) for key in value.values] if certain else None
    if isinstance(value, str) and len(value) <= MOST_ITEMS:
        return [known_value(each, contents[0].line) for each in value]
    return None


def with_item(of: Any, key: Values, value: Values) -> Any:
    """Return a list or dictionary in which an item has another value; with a key of several values each item may have it."""
    if isinstance(of, Unknown):
        return of
    exact = len(key) == 1 and not isinstance(key[0].value, Unknown)
    if isinstance(of, DictValue):
        if exact and isinstance(key[0].value, str | int) and len(of.values) < MOST_ITEMS:
            return DictValue({**of.values, key[0].value: value}, of.more)
        origin = unknown_of_values(key, "a key of several values", 0)[0].value.origin
        table = {each: union_of_alternatives(old, value) for each, old in of.values.items()}
        return DictValue(table, of.more or origin)
    if isinstance(of, ListValue) and of.kind is list:
        if not exact:
            return ListValue(tuple(union_of_alternatives(old, value) for old in of.values))
        items = list(of.values)
        if isinstance(key[0].value, int) and -len(items) <= key[0].value < len(items):
            items[key[0].value] = value
            return ListValue(tuple(items))
    return Unknown("an item that is set")
