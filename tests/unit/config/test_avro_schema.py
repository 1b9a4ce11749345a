"""Avro schemas without Spark: their columns, and what no job can start with. The library fastavro judges the same texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastavro import parse_schema

from millrace.config.formats.avro_schema import AvroSchemaError, avro_columns, parse_avro_schema
from millrace.config.formats.ddl import DdlType


def record(kind: Any, *others: Any) -> str:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate((kind, *others))]
    return json.dumps({"type": "record", "name": "R", "namespace": "a.b", "fields": fields})


def column_type(kind: DdlType) -> str:
    if kind.name == "struct":
        return f"struct<{','.join(f'{each.name}:{column_type(each.kind)}' for each in kind.fields)}>"
    digits = f"({kind.digits[0]},{kind.digits[1]})" if kind.name == "decimal" else ""
    parts = f"<{','.join(map(column_type, kind.parts))}>" if kind.parts else ""
    return f"{kind.name}{digits}{parts}"


def logical(base: str, meaning: str, **properties: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": meaning, **properties}


SIZED = {"name": "F", "size": 4}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", "bigint"),
        (["null", "string"], "string"),
        (["int", "null", "long"], "bigint"),
        (["float", "double"], "double"),
        (["string", "null", "int"], "struct<member0:string,member1:int>"),
        ({"type": "map", "values": {"type": "array", "items": "bytes"}}, "map<string,array<binary>>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", **SIZED}, "binary"),
        # Logical types, each on its own type (Avro 1.11 specification, "Logical Types").
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("int", "date"), "date"),
        (logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)"),
        (logical("bytes", "decimal", precision=10), "decimal(10,0)"),
        (logical("fixed", "decimal", precision=9, **SIZED), "decimal(9,0)"),
        # On another type, or unknown, it is ignored.
        (logical("string", "timestamp-millis"), "string"),
        (logical("int", "timestamp-millis"), "int"),
        (logical("long", "date"), "bigint"),
        (logical("string", "decimal", precision=10, scale=2), "string"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("int", "time-millis"), "int"),
        (logical("string", "uuid"), "string"),
        (logical("fixed", "duration", name="D", size=12), "binary"),
        # Four bytes hold nine digits (`LogicalTypes.Decimal.validate` of Avro for Java).
        (logical("fixed", "decimal", precision=10, **SIZED), "binary"),
    ],
)
def test_a_type_is_the_column_that_spark_makes_of_it(kind: Any, column: str) -> None:
    (field,) = avro_columns(record(kind))
    assert column_type(field.kind) == column
    assert field.nullable == (isinstance(kind, list) and "null" in kind)


def test_names_are_found_in_their_namespace_and_in_full() -> None:
    inner = {"type": "record", "name": "x.In", "fields": [{"name": "e", "type": ["null", "E"]}]}
    symbol = {"type": "enum", "name": "E", "namespace": "x", "symbols": ["A"]}
    text = record(symbol, inner, {"type": "array", "items": "x.In"}, {"type": "fixed", **SIZED}, "F", "a.b.F")
    parse_schema(json.loads(text))
    assert [column_type(each.kind) for each in avro_columns(text)] == [
        "string", "struct<e:string>", "array<struct<e:string>>", "binary", "binary", "binary",
    ]  # fmt: skip


REFUSED: dict[str, tuple[Any, str]] = {
    "a type of another file": ("shop.Player", "type shop.Player is not defined in the file"),
    "a misspelt type": ("strng", "type strng is not defined"),
    "an enum that is not in an object of its own": ("enum", "type enum is not defined"),
    "a type of another namespace": (["null", "other.R"], "type other.R is not defined"),
    "no type": (None, "None is not a type"),
    "a name twice": (
        [{"type": "fixed", **SIZED}, {"type": "enum", "name": "F", "symbols": ["A"]}],
        "two types have the name F",
    ),
    "an enum without symbols": ({"type": "enum", "name": "E"}, "type E has no symbols"),
    "a fixed type without size": ({"type": "fixed", "name": "F"}, "type F has no size"),
    "a field that is a text": ({"type": "record", "name": "In", "fields": ["n"]}, "None is not a name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_avro_refuses_is_refused(name: str) -> None:
    kind, why = REFUSED[name]
    with pytest.raises(AvroSchemaError, match=why):
        parse_avro_schema(record(kind))
    with pytest.raises(Exception):  # noqa: B017, PT011 - fastavro raises many kinds
        parse_schema(json.loads(record(kind)))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"type": "enum", "name": "user-agent", "symbols": []}, "'user-agent' is not a name"),
        ({"type": "record", "name": "In"}, "type In has no fields"),
        (logical("bytes", "decimal"), r"decimal\(0,0\)"),
        (logical("bytes", "decimal", precision="10"), r"decimal\(10,0\)"),
    ],
)
def test_what_only_the_parser_of_jobs_refuses_is_refused(kind: Any, why: str) -> None:
    """Avro for Java; fastavro is less strict. The job refuses decimals (``decimals_avro_ignores``)."""
    with pytest.raises(AvroSchemaError, match=why):
        parse_avro_schema(record(kind))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("null", "always null"),
        (["null"], "always null"),
        ({"type": "array", "items": "null"}, "always null"),
        (["null", "R"], "a recursive type"),
        ({"type": "map", "values": {"type": "array", "items": "a.b.R"}}, "a recursive type"),
    ],
)
def test_what_no_column_holds_is_refused_of_a_reader_only(kind: Any, why: str) -> None:
    with pytest.raises(AvroSchemaError, match=f"no column can hold .*{why}"):
        avro_columns(record(kind))
    assert len(parse_avro_schema(record(kind))) == 1


@pytest.mark.parametrize("text", ["{", "3", '"int"', "[]", '{"type": "record", "name": "R", "fields": []}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(AvroSchemaError, match=r"^not (JSON|a record with fields)"):
        parse_avro_schema(text)


def test_types_nested_without_end_are_refused() -> None:
    deep = '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000
    with pytest.raises(AvroSchemaError, match="nested too deeply"):
        parse_avro_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {deep}}}]}}')
