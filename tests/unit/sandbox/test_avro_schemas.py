"""Avro schemas of generated records: PySpark's types and the encoded bytes."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from fastavro import parse_schema, schemaless_reader, writer

from millrace.config.formats.avro_schema import AvroSchemaError
from millrace.sandbox.schemas.avro_types_and_encoding import AvroSchema, stable_hash
from millrace.sandbox.schemas.infer import read_avro_schema_text_and_fields

NAMED = """{"type": "record", "name": "R", "namespace": "x", "fields": [
  {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
  {"name": "again", "type": ["null", "E"]},
  {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
  {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
  {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "x.E"}}}]}"""


def test_avro_takes_what_a_generator_makes_and_names_of_a_namespace() -> None:
    schema = AvroSchema(NAMED)
    values = {"e": "A", "again": "no symbol", "f": b"12345", "d": Decimal("1.25"), "m": {"k": ["B"]}}
    assert schema.struct.simpleString() == (
        "struct<e:string,again:string,f:binary,d:decimal(9,2),m:map<string,array<string>>>"
    )
    read = schemaless_reader(io.BytesIO(schema.encode(values)), parse_schema(json.loads(NAMED)), None)
    assert read == {**values, "again": ["A", "B"][stable_hash("no symbol") % 2], "f": b"1234"}


def test_an_error_of_avro_is_a_record() -> None:
    inner = '{"type": "error", "name": "E", "fields": [{"name": "why", "type": "string"}]}'
    text = f'{{"type": "error", "name": "R", "fields": [{{"name": "e", "type": ["null", {inner}]}}, {{"name": "f", "type": "E"}}]}}'
    schema = AvroSchema(text)
    assert schema.struct.simpleString() == "struct<e:struct<why:string>,f:struct<why:string>>"
    values = {"e": {"why": "late"}, "f": {"why": "x"}}
    assert (
        schemaless_reader(io.BytesIO(schema.encode(values)), parse_schema(json.loads(text)), None) == values
    )
    assert read_avro_schema_text_and_fields(_avro_file(text))[1].schema == schema.struct


def _avro_file(schema: str) -> bytes:
    out = io.BytesIO()
    writer(out, parse_schema(json.loads(schema)), [])
    return out.getvalue()


def test_the_columns_of_a_file_are_those_of_the_checks() -> None:
    """A decimal without precision stopped the inference with a KeyError, and a time on a text was one."""
    fields = [
        {"name": "at", "type": {"type": "string", "logicalType": "timestamp-millis"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal"}},
    ]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(AvroSchemaError, match=r"decimal\(0,0\)"):
        read_avro_schema_text_and_fields(_avro_file(text))
    fields.pop()
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    assert read_avro_schema_text_and_fields(_avro_file(text))[1].schema.simpleString() == "struct<at:string>"


def test_what_the_library_refuses_is_said() -> None:
    kind = '{"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}'
    with pytest.raises(AvroSchemaError, match="fastavro"):
        AvroSchema(f'{{"type": "record", "name": "R", "fields": [{{"name": "e", "type": {kind}}}]}}')
