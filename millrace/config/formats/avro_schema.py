"""Avro schemas without Spark: the columns of a record, as Spark makes them (its guide, "Apache Avro Data Source")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from millrace.config.formats import ddl
from millrace.etl.launch.formats import AVRO_RECORDS, MOST_DIGITS, decimals_avro_ignores

_PLAIN = {"bytes": "binary", "fixed": "binary", "enum": "string", "long": "bigint"} | {
    name: name for name in ("boolean", "int", "float", "double", "string", "null")
}
_LOGICAL = {
    "long timestamp-millis": "timestamp",
    "long timestamp-micros": "timestamp",
    "long local-timestamp-millis": "timestamp_ntz",
    "long local-timestamp-micros": "timestamp_ntz",
    "int date": "date",
}
"""Spark's types by Avro's types and logical types; one on another type is ignored (Avro's specification, "Logical Types")."""

_WIDER = ({"int", "bigint"}, {"float", "double"})
_DECIMAL_BYTES = 17
"""Bytes that hold any decimal."""

_NAME = re.compile(r"[^\W\d]\w*")
_NO_COLUMNS = {
    "recursive": "a recursive type (one that contains itself)",
    "null": "a value that is always null (the type null, or a union with null as its only type)",
}
"""Types that no column can have, by the names that :func:`parse_avro_schema` gives them."""


class AvroSchemaError(ValueError):
    """A schema that Avro does not accept, or that has a type that no column can have."""


def avro_columns(text: str) -> tuple[ddl.DdlField, ...]:
    """Return the columns of a reader's schema.

    Raises
    ------
    AvroSchemaError
        As for :func:`parse_avro_schema`, or a type that no column can have.
    """
    fields = parse_avro_schema(text)
    kinds = {kind.name for each in fields for kind in each.kind.with_types_inside()}
    if wrong := [why for name, why in _NO_COLUMNS.items() if name in kinds]:
        raise AvroSchemaError(f"no column can hold {', or '.join(wrong)}")
    return fields


def parse_avro_schema(text: str) -> tuple[ddl.DdlField, ...]:
    """Return the fields of a schema, with the types of Spark's columns.

    A recursive type inside itself is named ``recursive``, and one that is always null ``null``: a writer may have both, in
    fields that its reader lacks.

    Raises
    ------
    AvroSchemaError
        The text is not the schema of a record, uses a type that it does not define, or has a decimal that no column holds.

    Examples
    --------
    >>> schema = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": ["null", "long"]}]}'
    >>> [(each.name, each.kind.name, each.nullable) for each in parse_avro_schema(schema)]
    [('n', 'bigint', True)]
    """
    try:
        schema = json.loads(text)
        if not (isinstance(schema, dict) and schema.get("type") in AVRO_RECORDS and schema.get("fields")):
            raise AvroSchemaError("not a record with fields")
        if wrong := ", ".join(decimals_avro_ignores(schema)):
            raise AvroSchemaError(
                f"a decimal has at most {MOST_DIGITS} digits, and a scale no larger than the precision: {wrong}"
            )
        return _TypeReader().read_type(schema, "").fields
    except json.JSONDecodeError as error:
        raise AvroSchemaError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise AvroSchemaError("types nested too deeply") from error


class _TypeReader:
    """Reader of the types of one schema, which knows their names from the beginning of each definition."""

    def __init__(self) -> None:
        # A type that the schema defines has a point in its name, at least before it.
        self._known = {
            name: ddl.DdlType(kind) for name, kind in _PLAIN.items() if name not in ("enum", "fixed")
        }

    def read_type(self, schema: Any, namespace: str) -> ddl.DdlType:
        if isinstance(schema, list):
            return self._read_union(schema, namespace)
        if isinstance(schema, str):
            for name in (schema, f"{namespace}.{schema}", f".{schema}"):
                if name in self._known:
                    return self._known[name]
            raise AvroSchemaError(f"type {schema} is not defined in the file")
        if not isinstance(schema, dict):
            raise AvroSchemaError(f"{schema!r} is not a type")
        kind = schema.get("type")
        if kind in (*AVRO_RECORDS, "enum", "fixed"):
            return self._read_named(schema, namespace)
        if kind == "array":
            return ddl.DdlType("array", (self.read_type(schema.get("items"), namespace),))
        if kind == "map":
            return ddl.DdlType(
                "map", (ddl.DdlType("string"), self.read_type(schema.get("values"), namespace))
            )
        return _plain_type(schema) if kind in list(_PLAIN) else self.read_type(kind, namespace)

    def _read_named(self, schema: Mapping[str, Any], namespace: str) -> ddl.DdlType:
        name, space = schema.get("name"), schema.get("namespace")
        full = str(name) if "." in str(name) else f"{namespace if space is None else space}.{name}"
        if full in self._known:
            raise AvroSchemaError(f"two types have the name {name}")
        inner = {"enum": "symbols", "fixed": "size"}.get(schema["type"], "fields")
        if not isinstance(schema.get(inner), int if inner == "size" else list):
            raise AvroSchemaError(f"type {name} has no {inner}")
        _check_names(full.rpartition(".")[2], *(schema["symbols"] if inner == "symbols" else ()))
        if inner == "fields":
            self._known[full] = ddl.DdlType("recursive")
            fields = tuple(self._read_field(each, full.rpartition(".")[0]) for each in schema["fields"])
            self._known[full] = ddl.DdlType("struct", fields=fields)
        else:
            self._known[full] = _plain_type(schema)
        return self._known[full]

    def _read_field(self, field: Any, namespace: str) -> ddl.DdlField:
        _check_names(field.get("name") if isinstance(field, dict) else None)
        kind = field.get("type")
        return ddl.DdlField(
            field["name"], self.read_type(kind, namespace), isinstance(kind, list) and "null" in kind
        )

    def _read_union(self, members: list[Any], namespace: str) -> ddl.DdlType:
        kinds = [self.read_type(each, namespace) for each in members if each != "null"]
        if len(kinds) < 2:
            return kinds[0] if kinds else ddl.DdlType("null")
        names = {each.name for each in kinds}
        if names in _WIDER:
            return ddl.DdlType("bigint" if "bigint" in names else "double")
        return ddl.DdlType(
            "struct", fields=tuple(ddl.DdlField(f"member{n}", each) for n, each in enumerate(kinds))
        )


def _check_names(*names: Any) -> None:
    if wrong := [each for each in names if not (isinstance(each, str) and _NAME.fullmatch(each))]:
        raise AvroSchemaError(f"{wrong[0]!r} is not a name: those have letters, digits and _ only")


def _plain_type(schema: Mapping[str, Any]) -> ddl.DdlType:
    """Return the type of a schema without parts, with its logical type if that is valid."""
    meaning = f"{schema['type']} {schema.get('logicalType')}"
    if meaning in ("bytes decimal", "fixed decimal"):
        precision, size = schema["precision"], min(schema.get("size", _DECIMAL_BYTES), _DECIMAL_BYTES)
        # Avro ignores a decimal that a fixed type is too short for (its LogicalTypes.Decimal.validate).
        if precision < len(str(2 ** (8 * size - 1) - 1)):
            return ddl.DdlType("decimal", digits=(precision, schema.get("scale", 0)))
    return ddl.DdlType(_LOGICAL.get(meaning, _PLAIN[schema["type"]]))
