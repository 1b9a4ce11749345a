"""Values whose writer has another logical type than the query's schema are converted exactly, or prevent the start."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.avro import AvroDecoder
from millrace.etl.formats.base import open_decoder
from millrace.etl.launch.formats import AvroFormat
from millrace.etl.record.errors import StartError
from tests.spark.formats.test_decode_csv_avro_protobuf import decode, values

Schema = Any
Open = Callable[[Schema, Schema], AvroDecoder]

MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
LOCAL_MILLIS, LOCAL_MICROS = (
    {"type": "long", "logicalType": f"local-timestamp-{unit}"} for unit in ("millis", "micros")
)
DAY = {"type": "int", "logicalType": "date"}
TIME_MILLIS, TIME_MICROS = (
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
)
AT = datetime(2024, 1, 1, 10, 0, 0, 123000)


def decimal(precision: int, scale: int) -> Schema:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record(kind: Schema, name: str = "R") -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": kind}]}


def datum(schema: Schema, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\0\0\0\0\7" + out.getvalue()


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    folder = tmp_path / f"writers{abs(hash(tmp_path))}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def open_by_writer(writer: Schema, reader: Schema) -> AvroDecoder:
        (folder / "7.avsc").write_text(json.dumps(writer))
        (tmp_path / "row.avsc").write_text(json.dumps(reader))
        form = AvroFormat("confluent", folder.name, None, None)
        found = open_decoder(form, spark, str(tmp_path / "row.avsc"))
        assert isinstance(found, AvroDecoder)
        return found

    return open_by_writer


@pytest.mark.parametrize(
    ("writer", "reader", "value", "read"),
    [
        (MILLIS, MICROS, AT.replace(tzinfo=UTC), AT),
        (MICROS, MILLIS, AT.replace(microsecond=123456, tzinfo=UTC), AT.replace(microsecond=123456)),
        (LOCAL_MICROS, LOCAL_MILLIS, AT.replace(microsecond=1), AT.replace(microsecond=1)),
        (LOCAL_MILLIS, ["null", LOCAL_MICROS], AT, AT),
        (["null", MILLIS], ["null", "string", MICROS], AT.replace(tzinfo=UTC), (None, AT)),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, [AT.replace(tzinfo=UTC)], [AT]),
        (["null", "int", MILLIS], ["null", "int", MILLIS], 5, 5),
        (["int", MILLIS], ["int", MILLIS], AT.replace(tzinfo=UTC), 1704103200123),
        ([DAY, {"type": "long"}], [DAY, {"type": "long"}], date(2024, 1, 1), 19723),
        ([MICROS, DAY], [MICROS, DAY], date(2024, 1, 1), 19723),
        ("long", MILLIS, 1704103200123, AT),
        (DAY, "long", date(2024, 1, 1), 19723),
        (decimal(12, 2), decimal(10, 2), Decimal("12.34"), Decimal("12.34")),
    ],
    ids=str,
)  # fmt: skip
def test_a_writers_unit_is_used(
    spark: SparkSession, opened: Open, writer: Schema, reader: Schema, value: Any, read: Any
) -> None:
    decoder = opened(record(writer), record(reader))
    (row,) = decode(spark, decoder, [datum(record(writer), {"a": value})])
    assert values(row, decoder) == {"a": read}


def test_each_place_has_the_unit_of_its_writer(spark: SparkSession, opened: Open) -> None:
    def with_two(first: Schema, second: Schema) -> Schema:
        fields = [
            {"name": "in", "type": record(first, "In")},
            {"name": "more", "type": {"type": "map", "values": "In"}},
        ]
        return {
            "type": "record",
            "name": "R",
            "fields": [*fields, {"name": "at", "type": second, "aliases": ["old"]}],
        }

    writer, reader = with_two(MILLIS, MICROS), with_two(MICROS, MILLIS)
    writer["fields"][2] = {"name": "old", "type": MICROS}
    reader["fields"].append({"name": "new", "type": MILLIS, "default": 1704103200123})
    decoder = opened(writer, reader)
    at = AT.replace(tzinfo=UTC)
    (row,) = decode(spark, decoder, [datum(writer, {"in": {"a": at}, "more": {"k": {"a": at}}, "old": at})])
    assert (row["in"]["a"], row["more"]["k"]["a"], row["at"], row["new"]) == (AT, AT, AT, AT)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (decimal(10, 2), decimal(10, 4)),
        (["null", decimal(10, 4)], ["null", decimal(10, 2)]),
        (DAY, MILLIS),
        (MILLIS, LOCAL_MILLIS),
        (TIME_MILLIS, TIME_MICROS),
        ({"type": "long", "logicalType": "timestamp-nanos"}, MICROS),
    ],
    ids=str,
)
def test_what_no_conversion_makes_exact_prevents_the_start(
    opened: Open, writer: Schema, reader: Schema
) -> None:
    outer = {"type": "array", "items": record(writer, "In")}, {"type": "array", "items": record(reader, "In")}
    with pytest.raises(StartError, match=r"writer 7: records written with this schema .* field a\.a"):
        opened(*map(record, outer))


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ({"type": "fixed", "name": "D", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 3}, b"\x7f" + b"\xff" * 5),
        (decimal(9, 3), b"\x7f" + b"\xff" * 19),
    ],
    ids=["fixed", "bytes"],
)  # fmt: skip
def test_a_decimal_of_more_digits_says_so(
    spark: SparkSession, opened: Open, kind: Schema, bad: bytes
) -> None:
    decoder = opened(record(kind), record(kind))
    long = b"\0\0\0\0\7" + (bytes([2 * len(bad)]) if kind["type"] == "bytes" else b"") + bad
    good = datum(record(kind), {"a": Decimal("-1.234")})
    first, *letters = decode(spark, decoder, [good, long, long + b"\0", long[:-1]])
    assert values(first, decoder) == {"a": Decimal("-1.234")}
    assert [(row["_stage"], row["_error"][:20]) for row in letters] == [
        ("schema", "a decimal of more di"), ("decode", "not one datum of the"), ("decode", "not one datum of the"),
    ]  # fmt: skip
