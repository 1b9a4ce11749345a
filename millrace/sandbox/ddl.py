"""DDL schemas without Spark: ``carrier STRING NOT NULL, legs ARRAY<INT>`` to PySpark's types and back.

The core lets Spark's own parser read them; this reads what is needed before there is a Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TOKEN = re.compile(
    r"\s*(?:--[^\n]*|/\*.*?\*/|(?P<token>`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:]))",
    re.S,
)
_NAMES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


class DdlError(ValueError):
    """Text that is no DDL schema."""


def parse(text: str) -> StructType:
    """Read a schema.

    Parameters
    ----------
    text
        Fields as in ``CREATE TABLE``, with ``NOT NULL`` and ``COMMENT``.

    Raises
    ------
    DdlError
        Anything else; says where.

    Examples
    --------
    >>> parse("a INT NOT NULL, b ARRAY<STRING>").simpleString()
    'struct<a:int,b:array<string>>'
    """
    reader = _Reader(text)
    fields = reader.fields(end=None)
    if not fields:
        raise DdlError("a schema without fields")
    return StructType(fields)


def write(schema: StructType) -> str:
    """Write a schema, a field a line.

    Parameters
    ----------
    schema
        Whose fields may be nested.
    """
    lines = (
        f"{_name(f.name)} {kind_text(f.dataType)}{'' if f.nullable else ' NOT NULL'}" for f in schema.fields
    )
    return ",\n".join(lines) + "\n"


def kind_text(kind: DataType) -> str:
    """Write a type, such as ``ARRAY<STRUCT<a: INT NOT NULL>>``."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{kind_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{kind_text(kind.keyType)}, {kind_text(kind.valueType)}>"
    if isinstance(kind, StructType):
        inner = (
            f"{_name(f.name)}: {kind_text(f.dataType)}{'' if f.nullable else ' NOT NULL'}"
            for f in kind.fields
        )
        return f"STRUCT<{', '.join(inner)}>"
    return kind.simpleString().upper()


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise DdlError(f"at {text[at:].strip()[:20]!r}")
            at = match.end()
            if match["token"]:
                self._tokens.append(match["token"])
        self._next = 0

    def fields(self, end: str | None) -> list[StructField]:
        fields: list[StructField] = []
        while self._peek() != end:
            fields.append(self._field())
            if self._peek() == ",":
                self._take()
            elif self._peek() != end:
                raise DdlError(f"at {self._peek()!r}: a comma is expected")
        return fields

    def _field(self) -> StructField:
        token = self._take()
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        if not token.startswith("`") and not token.replace("_", "a").isalnum():
            raise DdlError(f"at {token!r}: a name is expected")
        if self._peek() == ":":
            self._take()
        kind = self._kind()
        nullable = True
        if (self._peek() or "").lower() == "not":
            self._take()
            self._expect("null")
            nullable = False
        if (self._peek() or "").lower() == "comment":
            self._take()
            self._take()
        return StructField(name, kind, nullable)

    def _kind(self) -> DataType:
        name = self._take().lower()
        if name in ("array", "map", "struct"):
            self._expect("<")
            kind: DataType
            if name == "struct":
                kind = StructType(self.fields(end=">"))
            elif name == "array":
                kind = ArrayType(self._kind())
            else:
                key = self._kind()
                self._expect(",")
                kind = MapType(key, self._kind())
            self._expect(">")
            return kind
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name in ("varchar", "char"):
            self._expect("(")
            self._take()
            self._expect(")")
            return StringType()
        if name not in _NAMES:
            raise DdlError(f"unknown type {name}")
        return _NAMES[name]

    def _decimal(self) -> DecimalType:
        if self._peek() != "(":
            return DecimalType()
        self._take()
        precision, scale = self._take(), "0"
        if self._peek() == ",":
            self._take()
            scale = self._take()
        self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal() and int(precision) <= 38):
            raise DdlError(f"decimal({precision},{scale})")
        return DecimalType(int(precision), int(scale))

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self) -> str:
        token = self._peek()
        if token is None:
            raise DdlError("it ends too early")
        self._next += 1
        return token

    def _expect(self, wanted: str) -> None:
        found = self._take()
        if found.lower() != wanted:
            raise DdlError(f"at {found!r}: {wanted} is expected")
