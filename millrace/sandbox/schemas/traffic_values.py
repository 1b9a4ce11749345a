"""Plausible values, from a schema's types and names or from a sample."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import string
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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

from millrace.etl.formats.decoding.times import UNITS

T = TypeVar("T")
Values = dict[str, Any]

_REPEATED_SHARE = 0.2
_RECENT = 1000
"""Records among which a value of the first id is repeated, and their share of all."""

_OTHER_IDS = 100
"""Distinct values of other ids."""

NULL_SHARE = 0.05
"""Share of nulls in a field that may be null."""

_WORDS = ("amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")
_RANGES = {
    "year": (2020, 2029),
    "month": (1, 12),
    "day": (1, 28),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
    "age": (18, 90),
    "quantity": (1, 10),
    "count": (1, 10),
}
"""Ranges of integers for known names."""

_LARGEST = {ByteType: 127, ShortType: 10_000, IntegerType: 1_000_000, LongType: 1_000_000_000}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNFIT = (TypeError, ValueError, KeyError, ArithmeticError)
"""Errors of a value that does not fit its type."""


class SampleError(ValueError):
    """A file of samples that is not valid; the message has the line."""


@dataclass(frozen=True)
class RecordGenerator:
    """Generator of records of a schema; the same seed gives the same ones, except for their times.

    Parameters
    ----------
    choose
        Source of random numbers.
    distinct
        Number of distinct values of a text field.
    """

    schema: StructType
    choose: random.Random
    distinct: int = 1000

    def record(self, number: int, now: datetime) -> Values:
        """Return a record.

        Parameters
        ----------
        number
            Its number in the stream. The first field that is named like an id counts with it, and sometimes repeats a recent
            value, as a change of the same thing does; other ids are drawn from a hundred, as those of places and people are.
            A field whose comment is ``one of: A, B`` draws from that list.
        """
        again = number and self.choose.random() < _REPEATED_SHARE
        own = number - self.choose.randint(1, min(number, _RECENT)) if again else number
        first = next((f.name for f in self.schema.fields if _is_id_field(f.name.lower())), None)
        return {
            f.name: None
            if f.nullable and self.choose.random() < NULL_SHARE
            else self._field_value(f, own if f.name == first else self.choose.randrange(_OTHER_IDS), now)
            for f in self.schema.fields
        }

    def _field_value(self, field: StructField, number: int, now: datetime) -> Any:
        if listed := field.metadata.get("comment", "").partition("one of:")[2]:
            return _value_of_type(
                field.dataType, self.choose.choice([each.strip() for each in listed.split(",")])
            )
        return self._generated_value(field.name, field.dataType, number, now)

    def _generated_value(self, name: str, kind: DataType, number: int, now: datetime) -> Any:
        choose, lowered = self.choose, name.lower()
        if isinstance(kind, StringType):
            return self._text_value(lowered, number)
        if isinstance(kind, BooleanType):
            return choose.random() < 0.5
        if isinstance(kind, ByteType | ShortType | IntegerType | LongType):
            if lowered in _RANGES:
                return choose.randint(*_RANGES[lowered])
            most = _LARGEST[type(kind)]
            return number % most if _is_id_field(lowered) else round(choose.triangular(0, most, most / 100))
        if isinstance(kind, DoubleType | FloatType):
            limits = {"lat": 90, "latitude": 90, "lon": 180, "lng": 180, "longitude": 180}.get(lowered)
            return round(choose.uniform(-limits, limits) if limits else choose.lognormvariate(3, 1), 3)
        if isinstance(kind, DecimalType):
            unscaled = choose.randrange(10 ** min(kind.precision, 9))
            return Decimal(unscaled).scaleb(-kind.scale)
        if isinstance(kind, TimestampType | TimestampNTZType):
            return now
        if isinstance(kind, DateType):
            return now.date()
        if isinstance(kind, BinaryType):
            return choose.randbytes(8)
        if isinstance(kind, ArrayType):
            count = choose.randrange(4)
            return [self._generated_value(name, kind.elementType, number, now) for _ in range(count)]
        if isinstance(kind, MapType):
            keys = choose.sample(_WORDS, choose.randrange(3))
            return {key: self._generated_value(name, kind.valueType, number, now) for key in keys}
        assert isinstance(kind, StructType), kind
        return RecordGenerator(kind, choose, self.distinct).record(number, now)

    def _text_value(self, name: str, number: int) -> str:
        choose = self.choose
        if name in ("uuid", "guid"):
            return f"{choose.getrandbits(128):032x}"
        if _is_id_field(name):
            return f"{name.removesuffix('_id').removesuffix('id') or 'r'}-{number}"
        if "email" in name or "mail" in name:
            return f"{choose.choice(_WORDS)}{choose.randrange(self.distinct)}@example.com"
        if name in ("ip", "ip_address"):
            return ".".join(str(choose.randrange(1, 255)) for _ in range(4))
        if "url" in name:
            return f"https://example.com/{choose.choice(_WORDS)}/{choose.randrange(self.distinct)}"
        if "country" in name:
            return choose.choice(("DE", "FR", "IN", "JP", "US"))
        if "currency" in name:
            return choose.choice(("EUR", "GBP", "INR", "JPY", "USD"))
        if name in ("carrier", "origin", "dest", "code"):
            return "".join(choose.choices(string.ascii_uppercase[:8], k=3))
        return f"{choose.choice(_WORDS)}-{choose.randrange(self.distinct)}"


def _is_id_field(name: str) -> bool:
    return name in ("id", "n", "seq", "sequence", "offset") or name.endswith("_id")


def read_sample_file(path: Path, schema: StructType, use: Callable[[Values], T]) -> list[T]:
    """Return what a function makes of each record of a file: JSON lines, or CSV with a header.

    Parameters
    ----------
    path
        ``.csv``, anything else is JSON lines.
    schema
        Types of the fields; one that a record lacks is null, others are left out.

    Raises
    ------
    SampleError
        A line is not a record of the schema, the function refuses it, there is no line, or the text is not UTF-8.
    """
    texts = path.suffix == ".csv"
    records = []
    try:
        for number, row in _read_csv(path) if texts else _read_json_lines(path):
            where = f"{path}: line {number}"
            values = typed_row(row, schema, where, texts=texts)
            try:
                records.append(use(values))
            except (*_UNFIT, struct.error) as error:
                raise SampleError(f"{where}: the schema cannot encode it: {error}") from error
    except UnicodeDecodeError as error:
        raise SampleError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise SampleError(f"{path}: it is not CSV: {error}") from error
    if not records:
        raise SampleError(f"{path} has no records")
    return records


def _read_csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from enumerate(csv.DictReader(file), start=2)


def _read_json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            row = json.loads(line, parse_float=Decimal)
        except ValueError as error:
            raise SampleError(f"{where}: it is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise SampleError(f"{where}: it is not a JSON object")
        yield number, row


def typed_row(row: Mapping[str, Any], schema: StructType, where: str, *, texts: bool) -> Values:
    """Return a record with the types of a schema, from JSON values, or from texts alone.

    Parameters
    ----------
    where
        Place of the record, for messages.

    Raises
    ------
    SampleError
        It is no record of the schema.
    """
    values: Values = {}
    for field in schema.fields:
        value = row.get(field.name)
        if value is None or (texts and value in ("", "NA") and field.nullable):
            if not field.nullable:
                raise SampleError(f"{where}: the required field {field.name} has no value")
            values[field.name] = None
            continue
        try:
            values[field.name] = _value_of_type(field.dataType, value, field.metadata.get("comment", ""))
        except _UNFIT as error:
            kind = field.dataType.simpleString()
            raise SampleError(
                f"{where}: the value of {field.name} is {value!r}, which is not of type {kind}"
            ) from error
    return values


def _parse_moment(value: Any, comment: str) -> datetime:
    unit = comment.lower().removeprefix("epoch ")
    if type(value) is int or (unit in UNITS and re.fullmatch("-?[0-9]+", str(value))):
        return _EPOCH + timedelta(microseconds=int(value) * 10**6 // 10 ** UNITS.get(unit, 0))
    if "-" not in str(value)[:5]:
        raise ValueError(value)
    moment = datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _whole_number(value: Any, *, bits: int) -> int:
    number = Decimal(str(value))
    if number % 1 or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(value)
    return int(number)


def _finite_number(value: Any) -> float:
    if math.isinf(number := float(value)) and isinstance(value, Decimal):
        raise ValueError(value)
    return number


_READERS: Mapping[type[DataType], Callable[[Any], Any]] = {
    ByteType: partial(_whole_number, bits=8),
    ShortType: partial(_whole_number, bits=16),
    IntegerType: partial(_whole_number, bits=32),
    LongType: partial(_whole_number, bits=64),
    **dict.fromkeys((DoubleType, FloatType), _finite_number),
    DecimalType: lambda value: Decimal(str(value)),
    BooleanType: lambda value: (
        value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()]
    ),
    DateType: date.fromisoformat,
    BinaryType: lambda value: str(value).encode(),
}
"""Readers of values without parts."""


def _value_of_type(kind: DataType, value: Any, comment: str = "") -> Any:
    if isinstance(kind, TimestampType | TimestampNTZType):
        return _parse_moment(value, comment)
    if type(kind) in _READERS:
        return _READERS[type(kind)](value)
    if isinstance(kind, ArrayType):
        return [_value_of_type(kind.elementType, each, comment) for each in value]
    if isinstance(kind, MapType):
        return {key: _value_of_type(kind.valueType, each, comment) for key, each in value.items()}
    if isinstance(kind, StructType):
        return typed_row(value, kind, "", texts=False)
    return str(value) if isinstance(value, str | Decimal) else json.dumps(value, default=float)


@dataclass(frozen=True)
class SampledRecords:
    """Source that draws from seen records: each field's values have the shares of the sample.

    Complete records are drawn, so that related fields stay together.
    """

    records: Sequence[Values]
    schema: StructType
    choose: random.Random

    def record(self, number: int, now: datetime) -> Values:
        """Draw one record; its times are moved to ``now``."""
        drawn = dict(self.choose.choice(self.records))
        times = [
            f.name for f in self.schema.fields if isinstance(f.dataType, TimestampType | TimestampNTZType)
        ]
        known = [drawn[name] for name in times if drawn[name] is not None]
        ahead = now - max(known) if known else timedelta()
        for name in times:
            if drawn[name] is not None:
                drawn[name] += ahead
        return drawn
