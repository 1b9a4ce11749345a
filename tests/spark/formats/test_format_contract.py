"""Contract of all formats: the launch document is read as it was written, and each decoder keeps every record."""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millrace.config.formats import KINDS
from millrace.config.formats.base import FormatConfig
from millrace.etl.formats.base import open_decoder
from millrace.etl.formats.decoding import decoder_per_topic
from millrace.etl.formats.decoding.redact import WITHHELD
from millrace.etl.launch import settings, typed_json
from millrace.etl.launch.formats import Format
from millrace.sandbox.payloads import payload_writers
from millrace.sandbox.schemas.traffic_values import RecordGenerator
from tests import protobuf_sample
from tests.spark.formats.test_decode_csv_avro_protobuf import AVSC, decode
from tests.spark.source_batches import KAFKA

# PySpark 3.5 compares versions of pandas in a way that Python calls old.

SCHEMAS = {
    "json": b"id BIGINT NOT NULL, city STRING, paid BOOLEAN",
    "csv": b"id BIGINT NOT NULL, city STRING, paid BOOLEAN",
    "text": b"line STRING",
    "avro": json.dumps(AVSC).encode(),
    "protobuf": protobuf_sample.DESCRIPTOR,
    "debezium": b"id BIGINT NOT NULL, city STRING, paid BOOLEAN",
    "dms": b"id BIGINT NOT NULL, city STRING, paid BOOLEAN",
}
GIVEN = {"protobuf": {"message": protobuf_sample.NAME}}
"""Keys in the place of the examples', for a file that is there."""


def examples(kind: str, *, required: bool) -> dict[str, Any]:
    """A format of the examples that stand on its keys: of all of them, or of those that it cannot do without."""
    fields = KINDS[kind].model_fields.items()
    given = {n: f.examples[0] for n, f in fields if f.examples and (f.is_required() or not required)}
    return {"kind": kind, **given}


def asked(kind: str) -> FormatConfig:
    return KINDS[kind](**{**examples(kind, required=True), **GIVEN.get(kind, {})})


def decoded(spark: SparkSession, home: Path, kind: str, given: list[bytes | None], **query: Any) -> list[Row]:
    form = asked(kind).launch_settings()
    parts: dict[str, Any] = {"decompress_up_to": None, "redact": (), "rules": (), **query}
    route = settings.SourceRouteSettings("r", "o", KAFKA, form, str(schema_file(home, kind)), **parts)
    return decode(spark, decoder_per_topic.route_decoder(spark, route), given)


def schema_file(home: Path, kind: str) -> Path:
    file = home / f"schema{KINDS[kind].suffix}"
    file.write_bytes(SCHEMAS[kind])
    return file


def made(home: Path, kind: str) -> tuple[bytes, bytes]:
    """A record that is good, and one that is not and has bytes."""
    written, choose = payload_writers(asked(kind), schema_file(home, kind)), random.Random(5)
    values = RecordGenerator(written.schema, choose).record(0, datetime(2026, 5, 4, tzinfo=UTC))
    return written.encode(values), next(filter(None, (written.spoil(values, choose)[0] for _ in range(50))))


def test_both_sides_have_the_same_kinds() -> None:
    assert list(Format.KINDS) == list(KINDS)


@pytest.mark.parametrize("required", [True, False], ids=["required", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_core_reads_what_the_configuration_writes(kind: str, required: bool) -> None:
    form = KINDS[kind].model_validate_json(json.dumps(examples(kind, required=required)), strict=True)
    keys = json.loads(json.dumps(typed_json.to_json_value(form.launch_settings())))
    assert typed_json.read_typed(Format, keys, "format") == form.launch_settings()
    for key in keys:
        with pytest.raises(
            typed_json.SettingsError, match=f"missing keys {key}|format.kind: None is not one of"
        ):
            typed_json.read_typed(Format, {k: v for k, v in keys.items() if k != key}, "format")
    with pytest.raises(typed_json.SettingsError, match="unknown keys colour"):
        typed_json.read_typed(Format, {**keys, "colour": "red"}, "format")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_record_is_a_dead_letter_with_bytes_stage_and_error(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    good, bad = made(tmp_path, kind)
    rows = decoded(spark, tmp_path, kind, [good, bad, None])
    assert rows[0][-3:] == (None, None, None)
    for payload, row in zip((bad, None), rows[1:], strict=True):
        if payload is None and KINDS[kind].deletes:
            assert (row["_bytes"], row["_stage"], row["_error"]) == (None, "control", None)
            continue
        assert row["_bytes"] == payload
        assert row["_stage"] in ("decode", "schema")
        assert row["_error"]
        assert all(row[name] is None for name in row.asDict() if not name.startswith("_") and name != "n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_compressed_one_is_opened_where_the_query_says_so(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    good, _ = made(tmp_path, kind)
    packed = gzip.compress(good)
    rows = decoded(spark, tmp_path, kind, [good, packed, packed[:-3], packed], decompress_up_to=1 << 20)
    assert [row["_stage"] for row in rows] == [None, None, "decompress", None]
    assert rows[2]["_bytes"] == packed[:-3]
    [row] = decoded(spark, tmp_path, kind, [packed])
    assert row["_stage"] == "decode"


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=[pytest.mark.slow] * (each in ("debezium", "dms"))) for each in KINDS]
)
def test_what_is_redacted_is_in_no_row(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    good, _ = made(tmp_path, kind)
    [plain] = decoded(spark, tmp_path, kind, [good])
    field = next(name for name, value in plain.asDict().items() if name[0] != "_" and value and name != "n")
    rows = decoded(spark, tmp_path, kind, [good, b"{secret\xff", None], redact=(field,))
    assert [row[field] for row in rows] == [None] * 3
    assert [row["_stage"] is None for row in rows] == [True, False, False]
    assert rows[1]["_bytes"] is None
    assert rows[1]["_error"].endswith(WITHHELD)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_keeps_its_other_values_where_bytes_name_their_fields(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    form = asked(kind).launch_settings()
    schema = open_decoder(form, spark, str(schema_file(tmp_path, kind))).schema
    field = schema.fieldNames()[0]
    letter = b'{"%s": "secret", "other": [1}' % field.encode()
    [row] = decoded(spark, tmp_path, kind, [letter + b"\xff\x07" * (kind == "text")], redact=(field,))
    shown = bytes(row["_bytes"] or b"")
    assert b"secret" not in shown
    assert (b"other" in shown) == (kind in {"json", "debezium", "dms"})
