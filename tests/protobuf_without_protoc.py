"""Descriptor files and messages of Protobuf, written by hand as protoc writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.etl.formats import protobuf
from millrace.etl.launch.protobuf.descriptor_file import Message

OPTIONAL, REQUIRED, REPEATED = 1, 2, 3
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING = range(1, 10)
MESSAGE, BYTES, UINT32, ENUM, SFIXED32, SFIXED64, SINT32, SINT64 = range(11, 19)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def fixed(field: int, form: str, value: Any) -> bytes:
    data = struct.pack(form, value)
    return varint(field << 3 | (1 if len(data) == 8 else 5)) + data


def block(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


@dataclass(frozen=True)
class Declared:
    """A field of a message; ``of`` is the full name of its message or enum."""

    name: str
    number: int
    kind: int
    label: int = OPTIONAL
    of: str = ""
    oneof: int | None = None

    def data(self) -> bytes:
        """A ``FieldDescriptorProto``."""
        parts = block(1, self.name) + number(3, self.number) + number(4, self.label) + number(5, self.kind)
        parts += block(6, f".{self.of}") if self.of else b""
        return parts + (number(9, self.oneof) if self.oneof is not None else b"")


def message(
    name: str,
    fields: Sequence[Declared],
    *,
    nested: Sequence[bytes] = (),
    enums: Sequence[bytes] = (),
    oneofs: Sequence[str] = (),
    entry: bool = False,
) -> bytes:
    """A ``DescriptorProto``."""
    parts = block(1, name) + b"".join(block(2, f.data()) for f in fields)
    parts += b"".join(block(3, n) for n in nested) + b"".join(block(4, e) for e in enums)
    parts += b"".join(block(8, block(1, o)) for o in oneofs)
    return parts + (block(7, number(7, 1)) if entry else b"")


def enum(name: str, values: dict[str, int]) -> bytes:
    """An ``EnumDescriptorProto``."""
    return block(1, name) + b"".join(block(2, block(1, n) + number(2, v)) for n, v in values.items())


def file(
    name: str,
    package: str,
    messages: Sequence[bytes],
    *,
    enums: Sequence[bytes] = (),
    syntax: str = "proto3",
    imports: Sequence[str] = (),
) -> bytes:
    """A ``FileDescriptorProto``."""
    parts = block(1, name) + block(2, package) + b"".join(block(3, i) for i in imports)
    parts += b"".join(block(4, m) for m in messages) + b"".join(block(5, e) for e in enums)
    return parts + block(12, syntax)


def descriptor_set(*files: bytes) -> bytes:
    """A descriptor file."""
    return b"".join(block(1, each) for each in files)


def reader(message: Message) -> Callable[[bytes], dict[str, Any]]:
    """The core's reader of a message, with room for each payload as if it were alone."""
    room = protobuf.ValueBudget()
    read = protobuf.make_message_reader(message, room)

    def read_alone(payload: bytes) -> dict[str, Any]:
        room.left = protobuf.MOST_VALUES
        return read(payload)

    return read_alone
