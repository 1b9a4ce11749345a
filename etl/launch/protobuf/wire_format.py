"""Protobuf's wire format: tags and their values (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, GROUP_START, GROUP_END, FIXED32 = range(6)

_LONGEST_VARINT = 10
_DEEPEST_GROUP = 100
_LARGEST_NUMBER = (1 << 29) - 1


class WireError(ValueError):
    """Bytes that are not a message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number of up to 64 bits; return it and the position after it.

    Raises
    ------
    WireError
        The number is cut off, or longer than ten bytes.
    """
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        for place in range(at + 1, at + _LONGEST_VARINT):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, place + 1
            shift += 7
    except IndexError:
        raise WireError("truncated inside a varint") from None
    raise WireError("a varint is longer than ten bytes")


def to_signed(value: int, bits: int) -> int:
    """Return the two's complement of the lowest bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def decode_zigzag(value: int) -> int:
    """Decode a zigzag-coded number."""
    return (value >> 1) ^ -(value & 1)


def read_field(data: bytes, at: int) -> tuple[int, int, int | bytes, int]:
    """Read one field: its number, wire type, raw value (a number or bytes) and the position after it.

    A group (a deprecated encoding) is skipped, and its value is empty.

    Raises
    ------
    WireError
        There is no field, or it is cut off.
    """
    tag, at = read_varint(data, at)
    number, kind = tag >> 3, tag & 7
    if not 0 < number <= _LARGEST_NUMBER:
        raise WireError(f"field number {number} is outside the allowed range")
    if kind == VARINT:
        value, at = read_varint(data, at)
        return number, kind, value, at
    if kind == GROUP_START:
        return number, kind, b"", _position_after_group(data, at, number)
    if kind not in (LENGTH, FIXED32, FIXED64):
        raise WireError(f"field {number} has the unsupported wire type {kind}")
    length, at = read_varint(data, at) if kind == LENGTH else ((4 if kind == FIXED32 else 8), at)
    end = at + length
    if end > len(data):
        raise WireError(f"truncated inside field {number}")
    return number, kind, data[at:end], end


def _position_after_group(data: bytes, at: int, number: int) -> int:
    groups = [number]
    while groups:
        if at >= len(data):
            raise WireError("truncated inside a group")
        tag, behind = read_varint(data, at)
        if tag & 7 == GROUP_START and len(groups) < _DEEPEST_GROUP:
            groups.append(tag >> 3)
            at = behind
        elif tag & 7 == GROUP_END and tag >> 3 == groups[-1]:
            groups.pop()
            at = behind
        elif tag & 7 == GROUP_START:
            raise WireError(f"the message nests groups more than {_DEEPEST_GROUP} deep, the limit")
        else:
            *_, at = read_field(data, at)
    return at


def read_fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and raw value of each field, see :func:`read_field`."""
    at = 0
    while at < len(data):
        number, kind, value, at = read_field(data, at)
        yield number, kind, value


def check_complete_fields(data: bytes) -> None:
    """Check that bytes are complete fields; a part of a message that is not would be completed by the next part.

    Raises
    ------
    WireError
        They are not.
    """
    for _ in read_fields(data):
        pass


def values_by_field(data: bytes) -> dict[int, list[int | bytes]]:
    """Return all values of a message by field number."""
    found: dict[int, list[int | bytes]] = {}
    for number, _, value in read_fields(data):
        found.setdefault(number, []).append(value)
    return found
