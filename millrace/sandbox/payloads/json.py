"""JSON objects for test traffic."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.config.formats.json import JsonFormat
from millrace.sandbox.payloads import PayloadSpoiler, PayloadWriters, to_plain_value
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import Values


def make_payload_writers(_form: JsonFormat, path: Path) -> PayloadWriters:
    """Return the writers of objects without null fields."""
    schema = ddl_and_pyspark_types.read_ddl_file(path)
    spoil = PayloadSpoiler(
        schema, _encode_object, lambda payload, choose: payload[: choose.randrange(1, len(payload))]
    )
    return PayloadWriters(schema, _encode_object, spoil)


def _encode_object(values: Values) -> bytes:
    present = {name: value for name, value in values.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), default=to_plain_value, ensure_ascii=False).encode()
