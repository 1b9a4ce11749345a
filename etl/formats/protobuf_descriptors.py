"""Reader of Protobuf descriptor files: a message's fields, and the columns that they become.

``protoc --include_imports --descriptor_set_out=orders.desc orders.proto`` writes such a file. It is itself a
message (``google/protobuf/descriptor.proto``) and is read here by its field numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..record.errors import StartError
from . import protobuf_wire

ENUM, GROUP, MESSAGE, STRING = 14, 10, 11, 9
"""Values of ``FieldDescriptorProto.Type``; the scalar ones are the keys of :data:`SCALARS`."""

SCALARS: Mapping[int, DataType] = {
    1: DoubleType(),
    2: FloatType(),
    3: LongType(),
    4: DecimalType(20, 0),
    5: IntegerType(),
    6: DecimalType(20, 0),
    7: LongType(),
    8: BooleanType(),
    9: StringType(),
    12: BinaryType(),
    13: LongType(),
    ENUM: StringType(),
    15: IntegerType(),
    16: LongType(),
    17: IntegerType(),
    18: LongType(),
}
"""Spark's type for each; unsigned numbers take the next larger one."""

_REQUIRED, _REPEATED = 2, 3
_TIMESTAMP = "google.protobuf.Timestamp"


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

    @property
    def column_type(self) -> DataType:
        """Type of the column."""
        kind = SCALARS[self.kind] if self.message is None else self.message.column_type
        if self.is_map:
            assert isinstance(kind, StructType), "an entry is a message"
            return MapType(kind["key"].dataType, kind["value"].dataType)
        return ArrayType(kind) if self.repeated else kind


@dataclass(frozen=True)
class Message:
    """Message and its fields, in the order of their declaration."""

    name: str
    fields: tuple[Field, ...]
    is_entry: bool = False

    @property
    def is_timestamp(self) -> bool:
        """True for protobuf's own timestamp type."""
        return self.name == _TIMESTAMP

    @property
    def column_type(self) -> DataType:
        """A struct of its fields, or a timestamp."""
        return TimestampType() if self.is_timestamp else self.columns

    @property
    def columns(self) -> StructType:
        """Columns of its fields."""
        return StructType([StructField(f.name, f.column_type, not f.required) for f in self.fields])


def find_message(data: bytes, name: str, where: str) -> Message:
    """Find a message in a descriptor file.

    Parameters
    ----------
    name
        Full name, such as ``shop.Order``.
    where
        File, for messages.

    Raises
    ------
    StartError
        The file is no descriptor file, lacks the message or a type, or the message contains itself (a table cannot have such
        a column).
    """
    try:
        kinds = dict(_named_messages_and_enums(data))
        if name not in kinds or kinds[name].enum:
            known = ", ".join(sorted(n for n, k in kinds.items() if not k.enum and not k.entry)) or "none"
            raise StartError(f"{where}: the file has no message {name}; its messages are {known}")
        return _build_message(name, kinds, (), where)
    except protobuf_wire.WireError as error:
        raise StartError(
            f"{where}: this is not a Protobuf descriptor file, as protoc --descriptor_set_out writes it: "
            f"{error}"
        ) from error


@dataclass(frozen=True)
class _MessageOrEnum:
    """Message or enum of the file: its parts by field number."""

    parts: Mapping[int, list[Any]]
    proto3: bool
    enum: bool = False
    entry: bool = False


def _named_messages_and_enums(data: bytes) -> Iterator[tuple[str, _MessageOrEnum]]:
    for file in protobuf_wire.values_by_field(data).get(1, []):
        parts = protobuf_wire.values_by_field(_require_bytes(file))
        package = _text_of_field(parts, 2)
        syntax = _text_of_field(parts, 12)
        if syntax not in ("", "proto2", "proto3"):
            raise protobuf_wire.WireError(f"syntax {syntax} is not supported; use proto2 or proto3")
        yield from _nested_types(parts, 4, 5, package, syntax == "proto3")


def _nested_types(
    parts: Mapping[int, list[Any]], messages: int, enums: int, scope: str, proto3: bool
) -> Iterator[tuple[str, _MessageOrEnum]]:
    prefix = f"{scope}." if scope else ""
    for each in parts.get(enums, []):
        enum = protobuf_wire.values_by_field(_require_bytes(each))
        yield prefix + _text_of_field(enum, 1), _MessageOrEnum(enum, proto3, enum=True)
    for each in parts.get(messages, []):
        message = protobuf_wire.values_by_field(_require_bytes(each))
        options = protobuf_wire.values_by_field(b"".join(map(_require_bytes, message.get(7, []))))
        name = prefix + _text_of_field(message, 1)
        yield name, _MessageOrEnum(message, proto3, entry=bool(_int_of_field(options, 7)))
        yield from _nested_types(message, 3, 4, name, proto3)


def _build_message(
    name: str, kinds: Mapping[str, _MessageOrEnum], above: tuple[str, ...], where: str
) -> Message:
    if name in above:
        raise StartError(
            f"{where}: message {name} is recursive (it contains itself), which no column of a table can be; "
            "choose another message"
        )
    found = kinds[name]
    fields = (protobuf_wire.values_by_field(_require_bytes(each)) for each in found.parts.get(2, []))
    made = tuple(_build_field(parts, found.proto3, kinds, (*above, name), where) for parts in fields)
    return Message(name, made, found.entry)


def _build_field(
    parts: Mapping[int, list[Any]],
    proto3: bool,
    kinds: Mapping[str, _MessageOrEnum],
    above: tuple[str, ...],
    where: str,
) -> Field:
    name, number, kind = _text_of_field(parts, 1), _int_of_field(parts, 3), _int_of_field(parts, 5)
    label = _int_of_field(parts, 4)
    of = _text_of_field(parts, 6).lstrip(".")
    if kind == GROUP:
        raise StartError(
            f"{where}: field {above[-1]}.{name} is a group, which is not supported; declare it as a message"
        )
    if kind not in SCALARS and kind != MESSAGE:
        raise StartError(f"{where}: field {above[-1]}.{name} has the unknown type {kind}")
    if of and of not in kinds:
        raise StartError(
            f"{where}: the file lacks the type {of}; write the file again with protoc --include_imports"
        )
    message = _build_message(of, kinds, above, where) if kind == MESSAGE else None
    # Of several names of a number the first counts, as for Google's parsers.
    names = dict(reversed([*_enum_names_by_number(kinds[of])])) if kind == ENUM else None
    # Fields of a oneof have presence; so does proto3's `optional`, which is encoded as a oneof.
    presence = not proto3 or message is not None or 9 in parts
    oneof = _int_of_field(parts, 9) if 9 in parts else None
    return Field(name, number, kind, label == _REPEATED, label == _REQUIRED, presence, message, names, oneof)


def _enum_names_by_number(enum: _MessageOrEnum) -> Iterator[tuple[int, str]]:
    for each in enum.parts.get(2, []):
        parts = protobuf_wire.values_by_field(_require_bytes(each))
        yield protobuf_wire.to_signed(_int_of_field(parts, 2), 32), _text_of_field(parts, 1)


def _int_of_field(parts: Mapping[int, list[Any]], number: int) -> int:
    """Return a number; 0 if absent, which is no valid field number, type or label."""
    value = parts.get(number, [0])[-1]
    if not isinstance(value, int):
        raise protobuf_wire.WireError(f"field {number} of the descriptor is not a number")
    return value


def _require_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise protobuf_wire.WireError("the descriptor has a number in the place of a message")
    return value


def _text_of_field(parts: Mapping[int, list[Any]], number: int) -> str:
    values = parts.get(number)
    if not values:
        return ""
    try:
        return _require_bytes(values[-1]).decode()
    except UnicodeDecodeError as error:
        raise protobuf_wire.WireError("a name in the descriptor is not UTF-8") from error
