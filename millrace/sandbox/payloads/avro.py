"""Avro datums for test traffic, bare or after a registry's header."""

from __future__ import annotations

import random
from pathlib import Path

from millrace.config.formats.avro import AvroFormat
from millrace.sandbox.payloads import PayloadWriters
from millrace.sandbox.payloads.records_from_nycflights import Dirt
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.schemas.avro_types_and_encoding import AvroSchema
from millrace.sandbox.schemas.traffic_values import Values


def make_payload_writers(form: AvroFormat, path: Path) -> PayloadWriters:
    """Return the writers of datums of the newest writer's schema, or of the query's where there is no registry.

    Raises
    ------
    SandboxError
        The writers' schemas are only in a registry.
    """
    header = b""
    if form.framing != "none":
        if form.writers is None:
            raise SandboxError(
                "test records for a schema registry are generated from schema files; name their folder "
                "in `format.writers`"
            )
        # The newest: ids count up; among UUIDs any file will do.
        folder = next(p for p in (path.parent, *path.parents) if (p / form.writers).is_dir()) / form.writers
        files = sorted(
            folder.glob("*.avsc"), key=lambda p: (int(p.stem) if p.stem.isdecimal() else 0, p.stem)
        )
        path = files[-1]
        if form.framing == "confluent":
            header = b"\0" + int(path.stem).to_bytes(4, "big")
        else:
            header = b"\x03\0" + bytes.fromhex(path.stem.replace("-", ""))
    text = path.read_text(encoding="utf-8")
    schema, exact = AvroSchema(text), AvroSchema(text, exact=True)

    def encode_datum(values: Values) -> bytes:
        return header + schema.encode(values)

    def spoiled_datum(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        if choose.random() < 0.3:
            return b"", "empty"
        payload = encode_datum(values)
        return (payload[:-1] if choose.random() < 0.5 else payload + b"\0"), "broken"

    return PayloadWriters(
        schema.struct, encode_datum, spoiled_datum, lambda values: header + exact.encode(values)
    )
