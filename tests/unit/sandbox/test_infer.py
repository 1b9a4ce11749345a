"""A schema inferred from a sample has the narrowest types, and exceptions are reported."""

from __future__ import annotations

import io
import json

import fastavro
import hypothesis
import pytest
from hypothesis import strategies as st

from millrace.config.formats import ddl as of_ddl
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.infer import (
    InferenceError,
    infer_from_csv,
    infer_from_json,
    read_avro_schema_text_and_fields,
)
from millrace.sandbox.schemas.value_types import common_type_and_remark

KINDS = {
    "whole": ([1, -5], "BIGINT"),
    "BIGINT": ([1, 1 << 31], "BIGINT"),
    "beyond 64 bits": ([1, 1 << 63], "DECIMAL(38,0)"),
    "beyond 38 digits": ([10**38], "DOUBLE"),
    "beyond 308 digits": ([10**309], "STRING"),
    "largest offset": (["2024-01-01T00:00:00+18:00"], "TIMESTAMP"),
    "beyond the largest offset": (["2024-01-01T00:00:00+18:01"], "STRING"),
    "beyond the year 9999 in UTC": (["9999-12-31T23:59:59-12:00"], "STRING"),
    "before the year 1 in UTC": (["0001-01-01T00:00:00+12:00"], "STRING"),
    "first and last moment": (["0001-01-01T00:00:00", "9999-12-31T23:59:59Z"], "TIMESTAMP"),
    "whole and fraction": ([1, 2.5], "DOUBLE"),
    "flag": ([True, None], "BOOLEAN"),
    "moment": (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00.123+02:00"], "TIMESTAMP"),
    "day and moment": (["2026-01-01", "2026-01-01T10:00:00Z"], "TIMESTAMP"),
    "day": (["2026-01-01"], "DATE"),
    "no day": (["2026-02-30"], "STRING"),
    "moment and text": (["2026-01-01T10:00:00Z", "soon"], "STRING"),
    "array": ([[1], [2.5, None], []], "ARRAY<DOUBLE>"),
    "array of nothing": ([[], [None]], "ARRAY<STRING>"),
    "object": ([{"a": 1}, {"b": "x"}], "STRUCT<a: BIGINT, b: STRING>"),
    "object of nothing": ([{}], "STRING"),
    "array of objects": ([[{"a": 1}, {"a": None, "b": True}]], "ARRAY<STRUCT<a: BIGINT, b: BOOLEAN>>"),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_narrowest_type_that_takes_all(name: str) -> None:
    values, kind = KINDS[name]
    result = infer_from_json([json.dumps({"x": v}).encode() for v in values])
    assert ddl_and_pyspark_types.type_as_ddl(result.schema["x"].dataType) == kind
    assert result.fields[0].conflicts == []


@pytest.mark.parametrize(
    "number", ["1e400", "-1e309", "1.7976931348623159e308", "9" * 1000, "1e9999999999999999999"]
)
def test_a_number_that_no_double_holds_is_a_text(number: str) -> None:
    for values in ([number], [number, "1.50"], ["1", number]):
        for result in (
            infer_from_json([f'{{"x":{each}}}'.encode() for each in values]),
            infer_from_csv([each.encode() for each in values], ["x"], delimiter=","),
        ):
            assert result.schema.simpleString() == "struct<x:string>"
    nested = infer_from_json([f'{{"x":[{number}],"y":{{"z":{number}}}}}'.encode()])
    assert nested.schema.simpleString() == "struct<x:array<string>,y:struct<z:string>>"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"x":"\\ud800"}', "half a character"),
        (b'{"\\udfff":1}', "half a character"),
        (b'{"x":NaN}', "not JSON: NaN"),
        (b'{"x":[-Infinity]}', "not JSON: -Infinity"),
        ('{"x":1}'.encode("utf-16"), "not JSON: 'utf-8' codec"),
    ],
)
def test_a_record_that_no_decoder_takes_is_not_in_the_sample(payload: bytes, reason: str) -> None:
    found = infer_from_json([payload, b'{"x":1}', b'{"x":"\\ud83d\\ude00"}'])
    assert (found.records, found.unreadable) == (2, 1)
    assert reason in (found.reason or "")


@pytest.mark.parametrize("names", ["sſ", "Σς", "k\N{KELVIN SIGN}", "Iı", "iİ", "ßẞ", "éÉ"])
def test_names_that_spark_takes_for_one_are_one_column(names: str) -> None:
    row = {names[0]: 1, names[1]: 2, "in": dict.fromkeys(names, 1)}
    result = infer_from_json([json.dumps(row).encode()])
    assert result.schema.simpleString() == f"struct<{names[0]}:bigint,in:string>"
    schema = ", ".join(f"`{name}` INT" for name in names)
    assert list(of_ddl.ddl_field_problems(of_ddl.parse_ddl(schema))) == [
        f"names that clash: {', '.join(sorted(names))}"
    ]
    header = infer_from_csv([b"1,2"], list(names), delimiter=",")
    assert header.schema.names == [names[0], "c2"]


@pytest.mark.parametrize(
    "name", ["naïve", "größe", "\N{LATIN SMALL LETTER DOTLESS I}d", "1", "1e5", "2L", "3bd", "a b"]
)
def test_a_name_that_spark_reads_only_in_backticks_is_written_in_them_and_refused_without(name: str) -> None:
    written = ddl_and_pyspark_types.schema_as_ddl(
        infer_from_json([json.dumps({name: {name: 1}}).encode()]).schema
    )
    assert written == f"`{name}` STRUCT<`{name}`: BIGINT>\n"
    assert [each.name for each in of_ddl.parse_ddl(written)] == [name]
    for bare in (f"{name} INT", f"a STRUCT<{name}: INT>"):
        with pytest.raises(of_ddl.DdlError):
            of_ddl.parse_ddl(bare)


@pytest.mark.parametrize("text", ["a\N{NO-BREAK SPACE}INT", "a INT\f", "a DECIMAL(١٠,2)", "a VARCHAR(x)"])
def test_characters_that_spark_takes_for_no_blank_or_digit_are_refused(text: str) -> None:
    with pytest.raises(of_ddl.DdlError):
        of_ddl.parse_ddl(text)


def test_an_id_that_outgrows_the_sample_is_no_dead_letter() -> None:
    small = [b'{"id":1,"in":{"n":[2]}}', b'{"id":2147483647,"in":{"n":[]}}']
    assert infer_from_json(small).schema.simpleString() == "struct<id:bigint,in:struct<n:array<bigint>>>"
    narrow = infer_from_json(small, narrow=True).schema
    assert narrow.simpleString() == "struct<id:int,in:struct<n:array<int>>>"


MOMENT = 1_790_000_000
"""2026-09-21T14:13:20Z."""

TIMES = {
    "seconds": (
        [MOMENT, MOMENT + 86_400],
        "epoch seconds, such as 2026-09-21T14:13:20Z; timestamp_seconds(x) ",
    ),
    "milliseconds": (
        [MOMENT * 1000 + 7],
        "epoch milliseconds, such as 2026-09-21T14:13:20Z; timestamp_millis(x) ",
    ),
    "microseconds": (
        [MOMENT * 10**6],
        "epoch microseconds, such as 2026-09-21T14:13:20Z; timestamp_micros(x) ",
    ),
    "seconds with a fraction": (
        [MOMENT + 0.125],
        "epoch seconds, such as 2026-09-21T14:13:20Z; timestamp_seconds(x) ",
    ),
    "milliseconds with a fraction": (
        [MOMENT * 1000 + 0.5],
        "epoch milliseconds, such as 2026-09-21T14:13:20Z",
    ),
    "ids": ([1_000_000_001, 3_900_000_000], ""),
    "counts": ([0, MOMENT], ""),
    "ISO without seconds": (["2026-01-01T10:00Z"], "a time in a form of ISO 8601"),
    "ISO without hyphens": (["20260101T100000Z", "20260101T100001.5+0200"], "a time in a form of ISO 8601"),
    "a text": (["2026-01-01T10:00Z", "soon"], ""),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_are_found_and_named(name: str) -> None:
    values, said = TIMES[name]
    for nested in (False, True):
        rows = [{"x": {"y": each} if nested else each} for each in values]
        [field] = infer_from_json([json.dumps(row).encode() for row in rows]).fields
        assert [each.partition(": ")[0] for each in field.conflicts] == ["x.y" if nested else "x"] * bool(
            said
        )
        assert said.replace("(x)", "(x.y)" if nested else "(x)") in "".join(field.conflicts)
    assert bool(
        infer_from_csv([str(v).encode() for v in values], ["x"], delimiter=",").fields[0].conflicts
    ) == bool(said)


def test_times_in_lists_are_named_and_ids_are_none() -> None:
    row = {
        "at": [MOMENT],
        "events": [{"at": MOMENT, "userId": MOMENT}],
        "id": MOMENT,
        "order_id": MOMENT,
        "paid": MOMENT,
    }
    found = infer_from_json([json.dumps(row).encode()])
    named = {f.name: [each.partition(": ")[0] for each in f.conflicts] for f in found.fields}
    assert named == {"at": ["at[]"], "events": ["events[].at"], "id": [], "order_id": [], "paid": ["paid"]}


def test_a_record_of_endless_depth_is_not_read() -> None:
    found = infer_from_json([b'{"a":' * 900 + b"1" + b"}" * 900, b'{"a":1}'])
    assert (found.records, found.unreadable, found.reason) == (1, 1, "nested deeper than 64")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("12.50", "-0.99", "1000.00"), "DECIMAL(18,2)"),
        (("12.50", "12.5"), "DOUBLE"),
        (("12.50", "12"), "DOUBLE"),
        (("12.50", "1e2"), "DOUBLE"),
        (("12345678901234567.00",), "DOUBLE"),
        (("12.50", "null"), "DECIMAL(18,2)"),
    ],
)
def test_money_is_a_decimal_where_all_samples_have_two_digits(values: tuple[str, ...], kind: str) -> None:
    """A binary fraction holds no cents, and its sums are wrong in the last digit."""
    for result in (
        infer_from_json([f'{{"x":{each}}}'.encode() for each in values]),
        infer_from_csv([each.encode() for each in values], ["x"], delimiter=",", null="null"),
    ):
        assert ddl_and_pyspark_types.type_as_ddl(result.fields[0].kind) == kind
        assert any("a third would be rounded away" in each for each in result.fields[0].conflicts) == (
            "DEC" in kind
        )
    assert infer_from_json([b'{"x":12.50}']).fields[0].examples == ["12.50"]


def test_names_that_no_column_can_have_are_told_when_the_schema_is_inferred() -> None:
    rows = [{"a": {"x": 1, "X": 2}, "b": [{"in": {"": 1}, "n": 1}], "c`": 1, "": 2}]
    result = infer_from_json([json.dumps(row).encode() for row in rows])
    assert result.schema.simpleString() == "struct<a:string,b:array<struct<in:string,n:bigint>>>"
    odd = "left out: its name is empty or holds a backtick"
    assert {f.name: f.conflicts for f in result.fields} == {
        "a": ["kept as JSON text: names in it that no column has: X, x"],
        "b": ["kept as JSON text: names in it that no column has: ''"],
        "c`": [odd],
        "": [odd],
    }
    assert (
        list(of_ddl.ddl_field_problems(of_ddl.parse_ddl(ddl_and_pyspark_types.schema_as_ddl(result.schema))))
        == []
    )


def test_what_is_odd_is_said() -> None:
    rows = [{"a": 1, "b": None, "_c": 1, "A": 2, "d": {"x": 1}}, {"a": "one", "d": {"x": "y"}}]
    result = infer_from_json([*(json.dumps(r).encode() for r in rows), b"{", b"[]", b"[" * 100_000])
    assert result.schema.simpleString() == "struct<a:string,b:string,d:struct<x:string>>"
    assert {f.name: f.conflicts for f in result.fields} == {
        "a": ["int and string"],
        "b": ["no value seen"],
        "_c": ["left out: its name begins with _"],
        "A": ["left out: its name differs from another in case only"],
        "d": ["x: int and string"],
    }
    assert [f.absent for f in result.fields] == [0, 2, 1, 1, 0]
    assert (result.records, result.unreadable) == (2, 3)
    assert "not JSON" in (result.reason or "")


def test_required_fields_are_those_that_no_record_lacks() -> None:
    payloads = [b'{"a":1,"b":1}', b'{"a":2,"b":null}']
    assert [f.nullable for f in infer_from_json(payloads).schema] == [True, True]
    assert [f.nullable for f in infer_from_json(payloads, required=True).schema] == [False, True]


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(InferenceError, match="the sample is empty"):
        infer_from_json([])
    with pytest.raises(InferenceError, match="no record of the sample can be read: not a JSON object"):
        infer_from_json([b"[]"])
    with pytest.raises(InferenceError, match="no field of the sample can be a column"):
        infer_from_json([b'{"_a":1}'])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@hypothesis.given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), json_values, min_size=1), min_size=1, max_size=5)
)
def test_any_objects_give_a_schema_that_can_be_written_and_read(rows: list[dict[str, object]]) -> None:
    payloads = [json.dumps(row).encode() for row in rows]
    result = infer_from_json(payloads)
    assert (
        ddl_and_pyspark_types.parse_ddl(ddl_and_pyspark_types.schema_as_ddl(result.schema)) == result.schema
    )
    # In another order the same types come out.
    again = infer_from_json(payloads[::-1]).schema
    assert sorted(f.name for f in again) == sorted(f.name for f in result.schema)
    for name in result.schema.fieldNames():
        one, other = result.schema[name].dataType, again[name].dataType
        assert common_type_and_remark(one, other)[0].typeName() == one.typeName() == other.typeName()


def container(schema: str) -> bytes:
    """The beginning of an Avro file with one block of metadata."""

    def block(text: str) -> bytes:
        size = len(text.encode()) << 1
        return bytes([*([size & 0x7F | 0x80, size >> 7] if size > 0x7F else [size])]) + text.encode()

    return (
        b"Obj\x01\x04"
        + block("avro.schema")
        + block(schema)
        + block("avro.codec")
        + block("null")
        + b"\0"
        + bytes(16)
    )


AVSC = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]},{"name":"b","type":"string"}]}'
)


def test_an_avro_file_carries_its_schema() -> None:
    text, result = read_avro_schema_text_and_fields(container(AVSC))
    assert json.loads(text) == json.loads(AVSC)
    assert ddl_and_pyspark_types.schema_as_ddl(result.schema) == "a BIGINT,\nb STRING NOT NULL\n"
    for data in (b"PAR1", container(AVSC)[:30]):
        with pytest.raises(InferenceError):
            read_avro_schema_text_and_fields(data)


def test_an_avro_file_may_have_unions_and_any_metadata() -> None:
    fields = [
        {"name": "a", "type": ["null", "int", "string"]},
        {"name": "b", "type": ["long", "int"]},
        {
            "name": "c",
            "type": {"type": "record", "name": "C", "fields": [{"name": n, "type": "int"} for n in "xX"]},
        },
    ]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    out = io.BytesIO()
    fastavro.writer(out, json.loads(text), [], metadata={"maker": "y"})
    written, result = read_avro_schema_text_and_fields(
        out.getvalue().replace(b"\x0amaker\x02y", b"\x0amaker\x02\xff")
    )
    assert json.loads(written)["fields"][0]["type"] == ["null", "int", "string"]
    assert result.schema.simpleString().startswith("struct<a:struct<member0:int,member1:string>,b:bigint,c:")
    assert result.fields[2].conflicts == ["no table has it: names that differ in case only: X, x"]


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        (["9007199254740993", "0.5"], "DOUBLE rounds 9007199254740993; STRING keeps its digits"),
        (["0.1234567890123456789", "1"], "DOUBLE rounds 0.1234567890123456789;"),
        (["1234567890123456789012345678901234567890123"], "DOUBLE rounds 12345678901234567890123…;"),
        (["12345678901234567.89"], "DOUBLE rounds 12345678901234567.89;"),
        (["1E-400"], "DOUBLE rounds 1E-400;"),
        (['"2024-01-01T00:00:00.123456789Z"'], "TIMESTAMP cuts nanoseconds; STRING keeps them"),
        (["0.1", "1e22", "9007199254740992", "0.30000000000000004", "1e-9999999999999999999"], ""),
        (['"2024-01-01T00:00:00.123456000Z"'], ""),
    ],
)
def test_a_type_that_loses_digits_is_named(values: list[str], remark: str) -> None:
    for place, shape in (("x", "{}"), ("x.y[]", '{{"y":[{}]}}')):
        rows = [f'{{"x":{shape.format(each)}}}'.encode() for each in values]
        [field] = infer_from_json(rows).fields
        assert [each.startswith(f"{place}: {remark}") for each in field.conflicts] == [True] * bool(remark)
    [field] = infer_from_csv([each.strip('"').encode() for each in values], ["x"], delimiter=",").fields
    assert [each.startswith(f"x: {remark}") for each in field.conflicts] == [True] * bool(remark)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"n":"x","n":2}', "n is there twice, with values of two types"),
        (b'{"n":{"a":1,"a":true}}', "a is there twice"),
        (b'{"n":0.' + b"3" * 1001 + b"}", "more than 1,000 digits"),
        (b'{"n":' + b"3" * 1001 + b"}", "more than 1,000 digits"),
    ],
)
def test_json_that_spark_refuses_is_unreadable(payload: bytes, reason: str) -> None:
    found = infer_from_json([payload, b'{"n":1,"n":2}', b'{"n":' + b"1" * 1000 + b"}"])
    assert (found.records, found.unreadable) == (2, 1)
    assert reason in (found.reason or "")
