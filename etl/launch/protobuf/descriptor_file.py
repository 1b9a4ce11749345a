"""Messages and enums of a Protobuf descriptor file.

``protoc --include_imports --descriptor_set_out=orders.desc orders.proto`` writes such a file. It is itself a
message (``google/protobuf/descriptor.proto``) and is read here by its field numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .wire_format import WireError, to_signed, values_by_field

REPEATED = 3
"""Value of ``FieldDescriptorProto.Label``."""

TIMESTAMP = "google.protobuf.Timestamp"
"""Full name of Protobuf's own timestamp type."""

_DEEPEST_MESSAGE = 100
"""Most messages inside each other: Google's parsers read no deeper (protobuf's ``CodedInputStream``)."""

Parts = Mapping[int, list[Any]]
"""Values of a message by field number."""


@dataclass(frozen=True)
class MessageOrEnum:
    """Message or enum of the file.

    Attributes
    ----------
    entry
        True for the entry of a map: a message that nobody declared.
    """

    parts: Parts
    proto3: bool
    enum: bool = False
    entry: bool = False

    @property
    def fields(self) -> Iterator[Parts]:
        """The fields of a message; see :func:`text_of_field` and :func:`int_of_field`."""
        return _messages_of_field(self.parts, 2)

    @property
    def enum_values(self) -> Iterator[tuple[int, str]]:
        """Number and name of each value of an enum; several may have one number."""
        for each in _messages_of_field(self.parts, 2):
            yield to_signed(int_of_field(each, 2), 32), text_of_field(each, 1)


def messages_and_enums(data: bytes) -> Iterator[tuple[str, MessageOrEnum]]:
    """Yield the messages and enums of a descriptor file with their full names, such as ``shop.Order``; a message before those in it.

    Raises
    ------
    WireError
        The bytes are no descriptor file, here or in the properties of a message or enum.
    """
    for file in _messages_of_field(values_by_field(data), 1):
        syntax = text_of_field(file, 12)
        if syntax not in ("", "proto2", "proto3"):
            raise WireError(f"syntax {syntax} is not supported; use proto2 or proto3")
        package = text_of_field(file, 2)
        yield from _nested_types(file, 4, 5, (package,) if package else (), syntax == "proto3")


def _nested_types(
    parts: Parts, messages: int, enums: int, scope: tuple[str, ...], proto3: bool
) -> Iterator[tuple[str, MessageOrEnum]]:
    if len(scope) > _DEEPEST_MESSAGE:
        raise WireError(f"messages are nested more than {_DEEPEST_MESSAGE} deep, the limit")
    for enum in _messages_of_field(parts, enums):
        yield ".".join((*scope, text_of_field(enum, 1))), MessageOrEnum(enum, proto3, enum=True)
    for message in _messages_of_field(parts, messages):
        options = values_by_field(b"".join(map(_require_bytes, message.get(7, []))))
        path = (*scope, text_of_field(message, 1))
        yield ".".join(path), MessageOrEnum(message, proto3, entry=bool(int_of_field(options, 7)))
        yield from _nested_types(message, 3, 4, path, proto3)


def _messages_of_field(parts: Parts, number: int) -> Iterator[Parts]:
    return (values_by_field(_require_bytes(each)) for each in parts.get(number, []))


def int_of_field(parts: Parts, number: int) -> int:
    """Return a number; 0 if absent, which is no valid field number, type or label."""
    value = parts.get(number, [0])[-1]
    if not isinstance(value, int):
        raise WireError(f"field {number} of the descriptor is not a number")
    return value


def text_of_field(parts: Parts, number: int) -> str:
    """Return a text; empty if absent."""
    try:
        return _require_bytes(parts.get(number, [b""])[-1]).decode()
    except UnicodeDecodeError as error:
        raise WireError("a name in the descriptor is not UTF-8") from error


def _require_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise WireError("the descriptor has a number in the place of a message")
    return value
