"""Avro without Spark: PySpark's types from an ``.avsc`` schema, and values as Avro bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
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
    TimestampNTZType,
    TimestampType,
)

from millrace.etl.launch.formats import AVRO_RECORDS

_PRIMITIVES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}


_MOST_DIGITS = 38


class AvroSchemaError(ValueError):
    """A schema that is invalid, or for which no test values can be made."""


class AvroSchema:
    """A record's schema.

    Parameters
    ----------
    text
        The schema in JSON.
    exact
        Whether a value is refused that is no symbol of an enum, or has another size than a fixed type.

    Raises
    ------
    AvroSchemaError
        The schema is not a record, or has a type that no column can have.
    """

    def __init__(self, text: str, *, exact: bool = False) -> None:
        self._exact = exact
        self._named: dict[str, Any] = {}
        try:
            # The library also stores each name in full, so names are looked up as they are written.
            self._json = parse_schema(json.loads(text), self._named)
        except UnknownType as error:
            raise AvroSchemaError(f"the schema has the unknown type {error}") from error
        except SchemaParseException as error:
            raise AvroSchemaError(str(error)) from error
        except (ValueError, TypeError, KeyError) as error:
            raise AvroSchemaError(f"this is not an Avro schema: {error}") from error
        try:
            kind = self._spark_type(self._json)
        except RecursionError as error:
            raise AvroSchemaError("the schema has a recursive type (one that contains itself)") from error
        if not isinstance(kind, StructType):
            raise AvroSchemaError("the schema of a message must be a record")
        self.struct = kind

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return a record as Avro bytes.

        Parameters
        ----------
        values
            Values by field; times are :class:`datetime.datetime` with a zone.
        """
        out = io.BytesIO()
        schemaless_writer(out, self._json, self._value_fitting_schema(self._json, values))
        return out.getvalue()

    def _spark_type(self, kind: Any) -> DataType:
        if isinstance(kind, list):
            return self._spark_type_of_union([self._spark_type(each) for each in kind if each != "null"])
        if isinstance(kind, str):
            if kind == "null":
                raise AvroSchemaError("the schema has a field of type null")
            return _PRIMITIVES[kind] if kind in _PRIMITIVES else self._spark_type(self._named[kind])
        name = kind["type"]
        if name in AVRO_RECORDS:
            return StructType(
                [
                    StructField(
                        f["name"],
                        self._spark_type(f["type"]),
                        isinstance(f["type"], list) and "null" in f["type"],
                    )
                    for f in kind["fields"]
                ]
            )
        if name == "array":
            return ArrayType(self._spark_type(kind["items"]))
        if name == "map":
            return MapType(StringType(), self._spark_type(kind["values"]))
        if name == "enum":
            return StringType()
        logical = kind.get("logicalType", "")
        if logical == "decimal":
            if kind["precision"] > _MOST_DIGITS:
                raise AvroSchemaError(
                    f"the schema has a decimal of {kind['precision']} digits; a DECIMAL has at most {_MOST_DIGITS}"
                )
            return DecimalType(kind["precision"], kind.get("scale", 0))
        if logical in ("timestamp-millis", "timestamp-micros"):
            return TimestampType()
        if logical in ("local-timestamp-millis", "local-timestamp-micros"):
            return TimestampNTZType()
        if logical == "date":
            return DateType()
        return BinaryType() if name == "fixed" else self._spark_type(name)

    def _spark_type_of_union(self, kinds: list[DataType]) -> DataType:
        """Return the type that Spark has for a union (its guide, "Apache Avro Data Source")."""
        if len(kinds) == 1:
            return kinds[0]
        for wide in ({IntegerType(), LongType()}, {FloatType(), DoubleType()}):
            if set(kinds) == wide:
                return LongType() if LongType() in wide else DoubleType()
        if not kinds:
            raise AvroSchemaError("the schema has a union with null as its only type")
        return StructType([StructField(f"member{n}", each) for n, each in enumerate(kinds)])

    def _value_fitting_schema(self, kind: Any, value: Any) -> Any:
        """Return a value that fits the schema: PySpark's types have neither an enum's symbols nor a size."""
        if isinstance(kind, list):
            rest = [each for each in kind if each != "null"]
            members = value if len(rest) > 1 and isinstance(value, Mapping) else {}
            place = next((n for n in range(len(rest)) if members.get(f"member{n}") is not None), None)
            if place is not None:
                kind, value = rest[place], members[f"member{place}"]
            else:
                kind = next((each for each in kind if (each == "null") == (value is None)), kind[0])
        kind = self._named.get(kind, kind) if isinstance(kind, str) else kind
        if value is None or isinstance(kind, str):
            return value
        if self._exact and kind["type"] in ("enum", "fixed"):
            return value
        name = kind["type"]
        if name in AVRO_RECORDS:
            return {
                f["name"]: self._value_fitting_schema(f["type"], value[f["name"]]) for f in kind["fields"]
            }
        if name == "array":
            return [self._value_fitting_schema(kind["items"], each) for each in value]
        if name == "map":
            return {key: self._value_fitting_schema(kind["values"], each) for key, each in value.items()}
        if name == "enum":
            symbols = kind["symbols"]
            return value if value in symbols else symbols[stable_hash(value) % len(symbols)]
        if name == "fixed" and not isinstance(value, Decimal):
            return bytes(value)[: kind["size"]].ljust(kind["size"], b"\0")
        return value


def stable_hash(value: Any) -> int:
    """Return a number from a text that is the same in every run."""
    return sum(str(value).encode())
