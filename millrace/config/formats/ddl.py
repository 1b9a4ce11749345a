"""DDL schemas without Spark: ``carrier STRING NOT NULL, legs ARRAY<INT>`` as a tree of types.

The core uses Spark's own parser; this one works before there is a Spark session. A schema that Spark refuses at the
start of a job is refused here, and a schema that is accepted here is accepted by Spark (``tests/spark/formats/test_ddl.py``
compares the two).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.etl.launch.formats import names_that_clash

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:--[^\n]*|/\*.*?\*/|(?P<token>`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:]))",
    re.S,
)
PLAIN_NAME = re.compile(r"(?ai)(?!\d+([lsy]|(e\d+)?(d|f|bd)?)\Z)\w+")
"""A name that needs no backticks: other letters than A to Z do (Spark 4's INVALID_IDENTIFIER), and so does what Spark reads as a number."""

_BLANKS = " \t\r\n"
"""Spark 3.5 knows no others between tokens."""

_NAMES: Mapping[str, str] = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""Spark's own names of types, by the names in a schema; names are compared in lower case."""

UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
"""Units of numbers in a ``TIMESTAMP`` field, which a comment declares: ``at TIMESTAMP COMMENT 'epoch milliseconds'``."""

_WITH_PARTS = ("array", "map", "struct", "decimal", "varchar", "char")
_MOST_DIGITS = 38


class DdlError(ValueError):
    """Text that is no DDL schema; says the line, what is written there and what is allowed."""


@dataclass(frozen=True)
class DdlType:
    """A type.

    Attributes
    ----------
    name
        Spark's: ``int``, ``timestamp``, ``decimal``, ``array``, ``map``, ``struct``, ...
    parts
        Elements of an array; keys and values of a map.
    fields
        Fields of a struct.
    digits
        Precision and scale of a decimal.
    """

    name: str
    parts: tuple[DdlType, ...] = ()
    fields: tuple[DdlField, ...] = ()
    digits: tuple[int, int] = (10, 0)

    def with_types_inside(self) -> Iterator[DdlType]:
        """Yield the type, and the types of all parts and fields inside it."""
        yield self
        for each in (*self.parts, *(field.kind for field in self.fields)):
            yield from each.with_types_inside()


@dataclass(frozen=True)
class DdlField:
    """A named value of a record or struct."""

    name: str
    kind: DdlType
    nullable: bool = True
    comment: str = ""


@lru_cache(maxsize=256)
def parse_ddl(text: str) -> tuple[DdlField, ...]:
    """Read a schema.

    Parameters
    ----------
    text
        Fields as in ``CREATE TABLE``, with ``NOT NULL`` and ``COMMENT``.

    Raises
    ------
    DdlError
        The text is anything else; names the first mistake.

    Examples
    --------
    >>> [(each.name, each.kind.name) for each in parse_ddl("a INT NOT NULL, b ARRAY<STRING>")]
    [('a', 'int'), ('b', 'array')]
    """
    if not (fields := _DdlParser(text).parse_fields(end=None)):
        raise DdlError("a schema without fields")
    return tuple(fields)


@lru_cache(maxsize=256)
def ddl_field_problems(fields: tuple[DdlField, ...]) -> tuple[str, ...]:
    """Return problems of DDL fields that payloads cannot be decoded into, as ``etl.formats.schema_files.parse_ddl_schema`` does."""
    hidden = sorted(each.name for each in fields if _has_not_null_inside_collection(each.kind))
    inside = [f"NOT NULL inside an array or map cannot be kept: {', '.join(hidden)}"] if hidden else []
    return (*column_name_problems(fields), *_time_comments_without_unit(fields), *inside)


def column_name_problems(fields: tuple[DdlField, ...]) -> Iterator[str]:
    """Yield why no table can have these columns, as ``etl.formats.decoding.decoder_output_and_checks.schema_with_checked_names``."""
    if reserved := sorted({each.name for each in fields if each.name.startswith("_")}):
        yield f"names that begin with _ are reserved: {', '.join(reserved)}"
    if ticks := sorted({each.name for each in fields if "`" in each.name}):
        yield f"names that hold a backtick: {', '.join(ticks)}"
    types = (kind for each in fields for kind in each.kind.with_types_inside())
    for struct in (fields, *(kind.fields for kind in types if kind.name == "struct")):
        yield from _struct_problems(struct)


def _time_comments_without_unit(fields: Iterable[DdlField], parents: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the comments of times that begin with ``epoch`` and name no unit, as ``etl.formats.decoding.times`` reads them."""
    for each in fields:
        kinds = [each.kind]
        while kinds:
            kind = kinds.pop()
            kinds += kind.parts
            yield from _time_comments_without_unit(kind.fields, (*parents, each.name))
            word, _, unit = each.comment.lower().partition(" ")
            if kind.name == "timestamp" and word == "epoch" and unit not in UNITS:
                yield f"{'.'.join((*parents, each.name))}: COMMENT 'epoch' is followed by one of: {', '.join(UNITS)}"


def _struct_problems(fields: tuple[DdlField, ...]) -> Iterator[str]:
    """Yield why no table can hold a struct of these fields."""
    names = [each.name for each in fields]
    if not fields:
        yield "a struct without fields"
    if twice := names_that_clash(names):
        yield f"names that clash: {', '.join(twice)}"
    if "" in names:
        yield "a name that is empty"


def _has_not_null_inside_collection(kind: DdlType, *, inside: bool = False) -> bool:
    if kind.name == "map":
        return _has_not_null_inside_collection(kind.parts[1], inside=True)
    return any(_has_not_null_inside_collection(part, inside=True) for part in kind.parts) or any(
        (inside and not each.nullable) or _has_not_null_inside_collection(each.kind, inside=inside)
        for each in kind.fields
    )


def _is_whole_number(token: str) -> bool:
    return token.isascii() and token.isdecimal()


class _DdlParser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        at = 0
        while text[at:].strip(_BLANKS):
            if (match := _TOKEN.match(text, at)) is None:
                rest = text[at:].lstrip(_BLANKS)
                line = text.count("\n", 0, len(text) - len(rest)) + 1
                raise DdlError(f"line {line}: at {rest[:20].strip(_BLANKS)!r}")
            at = match.end()
            if match["token"]:
                line = text.count("\n", 0, match.start("token")) + 1
                self._tokens.append((match["token"], line))
        self._next = 0

    def parse_fields(self, end: str | None) -> list[DdlField]:
        fields: list[DdlField] = []
        while self._peek_token() != end:
            fields.append(self._parse_field())
            if self._take_if_next(","):
                if self._peek_token() == end:
                    raise self._error("a field is expected after a comma")
            elif self._peek_token() != end:
                raise self._error("a comma is expected")
        return fields

    def _parse_field(self) -> DdlField:
        token = self._peek_token()
        if token is not None and not token.startswith("`") and not PLAIN_NAME.fullmatch(token):
            quoted = token.replace("_", "a").isalnum()
            raise self._error(f"the name must be in backticks: `{token}`" if quoted else "a name is expected")
        token = self._take_token()
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        self._take_if_next(":")
        kind = self._parse_type()
        nullable = not self._take_if_next("not")
        if not nullable:
            self._expect("null")
        comment = self._take_token()[1:-1] if self._take_if_next("comment") else ""
        return DdlField(name, kind, nullable, comment)

    def _parse_type(self) -> DdlType:
        name = (self._peek_token() or "").lower()
        if name in ("array", "map", "struct"):
            self._take_token()
            self._expect("<")
            if name == "struct":
                kind = DdlType(name, fields=tuple(self.parse_fields(end=">")))
            elif name == "array":
                kind = DdlType(name, (self._parse_type(),))
            else:
                key = self._parse_type()
                self._expect(",")
                kind = DdlType(name, (key, self._parse_type()))
            self._expect(">")
            return kind
        if name in ("decimal", "dec", "numeric"):
            self._take_token()
            return self._parse_decimal()
        if name in ("varchar", "char", "character"):
            self._take_token()
            self._expect("(")
            if not _is_whole_number(length := self._take_token()):
                raise self._error(f"{name}({length}) must have a whole number")
            self._expect(")")
            return DdlType("string")
        if name and name not in _NAMES:
            hint = did_you_mean_text(name, [*_NAMES, *_WITH_PARTS])
            text = f"unknown type {name.upper()}" + (
                f", {hint.upper().replace('DID YOU MEAN', 'did you mean')}" if hint else ""
            )
            raise self._error(text)
        return DdlType(_NAMES[self._take_token().lower()])

    def _parse_decimal(self) -> DdlType:
        if not self._take_if_next("("):
            return DdlType("decimal")
        precision, scale = self._take_token(), "0"
        if self._take_if_next(","):
            scale = self._take_token()
        if not (
            _is_whole_number(precision)
            and _is_whole_number(scale)
            and 0 <= int(scale) <= int(precision) <= _MOST_DIGITS
        ):
            raise self._error(
                f"decimal({precision},{scale}) must have at most {_MOST_DIGITS} digits, and a scale no larger than "
                "its precision"
            )
        self._expect(")")
        return DdlType("decimal", digits=(int(precision), int(scale)))

    def _peek_token(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _take_token(self) -> str:
        if (token := self._peek_token()) is None:
            raise self._error()
        self._next += 1
        return token

    def _take_if_next(self, token: str) -> bool:
        """Take the next token if it is the wanted one."""
        result = (self._peek_token() or "").lower() == token
        self._next += result
        return result

    def _expect(self, token: str) -> None:
        if not self._take_if_next(token):
            raise self._error(f"{token.upper()} is expected")

    def _error(self, problem: str = "") -> DdlError:
        """Return the error at the next token; ``problem`` may be left out where there is none."""
        if self._next < len(self._tokens):
            token, line = self._tokens[self._next]
            return DdlError(f"line {line}: at {token!r}: {problem}")
        line = self._tokens[-1][1] if self._tokens else 1
        return DdlError(f"line {line}: the schema ends too early" + (f": {problem}" if problem else ""))
