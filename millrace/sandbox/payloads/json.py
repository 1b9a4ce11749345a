"""JSON objects for test traffic."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from millrace.config.formats.json import JsonFormat
from millrace.sandbox.payloads import PayloadSpoiler, PayloadWriters, to_plain_value
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import Values

_DECIMAL = re.compile(r'"\\u0000([^"\\]+)\\u0000"')
"""Number with all of its digits, between marks that text of a record does not have."""


def make_payload_writers(_form: JsonFormat, path: Path) -> PayloadWriters:
    """Return the writers of objects without null fields."""
    schema = ddl_and_pyspark_types.read_ddl_file(path)
    spoil = PayloadSpoiler(
        schema, _encode_object, lambda payload, choose: payload[: choose.randrange(1, len(payload))]
    )
    return PayloadWriters(schema, _encode_object, spoil)


def _encode_object(values: Values) -> bytes:
    present = {name: value for name, value in values.items() if value is not None}
    text = json.dumps(present, separators=(",", ":"), default=_plain_value, ensure_ascii=False)
    return _DECIMAL.sub(r"\1", text).encode()


def _plain_value(value: Any) -> Any:
    return f"\0{value:f}\0" if isinstance(value, Decimal) else to_plain_value(value)
