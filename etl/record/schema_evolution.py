"""How a table's columns may change while its stream continues: only so that every row it has stays what it is.

A column or a field of a struct that is new is null in rows that were there before; a number
becomes one that holds all values of the old type. These Iceberg does in its metadata, at
once, and old files stay as they are (Iceberg specification, "Schema evolution"). All else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, ByteType, DataType, DecimalType, MapType, ShortType, StructType

_WIDER = {("int", "bigint"), ("float", "double")}


@dataclass(frozen=True)
class Change:
    """One change of a table's columns.

    Attributes
    ----------
    column
        Dotted path.
    statement
        What follows ``ALTER TABLE name``; None where it is refused.
    says
        For people.
    """

    column: str
    statement: str | None
    says: str


def changes(found: StructType, wanted: StructType) -> list[Change]:
    """What makes a table's columns those that will be written.

    Parameters
    ----------
    wanted
        Of what will be written.
    """
    return list(_fields(found, wanted, ()))


def stored(kind: DataType) -> str:
    """A type as Iceberg keeps it, in SQL: it has no integers below 32 bits and no lengths of text."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_name(f.name)}:{stored(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{stored(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{stored(kind.keyType)},{stored(kind.valueType)}>"
    if isinstance(kind, ByteType | ShortType):
        return "int"
    return re.sub(r"^(varchar|char)\(\d+\)$", "string", kind.simpleString())


def _name(name: str) -> str:
    """A name of a field, quoted where SQL asks for it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _quoted((name,))


def _fields(found: StructType, wanted: StructType, path: tuple[str, ...]) -> Iterator[Change]:
    there = {f.name: f for f in found.fields}
    for field in wanted.fields:
        here = (*path, field.name)
        if field.name not in there:
            kind = stored(field.dataType)
            yield Change(
                ".".join(here), f"ADD COLUMN {_quoted(here)} {kind}", f"lacks {'.'.join(here)} {kind}"
            )
        else:
            yield from _type(there[field.name].dataType, field.dataType, here)
    for name in there.keys() - {f.name for f in wanted.fields}:
        gone = ".".join((*path, name))
        yield Change(gone, None, f"has column {gone}, which the schema lacks")


def _type(found: DataType, wanted: DataType, path: tuple[str, ...]) -> Iterator[Change]:
    if stored(found) == stored(wanted):
        return
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        yield from _fields(found, wanted, path)
        return
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        yield from _type(found.elementType, wanted.elementType, (*path, "element"))
        return
    if (
        isinstance(found, MapType)
        and isinstance(wanted, MapType)
        and stored(found.keyType) == stored(wanted.keyType)
    ):
        yield from _type(found.valueType, wanted.valueType, (*path, "value"))
        return
    name, old, new = ".".join(path), stored(found), stored(wanted)
    wider = (old, new) in _WIDER or (
        isinstance(found, DecimalType)
        and isinstance(wanted, DecimalType)
        and found.scale == wanted.scale
        and found.precision < wanted.precision
    )
    statement = f"ALTER COLUMN {_quoted(path)} TYPE {new}" if wider else None
    yield Change(name, statement, f"has {name} as {old}, not {new}")


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)
