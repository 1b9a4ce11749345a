"""Texts for test traffic."""

from __future__ import annotations

import random
from pathlib import Path

from millrace.config.formats.text import TextFormat
from millrace.sandbox.payloads import Payloads
from millrace.sandbox.payloads.flights import Dirt
from millrace.sandbox.schemas import ddl
from millrace.sandbox.schemas.traffic_values import Values


def payloads(_form: TextFormat, path: Path) -> Payloads:
    """Return the writers of values of the one field; a spoiled one is not UTF-8."""
    schema = ddl.read(path)
    [field] = schema.fieldNames()

    def encode(values: Values) -> bytes:
        return str(values[field] or "").encode()

    def spoil(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        del choose
        return encode(values) + b"\xff", "broken"

    return Payloads(schema, encode, spoil)
