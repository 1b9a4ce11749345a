"""Protobuf messages for test traffic."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.config.formats.protobuf import ProtobufFormat
from millrace.etl.formats.protobuf_columns import message_columns
from millrace.etl.launch.protobuf.descriptor_file import ENUM, Field, Message, find_message
from millrace.sandbox.payloads import PayloadWriters, Spoil
from millrace.sandbox.payloads.records_from_nycflights import Dirt
from millrace.sandbox.schemas.avro_types_and_encoding import stable_hash
from millrace.sandbox.schemas.traffic_values import Values


def make_payload_writers(form: ProtobufFormat, path: Path) -> PayloadWriters:
    """Return the writers of messages; a spoiled one has a field of another type, or an invalid tag."""
    message = find_message(path.read_bytes(), form.message)
    return PayloadWriters(
        message_columns(message),
        lambda values: _encode_message(message, values),
        _message_spoiler(message),
        lambda values: _encode_message(message, values, exact=True),
    )


def _encode_message(message: Message, values: Mapping[str, Any], *, exact: bool = False) -> bytes:
    parts = []
    for field in message.fields:
        if (value := values.get(field.name)) is None:
            continue
        if field.is_map:
            value = [{"key": key, "value": each} for key, each in value.items()]
        for each in value if field.repeated else [value]:
            parts.append(_encode_field(field, each, exact=exact))
    return b"".join(parts)


def _encode_field(field: Field, value: Any, *, exact: bool) -> bytes:
    fixed = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}.get(field.kind)
    if field.message is not None:
        if field.message.is_timestamp:
            value = {"seconds": value.timestamp() // 1, "nanos": value.microsecond * 1000}
        return _encode_length_delimited(field.number, _encode_message(field.message, value, exact=exact))
    if isinstance(value, str | bytes) and field.kind != ENUM:
        return _encode_length_delimited(field.number, value.encode() if isinstance(value, str) else value)
    if fixed is not None:
        number = value if field.kind in (1, 2) else int(value)
        data = struct.pack(fixed, number)
        return _encode_varint(field.number << 3 | (1 if len(data) == 8 else 5)) + data
    if field.kind == ENUM:
        numbers = {name: number for number, name in (field.names or {}).items()}
        value = (
            numbers[value]
            if value in numbers or exact
            else sorted(numbers.values())[stable_hash(value) % len(numbers)]
        )
    number = int(value)
    if field.kind in (17, 18):
        number = (number << 1) ^ (number >> 63)
    return _encode_varint(field.number << 3) + _encode_varint(number)


def _encode_length_delimited(number: int, data: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message_spoiler(message: Message) -> Spoil:
    first = message.fields[0]
    # One of the other wire types is wrong for any field: 4 bytes, or 8 for a field that has 4.
    wrong = 1 if first.kind in (2, 7, 15) else 5
    retyped = _encode_varint(first.number << 3 | wrong) + bytes(8 if wrong == 1 else 4)

    def spoiled_message(values: Values, choose: random.Random) -> tuple[bytes, Dirt]:
        payload = _encode_message(message, values)
        if choose.random() < 0.5:
            return payload + retyped, "retyped"
        return payload + b"\x0f", "broken"

    return spoiled_message
