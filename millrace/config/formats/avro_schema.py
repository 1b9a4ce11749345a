"""Avro schemas without Spark: the columns of a record, as Spark makes them (its guide, "Apache Avro Data Source")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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

_NAMED = (*AVRO_RECORDS, "enum", "fixed")
_DEFAULTS: Mapping[Any, tuple[type, ...]] = {
    **dict.fromkeys(AVRO_RECORDS, (dict,)),
    **dict.fromkeys(("string", "bytes", "enum", "fixed"), (str,)),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    "array": (list,),
    "boolean": (bool,),
    "map": (dict,),
    "null": (type(None),),
}
"""JSON values by the types that may have them as a default (Avro's specification, "Complex Types")."""

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
            return self._known[self._known_name(schema, namespace)]
        kind = schema.get("type") if isinstance(schema, dict) else None
        if not isinstance(kind, str):
            raise AvroSchemaError(f"{schema!r} is not a type")
        if kind in _NAMED:
            return self._read_named(schema, namespace)
        if kind == "array":
            return ddl.DdlType("array", (self.read_type(schema.get("items"), namespace),))
        if kind == "map":
            return ddl.DdlType(
                "map", (ddl.DdlType("string"), self.read_type(schema.get("values"), namespace))
            )
        return _plain_type(schema) if kind in _PLAIN else self.read_type(kind, namespace)

    def _known_name(self, name: str, namespace: str) -> str:
        for each in (name, f"{namespace}.{name}", f".{name}"):
            if each in self._known:
                return each
        raise AvroSchemaError(f"type {name} is not defined in the file")

    def _read_named(self, schema: Mapping[str, Any], namespace: str) -> ddl.DdlType:
        name, full = schema.get("name"), _full_name(schema, namespace)
        if full in self._known:
            raise AvroSchemaError(f"two types have the name {name}")
        inner = {"enum": "symbols", "fixed": "size"}.get(schema["type"], "fields")
        if not isinstance(schema.get(inner), int if inner == "size" else list):
            raise AvroSchemaError(f"type {name} has no {inner}")
        symbols = schema["symbols"] if inner == "symbols" else []
        _check_names(name and full.rpartition(".")[2], *symbols)
        _check_distinct(f"type {name}", symbols)
        if inner == "fields":
            self._known[full] = ddl.DdlType("recursive")
            fields = tuple(self._read_field(each, full.rpartition(".")[0]) for each in schema["fields"])
            _check_distinct(f"type {name}", [each.name for each in fields])
            self._known[full] = ddl.DdlType("struct", fields=fields)
        else:
            self._known[full] = _plain_type(schema)
        return self._known[full]

    def _read_field(self, field: Any, namespace: str) -> ddl.DdlField:
        _check_names(field.get("name") if isinstance(field, dict) else None)
        kind = field.get("type")
        column = self.read_type(kind, namespace)
        first = next(iter(kind), None) if isinstance(kind, list) else kind
        name = first["type"] if isinstance(first, dict) else first
        if "default" in field and name in _DEFAULTS and type(field["default"]) not in _DEFAULTS[name]:
            default = json.dumps(field["default"])
            raise AvroSchemaError(
                f"default {default} of field {field['name']} is no {name} (of a union, the first type counts)"
            )
        return ddl.DdlField(field["name"], column, isinstance(kind, list) and "null" in kind)

    def _read_union(self, members: list[Any], namespace: str) -> ddl.DdlType:
        kinds = [self.read_type(each, namespace) for each in members if each != "null"]
        _check_distinct("a union", [self._name_in_union(each, namespace) for each in members])
        if len(kinds) < 2:
            return kinds[0] if kinds else ddl.DdlType("null")
        names = {each.name for each in kinds}
        if names in _WIDER:
            return ddl.DdlType("bigint" if "bigint" in names else "double")
        return ddl.DdlType(
            "struct", fields=tuple(ddl.DdlField(f"member{n}", each) for n, each in enumerate(kinds))
        )

    def _name_in_union(self, member: Any, namespace: str) -> str:
        """Return what tells a member of a union from the others: its full name, or else its type."""
        if isinstance(member, list):
            raise AvroSchemaError("a union directly in another union: write all types into one")
        kind = member["type"] if isinstance(member, dict) else member
        if kind in _NAMED:
            return _full_name(member, namespace)
        return str(kind) if kind in ("array", "map") else self._known_name(kind, namespace)


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name, space = str(schema.get("name")), schema.get("namespace")
    return name if "." in name else f"{namespace if space is None else space}.{name}"


def _check_distinct(where: str, names: Sequence[str]) -> None:
    if twice := [each for each in names if names.count(each) > 1]:
        raise AvroSchemaError(f"{where} has {twice[0]} twice")


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
