"""Names of the messages in a Protobuf descriptor file, for checks; the core reads the rest of it.

The file is a message itself (``google/protobuf/descriptor.proto``): ``FileDescriptorSet.file`` is 1; of a
file, ``package`` is 2 and ``message_type`` 4; of a message, ``name`` is 1, ``nested_type`` 3 and ``options``
7, of which ``map_entry`` is 7.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class DescriptorError(ValueError):
    """Bytes that are no descriptor file."""


def messages(data: bytes) -> list[str]:
    """List the full names of all messages of a descriptor file, in its order.

    Raises
    ------
    DescriptorError
        It is none.
    """
    try:
        return [name for file in _parts(data, 1) for name in _of_file(file)]
    except (IndexError, UnicodeDecodeError) as error:
        raise DescriptorError(f"cut off, or of another kind ({error})") from error


def _of_file(file: bytes) -> Iterator[str]:
    package = next(_parts(file, 2), b"").decode()
    for message in _parts(file, 4):
        yield from _of_message(message, f"{package}." if package else "")


def _of_message(message: bytes, prefix: str) -> Iterator[str]:
    # A map's entry is written as a message that nobody declared.
    if any(value for options in _parts(message, 7) for value in _numbers(options, 7)):
        return
    name = prefix + next(_parts(message, 1), b"").decode()
    yield name
    for nested in _parts(message, 3):
        yield from _of_message(nested, f"{name}.")


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, value in _fields(data):
        if number == wanted:
            if not isinstance(value, bytes):
                raise DescriptorError(f"field {number} is no message")
            yield value


def _numbers(data: bytes, wanted: int) -> Iterator[int]:
    for number, value in _fields(data):
        if number == wanted and isinstance(value, int):
            yield value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _LENGTH:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise DescriptorError(f"wire type {kind} at byte {at}")
        if length > len(data) - at:
            raise DescriptorError(f"cut off at byte {at}")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
