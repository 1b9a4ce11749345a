"""Schemas of the rows of each table in a sample of change events, of Debezium or AWS DMS, in JSON."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from millrace.sandbox.schemas.infer import (
    InferenceError,
    InferredSchema,
    UnreadableRecordError,
    infer_from_objects,
    read_json_object,
)
from millrace.sandbox.schemas.value_types import remarks_on_lost_digits

_PLAIN: Mapping[str, DataType] = {
    **dict.fromkeys(("int8", "int16", "int32"), IntegerType()),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_NAMED: Mapping[str, DataType] = {
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), DateType()),
    "io.debezium.time.ZonedTimestamp": TimestampType(),
    "io.debezium.data.VariableScaleDecimal": DecimalType(38, 9),
}
_LOSSES: Mapping[str, str] = {
    "io.debezium.data.VariableScaleDecimal": "each value has its own scale; one of more than 9 digits after the point is a dead letter with DECIMAL(38,9)",
    "io.debezium.time.NanoTimestamp": "TIMESTAMP cuts nanoseconds; a BIGINT keeps them",
}
"""What the type of a declared one does not hold."""

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
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    declared: dict[str, _DeclaredRow] = defaultdict(_DeclaredRow)
    refused: list[str] = []  # of whichever table: each reports them
    for payload in payloads:
        try:
            event = read_json_object(payload)
        except UnreadableRecordError as error:
            refused.append(str(error))
            continue
        wrapped = isinstance(event.get("schema"), dict) and "payload" in event
        table, row = (_table_and_row_of_debezium if form == "debezium" else _table_and_row_of_dms)(
            event["payload"] if wrapped else event
        )
        if row is None:
            continue
        rows[table].append(row)
        if wrapped:
            declared[table].add_schema_of_event(event["schema"])
    if not rows:
        raise InferenceError(f"no record of the sample is a change of a row in format {form}")
    return {
        table: _schema_with_declared_types(
            infer_from_objects(some, refused, required=required, narrow=narrow),
            declared[table],
            some,
            guess=form == "debezium",
        )
        for table, some in sorted(rows.items())
    }


def schema_file_name_by_table(tables: Sequence[str]) -> dict[str, str]:
    """Return the name of a schema file for each table: that of the table, with its schema if two have the same."""
    short = [each.rpartition(".")[2] for each in tables]
    return {
        each: f"{name if short.count(name) == 1 else each.replace('.', '_')}.ddl"
        for each, name in zip(tables, short, strict=True)
    }


def _table_and_row_of_debezium(event: Any) -> tuple[str, dict[str, Any] | None]:
    source = event.get("source") if isinstance(event, dict) else None
    row = (event.get("after") or event.get("before")) if isinstance(event, dict) else None
    if not isinstance(source, dict) or not isinstance(row, dict):
        return "", None
    place = (source.get("schema") or source.get("db"), source.get("table"))
    return ".".join(str(each) for each in place if each), row


def _table_and_row_of_dms(event: Any) -> tuple[str, dict[str, Any] | None]:
    metadata, row = (event.get(name) if isinstance(event, dict) else None for name in ("metadata", "data"))
    if not isinstance(metadata, dict) or not isinstance(row, dict):
        return "", None
    return f"{metadata.get('schema-name')}.{metadata.get('table-name')}", row


@dataclass
class _DeclaredRow:
    """Type of a table's rows by all schemas in its events, and remarks by column."""

    schema: StructType | None = None
    remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add_schema_of_event(self, envelope: Mapping[str, Any]) -> None:
        fields = {each.get("field"): each for each in envelope.get("fields", ())}
        row = fields.get("after", {})
        kind = _type_of_connect_field(row)
        if not isinstance(kind, StructType):
            return
        for each in row["fields"]:
            self._add_remarks(str(each.get("field")), _losses(each, str(each.get("field"))))
        self.schema = kind if self.schema is None else self._common_struct(self.schema, kind, "")

    def _add_remarks(self, column: str, remarks: Iterable[str]) -> None:
        self.remarks[column] += [each for each in remarks if each not in self.remarks[column]]

    def _common_struct(self, one: StructType, other: StructType, above: str) -> StructType:
        """Return the fields of two structs; one that a struct lacks may be null."""
        fields = {f.name: StructField(f.name, f.dataType, True, f.metadata) for f in (*one, *other)}
        for f in (f for f in one if f.name in other.names):
            later = other[f.name]
            kind = self._common_type(f.dataType, later.dataType, f"{above}{f.name}")
            if f.metadata != later.metadata:
                units = (str(each.metadata.get("comment", "no unit")) for each in (f, later))
                self._add_conflict(f"{above}{f.name}", *units)
            fields[f.name] = StructField(f.name, kind, f.nullable or later.nullable, later.metadata)
        return StructType(list(fields.values()))

    def _common_type(self, one: DataType, other: DataType, place: str) -> DataType:
        if isinstance(one, StructType) and isinstance(other, StructType):
            return self._common_struct(one, other, f"{place}.")
        if isinstance(one, ArrayType) and isinstance(other, ArrayType):
            return ArrayType(self._common_type(one.elementType, other.elementType, f"{place}[]"))
        if isinstance(one, MapType) and isinstance(other, MapType):
            return MapType(StringType(), self._common_type(one.valueType, other.valueType, f"{place}[]"))
        if isinstance(one, DecimalType) and isinstance(other, DecimalType) and one.scale == other.scale:
            return max(one, other, key=lambda each: each.precision)
        for wide, narrow in ((LongType(), IntegerType()), (DoubleType(), FloatType())):
            if {one, other} == {wide, narrow}:
                return wide
        if one != other:
            self._add_conflict(place, one.simpleString().upper(), other.simpleString().upper())
        return other

    def _add_conflict(self, place: str, earlier: str, later: str) -> None:
        column = re.split(r"[.\[]", place)[0]
        self._add_remarks(
            column, [f"{place}: {earlier} in some events, {later} in later ones: no type reads both"]
        )


def _losses(part: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield what the types of a declared field do not hold."""
    if loss := _LOSSES.get(str(part.get("name"))):
        yield f"{place}: {loss}"
    elif part.get("type") == "struct":
        for each in part.get("fields", ()):
            yield from _losses(each, f"{place}.{each.get('field')}")
    elif inner := part.get("items" if part.get("type") == "array" else "values"):
        yield from _losses(inner, f"{place}[]")


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
    inner = part
    while inner.get("type") in ("array", "map"):
        inner = inner["items" if inner["type"] == "array" else "values"]
    unit = _UNITS.get(str(inner.get("name")))
    comment = {"comment": f"epoch {unit}"} if unit else None
    return StructField(
        str(part.get("field")), _type_of_connect_field(part), bool(part.get("optional")), comment
    )


def _schema_with_declared_types(
    guessed: InferredSchema, declared: _DeclaredRow, rows: Sequence[Mapping[str, Any]], *, guess: bool
) -> InferredSchema:
    """Return the schema with the types that events declare; columns that none declares have those of their values."""
    schema = declared.schema or StructType()
    for each in guessed.fields:
        if each.name not in schema.names:
            each.conflicts += [_GUESSED] * guess
        elif each.usable:
            each.kind = schema[each.name].dataType
            values = [row.get(each.name) for row in rows]
            lost = remarks_on_lost_digits(each.name, each.kind, values)
            each.conflicts = [*declared.remarks[each.name], *lost]
    left_out = {each.name for each in guessed.fields if not each.usable}
    kept = [f for f in schema if f.name not in left_out]
    return replace(
        guessed, schema=StructType([*kept, *(f for f in guessed.schema if f.name not in schema.names)])
    )
