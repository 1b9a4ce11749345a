"""A null payload deletes its key's row, in each format and with redaction and compression."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats import avro, protobuf
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.decoding.decoder_per_topic import DELETE as STAGE
from millrace.etl.formats.decoding.decoder_per_topic import TombstoneAsDeleteDecoder
from millrace.etl.formats.decoding.decompress import DecompressingDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.formats.text import TextDecoder
from tests import protobuf_sample
from tests.spark.formats.test_decode_csv_avro_protobuf import AVSC, COMMA, PLAIN, decode

DDL = "carrier STRING NOT NULL, flight INT"

FORMATS: dict[str, tuple[Callable[[SparkSession], Decoder], str]] = {
    "json": (lambda spark: JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl")), "carrier"),
    "csv": (lambda spark: CsvDecoder(parse_ddl_schema(spark, DDL, "test.ddl"), COMMA), "carrier"),
    "text": (lambda spark: TextDecoder(parse_ddl_schema(spark, "line STRING", "test.ddl")), "line"),
    "avro": (lambda spark: avro.make_avro_decoder(spark, PLAIN, json.dumps(AVSC), "flight.avsc"), "carrier"),
    "protobuf": (
        lambda _: protobuf.make_protobuf_decoder(
            protobuf_sample.DESCRIPTOR, protobuf_sample.NAME, "order.desc"
        ),
        "title",
    ),
}
AROUND: dict[str, Callable[[Decoder, str], Decoder]] = {
    "alone": lambda decoder, _: TombstoneAsDeleteDecoder(decoder),
    "opened": lambda decoder, _: TombstoneAsDeleteDecoder(DecompressingDecoder(decoder, 1000)),
    "redacted": lambda decoder, field: RedactingDecoder(
        TombstoneAsDeleteDecoder(decoder), (field,), readable=False
    ),
}


EACH_ONCE = {
    ("json", "redacted"),
    ("csv", "opened"),
    ("text", "alone"),
    ("avro", "opened"),
    ("protobuf", "redacted"),
}
"""Each format and each step around it; the other pairs take turns."""


@pytest.mark.parametrize(
    ("name", "around"),
    [
        pytest.param(name, around, marks=() if (name, around) in EACH_ONCE else pytest.mark.slow)
        for name in FORMATS
        for around in AROUND
    ],
)
def test_a_null_payload_deletes_and_a_bad_one_does_not(spark: SparkSession, name: str, around: str) -> None:
    make, field = FORMATS[name]
    decoder = AROUND[around](make(spark), field)
    deleted, other = decode(spark, decoder, [None, b"\xff\xff\xff"])
    assert (deleted["_stage"], deleted["_error"], deleted["_bytes"]) == (STAGE, None, None)
    assert [deleted[each] for each in decoder.schema.fieldNames()] == [None] * len(decoder.schema)
    assert other["_stage"] == "decode"
    assert other["_error"] is not None
