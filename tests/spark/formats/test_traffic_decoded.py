"""Records that ``millrace traffic`` marks as good are decoded, and those marked as spoiled are not, in each format."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.config.formats import PayloadFormat
from millrace.config.formats.avro import AvroFormat
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.formats.csv import CsvFormat
from millrace.config.formats.debezium import DebeziumFormat
from millrace.config.formats.dms import DmsFormat
from millrace.config.formats.json import JsonFormat
from millrace.config.formats.protobuf import ProtobufFormat
from millrace.config.formats.text import TextFormat
from millrace.etl.formats.base import open_decoder
from millrace.sandbox.payloads import payload_writers
from millrace.sandbox.records.traffic import TrafficFeed, TrafficShape
from millrace.sandbox.schemas.traffic_values import RecordGenerator
from tests import protobuf_sample
from tests.spark.formats.test_decode_csv_avro_protobuf import decode

DDL = """
id BIGINT NOT NULL, city STRING NOT NULL, price DECIMAL(9,2), paid BOOLEAN NOT NULL, at TIMESTAMP, day DATE,
share DOUBLE, n SMALLINT
"""
NESTED = ", tags ARRAY<STRING>, customer STRUCT<name: STRING, age: INT>, stock MAP<STRING, INT>, weight FLOAT"
AVSC: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "last", "type": ["null", "State"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
        {"name": "stock", "type": {"type": "map", "values": "int"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "weight", "type": "float"},
        {"name": "share", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {
            "name": "customer",
            "type": [
                "null",
                {"type": "record", "name": "Who", "fields": [{"name": "name", "type": "string"}]},
            ],
        },
    ],
}
FORMATS: dict[str, tuple[str, bytes, PayloadFormat]] = {
    "json": ("o.ddl", (DDL + NESTED).encode(), JsonFormat()),
    "csv": ("o.ddl", DDL.encode(), CsvFormat(kind="csv", delimiter=";", null="NA")),
    "text": ("o.ddl", b"line STRING", TextFormat(kind="text")),
    "avro": ("o.avsc", json.dumps(AVSC).encode(), AvroFormat(kind="avro")),
    "debezium": ("o.ddl", DDL.encode(), DebeziumFormat(kind="debezium")),
    "dms": ("o.ddl", DDL.encode(), DmsFormat(kind="dms")),
    "protobuf": (
        "o.desc",
        protobuf_sample.DESCRIPTOR,
        ProtobufFormat(kind="protobuf", message=protobuf_sample.NAME),
    ),
}
NOW = datetime(2026, 5, 4, 3, 2, 1, 500_000, UTC)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_ledger_says_what_the_decoder_finds(spark: SparkSession, tmp_path: Path, name: str) -> None:
    file, schema, form = FORMATS[name]
    (tmp_path / file).write_bytes(schema)
    changes = isinstance(form, ChangeFormat)
    written = payload_writers(form, tmp_path / file, "shop.orders" if changes else None)
    choose = random.Random(7)
    feed = TrafficFeed(
        RecordGenerator(written.schema, choose).record,
        written,
        TrafficShape(per_second=1, dirty=0.3),
        choose,
        lambda: NOW,
    )
    events = list(feed.events(most=200))
    assert {e.dirt is None for e in events} == {True, False}
    decoder = open_decoder(form.launch_settings(), spark, str(tmp_path / file))
    again = RecordGenerator(written.schema, random.Random(3))
    values = [again.record(n, NOW) for n in range(5)]
    rows = decode(spark, decoder, [*(e.payload for e in events), *map(written.encode, values)])
    judged = zip(events, rows[: len(events)], strict=True)
    assert [(e, r) for e, r in judged if (e.dirt is None) != (r["_error"] is None)] == []
    # And the values are those that were made, not nulls.
    for made, row in zip(values, rows[len(events) :], strict=True):
        assert row["_error"] is None
        if changes:
            assert row["_change"]["table"] == "shop.orders"
        for field in ("id", "city", "title", "line", "paid"):
            # The keys of changes come again.
            if (
                not (changes and field == "id")
                and field in decoder.schema.fieldNames()
                and made[field] is not None
            ):
                assert row[field] == made[field]
