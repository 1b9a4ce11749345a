"""Each value is decoded as another parser reads it, or is a dead letter, on each Spark line, zone and locale."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField

from millrace.etl.formats import avro
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.decoding.decoder_output_and_checks import contains_type, with_replaced_leaf_types
from millrace.etl.formats.decoding.times import is_time_or_date_type
from millrace.etl.formats.json import NOT_ONE, JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from tests import payloads_with_expected_values
from tests.spark.formats.test_decode_csv_avro_protobuf import PLAIN

Case = tuple[str, bytes, Any]
"""Name of a column, a payload, and the value that it should be."""


def decoded(spark: SparkSession, decoder: Decoder, payloads: list[bytes]) -> list[Row]:
    rows = spark.createDataFrame([(n, bytearray(p)) for n, p in enumerate(payloads)], "n INT, payload BINARY")
    found = decoder.decode(rows)
    # PySpark hands times over in the zone of this machine.
    texts = {f.name: F.col(f.name).cast(as_text(f.dataType).simpleString()) for f in found.schema if timed(f)}
    return found.withColumns(texts).orderBy("n").collect()


def timed(field: StructField) -> bool:
    return contains_type(field.dataType, is_time_or_date_type)


def as_text(kind: DataType) -> DataType:
    from pyspark.sql.types import StringType

    return with_replaced_leaf_types(kind, lambda leaf: StringType() if is_time_or_date_type(leaf) else leaf)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(plain, value))
    return payloads_with_expected_values.shown(
        value.asDict(recursive=True) if isinstance(value, Row) else value
    )


@contextmanager
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """The JVM in another zone and with another language; the session's zone is UTC, as the core sets it."""
    jvm: Any = spark._jvm
    zones, locales = jvm.java.util.TimeZone, jvm.java.util.Locale
    zone, locale = zones.getDefault(), locales.getDefault()
    zones.setDefault(zones.getTimeZone("America/St_Johns"))
    locales.setDefault(locales.forLanguageTag("tr-TR"))
    try:
        yield
    finally:
        zones.setDefault(zone)
        locales.setDefault(locale)


def differences(spark: SparkSession, decoder: Decoder, cases: Mapping[str, Case]) -> dict[str, Any]:
    payloads = [payload for _, payload, _ in cases.values()]
    with elsewhere(spark):
        rows = decoded(spark, decoder, payloads)
    found = {}
    for (name, (column, payload, wanted)), row in zip(cases.items(), rows, strict=True):
        if row["_stage"] is None:
            good = plain(row[column]) == payloads_with_expected_values.shown(wanted)
        else:
            good = wanted == payloads_with_expected_values.DEAD and bytes(row["_bytes"]) == payload
        if not good:
            found[name] = (wanted, row[column], row["_stage"], row["_error"])
    return found


def json_cases() -> dict[str, Case]:
    return {
        f"{kind}: {text}": (
            payloads_with_expected_values.TYPES[kind][0],
            f'{{"{payloads_with_expected_values.TYPES[kind][0]}":{text}}}'.encode(),
            payloads_with_expected_values.judged("json", kind, text, payloads_with_expected_values.read_json),
        )
        for kind, texts in payloads_with_expected_values.JSON.items()
        for text in texts
    }


def csv_cases() -> dict[str, Case]:
    columns = [name for name, _ in payloads_with_expected_values.CSV_TYPES.values()]
    found = {}
    for kind, texts in payloads_with_expected_values.CSV.items():
        name = payloads_with_expected_values.TYPES[kind][0]
        for text in texts:
            payload = ",".join(text if each == name else "" for each in columns).encode()
            found[f"{kind}: {text}"] = (
                name,
                payload,
                payloads_with_expected_values.judged(
                    "csv", kind, text, payloads_with_expected_values.read_cell(kind)
                ),
            )
    return found


def test_json(spark: SparkSession) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, payloads_with_expected_values.DDL, "test.ddl"))
    assert differences(spark, decoder, json_cases()) == {}


def test_limits_of_json_are_those_of_every_line(spark: SparkSession) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, "a INT", "test.ddl"))
    name = b'{"a":1,"%s":2}'
    payloads = [name % (b"n" * 50_000), name % (b"n" * 50_001), name % (b"\\u00e9" * 50_001)]
    rows = decoded(spark, decoder, payloads)
    assert [(row["a"], row["_stage"]) for row in rows] == [(1, None), *[(None, "decode")] * 2]
    assert [row["_error"] for row in rows[1:]] == ["a name of more than 50,000 characters"] * 2


def test_csv(spark: SparkSession) -> None:
    decoder = CsvDecoder(
        parse_ddl_schema(spark, payloads_with_expected_values.CSV_DDL, "test.ddl"),
        payloads_with_expected_values.COMMA,
    )
    assert differences(spark, decoder, csv_cases()) == {}
    alone = CsvDecoder(
        parse_ddl_schema(spark, "text STRING", "test.ddl"), payloads_with_expected_values.COMMA
    )
    cases = {
        text: (
            "text",
            text.encode(),
            payloads_with_expected_values.judged(
                "csv alone", "STRING", text, payloads_with_expected_values.read_alone
            ),
        )
        for text in payloads_with_expected_values.ALONE
    }
    assert differences(spark, alone, cases) == {}


def test_avro(spark: SparkSession) -> None:
    decoder = avro.make_avro_decoder(
        spark, PLAIN, json.dumps(payloads_with_expected_values.AVSC), "values.avsc"
    )
    cases = {
        f"{each.field}: {each.said}": (
            each.field,
            each.payload,
            payloads_with_expected_values.judged_avro(each),
        )
        for each in payloads_with_expected_values.AVRO
    }
    assert differences(spark, decoder, cases) == {}


@pytest.mark.slow
def test_the_longest_text_of_json_is_alike_on_each_line(spark: SparkSession) -> None:
    """The payloads are made by Spark, one at a time: of the limit, and one character longer."""
    lengths = spark.createDataFrame([(20_000_000,), (20_000_001,)], "n INT").repartition(2)
    text = F.concat(F.lit('{"id": "'), F.expr("repeat('x', n)"), F.lit('"}'))
    decoder = JsonDecoder(parse_ddl_schema(spark, "id STRING", "t.ddl"))
    found = decoder.decode(lengths.withColumn("payload", text.cast("binary")))
    rows = found.select(
        "n", F.length("id").alias("held"), F.length("_bytes").alias("kept"), "_stage", "_error"
    )
    assert sorted(map(tuple, rows.collect())) == [
        (20_000_000, 20_000_000, None, None, None),
        (20_000_001, None, 20_000_011, "decode", NOT_ONE),
    ]


@pytest.mark.slow
def test_a_name_twice_in_a_map_is_a_dead_letter_at_any_depth(spark: SparkSession) -> None:
    """Not one of its values: Spark's parser keeps both, and what reads the table finds the first or the last."""
    ddl = "m MAP<STRING, STRING>, k MAP<STRING, INT>, l ARRAY<MAP<STRING, MAP<STRING, TIMESTAMP>>>"
    decoder = JsonDecoder(parse_ddl_schema(spark, ddl, "test.ddl"))
    twice = {
        b'{"m":{"a":"x","a":"y"}}': "m", b'{"m":{"a":1.0,"a":2.0}}': "m", b'{"k":{"a":1,"a":2}}': "k",
        b'{"k":{"a":1,"\\u0061":1}}': "k", b'{"l":[{"a":{"b":5,"b":6}}]}': "l", b'{"l":[{"a":{},"a":{}}]}': "l",
    }  # fmt: skip
    # Made of its texts, name by name: with a look-up for each it would take minutes.
    many = {f"n{n}": n + 0.5 for n in range(40_000)}
    once: dict[bytes, Any] = {
        b'{"m":{"a":1.0,"b":null,"c":"1.0"},"k":{}}': ({"a": "1.0", "b": None, "c": "1.0"}, {}, None),
        b'{"l":[{"a":{"b":5}},null,{"c":null}]}': (None, None, [{"a": {"b": "1970-01-01 00:00:05"}}, None, {"c": None}]),
        json.dumps({"m": many}).encode(): ({name: str(n) for name, n in many.items()}, None, None),
    }  # fmt: skip
    rows = decoded(spark, decoder, [*twice, *once])
    wanted = [("schema", f"a name twice in a map: {name}") for name in twice.values()]
    assert [(row["_stage"], row["_error"]) for row in rows] == wanted + [(None, None)] * len(once)
    assert [(row["m"], row["k"], row["l"]) for row in rows[len(twice) :]] == list(once.values())


def test_both_members_of_an_avro_union_of_int_and_long(spark: SparkSession) -> None:
    for union in (["int", "long"], ["long", "int"], ["null", "long", "int"]):
        fields = [{"name": "m", "type": union}, {"name": "s", "type": "string"}]
        text = json.dumps({"type": "record", "name": "r", "fields": fields})
        payloads, wanted = [], []
        for member, value in (("int", -7), ("long", 2**40), ("int", 2**31 - 1), ("long", 5)):
            out = io.BytesIO()
            fastavro.schemaless_writer(
                out,
                fastavro.parse_schema(json.loads(text)),
                {"m": (member, value), "s": "x"},
                disable_tuple_notation=False,
            )
            payloads.append(out.getvalue())
            wanted.append((value, "x", None))
        decoder = avro.make_avro_decoder(spark, PLAIN, text, "r.avsc")
        assert [(r.m, r.s, r._error) for r in decoded(spark, decoder, payloads)] == wanted, union
