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
class ColumnChange:
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


def column_changes(current: StructType, target: StructType) -> list[ColumnChange]:
    """Return the changes that make a table's columns those that will be written.

    Parameters
    ----------
    target
        Columns that will be written.
    """
    return list(_field_changes(current, target, ()))


def iceberg_sql_type(kind: DataType) -> str:
    """Return a type as Iceberg stores it, in SQL: Iceberg has no integers below 32 bits and no text lengths."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_quoted_sql_name(f.name)}:{iceberg_sql_type(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{iceberg_sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{iceberg_sql_type(kind.keyType)},{iceberg_sql_type(kind.valueType)}>"
    if isinstance(kind, ByteType | ShortType):
        return "int"
    return re.sub(r"^(varchar|char)\(\d+\)$", "string", kind.simpleString())


def _quoted_sql_name(name: str) -> str:
    """Return the name of a field, quoted if SQL requires it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _sql_path((name,))


def _field_changes(current: StructType, target: StructType, path: tuple[str, ...]) -> Iterator[ColumnChange]:
    columns = {f.name: f for f in current.fields}
    for field in target.fields:
        here = (*path, field.name)
        if field.name not in columns:
            kind = iceberg_sql_type(field.dataType)
            yield ColumnChange(
                ".".join(here), f"ADD COLUMN {_sql_path(here)} {kind}", f"lacks {'.'.join(here)} {kind}"
            )
        else:
            yield from _type_changes(columns[field.name].dataType, field.dataType, here)
    for name in columns.keys() - {f.name for f in target.fields}:
        gone = ".".join((*path, name))
        yield ColumnChange(gone, None, f"has column {gone}, which the schema lacks")


def _type_changes(current: DataType, target: DataType, path: tuple[str, ...]) -> Iterator[ColumnChange]:
    if iceberg_sql_type(current) == iceberg_sql_type(target):
        return
    if isinstance(current, StructType) and isinstance(target, StructType):
        yield from _field_changes(current, target, path)
        return
    if isinstance(current, ArrayType) and isinstance(target, ArrayType):
        yield from _type_changes(current.elementType, target.elementType, (*path, "element"))
        return
    if (
        isinstance(current, MapType)
        and isinstance(target, MapType)
        and iceberg_sql_type(current.keyType) == iceberg_sql_type(target.keyType)
    ):
        yield from _type_changes(current.valueType, target.valueType, (*path, "value"))
        return
    name, old, new = ".".join(path), iceberg_sql_type(current), iceberg_sql_type(target)
    wider = (old, new) in _WIDER or (
        isinstance(current, DecimalType)
        and isinstance(target, DecimalType)
        and current.scale == target.scale
        and current.precision < target.precision
    )
    statement = f"ALTER COLUMN {_sql_path(path)} TYPE {new}" if wider else None
    yield ColumnChange(name, statement, f"has {name} as {old}, not {new}")


def _sql_path(path: tuple[str, ...]) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)
