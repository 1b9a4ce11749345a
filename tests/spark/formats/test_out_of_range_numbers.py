"""A number beyond its type's range becomes a dead letter, not Infinity; the text Infinity is decoded as before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.formats import CsvFormat
from tests.spark.formats.test_decode_json import decode

DOUBLES = """
ratio DOUBLE, small FLOAT, at TIMESTAMP, item STRUCT<x: DOUBLE, name: STRING>, list ARRAY<DOUBLE>, by MAP<STRING, FLOAT>,
items ARRAY<STRUCT<x: DOUBLE>>, grid ARRAY<ARRAY<DOUBLE>>, deep MAP<STRING, ARRAY<STRUCT<m: MAP<STRING, DOUBLE>>>>, price DECIMAL(9,2)
"""
INFINITE: dict[bytes, str] = {
    b'{"ratio":1e400}': "ratio",
    b'{"ratio":-1e400}': "ratio",
    b'{"ratio":1e2000000}': "ratio",
    b'{"ratio":1E+400,"at":"2026-01-01T00:00:00Z"}': "ratio",
    b'{"ratio":' + b"9" * 400 + b"}": "ratio",
    b'{"small":1e39}': "small",
    b'{"small":-3.5e38,"ratio":1e309}': "ratio, small",
    b'{"item":{"x":1e400}}': "item",
    b'{"list":[1.5,null,-1e400]}': "list",
    b'{"by":{"a":1,"b":1e39}}': "by",
    b'{"items":[{"x":1},null,{"x":1e999}]}': "items",
    b'{"grid":[[1],null,[2,1e400]]}': "grid",
    b'{"deep":{"a":[{"m":{"b":1e400}}]}}': "deep",
    b'{"ratio":1e400}  ': "ratio",
    b'{"list":[1e400]} ': "list",
    b'{"list":[1e400],"at":"2026-01-01T00:00:00+02:00"}': "list",
}
NOT_INFINITE: dict[bytes, Mapping[str, Any]] = {
    b'{"ratio":1.7976931348623157e308}': {"ratio": 1.7976931348623157e308},
    b'{"ratio":-1.7976931348623157e308,"small":3.4e38}': {"ratio": -1.7976931348623157e308},
    b'{"ratio":1e-400,"small":1e-60}': {"ratio": 0.0, "small": 0.0},
    b'{"list":[1e308,null,-1e308],"by":{}}': {"list": [1e308, None, -1e308]},
    b'{"ratio":null,"list":null,"item":null,"items":[null,{"x":null}]}': {"ratio": None, "list": None},
    b'{"other":1e400,"item":{"name":"1e400","y":1e400}}': {"ratio": None},
}
NO_NUMBERS = [b'{"ratio":"Infinity"}', b'{"ratio":"NaN"}', b'{"ratio":"1e400"}', b'{"list":["Infinity"]}']


@pytest.mark.slow
def test_what_would_be_infinity_is_a_dead_letter(spark: SparkSession) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, DOUBLES, "test.ddl"))
    rows = decode(spark, decoder, list(INFINITE))
    for (payload, names), row in zip(INFINITE.items(), rows, strict=True):
        assert (row["_stage"], row["_error"]) == ("schema", f"a number out of range: {names}"), payload
        assert bytes(row["_bytes"]) == payload
        assert all(row[f.name] is None for f in decoder.schema)
    rows = decode(spark, decoder, list(NOT_INFINITE))
    for (payload, values), row in zip(NOT_INFINITE.items(), rows, strict=True):
        assert row["_error"] is None, (payload, row)
        assert {name: row[name] for name in values} == values
    for payload, row in zip(NO_NUMBERS, decode(spark, decoder, NO_NUMBERS), strict=True):
        assert (row["_stage"], row["_error"][:10]) == ("schema", "wrong type"), payload
    # Spark's parser takes none of these words without quotes.
    [row] = decode(spark, decoder, [b'{"ratio":Infinity}'])
    assert (row["_stage"], row["_error"]) == ("decode", "not exactly one JSON object")


def test_a_field_that_is_missing_or_wrong_is_told_as_before_beside_one_that_is_infinite(
    spark: SparkSession,
) -> None:
    ddl = "ratio DOUBLE NOT NULL, list ARRAY<DOUBLE>, n INT NOT NULL"
    decoder = JsonDecoder(parse_ddl_schema(spark, ddl, "test.ddl"))
    payloads = [b'{"ratio":1e400}', b'{"list":[1e400],"n":1}', b'{"ratio":1,"n":"x","list":[1e400]}']
    assert [row["_error"] for row in decode(spark, decoder, payloads)] == [
        "a number out of range: ratio",
        "a number out of range: list",
        "wrong type: n",
    ]


INFINITE_CSV = [b"1,x,1e400,1", b"1,x,-1e2000000,", b"1,Inf," + b"9" * 400 + b",", b'1,x,"1e400",1\n']


def test_csv(spark: SparkSession) -> None:
    options = CsvFormat(",", '"', "")
    schema = parse_ddl_schema(spark, "price DECIMAL(9,2), id STRING, ratio DOUBLE, m INT", "test.ddl")
    decoder = CsvDecoder(schema, options)
    for row in decode(spark, decoder, INFINITE_CSV):
        assert (row["_stage"], row["_error"]) == ("schema", "a number out of range: ratio")
    alone = CsvDecoder(
        parse_ddl_schema(spark, "ratio FLOAT NOT NULL, n INT NOT NULL", "test.ddl"),
        options,
    )
    errors = [
        row["_error"] for row in decode(spark, alone, [b"1e39,1", b"1e38,1", b"Inf,1", b"Inf,", b"x,1"])
    ]
    missing = "no value for a required field: n"
    assert errors == ["a number out of range: ratio", None, None, missing, "wrong type: ratio"]
