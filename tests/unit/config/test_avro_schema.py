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
    "a symbol twice": ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "type E has A twice"),
    "a type that is an object of its own": ({"type": {"type": "string"}}, "is not a type"),
    "a type without a name": ({"type": "fixed", "size": 4}, "None is not a name"),
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
        (
            {"type": "record", "name": "In", "fields": [{"name": "a", "type": "int"}] * 2},
            "type In has a twice",
        ),
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


IN = {"type": "record", "name": "In", "fields": [{"name": "n", "type": "int"}]}
UNIONS: list[tuple[list[Any], str | None]] = [
    (["null", ["int", "string"]], "a union directly in another union"),
    ([["null"]], "a union directly in another union"),
    (["int", "null", "int"], "a union has int twice"),
    (["null", {"type": "null"}], "a union has null twice"),
    (["string", {"type": "string"}], "a union has string twice"),
    (["int", logical("int", "date")], "a union has int twice"),
    ([{"type": "array", "items": "int"}, {"type": "array", "items": "string"}], "a union has array twice"),
    ([{"type": "map", "values": "int"}, {"type": "map", "values": "string"}], "a union has map twice"),
    ([IN, "In"], "a union has a.b.In twice"),
    (["a.b.R", "null", "R"], "a union has a.b.R twice"),
    ([IN, {**IN, "name": "Other"}, {"type": "fixed", **SIZED}, {"type": "fixed", "name": "G", "size": 4}], None),
    (["bytes", {"type": "fixed", **SIZED}, "string", {"type": "enum", "name": "E", "symbols": ["A"]}], None),
    ([IN, {**IN, "namespace": "other"}, {"type": "array", "items": "In"}], None),
]  # fmt: skip
"""Avro 1.11 specification, "Unions": several types of one kind only if they are named, and none directly in another."""


@pytest.mark.parametrize(("union", "why"), UNIONS)
@pytest.mark.parametrize("around", ["field", "array", "map", "record"])
def test_a_union_with_a_type_twice_or_in_a_union_is_refused_at_any_depth(
    union: list[Any], why: str | None, around: str
) -> None:
    kind = {
        "field": union,
        "array": {"type": "array", "items": union},
        "map": ["null", {"type": "map", "values": union}],
        "record": {"type": "record", "name": "Out", "fields": [{"name": "u", "type": union}]},
    }[around]
    if why is None:
        assert len(parse_avro_schema(record(kind))) == 1
    else:
        with pytest.raises(AvroSchemaError, match=why):
            parse_avro_schema(record(kind))


@pytest.mark.parametrize(
    ("kind", "default", "accepted"),
    [
        (["null", "string"], None, True),
        (["string", "null"], None, False),
        (["null", "string"], "x", False),
        (["null", "int"], "null", False),
        ("int", "5", False),
        ("int", True, False),
        ("long", 5.5, False),
        ("double", 0, True),
        ("boolean", 0, False),
        (logical("long", "timestamp-millis"), "2024-01-01", False),
        ({"type": "array", "items": "int"}, {}, False),
        ({"type": "array", "items": "int"}, [], True),
        (IN, {"n": 1}, True),
    ],
)
def test_a_default_is_of_the_first_type_of_its_union(kind: Any, default: Any, accepted: bool) -> None:
    """``Schema.isValidDefault`` of Avro 1.11 for Java, the parser of Spark 3.5."""
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, "default": default}]}
    )
    if accepted:
        assert len(parse_avro_schema(text)) == 1
    else:
        with pytest.raises(AvroSchemaError, match=r"default .* of field f is no "):
            parse_avro_schema(text)


@pytest.mark.parametrize("text", ["{", "3", '"int"', "[]", '{"type": "record", "name": "R", "fields": []}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(AvroSchemaError, match=r"^not (JSON|a record with fields)"):
        parse_avro_schema(text)


def test_types_nested_without_end_are_refused() -> None:
    deep = '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000
    with pytest.raises(AvroSchemaError, match="nested too deeply"):
        parse_avro_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {deep}}}]}}')
