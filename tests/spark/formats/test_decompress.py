"""Compressed messages are decompressed before decoding, with Arrow and without."""

from __future__ import annotations

import gzip
import zlib

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.decoding.decompress import STAGE, DecompressingDecoder, decompress_function
from millrace.etl.formats.decoding.redact import WITHHELD, RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema

DDL = "carrier STRING NOT NULL, flight INT"
GOOD = b'{"carrier":"AA","flight":1}'
BOMB = gzip.compress(b" " * 5_000_000)
PAYLOADS: dict[bytes | None, str | None] = {
    GOOD: None,
    gzip.compress(GOOD): None,
    zlib.compress(GOOD): None,
    gzip.compress(b"no json"): "decode",
    BOMB: STAGE,
    gzip.compress(GOOD)[:-9]: STAGE,
    b"{broken": "decode",
    None: "decode",
}


@pytest.mark.parametrize("arrow", [True, False])
def test_content_is_decoded_and_a_dead_letter_keeps_what_came(spark: SparkSession, arrow: bool) -> None:
    decoder = DecompressingDecoder(JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl")), 1_000_000, arrow)
    numbered = [(i, None if p is None else bytearray(p)) for i, p in enumerate(PAYLOADS)]
    found = decoder.decode(spark.createDataFrame(numbered, "n INT, payload BINARY"))
    assert found.columns == ["n", "carrier", "flight", "_bytes", "_stage", "_error"]
    rows = sorted(found.collect(), key=lambda r: r["n"])
    for row, (payload, stage) in zip(rows, PAYLOADS.items(), strict=True):
        assert row["_stage"] == stage, payload
        if stage is None:
            assert (row["carrier"], row["flight"], row["_bytes"]) == ("AA", 1, None)
        else:
            assert row["carrier"] is None
            assert (None if row["_bytes"] is None else bytes(row["_bytes"])) == payload
    assert (
        rows[4]["_error"] == "gzip: the message is larger than 1,000,000 bytes after decompression, the limit"
    )
    assert "incomplete" in rows[5]["_error"]


def test_what_goes_back_in_several_parts_stays_with_its_record(spark: SparkSession) -> None:
    rows = [(n, bytearray(gzip.compress(str(n).encode() * 100) if n % 3 else b"text")) for n in range(60)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), "n INT, payload BINARY")
    opened = frame.select(
        "n", decompress_function(1000, arrow=True, most=500)("payload").alias("opened")
    ).collect()
    want = {n: str(n).encode() * 100 if n % 3 else b"text" for n in range(60)}
    assert {row["n"]: bytes(row["opened"]["content"]) for row in opened} == want


def test_nothing_of_a_compressed_dead_letter_shows_where_fields_are_redacted(spark: SparkSession) -> None:
    opening = DecompressingDecoder(JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl")), 1_000_000)
    rows = spark.createDataFrame(
        [(bytearray(gzip.compress(b'{"carrier":1,"flight":"x"}')),)], "payload BINARY"
    )
    [row] = RedactingDecoder(opening, ("carrier",)).decode(rows).collect()
    assert row["_bytes"] is None
    assert row["_error"].endswith(WITHHELD)
