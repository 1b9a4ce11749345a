"""Avro values wider than their types: schemas that read all that the bytes hold, and conditions on what was read."""

from __future__ import annotations

import itertools
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DateType, DecimalType, IntegerType, StructField

from ..launch.formats import AVRO_RECORDS, MOST_DIGITS
from .decoding import decoder_output_and_checks as shared
from .decoding import times

DECIMAL_BYTES = 64
"""Most bytes of a decimal in a payload of more than :data:`LARGE` bytes; 17 hold the 38 digits of the longest one."""

_FLAG = {"type": "fixed", "name": "Flag", "namespace": "millrace", "size": 1}
_FALSE, _TRUE = bytearray([0]), bytearray([1])


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999, in days since 1970."""


def can_read_dates_as_long(part: Any) -> bool:
    """Check that no union of a schema has a date beside a long, as a union cannot have two longs."""
    if isinstance(part, list):
        return not (_has_long(part) and any(map(_is_date_schema, part))) and all(
            map(can_read_dates_as_long, part)
        )
    if isinstance(part, dict):
        return all(can_read_dates_as_long(each) for key, each in part.items() if key != "default")
    return True


def schema_of_wider_types(part: Any, *, dates_as_long: bool = True) -> Any:
    """Return a schema that reads the same bytes, and every value that they can hold.

    A decimal has as many digits as its bytes hold: for one of up to 18 digits Spark takes the last eight bytes and ignores those
    before (``AvroDeserializer.createDecimal``), so a longer one would become another number without an error. An ``int`` is a
    ``long``, of which Avro would ignore the bits above 32, and a ``boolean`` is one byte, of which it takes 2 for false.

    Parameters
    ----------
    dates_as_long
        True to read a ``date`` as a ``long``, too.
    """
    flags = itertools.count()

    def widened(part: Any) -> Any:
        if isinstance(part, list):
            # A union with an int and a long cannot have two longs.
            return [
                each if (_is_int_schema(each) or _is_date_schema(each)) and _has_long(part) else widened(each)
                for each in part
            ]
        if isinstance(part, str):
            part = {"type": part}
        kind = part.get("type")
        if kind == "boolean":
            return _FLAG if next(flags) == 0 else f"{_FLAG['namespace']}.{_FLAG['name']}"
        if _is_int_schema(part) or (dates_as_long and _is_date_schema(part)):
            return "long"
        if part.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            size = part.get("size", DECIMAL_BYTES)
            digits = min(len(str(2 ** (8 * size - 1) - 1)) - 1, MOST_DIGITS)
            return {**part, "precision": max(part["precision"], digits)}
        if kind in AVRO_RECORDS:
            return {**part, "fields": [widened_field(each) for each in part["fields"]]}
        inner = {"array": "items", "map": "values"}.get(kind) if isinstance(kind, str) else "type"
        return {**part, inner: widened(part[inner])} if inner else part if len(part) > 1 else kind

    def widened_field(each: dict[str, Any]) -> dict[str, Any]:
        found = {**each, "type": widened(each["type"])}
        return (
            found | {"default": _default_in_wider_type(each["type"], each["default"])}
            if "default" in each
            else found
        )

    return widened(part)


def _has_long(union: list[Any]) -> bool:
    return any((each["type"] if isinstance(each, dict) else each) == "long" for each in union)


def _is_int_schema(part: Any) -> bool:
    plain = part.get("type") == "int" if isinstance(part, dict) else part == "int"
    return plain and not _is_date_schema(part)


def _is_date_schema(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type"), part.get("logicalType")) == ("int", "date")


def _default_in_wider_type(kind: Any, value: Any) -> Any:
    """Return a default for a schema of :func:`schema_of_wider_types`."""
    if isinstance(value, bool):
        return chr(value)
    first = kind[0] if isinstance(kind, list) else kind
    if isinstance(value, list):
        return [_default_in_wider_type(first.get("items"), each) for each in value]
    if isinstance(value, dict):
        return {name: _default_in_wider_type(first, each) for name, each in value.items()}
    return value


def value_in_column_type(field: StructField, value: Column, *, dates_as_long: bool) -> Column:
    """Return a column in its own type, of what :func:`schema_of_wider_types` reads; only this column, as Spark repeats a cast of all for each."""

    def leaf_in_column_type(kind: DataType, read: Column, _: Column) -> Column:
        # Null where it does not fit, as :func:`time_in_years_condition` says.
        return boolean_from_byte(read) if _is_boolean(kind) else F.date_from_unix_date(read.cast("int"))

    made = shared.with_replaced_leaves(
        field.dataType,
        value,
        None,
        lambda kind: _is_boolean(kind) or (dates_as_long and isinstance(kind, DateType)),
        leaf_in_column_type,
    )
    if not shared.contains_type(field.dataType, lambda kind: isinstance(kind, DecimalType | IntegerType)):
        return made
    # By the type's name: then every part may be null, and a cast to fewer digits may return null.
    return made.cast(field.dataType.simpleString())


def boolean_from_byte(value: Column) -> Column:
    """Return the boolean in a byte that :func:`schema_of_wider_types` reads."""
    return value == F.lit(_TRUE)


def _is_boolean(kind: DataType) -> bool:
    return isinstance(kind, BooleanType)


def boolean_byte_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a byte is a boolean, as Avro writes it."""
    return value.isin(F.lit(_FALSE), F.lit(_TRUE)) if _is_boolean(kind) else None


def digits_fit_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a decimal has no more digits than its type."""
    return value.cast(kind).isNotNull() if isinstance(kind, DecimalType) else None


def int_fits_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a number has no more than 32 bits."""
    return value.between(-(2**31), 2**31 - 1) if isinstance(kind, IntegerType) else None


def date_number_in_years_condition(kind: DataType, value: Column) -> Column | None:
    """Return :func:`time_in_years_condition`, of a date that was read as a number."""
    return (
        value.between(_FIRST_DAY, _LAST_DAY)
        if isinstance(kind, DateType)
        else time_in_years_condition(kind, value)
    )


def time_in_years_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a time lies in the years 1 to 9999."""
    return (
        times.time_or_null_outside_years(kind, value).isNotNull()
        if times.is_time_or_date_type(kind)
        else None
    )
