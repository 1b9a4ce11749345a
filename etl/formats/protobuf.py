"""Protobuf: one message in each payload, read with a descriptor file.

An absent field is null where the language can tell (proto2, ``optional``, ``oneof``, messages), and has
its type's zero value where it cannot (plain proto3). Enums become their names, or the number if it has no
name; unsigned numbers the next larger type; ``google.protobuf.Timestamp`` a timestamp. Fields that the
descriptor does not name are ignored; of a single field given twice the last value counts, and messages are merged;
of several members of a ``oneof`` the last counts.
A missing key or value of a map entry has the zero value, in both languages. An empty payload is a message with nothing set.

Stages of a dead letter:

``decode``
    A null payload, bytes that are no message, a message that is cut off, a text that is not UTF-8, and a
    message of more than :data:`MOST_VALUES` values.
``schema``
    A field of another type than in the descriptor, a time out of range, no value for a ``required`` field.

Without Python it would need a jar that is not published for every engine, so it is an Arrow function.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..launch.formats import ProtobufFormat
from ..launch.protobuf import wire_format
from ..launch.protobuf.descriptor_file import ENUM, MESSAGE, STRING, Field, Message, find_message
from ..record.errors import StartError
from . import schema_files
from .base import Decoder
from .decoding import decode_in_python_by_arrow
from .decoding.decoder_output_and_checks import TOMBSTONE, schema_with_checked_names
from .protobuf_columns import message_columns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Range of ``google.protobuf.Timestamp`` in seconds: the years 1 to 9999."""

_WIRE = {
    1: wire_format.FIXED64,
    2: wire_format.FIXED32,
    6: wire_format.FIXED64,
    7: wire_format.FIXED32,
    STRING: wire_format.LENGTH,
    MESSAGE: wire_format.LENGTH,
    12: wire_format.LENGTH,
    15: wire_format.FIXED32,
    16: wire_format.FIXED64,
}

_GO_ON = bytes(range(0x80, 0x100))
_FIXED_BYTES = {wire_format.FIXED64: 8, wire_format.FIXED32: 4}
_MOST_OF_TWO_BYTES = 1 << 11
"""Field numbers below it have a tag of at most two bytes."""


MOST_VALUES = 1_000_000
"""Most values of a payload: messages, each with all of its fields, and list items. A message can be two bytes, and takes
half a kilobyte of Python's memory or more."""


def open_decoder(
    form: ProtobufFormat, spark: SparkSession, schema: str, _open_up_to: int | None
) -> ProtobufDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`."""
    return make_protobuf_decoder(schema_files.read_job_file(spark, schema), form.message, schema)


class DescriptorMismatchError(ValueError):
    """A message whose fields do not match the descriptor."""


Read = Callable[[Any], Any]
"""Converts a raw value to Python."""


_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


def _scalar_reader_and_default(one: Field) -> tuple[Read, Any]:
    """Return the reader of a field's values, and the value of an absent field without presence."""
    names = one.names or {}
    readers: dict[int, tuple[Read, Any]] = {
        1: (lambda raw: _DOUBLE.unpack(raw)[0], 0.0),
        2: (lambda raw: _FLOAT.unpack(raw)[0], 0.0),
        # Most numbers are small, and need no look at their sign.
        3: (lambda raw: raw if raw < 1 << 31 else wire_format.to_signed(raw, 64), 0),
        4: (Decimal, Decimal(0)),
        5: (lambda raw: raw if raw < 1 << 31 else wire_format.to_signed(raw, 32), 0),
        6: (lambda raw: Decimal(int.from_bytes(raw, "little")), Decimal(0)),
        7: (lambda raw: int.from_bytes(raw, "little"), 0),
        8: (bool, False),
        STRING: (_utf8_text, ""),
        12: (bytes, b""),
        13: (lambda raw: raw & 0xFFFFFFFF, 0),
        ENUM: (
            lambda raw: names.get(number := wire_format.to_signed(raw, 32), str(number)),
            names.get(0, "0"),
        ),
        15: (lambda raw: int.from_bytes(raw, "little", signed=True), 0),
        16: (lambda raw: int.from_bytes(raw, "little", signed=True), 0),
        17: (lambda raw: wire_format.to_signed(wire_format.decode_zigzag(raw & 0xFFFFFFFF), 32), 0),
        18: (lambda raw: wire_format.to_signed(wire_format.decode_zigzag(raw), 64), 0),
    }
    return readers[one.kind]


def _utf8_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise wire_format.WireError("the bytes of a string field are not UTF-8") from error


@dataclass(frozen=True)
class _FieldTarget:
    """Target of a field's values."""

    name: str
    kind: int
    read: Read
    repeated: bool
    message: bool


@dataclass
class ValueBudget:
    """Number of values that may still be made of a payload."""

    left: int = MOST_VALUES

    def reserve(self, values: int) -> None:
        """Reserve room for a number of values.

        Raises
        ------
        WireError
            No room is left.
        """
        self.left -= values
        if self.left < 0:
            raise wire_format.WireError(f"more than {MOST_VALUES:,} values")


def make_message_reader(message: Message, room: ValueBudget) -> Callable[[bytes], dict[str, Any]]:
    """Make the function that reads a message.

    Parameters
    ----------
    message
        Message of the descriptor.
    room
        Budget of the payload.

    Returns
    -------
    Callable
        Function from bytes to values by column; raises :class:`etl.launch.protobuf.wire_format.WireError` and :class:`DescriptorMismatchError`.
    """
    width = 1 + len(message.fields)
    slots: dict[int, _FieldTarget] = {}
    absent: dict[str, Any] = {}
    for one in message.fields:
        read, zero = (bytes, None) if one.message is not None else _scalar_reader_and_default(one)
        kind = _WIRE.get(one.kind, wire_format.VARINT)
        slots[one.number] = _FieldTarget(one.name, kind, read, one.repeated, one.message is not None)
        if message.is_entry:
            absent[one.name] = b"" if one.message is not None else zero
        else:
            absent[one.name] = None if one.presence or one.repeated else zero
    # By the number of each member of a oneof: the names of the others.
    others = {
        one.number: names
        for one in message.fields
        if (names := [f.name for f in message.fields if f.oneof == one.oneof is not None and f is not one])
    }
    # The common case of a field: a value of its own type after a tag of one or two bytes.
    plain = {
        number << 3 | slot.kind: (slot.name, slot.kind, slot.read, _FIXED_BYTES.get(slot.kind, 0))
        for number, slot in slots.items()
        if not (slot.repeated or slot.message or number in others) and number < _MOST_OF_TWO_BYTES
    }
    inner = {
        f.name: (_parse_timestamp if f.message.is_timestamp else make_message_reader(f.message, room))
        for f in message.fields
        if f.message
    }
    lists = [f.name for f in message.fields if f.repeated]
    maps = [f.name for f in message.fields if f.is_map]
    required = [f.name for f in message.fields if f.required]

    def read_message(data: bytes) -> dict[str, Any]:
        room.reserve(width)
        values = absent.copy()
        for name in lists:
            values[name] = []
        at, size = 0, len(data)
        while at < size:
            tag, place = data[at], at + 1
            if tag > 0x7F and place < size:
                tag, place = tag & 0x7F | data[place] << 7, place + 1
            known = plain.get(tag)
            if known is None or place >= size:
                at = read_rare_field_and_return_end(values, data, at)
                continue
            name, kind, read, length = known
            if kind != wire_format.LENGTH and kind != wire_format.VARINT:
                number = length
            elif (number := data[place]) < 0x80:
                place += 1
            elif place + 1 < size and data[place + 1] < 0x80:
                number, place = number & 0x7F | data[place + 1] << 7, place + 2
            else:
                number, place = wire_format.read_varint(data, place)
            if kind == wire_format.VARINT:
                values[name], at = read(number), place
                continue
            at = place + number
            if at > size:
                raise wire_format.WireError(f"truncated inside field {tag >> 3}")
            values[name] = read(data[place:at])
        for name, read_inner in inner.items():
            value = values[name]
            if isinstance(value, list):
                values[name] = [read_inner(each) for each in value]
            elif value is not None:
                values[name] = read_inner(bytes(value))
        for name in maps:
            values[name] = {each["key"]: each["value"] for each in values[name]}
        for name in required:
            if values[name] is None:
                missing = ", ".join(n for n in required if values[n] is None)
                raise DescriptorMismatchError(f"no value for a required field: {missing}")
        return values

    def read_rare_field_and_return_end(values: dict[str, Any], data: bytes, at: int) -> int:
        number, kind, raw, behind = wire_format.read_field(data, at)
        slot = slots.get(number)
        if slot is None:
            return behind
        for name in others.get(number, ()):
            if name in inner and values[name] is not None:
                # It no longer counts, but must be a message.
                inner[name](bytes(values[name]))
            values[name] = None
        if kind != slot.kind:
            if not (slot.repeated and kind == wire_format.LENGTH and not slot.message):
                raise DescriptorMismatchError(f"wrong type: {slot.name}")
            room.reserve(_count_packed_values(slot, raw))
            values[slot.name] += map(slot.read, _unpack_values(slot, raw))
        elif slot.repeated:
            room.reserve(1)
            values[slot.name].append(slot.read(raw))
        elif slot.message and values[slot.name]:
            # A message may come in millions of parts: bytes would be copied for each.
            if isinstance(values[slot.name], bytes):
                wire_format.check_complete_fields(values[slot.name])
                values[slot.name] = bytearray(values[slot.name])
            wire_format.check_complete_fields(bytes(raw))
            values[slot.name] += raw
        else:
            values[slot.name] = slot.read(raw)
        return behind

    return read_message


def _count_packed_values(slot: _FieldTarget, raw: Any) -> int:
    """Count the values of a packed field without reading them: each varint ends with a byte without the highest bit."""
    return len(raw.translate(None, _GO_ON)) if slot.kind == wire_format.VARINT else len(raw) // 4


def _unpack_values(slot: _FieldTarget, raw: Any) -> list[Any]:
    """Return the values of a packed repeated field."""
    if slot.kind == wire_format.LENGTH:
        raise DescriptorMismatchError(f"wrong type: {slot.name}")
    values: list[Any] = []
    at = 0
    if slot.kind == wire_format.VARINT:
        while at < len(raw):
            value, at = wire_format.read_varint(raw, at)
            values.append(value)
        return values
    size = 8 if slot.kind == wire_format.FIXED64 else 4
    if len(raw) % size:
        raise wire_format.WireError(f"truncated inside {slot.name}")
    return [raw[i : i + size] for i in range(0, len(raw), size)]


def _parse_timestamp(data: bytes) -> datetime:
    seconds = nanos = 0
    for number, kind, raw in wire_format.read_fields(data):
        if number in (1, 2) and (kind != wire_format.VARINT or isinstance(raw, bytes)):
            raise DescriptorMismatchError("a field of a google.protobuf.Timestamp has the wrong wire type")
        if number == 1:
            seconds = wire_format.to_signed(int(raw), 64)
        elif number == 2:
            nanos = wire_format.to_signed(int(raw), 32)
    if not (_FIRST <= seconds <= _LAST and 0 <= nanos < 1_000_000_000):
        raise DescriptorMismatchError("a google.protobuf.Timestamp is outside the years 1 to 9999")
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


@dataclass(frozen=True)
class ProtobufDecoder(Decoder):
    """Decoder of Protobuf messages in Python.

    Parameters
    ----------
    message
        Message of the descriptor file.
    arrow
        True to send payloads by Arrow; the default is what this engine supports.
    """

    message: Message
    arrow: bool = field(default_factory=decode_in_python_by_arrow.can_return_arrow_columns)

    @property
    def schema(self) -> StructType:
        """Columns of the message's fields."""
        return message_columns(self.message)

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`."""
        return decode_in_python_by_arrow.decode_payloads(
            rows, self.schema, partial(make_payload_decoder, self.message), by_arrow=self.arrow
        )


def make_payload_decoder(message: Message) -> decode_in_python_by_arrow.PayloadDecoder:
    """Make the decode function on the worker; only the message's description is serialized."""
    room = ValueBudget()
    read = make_message_reader(message, room)

    def decode_payload(payload: bytes | None) -> tuple[decode_in_python_by_arrow.Decoded, int]:
        room.left = MOST_VALUES
        found: decode_in_python_by_arrow.Decoded = None, "decode", TOMBSTONE
        try:
            if payload is not None:
                found = read(payload), None, None
        except wire_format.WireError as error:
            found = None, "decode", str(error)
        except DescriptorMismatchError as error:
            found = None, "schema", str(error)
        return found, MOST_VALUES - room.left

    return decode_payload


def make_protobuf_decoder(data: bytes, message: str, path: str) -> ProtobufDecoder:
    """Make the decoder.

    Parameters
    ----------
    message
        Full name of the message.
    path
        File, for messages.

    Raises
    ------
    StartError
        The file is no descriptor file, lacks the message or a type, or a table cannot have the message.
    """
    try:
        found = find_message(data, message)
    except wire_format.WireError as error:
        raise StartError(
            f"{path}: this is not a Protobuf descriptor file (protoc --include_imports --descriptor_set_out) with a message "
            f"{message} that a table can have: {error}"
        ) from error
    schema_with_checked_names(message_columns(found), path)
    return ProtobufDecoder(found)
