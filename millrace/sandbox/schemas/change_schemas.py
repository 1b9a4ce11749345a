"""Schemas of the rows of each table in a sample of change events, of Debezium or AWS DMS, in JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

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

from millrace.sandbox.schemas.infer import InferenceError, InferredSchema, infer_from_json

_PLAIN: Mapping[str, DataType] = {
    **dict.fromkeys(("int8", "int16", "int32"), IntegerType()),
    "int64": LongType(),
    "float32": FloatType(),
    "float64": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_NAMED: Mapping[str, DataType] = {
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), DateType()),
    "io.debezium.time.ZonedTimestamp": TimestampType(),
    "io.debezium.data.VariableScaleDecimal": DecimalType(38, 9),
}
_UNITS: Mapping[str, str] = {
    "io.debezium.time.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
}
"""Units of times that are numbers (Debezium's guide, "Data type mappings" of each connector)."""

_GUESSED = "no schema in the events: a day, a time or a decimal looks like a number or a text; compare it with the table"


def infer_from_changes(
    payloads: Iterable[bytes],
    form: Literal["debezium", "dms"],
    *,
    required: bool = False,
    narrow: bool = False,
) -> dict[str, InferredSchema]:
    """Return the schema of each table's rows, by its name as ``changes_of`` has it.

    The schema in an event of Debezium (Connect's wrapper) says the types; without one they are those of the values.

    Parameters
    ----------
    required, narrow
        As for :func:`~millrace.sandbox.schemas.infer.infer_from_json`; a schema in the events says which columns are NOT NULL.

    Raises
    ------
    InferenceError
        No payload is a change of a row.
    """
    rows: dict[str, list[bytes]] = defaultdict(list)
    schemas: dict[str, StructType] = {}
    for payload in payloads:
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        wrapped = isinstance(event, dict) and isinstance(event.get("schema"), dict) and "payload" in event
        table, row = (_table_and_row_of_debezium if form == "debezium" else _table_and_row_of_dms)(
            event["payload"] if wrapped else event
        )
        if row is None:
            continue
        rows[table].append(json.dumps(row).encode())
        if wrapped and (kind := _declared_row_type(event["schema"])) is not None:
            schemas[table] = kind
    if not rows:
        raise InferenceError(f"no record of the sample is a change of a row in format {form}")
    result = {}
    for table, some in sorted(rows.items()):
        guessed = infer_from_json(some, required=required, narrow=narrow)
        result[table] = _schema_with_declared_types(guessed, schemas.get(table), guess=form == "debezium")
    return result


def schema_file_name_by_table(tables: Sequence[str]) -> dict[str, str]:
    """Return the name of a schema file for each table: that of the table, with its schema if two have the same."""
    short = [each.rpartition(".")[2] for each in tables]
    return {
        each: f"{name if short.count(name) == 1 else each.replace('.', '_')}.ddl"
        for each, name in zip(tables, short, strict=True)
    }


def _table_and_row_of_debezium(event: Any) -> tuple[str, Mapping[str, Any] | None]:
    source = event.get("source") if isinstance(event, dict) else None
    row = (event.get("after") or event.get("before")) if isinstance(event, dict) else None
    if not isinstance(source, dict) or not isinstance(row, dict):
        return "", None
    place = (source.get("schema") or source.get("db"), source.get("table"))
    return ".".join(str(each) for each in place if each), row


def _table_and_row_of_dms(event: Any) -> tuple[str, Mapping[str, Any] | None]:
    metadata, row = (event.get(name) if isinstance(event, dict) else None for name in ("metadata", "data"))
    if not isinstance(metadata, dict) or not isinstance(row, dict):
        return "", None
    return f"{metadata.get('schema-name')}.{metadata.get('table-name')}", row


def _declared_row_type(envelope: Mapping[str, Any]) -> StructType | None:
    """Return the type of the row after a change, from the schema of an event."""
    fields = {each.get("field"): each for each in envelope.get("fields", ())}
    kind = _type_of_connect_field(fields["after"]) if "after" in fields else None
    return kind if isinstance(kind, StructType) else None


def _type_of_connect_field(part: Mapping[str, Any]) -> DataType:
    name, kind = str(part.get("name")), part.get("type")
    if name == "org.apache.kafka.connect.data.Decimal":
        more = part.get("parameters") or {}
        scale = int(more.get("scale", 0))
        return DecimalType(min(int(more.get("connect.decimal.precision", 38)), 38), scale)
    if name in _UNITS:
        return TimestampType()
    if name in _NAMED:
        return _NAMED[name]
    if kind == "array":
        return ArrayType(_type_of_connect_field(part["items"]))
    if kind == "map":
        return MapType(StringType(), _type_of_connect_field(part["values"]))
    if kind == "struct":
        return StructType([_field_of_connect_schema(each) for each in part.get("fields", ())])
    return _PLAIN.get(str(kind), StringType())


def _field_of_connect_schema(part: Mapping[str, Any]) -> StructField:
    inner = part["items"] if part.get("type") == "array" else part
    unit = _UNITS.get(str(inner.get("name")))
    comment = {"comment": f"epoch {unit}"} if unit else None
    return StructField(
        str(part.get("field")), _type_of_connect_field(part), bool(part.get("optional")), comment
    )


def _schema_with_declared_types(
    guessed: InferredSchema, schema: StructType | None, *, guess: bool
) -> InferredSchema:
    if schema is None:
        for each in guessed.fields if guess else ():
            each.conflicts.append(_GUESSED)
        return guessed
    for each in guessed.fields:
        if each.name in schema.names:
            each.kind, each.conflicts = schema[each.name].dataType, []
    kept = [f for f in schema if all(each.usable for each in guessed.fields if each.name == f.name)]
    return replace(guessed, schema=StructType(kept))
