"""Avro without Spark: PySpark's types of an ``.avsc`` schema, and values as Avro bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException

from millrace.config.formats.avro_schema import AvroSchemaError, avro_columns
from millrace.etl.launch.formats import AVRO_RECORDS
from millrace.sandbox.schemas.ddl_and_pyspark_types import spark_struct


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
        self.struct = spark_struct(avro_columns(text))
        self._named: dict[str, Any] = {}
        try:
            # The library also stores each name in full, so names are looked up as they are written.
            self._json = parse_schema(json.loads(text), self._named)
        except (SchemaParseException, ValueError, TypeError, KeyError) as error:
            raise AvroSchemaError(f"the library fastavro refuses it: {error}") from error

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
