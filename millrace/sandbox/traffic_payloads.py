"""From values to a stream's payloads, in its query's format, good or spoiled."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql.types import BooleanType, NumericType, StructType

from etl.formats import descriptors
from etl.formats.descriptors import ENUM, Field, Message
from millrace.config.formats import AvroFormat, CsvFormat, PayloadFormat, ProtobufFormat
from millrace.config.queries import Payload
from millrace.sandbox import ddl
from millrace.sandbox.avro_schemas import AvroSchema, AvroSchemaError, hash_of
from millrace.sandbox.flights import Dirt
from millrace.sandbox.process import SandboxError
from millrace.sandbox.traffic_values import Values

Encode = Callable[[Values], bytes]


@dataclass(frozen=True)
class Payloads:
    """How records of a stream are written.

    Attributes
    ----------
    schema
        Of the values.
    encode
        From values to bytes that the query decodes.
    spoil
        From values to bytes that it does not, and how they were spoiled.
    """

    schema: StructType
    encode: Encode
    spoil: Callable[[Values, random.Random], tuple[bytes, Dirt]]


def of_query(query: Payload, root: Path) -> Payloads:
    """Find out how payloads are written.

    Parameters
    ----------
    query
        A query or a route, whose format and schema file say it.
    root
        The project.

    Raises
    ------
    SandboxError
        A schema for which no values are made.
    """
    path = root / query.schema_
    return payloads(query.format, path)


def payloads(form: PayloadFormat, path: Path) -> Payloads:
    """As :func:`of_query`, for a format and a schema file."""
    try:
        if isinstance(form, AvroFormat):
            return _avro(form, path)
        if isinstance(form, ProtobufFormat):
            message = descriptors.read(path.read_bytes(), form.message, str(path))
            return Payloads(
                message.struct, lambda values: _message(message, values), _spoil_protobuf(message)
            )
        schema = ddl.parse(path.read_text(encoding="utf-8"))
    except (ddl.DdlError, AvroSchemaError) as error:
        raise SandboxError(f"{path}: no values can be made of this schema: {error}") from error
    if isinstance(form, CsvFormat):
        encode = _csv(form)
        return Payloads(schema, encode, _Spoiler(schema, encode, _cut_columns(form, schema)))
    if form.kind == "text":
        [field] = schema.fieldNames()
        return Payloads(schema, lambda values: str(values[field] or "").encode(), _spoil_text(field))
    return Payloads(schema, _json, _Spoiler(schema, _json, _cut))


def _json(values: Values) -> bytes:
    held = {name: value for name, value in values.items() if value is not None}
    return json.dumps(held, separators=(",", ":"), default=_plain, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _csv(form: CsvFormat) -> Encode:
    def encode(values: Values) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=form.delimiter, quotechar=form.quote, lineterminator="")
        writer.writerow([_cell(value, form.null) for value in values.values()])
        return out.getvalue().encode()

    return encode


def _cell(value: Any, null: str) -> Any:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value if isinstance(value, str | int | float) else str(_plain(value))


def _cut(payload: bytes, choose: random.Random) -> bytes:
    return payload[: choose.randrange(1, len(payload))]


def _cut_columns(form: CsvFormat, schema: StructType) -> Callable[[bytes, random.Random], bytes]:
    """One column too many: whatever the others hold, no record of the schema has it."""
    extra = form.delimiter.encode() * (1 + len(schema.fields))
    return lambda payload, _: payload + extra


@dataclass(frozen=True)
class _Spoiler:
    """Breaks what can be broken in JSON and CSV: the form, a value's type, or all of it."""

    schema: StructType
    encode: Encode
    broken: Callable[[bytes, random.Random], bytes]

    def __call__(self, values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        retyped = [f.name for f in self.schema.fields if isinstance(f.dataType, NumericType | BooleanType)]
        dirt: Dirt = choose.choice(("broken", "retyped", "empty") if retyped else ("broken", "empty"))
        if dirt == "empty":
            return b"", dirt
        if dirt == "retyped":
            return self.encode({**values, choose.choice(retyped): "no such value"}), dirt
        return self.broken(self.encode(values), choose), dirt


def _spoil_text(field: str) -> Callable[[Values, random.Random], tuple[bytes, Dirt]]:
    def spoil(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        del choose
        return str(values[field] or "").encode() + b"\xff", "broken"

    return spoil


def _avro(form: AvroFormat, path: Path) -> Payloads:
    header = b""
    if form.framing != "none":
        if form.writers is None:
            raise SandboxError(
                "records for a registry are made with its schemas as files: give them as writers"
            )
        # The newest: ids count up, and a UUID's file is as good as another.
        folder = next(p for p in (path.parent, *path.parents) if (p / form.writers).is_dir()) / form.writers
        files = sorted(
            folder.glob("*.avsc"), key=lambda p: (int(p.stem) if p.stem.isdecimal() else 0, p.stem)
        )
        path = files[-1]
        if form.framing == "confluent":
            header = b"\0" + int(path.stem).to_bytes(4, "big")
        else:
            header = b"\x03\0" + bytes.fromhex(path.stem.replace("-", ""))
    schema = AvroSchema(path.read_text(encoding="utf-8"))

    def encode(values: Values) -> bytes:
        return header + schema.encode(values)

    def spoil(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        if choose.random() < 0.3:
            return b"", "empty"
        payload = encode(values)
        return (payload[:-1] if choose.random() < 0.5 else payload + b"\0"), "broken"

    return Payloads(schema.struct, encode, spoil)


def _message(message: Message, values: Mapping[str, Any]) -> bytes:
    parts = []
    for field in message.fields:
        value = values.get(field.name)
        if value is None:
            continue
        if field.is_map:
            value = [{"key": key, "value": each} for key, each in value.items()]
        for each in value if field.repeated else [value]:
            parts.append(_field(field, each))
    return b"".join(parts)


def _field(field: Field, value: Any) -> bytes:
    fixed = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}.get(field.kind)
    if field.message is not None:
        data = _moment(value) if field.message.is_timestamp else _message(field.message, value)
        return _block(field.number, data)
    if isinstance(value, str | bytes) and field.kind != ENUM:
        return _block(field.number, value.encode() if isinstance(value, str) else value)
    if fixed is not None:
        number = value if field.kind in (1, 2) else int(value)
        data = struct.pack(fixed, number)
        return _varint(field.number << 3 | (1 if len(data) == 8 else 5)) + data
    if field.kind == ENUM:
        numbers = {name: number for number, name in (field.names or {}).items()}
        value = (
            numbers[value] if value in numbers else sorted(numbers.values())[hash_of(value) % len(numbers)]
        )
    number = int(value)
    if field.kind in (17, 18):
        number = (number << 1) ^ (number >> 63)
    return _varint(field.number << 3) + _varint(number)


def _moment(value: datetime) -> bytes:
    seconds = int(value.timestamp() // 1)
    return _varint(1 << 3) + _varint(seconds) + _varint(2 << 3) + _varint(value.microsecond * 1000)


def _block(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _spoil_protobuf(message: Message) -> Callable[[Values, random.Random], tuple[bytes, Dirt]]:
    first = message.fields[0]
    # Of the other wire types one is wrong for any field: 4 bytes, or the 8 of a field that has 4.
    wrong = 1 if first.kind in (2, 7, 15) else 5
    retyped = _varint(first.number << 3 | wrong) + bytes(8 if wrong == 1 else 4)

    def spoil(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        payload = _message(message, values)
        if choose.random() < 0.5:
            return payload + retyped, "retyped"
        return payload + b"\x0f", "broken"

    return spoil
