"""Schema evolution: changes of a table's columns while its stream continues, which keep every existing row valid.

A new column or field of a struct is null in existing rows; a number
becomes a type that holds all values of the old one. Iceberg makes these changes in its metadata, at
once, and old files do not change (Iceberg specification, "Schema evolution"). All other changes are refused.
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
        Statement after ``ALTER TABLE name``; None if the change is refused.
    says
        Description, for people.
    """

    column: str
    statement: str | None
    says: str


def changes(found: StructType, wanted: StructType) -> list[Change]:
    """Return the changes that make a table's columns those that will be written.

    Parameters
    ----------
    wanted
        Columns that will be written.
    """
    return list(_fields(found, wanted, ()))


def stored_type(kind: DataType) -> str:
    """Return a type as Iceberg stores it, in SQL: Iceberg has no integers below 32 bits and no text lengths."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_name(f.name)}:{stored_type(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{stored_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{stored_type(kind.keyType)},{stored_type(kind.valueType)}>"
    if isinstance(kind, ByteType | ShortType):
        return "int"
    return re.sub(r"^(varchar|char)\(\d+\)$", "string", kind.simpleString())


def _name(name: str) -> str:
    """Return the name of a field, quoted if SQL requires it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _quoted((name,))


def _fields(found: StructType, wanted: StructType, path: tuple[str, ...]) -> Iterator[Change]:
    there = {f.name: f for f in found.fields}
    for field in wanted.fields:
        here = (*path, field.name)
        if field.name not in there:
            kind = stored_type(field.dataType)
            yield Change(
                ".".join(here), f"ADD COLUMN {_quoted(here)} {kind}", f"lacks {'.'.join(here)} {kind}"
            )
        else:
            yield from _type(there[field.name].dataType, field.dataType, here)
    for name in there.keys() - {f.name for f in wanted.fields}:
        gone = ".".join((*path, name))
        yield Change(gone, None, f"has column {gone}, which the schema lacks")


def _type(found: DataType, wanted: DataType, path: tuple[str, ...]) -> Iterator[Change]:
    if stored_type(found) == stored_type(wanted):
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
        and stored_type(found.keyType) == stored_type(wanted.keyType)
    ):
        yield from _type(found.valueType, wanted.valueType, (*path, "value"))
        return
    name, old, new = ".".join(path), stored_type(found), stored_type(wanted)
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
