"""Messages of a Protobuf descriptor file, with their fields and enums.

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

ENUM, GROUP, MESSAGE, STRING = 14, 10, 11, 9
"""Values of ``FieldDescriptorProto.Type``."""

_TYPES = range(1, 19)
_REQUIRED = 2

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


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes
    ----------
    kind
        A value of ``FieldDescriptorProto.Type``.
    presence
        True if an absent field is null; otherwise it has its type's zero value, by the rules of the language.
    message
        Message that the field holds, if any.
    names
        Names of an enum's numbers.
    oneof
        Number of the ``oneof`` that it belongs to, if any: only the last member of one counts.
    """

    name: str
    number: int
    kind: int
    repeated: bool
    required: bool
    presence: bool
    message: Message | None = None
    names: Mapping[int, str] | None = None
    oneof: int | None = None

    @property
    def is_map(self) -> bool:
        """True for a map, which is encoded as repeated entries."""
        return self.repeated and self.message is not None and self.message.is_entry


@dataclass(frozen=True)
class Message:
    """Message and its fields, in the order of their declaration."""

    name: str
    fields: tuple[Field, ...]
    is_entry: bool = False

    @property
    def is_timestamp(self) -> bool:
        """True for protobuf's own timestamp type."""
        return self.name == TIMESTAMP


def find_message(data: bytes, name: str) -> Message:
    """Find a message in a descriptor file.

    Parameters
    ----------
    name
        Full name, such as ``shop.Order``.

    Raises
    ------
    WireError
        The file is no descriptor file, lacks the message or a type, or the message contains itself (a table cannot have such
        a column).
    """
    kinds = dict(messages_and_enums(data))
    if name not in kinds or kinds[name].enum:
        known = ", ".join(sorted(n for n, k in kinds.items() if not k.enum and not k.entry)) or "none"
        raise WireError(f"the file has no message {name}; its messages are {known}")
    return _build_message(name, kinds, ())


def _build_message(name: str, kinds: Mapping[str, MessageOrEnum], above: tuple[str, ...]) -> Message:
    if name in above:
        raise WireError(
            f"message {name} is recursive (it contains itself), which no column of a table can be; "
            "choose another message"
        )
    found = kinds[name]
    made = tuple(_build_field(parts, found.proto3, kinds, (*above, name)) for parts in found.fields)
    return Message(name, made, found.entry)


def _build_field(
    parts: Parts,
    proto3: bool,
    kinds: Mapping[str, MessageOrEnum],
    above: tuple[str, ...],
) -> Field:
    name, number, kind = text_of_field(parts, 1), int_of_field(parts, 3), int_of_field(parts, 5)
    label = int_of_field(parts, 4)
    of = text_of_field(parts, 6).lstrip(".")
    if kind == GROUP:
        raise WireError(
            f"field {above[-1]}.{name} is a group, which is not supported; declare it as a message"
        )
    if kind not in _TYPES:
        raise WireError(f"field {above[-1]}.{name} has the unknown type {kind}")
    if of not in kinds and (of or kind in {MESSAGE, ENUM}):
        raise WireError(
            f"the file lacks the type {of or f'of field {above[-1]}.{name}'}; write the file again with protoc --include_imports"
        )
    message = _build_message(of, kinds, above) if kind == MESSAGE else None
    # Of several names of a number the first counts, as for Google's parsers.
    names = dict(reversed([*kinds[of].enum_values])) if kind == ENUM else None
    # Fields of a oneof have presence; so does proto3's `optional`, which is encoded as a oneof.
    presence = not proto3 or message is not None or 9 in parts
    oneof = int_of_field(parts, 9) if 9 in parts else None
    return Field(name, number, kind, label == REPEATED, label == _REQUIRED, presence, message, names, oneof)
