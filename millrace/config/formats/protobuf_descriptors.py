"""Messages of a Protobuf descriptor file and their fields, for checks; the core reads the rest of it.

The file is a message itself (``google/protobuf/descriptor.proto``): ``FileDescriptorSet.file`` is 1; of a
file, ``package`` is 2, ``message_type`` 4 and ``enum_type`` 5; of a message, ``name`` is 1, ``field`` 2, ``nested_type`` 3,
``enum_type`` 4 and ``options`` 7, of which ``map_entry`` is 7; of a field, ``name`` is 1, ``label`` 4 and ``type_name`` 6; of an
enum, ``value`` is 2, of which ``name`` is 1 and ``number`` 2.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_REPEATED = 3
_TIMESTAMP = ".google.protobuf.Timestamp"


class DescriptorError(ValueError):
    """Bytes that are no descriptor file."""


def message_names(data: bytes) -> list[str]:
    """Return the full names of all messages of a descriptor file, in its order.

    Raises
    ------
    DescriptorError
        The bytes are no descriptor file.
    """
    return [name for name, _ in _all_messages(data)]


def is_timestamp_by_field(data: bytes, message: str) -> dict[str, bool]:
    """Return the fields of a message by name, each with whether it is a single ``google.protobuf.Timestamp``.

    Raises
    ------
    DescriptorError
        The bytes are no descriptor file, or it has no such message.
    """
    result = dict(_all_messages(data)).get(message)
    if result is None:
        raise DescriptorError(f"no message {message}")
    return {
        _text_of_field(field, 1): _text_of_field(field, 6) == _TIMESTAMP
        and _REPEATED not in _numbers_of_field(field, 4)
        for field in _byte_values_of_field(result, 2)
    }


def enum_zero_names(data: bytes) -> list[str]:
    """Return the names of the value 0 in all enums of a descriptor file.

    Raises
    ------
    DescriptorError
        The bytes are no descriptor file.
    """
    enums = [each for file in _byte_values_of_field(data, 1) for each in _byte_values_of_field(file, 5)]
    enums += [each for _, message in _all_messages(data) for each in _byte_values_of_field(message, 4)]
    values = [value for enum in enums for value in _byte_values_of_field(enum, 2)]
    return sorted({_text_of_field(value, 1) for value in values if not any(_numbers_of_field(value, 2))})


def _all_messages(data: bytes) -> list[tuple[str, bytes]]:
    try:
        return [each for file in _byte_values_of_field(data, 1) for each in _messages_of_file(file)]
    except (IndexError, UnicodeDecodeError) as error:
        raise DescriptorError(
            f"the file is incomplete, or not a descriptor file of Protobuf ({error})"
        ) from error


def _messages_of_file(file: bytes) -> Iterator[tuple[str, bytes]]:
    package = _text_of_field(file, 2)
    for message in _byte_values_of_field(file, 4):
        yield from _message_and_nested(message, f"{package}." if package else "")


def _text_of_field(data: bytes, number: int) -> str:
    return next(_byte_values_of_field(data, number), b"").decode()


def _message_and_nested(message: bytes, prefix: str) -> Iterator[tuple[str, bytes]]:
    # The entry of a map is stored as a message that nobody declared.
    if any(value for options in _byte_values_of_field(message, 7) for value in _numbers_of_field(options, 7)):
        return
    name = prefix + _text_of_field(message, 1)
    yield name, message
    for nested in _byte_values_of_field(message, 3):
        yield from _message_and_nested(nested, f"{name}.")


def _byte_values_of_field(data: bytes, field_number: int) -> Iterator[bytes]:
    for number, value in _read_fields(data):
        if number == field_number:
            if not isinstance(value, bytes):
                raise DescriptorError(f"field {number} of the descriptor is not a message")
            yield value


def _numbers_of_field(data: bytes, field_number: int) -> Iterator[int]:
    for number, value in _read_fields(data):
        if number == field_number and isinstance(value, int):
            yield value


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint_and_end(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint_and_end(data, at)
            yield tag >> 3, value
            continue
        if kind == _LENGTH:
            length, at = _read_varint_and_end(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise DescriptorError(f"unknown wire type {kind} at byte {at}")
        if length > len(data) - at:
            raise DescriptorError(f"the file is incomplete: it ends at byte {at}")
        yield tag >> 3, data[at : at + length]
        at += length


def _read_varint_and_end(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
