"""Protobuf's wire format: tags, and the values behind them (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, GROUP_START, GROUP_END, FIXED32 = range(6)

_LONGEST_VARINT = 10
_DEEPEST_GROUP = 100
_LARGEST_NUMBER = (1 << 29) - 1


class WireError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number of up to 64 bits; give it and the place behind it.

    Raises
    ------
    WireError
        It is cut off, or longer than ten bytes.
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
        raise WireError("cut off inside a number") from None
    raise WireError("a number of more than ten bytes")


def signed(value: int, bits: int) -> int:
    """The two's complement of the lowest bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def zigzag(value: int) -> int:
    """The number that a zigzag-coded one stands for."""
    return (value >> 1) ^ -(value & 1)


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Read number, wire type and raw value of each field: a number, or the bytes of the other three types.

    Groups, which nothing has written for long, are passed over.

    Raises
    ------
    WireError
        No message, or one that is cut off.
    """
    at, size = 0, len(data)
    groups: list[int] = []
    while at < size:
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _LARGEST_NUMBER:
            raise WireError(f"a field of number {number}")
        if kind == VARINT:
            value: int | bytes
            value, at = varint(data, at)
        elif kind in (LENGTH, FIXED32, FIXED64):
            length, at = varint(data, at) if kind == LENGTH else ((4 if kind == FIXED32 else 8), at)
            if length > size - at:
                raise WireError(f"cut off inside field {number}")
            value = data[at : at + length]
            at += length
        elif kind == GROUP_START and len(groups) < _DEEPEST_GROUP:
            groups.append(number)
            continue
        elif kind == GROUP_END and groups and groups[-1] == number:
            groups.pop()
            continue
        else:
            raise WireError(f"field {number} of wire type {kind}")
        if not groups:
            yield number, kind, value
    if groups:
        raise WireError("cut off inside a group")


def members(data: bytes) -> dict[int, list[int | bytes]]:
    """All values of a message by field number."""
    found: dict[int, list[int | bytes]] = {}
    for number, _, value in fields(data):
        found.setdefault(number, []).append(value)
    return found
