"""Payloads of a stream from values, in its query's format, good or spoiled. One module for each kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql.types import BooleanType, NumericType, StructType

from millrace.config.base import load_kind
from millrace.config.formats import PayloadFormat
from millrace.config.formats.avro_schema import AvroSchemaError
from millrace.config.formats.ddl import DdlError
from millrace.config.queries import Payload, Route
from millrace.sandbox.payloads.records_from_nycflights import Dirt
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.schemas.traffic_values import Values

Encode = Callable[[Values], bytes]

Spoil = Callable[[Values, random.Random], tuple[bytes, Dirt]]


_CHANGES = "millrace.sandbox.payloads.changes:make_payload_writers"
PAYLOADS = {
    kind: f"millrace.sandbox.payloads.{kind}:make_payload_writers"
    for kind in ("json", "text", "csv", "avro", "protobuf")
} | {"debezium": _CHANGES, "dms": _CHANGES}
"""Function of a format and its schema file, by the format's kind; a distribution adds its own as ``millrace.payloads``."""


@dataclass(frozen=True)
class PayloadWriters:
    """Functions that write records of a stream.

    Attributes
    ----------
    schema
        Schema of the values.
    encode
        Function from values to bytes that the query decodes.
    spoil
        Function from values to bytes that it does not decode, and the kind of damage.
    encode_given
        Function for values of a file, which refuses those that ``encode`` replaces by others; None where it replaces none.
    """

    schema: StructType
    encode: Encode
    spoil: Spoil
    encode_given: Encode | None = None


def payload_writers_of_query(query: Payload, root: Path) -> PayloadWriters:
    """Return the writers of payloads of a query or a route, as :func:`payload_writers` does.

    Parameters
    ----------
    query
        Query or route, for its format and schema file.
    """
    return payload_writers(
        query.format, root / query.schema_, query.changes_of if isinstance(query, Route) else None
    )


def payload_writers(form: PayloadFormat, path: Path, table: str | None = None) -> PayloadWriters:
    """Return the writers of payloads for a format and a schema file.

    Parameters
    ----------
    table
        Table of a database, if the payloads are its changes.

    Raises
    ------
    SandboxError
        No values can be made for the schema or the format.
    """
    if (made_by := load_kind("millrace.payloads", PAYLOADS, form.kind)) is None:
        raise SandboxError(f"records of format {form.kind} can neither be generated nor read from a file")
    try:
        made: PayloadWriters = made_by(form, path, *([] if table is None else [table]))
    except (AvroSchemaError, DdlError) as error:
        raise SandboxError(f"{path}: no test records can be generated from this schema: {error}") from error
    return made


def to_plain_value(value: Any) -> Any:
    """Return a value as text, number or flag."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class PayloadSpoiler:
    """Spoiler of JSON and CSV: it breaks the form, or a value's type, or leaves nothing."""

    schema: StructType
    encode: Encode
    broken: Callable[[bytes, random.Random], bytes]

    def __call__(self, values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        """Return a record that is spoiled in one of these ways, and the way."""
        retyped = [f.name for f in self.schema.fields if isinstance(f.dataType, NumericType | BooleanType)]
        dirt: Dirt = choose.choice(("broken", "retyped", "empty") if retyped else ("broken", "empty"))
        if dirt == "empty":
            return b"", dirt
        if dirt == "retyped":
            return self.encode({**values, choose.choice(retyped): "no such value"}), dirt
        return self.broken(self.encode(values), choose), dirt
