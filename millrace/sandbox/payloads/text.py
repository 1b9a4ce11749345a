"""Texts for test traffic."""

from __future__ import annotations

from pathlib import Path

from millrace.config.formats.text import TextFormat
from millrace.sandbox.payloads import PayloadWriters
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import Values


def make_payload_writers(_form: TextFormat, path: Path) -> PayloadWriters:
    """Return the writers of values of the one field; a spoiled one is not UTF-8."""
    schema = ddl_and_pyspark_types.read_ddl_file(path)
    [field] = schema.fieldNames()

    def encode_text(values: Values) -> bytes:
        return str(values[field] or "").encode()

    return PayloadWriters(schema, encode_text, lambda values, _: (encode_text(values) + b"\xff", "broken"))
