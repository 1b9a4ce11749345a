"""Spark type of a value or of several, the narrowest that takes them all, and remarks on values that are times or money."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millrace.etl.launch.formats import names_that_clash

MONEY = DecimalType(18, 2)
"""Type of numbers that are all written with two digits after the point: a binary fraction would not hold them exactly."""

_OTHER_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(Z|[+-]\d\d:?\d\d)?|\d{8}T\d{4}(\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?"
)
"""ISO 8601 without seconds or without hyphens, which no decoder reads as a time."""

_EPOCHS = {
    "seconds": ("timestamp_seconds", 1),
    "milliseconds": ("timestamp_millis", 10**3),
    "microseconds": ("timestamp_micros", 10**6),
}
"""Units of a time as a number since 1970, each with Spark's function and how many are a second."""

_ID = re.compile(r"(^|[_.])(id|ID|Id)$|[a-z](Id|ID)$")
"""Names of numbers that identify something, which no time does."""

_FIRST_EPOCH, _LAST_EPOCH = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2100))
_WIDEST_SAMPLE = int(timedelta(days=20 * 365).total_seconds())
"""Seconds between the first and the last time of one sample; numbers that are further apart are ids."""


_NANOSECONDS = re.compile(r"\.\d{6}\d*[1-9]")

_LONGEST_SHOWN = 24


def remarks_on_field(name: str, kind: DataType, values: Iterable[Any]) -> Iterator[str]:
    """Yield what a reader should know of a field and of those inside it: numbers and texts that are times, and money."""
    for place, leaf, known in _leaves(name, kind, values):
        if leaf == MONEY:
            yield f"{place}: two digits in every sample; a third would be rounded away, so write DOUBLE if one can come"
        elif isinstance(leaf, IntegerType | LongType | DoubleType) and not _ID.search(place):
            yield from _epoch_remarks(place, leaf, [float(each) for each in known])
        elif (
            isinstance(leaf, StringType)
            and known
            and all(isinstance(e, str) and _OTHER_TIME.fullmatch(e) for e in known)
        ):
            yield f"{place}: a time in a form of ISO 8601 that is no TIMESTAMP here; to_timestamp({place}, FORMAT) in a transform reads it"


def remarks_on_lost_digits(name: str, kind: DataType, values: Iterable[Any]) -> Iterator[str]:
    """Yield which values a field, or one inside it, does not hold with all their digits."""
    for place, leaf, known in _leaves(name, kind, values):
        texts = [str(each) for each in known if not isinstance(each, bool)]
        if isinstance(leaf, DoubleType) and (lost := next(filter(_is_rounded_by_double, texts), None)):
            yield f"{place}: DOUBLE rounds {shortened(lost)}; STRING keeps its digits"
        if isinstance(leaf, TimestampType) and any(map(_NANOSECONDS.search, texts)):
            yield f"{place}: TIMESTAMP cuts nanoseconds; STRING keeps them"


def _is_rounded_by_double(text: str) -> bool:
    # 17 digits or fewer say which DOUBLE is meant: 0.1 loses nothing.
    return bool(_NUMBER.fullmatch(text)) and number_of_text(repr(float(text))) != number_of_text(text)


def shortened(text: str) -> str:
    """Return a value as it is shown."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _leaves(name: str, kind: DataType, values: Iterable[Any]) -> Iterator[tuple[str, DataType, list[Any]]]:
    """Yield place, type and values of each part of a field that has no parts itself."""
    known = [each for each in values if each is not None]
    if isinstance(kind, StructType):
        objects = [each for each in known if isinstance(each, dict)]
        for f in kind.fields:
            yield from _leaves(f"{name}.{f.name}", f.dataType, [each.get(f.name) for each in objects])
    elif isinstance(kind, ArrayType):
        lists = (each for each in known if isinstance(each, list))
        yield from _leaves(f"{name}[]", kind.elementType, [one for each in lists for one in each])
    else:
        yield name, kind, known


def _epoch_remarks(name: str, kind: DataType, numbers: list[float]) -> Iterator[str]:
    least, most = min(numbers, default=0.0), max(numbers, default=0.0)
    for unit, (function, second) in _EPOCHS.items():
        if (
            _FIRST_EPOCH * second <= least
            and most < _LAST_EPOCH * second
            and most - least < _WIDEST_SAMPLE * second
        ):
            shown = datetime.fromtimestamp(least // second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if isinstance(kind, DoubleType):  # only timestamp_seconds takes a fraction
                call = f"timestamp_seconds({name}{f' / {second}' * (second > 1)})"
            else:
                call = f"{function}({name})"
            yield f"{name}: epoch {unit}, such as {shown}; {call} in a transform makes a TIMESTAMP of it"


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LARGEST_OFFSET = timedelta(hours=18)
"""Largest offset of a zone in Java (its documentation of ``ZoneOffset``)."""

_WHOLE = re.compile(r"(?a)-?(0|[1-9]\d{0,37})")
_NUMBER = re.compile(r"(?a)-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_NUMBERS: tuple[DataType, ...] = (IntegerType(), LongType(), DecimalType(38, 0), DoubleType())
"""Each takes the values of those before it, the last one with rounding."""


def type_of_json_value(value: Any) -> DataType:
    """Return the narrowest type of a JSON value; a text in the form of a time has that type.

    Examples
    --------
    >>> type_of_json_value([1, 2.5]).simpleString()
    'array<double>'
    """
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int) and abs(value) < 10**38:
        return next(
            (k for k, bits in ((_NUMBERS[0], 31), (_NUMBERS[1], 63)) if -(1 << bits) <= value < 1 << bits),
            DecimalType(38, 0),
        )
    if isinstance(value, Decimal) and value.as_tuple().exponent == -2 and abs(value) < 10**16:
        return MONEY
    if isinstance(value, int | float | Decimal):
        # A decoder refuses a number that becomes infinite; a text holds any.
        return DoubleType() if isfinite(float(Decimal(value))) else StringType()
    if isinstance(value, str):
        return _time_or_string_type_of_text(value)
    if isinstance(value, list):
        kind: DataType = NullType()
        for each in value:
            kind, _ = common_type_and_remark(kind, type_of_json_value(each))
        return ArrayType(kind)
    return StructType([StructField(name, type_of_json_value(each)) for name, each in value.items()])


def _time_or_string_type_of_text(text: str) -> DataType:
    with suppress(ValueError, OverflowError):  # no such day; outside the years 1 to 9999 in UTC
        if _DAY.fullmatch(text):
            date.fromisoformat(text)
            return DateType()
        if _MOMENT.fullmatch(text):
            moment = datetime.fromisoformat(text)
            moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
            if abs(moment.utcoffset() or timedelta()) <= _LARGEST_OFFSET:
                return TimestampType()
    return StringType()


def number_of_text(text: str) -> Decimal | float:
    """Return a number in a text: exact, unless its exponent is beyond those of a decimal (``1e9999999999999999999``)."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def type_of_csv_cell(text: str) -> DataType:
    """Return the narrowest type of a CSV column; digits after a leading zero are a code, not a number."""
    if text.lower() in ("true", "false"):
        return BooleanType()
    if _WHOLE.fullmatch(text):
        return type_of_json_value(int(text))
    return (
        type_of_json_value(number_of_text(text))
        if _NUMBER.fullmatch(text)
        else _time_or_string_type_of_text(text)
    )


def common_type_and_remark(one: DataType, other: DataType) -> tuple[DataType, str | None]:
    """Return the type that takes the values of two types, and what is odd about it."""
    if one == other or isinstance(other, NullType):
        return one, None
    if isinstance(one, NullType):
        return other, None
    if one in _NUMBERS and other in _NUMBERS:
        return _NUMBERS[max(_NUMBERS.index(one), _NUMBERS.index(other))], None
    if MONEY in (one, other) and {one, other} <= {MONEY, *_NUMBERS}:
        return DoubleType(), None
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        kind, odd = common_type_and_remark(one.elementType, other.elementType)
        return ArrayType(kind), odd
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _common_struct_and_remark(one, other)
    times = (TimestampType, DateType)
    if isinstance(one, times) and isinstance(other, times):
        return TimestampType(), None
    if isinstance(one, (*times, StringType)) and isinstance(other, (*times, StringType)):
        return StringType(), None
    return StringType(), " and ".join(sorted((one.simpleString(), other.simpleString())))


def _common_struct_and_remark(one: StructType, other: StructType) -> tuple[DataType, str | None]:
    kinds = {f.name: f.dataType for f in one.fields}
    odd = None
    for f in other.fields:
        kinds[f.name], result = common_type_and_remark(kinds.get(f.name, NullType()), f.dataType)
        odd = odd or (f"{f.name}: {result}" if result else None)
    return StructType([StructField(name, kind) for name, kind in kinds.items()]), odd


def clashing_names(kind: DataType) -> Iterator[str]:
    """Yield the names in a type that Spark takes for one another, and empty ones: no struct can have them."""
    if isinstance(kind, ArrayType | MapType):
        yield from clashing_names(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)
    elif isinstance(kind, StructType):
        yield from names_that_clash(kind.names)
        yield from ("''" for name in kind.names if not name)
        for field in kind.fields:
            yield from clashing_names(field.dataType)


def type_for_schema_file(kind: DataType, *, narrow: bool) -> DataType:
    """Return a type without unknown parts and with whole numbers as BIGINT, unless ``narrow``: a value that was always null is a text, and so is an object that is no struct."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, IntegerType) and not narrow:
        return LongType()
    if isinstance(kind, ArrayType):
        return ArrayType(type_for_schema_file(kind.elementType, narrow=narrow))
    if isinstance(kind, StructType):
        # A struct without fields is not a valid column type; its JSON text is.
        return (
            StructType(
                [StructField(f.name, type_for_schema_file(f.dataType, narrow=narrow)) for f in kind.fields]
            )
            if kind.fields
            and not any(clashing_names(StructType([StructField(f.name, NullType()) for f in kind.fields])))
            else StringType()
        )
    return kind
