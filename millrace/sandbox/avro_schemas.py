"""Avro without Spark: an ``.avsc`` schema as PySpark's types, and values as its bytes (Avro 1.11 specification)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_PRIMITIVES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AvroSchemaError(ValueError):
    """A schema that is wrong, or of a kind for which nothing is made here."""


class AvroSchema:
    """A record's schema.

    Parameters
    ----------
    text
        JSON.

    Raises
    ------
    AvroSchemaError
        No record, or a union of more than null and one type.
    """

    def __init__(self, text: str) -> None:
        try:
            self._json = json.loads(text)
        except ValueError as error:
            raise AvroSchemaError(f"not JSON: {error}") from error
        self._named: dict[str, Any] = {}
        kind = self._type(self._json)
        if not isinstance(kind, StructType):
            raise AvroSchemaError("the schema of a payload is a record")
        self.struct = kind

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Write a record.

        Parameters
        ----------
        values
            By field; times are :class:`datetime.datetime` with a zone.
        """
        out = bytearray()
        self._write(self._json, values, out)
        return bytes(out)

    def _type(self, kind: Any) -> DataType:
        if isinstance(kind, list):
            rest = [each for each in kind if each != "null"]
            if len(rest) != 1:
                raise AvroSchemaError(f"a union of {len(rest)} types; null and one other are made")
            return self._type(rest[0])
        if isinstance(kind, str):
            if kind in _PRIMITIVES:
                return _PRIMITIVES[kind]
            if kind not in self._named:
                raise AvroSchemaError(f"unknown type {kind}")
            return self._type(self._named[kind])
        name = kind["type"]
        if "name" in kind:
            self._named[kind["name"]] = kind
        if name == "record":
            return StructType(
                [
                    StructField(
                        f["name"], self._type(f["type"]), isinstance(f["type"], list) and "null" in f["type"]
                    )
                    for f in kind["fields"]
                ]
            )
        if name == "array":
            return ArrayType(self._type(kind["items"]))
        if name == "map":
            return MapType(StringType(), self._type(kind["values"]))
        if name == "enum":
            return StringType()
        logical = kind.get("logicalType", "")
        if logical == "decimal":
            return DecimalType(kind["precision"], kind.get("scale", 0))
        if logical in ("timestamp-millis", "timestamp-micros"):
            return TimestampType()
        if logical == "date":
            return DateType()
        return BinaryType() if name == "fixed" else self._type(name)

    def _write(self, kind: Any, value: Any, out: bytearray) -> None:
        if isinstance(kind, str) and kind in self._named:
            kind = self._named[kind]
        if isinstance(kind, list):
            branch = next((n for n, each in enumerate(kind) if (each == "null") == (value is None)), None)
            if branch is None:
                raise AvroSchemaError("a null where the schema has none")
            out += _long(branch)
            if value is not None:
                self._write(kind[branch], value, out)
            return
        name = kind if isinstance(kind, str) else kind["type"]
        if isinstance(name, dict | list):
            self._write(name, value, out)
        elif name == "record":
            for field in kind["fields"]:
                self._write(field["type"], value[field["name"]], out)
        elif name == "array":
            if value:
                out += _long(len(value))
                for each in value:
                    self._write(kind["items"], each, out)
            out.append(0)
        elif name == "map":
            if value:
                out += _long(len(value))
                for key, each in value.items():
                    self._write("string", key, out)
                    self._write(kind["values"], each, out)
            out.append(0)
        elif name == "enum":
            symbols = kind["symbols"]
            out += _long(symbols.index(value) if value in symbols else hash_of(value) % len(symbols))
        elif name == "fixed":
            size = kind["size"]
            data = _decimal(value, kind).rjust(size, b"\0") if isinstance(value, Decimal) else bytes(value)
            out += data[:size].ljust(size, b"\0")
        else:
            out += _primitive(name, kind if isinstance(kind, dict) else {}, value)


def hash_of(value: Any) -> int:
    """A number out of a text that is the same in every run."""
    return sum(str(value).encode())


def _primitive(name: str, kind: Mapping[str, Any], value: Any) -> bytes:
    if name == "null":
        return b""
    if name == "boolean":
        return b"\1" if value else b"\0"
    if name in ("int", "long"):
        if isinstance(value, datetime):
            micros = round((value - _EPOCH).total_seconds() * 1_000_000)
            value = micros if kind.get("logicalType") == "timestamp-micros" else micros // 1000
        elif isinstance(value, date):
            value = (value - _EPOCH.date()).days
        return _long(int(value))
    if name in ("float", "double"):
        return struct.pack("<f" if name == "float" else "<d", value)
    data = _decimal(value, kind) if isinstance(value, Decimal) else value
    data = data.encode() if isinstance(data, str) else bytes(data)
    return _long(len(data)) + data


def _decimal(value: Decimal, kind: Mapping[str, Any]) -> bytes:
    unscaled = int(value.scaleb(kind.get("scale", 0)))
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def _long(value: int) -> bytes:
    coded, out = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1), bytearray()
    while coded > 0x7F:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*out, coded])
