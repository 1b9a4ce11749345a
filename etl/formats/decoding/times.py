"""Times and days: the texts and numbers that stand for one, and the years that a column holds.

A moment has a date: Spark takes ``12:30`` for a time of the day on which it is read. And it lies in the years 1 to 9999, in
UTC: Spark takes more, but no other system reads them, and a number of them has another unit. Its zone is an offset or a name of
the time-zone database.

A field's comment can declare the unit of its numbers: ``at TIMESTAMP COMMENT 'epoch milliseconds'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NullType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from .decoder_output_and_checks import types_within

UNITS = {"seconds": 0, "milliseconds": 3, "microseconds": 6, "nanoseconds": 9}
"""Decimal digits of each unit below a second."""

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, in epoch seconds."""

_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_UTC = r"^(?!0000)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z\z"
_ABBREVIATED = (
    r"(?<!/)(?:A[CEGRS]T|B[ES]T|C[ANST]T|E[AC]T|I[ES]T|JST|MIT|N[ES]T|P[LNRS]T|SST|VST)[\x00-\x20]*+\z"
)
"""Zones of Java alone (``ZoneId.SHORT_IDS``): it takes BST for Dhaka and AST for Anchorage, where a sender means London or Halifax.
``Australia/ACT`` is none of them."""

_INSIDE = r"^(?!0000|0001-0?1-0?1|9999-12-31)\d{4}-\d\d?-\d"
"""A text that begins with a day that is in the years 1 to 9999 in every zone."""

_BLANKS = r"[\x00-\x20]*+"
_DATED = rf"^{_BLANKS}\d{{4}}-\d\d?-\d"
_DAY = r"^(?!0000)\d{4}-\d\d-\d\d\z"
_DAY_AND_TIME = r"^(?!0000)\d{4}-\d\d-\d\d[T ]\d"
_LOCAL = r"^(?!0000)\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d?(?::\d\d?(?:\.\d{0,9})?)?)?\z"
_WHOLE = r"^-?[0-9]{1,19}\z"
_MICROS = 6


class _TimestampWithUnit(TimestampType):
    """A time whose numbers have a declared unit; used to walk through a schema, and by no expression of Spark's."""

    digits = 0

    @classmethod
    def typeName(cls) -> str:  # noqa: N802 - PySpark's name
        return "timestamp"


_DECLARED: Mapping[str, type[_TimestampWithUnit]] = {
    name: type(name.title(), (_TimestampWithUnit,), {"digits": digits}) for name, digits in UNITS.items()
}


def is_time_or_date_type(kind: DataType) -> bool:
    """Check that values of a type are written as texts that this module reads."""
    return isinstance(kind, TimestampType | TimestampNTZType | DateType)


def declares_unit(kind: DataType, unit: str | None = None) -> bool:
    """Check that a type of :func:`schema_with_units_in_types` is a time whose numbers have a declared unit, or this one."""
    return isinstance(kind, _TimestampWithUnit) and (unit is None or kind.digits == UNITS[unit])


def schema_with_units_in_types(schema: StructType) -> StructType:
    """Return a schema in which the declared unit of each time stands in its type, and maps have no keys to check.

    The comment ``epoch UNIT`` of a field applies to the times in its arrays and maps, too.
    """
    return StructType(
        [StructField(f.name, _type_with_unit(f.dataType, f.metadata), f.nullable) for f in schema]
    )


def _type_with_unit(kind: DataType, metadata: Mapping[str, Any]) -> DataType:
    if isinstance(kind, StructType):
        return schema_with_units_in_types(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_type_with_unit(kind.elementType, metadata))
    if isinstance(kind, MapType):
        return MapType(NullType(), _type_with_unit(kind.valueType, metadata))
    word, _, unit = str(metadata.get("comment", "")).lower().partition(" ")
    if isinstance(kind, TimestampType) and word == "epoch" and unit in _DECLARED:
        return _DECLARED[unit]()
    return kind


def time_from_common_form(kind: DataType, text: Column) -> Column:
    """Return a time from a text in a common form; null where that is not certain.

    Spark compiles a regular expression for each zone that it meets, which takes as long as the rest of a record. A time in
    UTC needs none: the session's zone is UTC.
    """
    if isinstance(kind, DateType):
        return F.when(text.rlike(_DAY), text.cast("date"))
    if isinstance(kind, TimestampNTZType):
        return F.when(text.rlike(_LOCAL), text.cast("timestamp_ntz"))
    binary = text.cast("binary")
    without_zone = binary.substr(F.lit(1), F.length(binary) - 1).cast("string")
    found = F.when(text.rlike(_UTC), without_zone.cast("timestamp")).when(
        text.rlike(_INSIDE) & _no_java_zone_abbreviation_condition(text), text.cast("timestamp")
    )
    return (
        found.when(text.rlike(_WHOLE), time_from_epoch_number(kind, text))
        if isinstance(kind, _TimestampWithUnit)
        else found
    )


def _no_java_zone_abbreviation_condition(text: Column) -> Column:
    """Return a condition: a text does not end with an abbreviation of Java's alone; a look at its last character mostly suffices."""
    last = F.substring(text, -1, 1)
    return ((last > " ") & (last != "T")) | ~text.rlike(_ABBREVIATED)


def time_from_text(kind: DataType, text: Column) -> Column:
    """Return a time from any text that stands for one; null for any other."""
    if isinstance(kind, DateType):
        dated = text.rlike(_DAY) | (text.rlike(_DAY_AND_TIME) & text.cast("timestamp").isNotNull())
        return F.when(dated, F.substring(text, 1, 10).cast("date"))
    if isinstance(kind, TimestampNTZType):
        return time_from_common_form(kind, text)
    found = F.when(
        text.rlike(_DATED) & _no_java_zone_abbreviation_condition(text),
        time_or_null_outside_years(kind, text.cast("timestamp")),
    )
    # Before the year: quickly read, four digits are a number, too.
    return (
        F.when(text.rlike(_WHOLE), time_from_epoch_number(kind, text)).otherwise(found)
        if isinstance(kind, _TimestampWithUnit)
        else found
    )


def time_from_epoch_number(kind: DataType, text: Column) -> Column:
    """Return the time of a whole number in the declared unit, which is seconds if there is none; null out of range.

    Nanoseconds are cut to microseconds.
    """
    if not isinstance(kind, TimestampType):
        return F.lit(None)
    number = F.when(text.rlike(_WHOLE), text.cast("decimal(19,0)"))
    digits = kind.digits if isinstance(kind, _TimestampWithUnit) else 0
    below = 10 ** abs(digits - _MICROS)
    micros = F.floor(number / below) if digits > _MICROS else number * below
    return F.when(_number_in_years_condition(number, digits), F.timestamp_micros(micros.cast("bigint")))


def time_from_milliseconds(number: Column) -> Column:
    """Return the time of a BIGINT of epoch milliseconds; null out of range."""
    return F.when(_number_in_years_condition(number, UNITS["milliseconds"]), F.timestamp_millis(number))


def unit_hint(kind: DataType, text: Column) -> Column:
    """Return what a dead letter says after the name of a field of times: the likely unit of a large number in it, or nothing.

    Parameters
    ----------
    kind
        Type of the field; times may be in its arrays and maps.
    text
        The field as a text.
    """
    large = F.regexp_extract(text, r"(?<![0-9.])-?[0-9]{12,19}(?![0-9.])", 0).cast("decimal(19,0)")
    own = next((each.digits for each in types_within(kind) if isinstance(each, _TimestampWithUnit)), 0)
    said = ((f" (looks like {name})", digits) for name, digits in UNITS.items() if digits > own)
    return F.coalesce(
        *(F.when(_number_in_years_condition(large, digits), F.lit(name)) for name, digits in said), F.lit("")
    )


def _number_in_years_condition(number: Column, digits: int) -> Column:
    bounds = FIRST_SECOND * 10**digits, (LAST_SECOND + 1) * 10**digits - 1
    return F.coalesce(
        number.between(*(F.lit(str(each)).cast("decimal(38,0)") for each in bounds)), F.lit(False)
    )


def time_or_null_outside_years(kind: DataType, value: Column) -> Column:
    """Return a time or day that lies in the years 1 to 9999; null for any other."""
    last = _LAST_DAY if isinstance(kind, DateType) else f"{_LAST_DAY} 23:59:59.999999"
    name = "timestamp" if isinstance(kind, TimestampType) else kind.simpleString()
    return F.when(value.between(F.lit(_FIRST_DAY).cast(name), F.lit(last).cast(name)), value)
