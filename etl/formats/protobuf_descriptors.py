"""A message of a Protobuf descriptor file, its fields, and the columns that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

from ..launch.protobuf.descriptor_file import (
    REPEATED,
    TIMESTAMP,
    MessageOrEnum,
    Parts,
    int_of_field,
    messages_and_enums,
    text_of_field,
)
from ..launch.protobuf.wire_format import WireError
from ..record.errors import StartError

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

_REQUIRED = 2


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
        return self.name == TIMESTAMP

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
        kinds = dict(messages_and_enums(data))
        if name not in kinds or kinds[name].enum:
            known = ", ".join(sorted(n for n, k in kinds.items() if not k.enum and not k.entry)) or "none"
            raise StartError(f"{where}: the file has no message {name}; its messages are {known}")
        return _build_message(name, kinds, (), where)
    except WireError as error:
        raise StartError(
            f"{where}: this is not a Protobuf descriptor file, as protoc --descriptor_set_out writes it: "
            f"{error}"
        ) from error


def _build_message(
    name: str, kinds: Mapping[str, MessageOrEnum], above: tuple[str, ...], where: str
) -> Message:
    if name in above:
        raise StartError(
            f"{where}: message {name} is recursive (it contains itself), which no column of a table can be; "
            "choose another message"
        )
    found = kinds[name]
    made = tuple(_build_field(parts, found.proto3, kinds, (*above, name), where) for parts in found.fields)
    return Message(name, made, found.entry)


def _build_field(
    parts: Parts,
    proto3: bool,
    kinds: Mapping[str, MessageOrEnum],
    above: tuple[str, ...],
    where: str,
) -> Field:
    name, number, kind = text_of_field(parts, 1), int_of_field(parts, 3), int_of_field(parts, 5)
    label = int_of_field(parts, 4)
    of = text_of_field(parts, 6).lstrip(".")
    if kind == GROUP:
        raise StartError(
            f"{where}: field {above[-1]}.{name} is a group, which is not supported; declare it as a message"
        )
    if kind not in SCALARS and kind != MESSAGE:
        raise StartError(f"{where}: field {above[-1]}.{name} has the unknown type {kind}")
    if of not in kinds and (of or kind in {MESSAGE, ENUM}):
        raise StartError(
            f"{where}: the file lacks the type {of or f'of field {above[-1]}.{name}'}; write the file again with protoc --include_imports"
        )
    message = _build_message(of, kinds, above, where) if kind == MESSAGE else None
    # Of several names of a number the first counts, as for Google's parsers.
    names = dict(reversed([*kinds[of].enum_values])) if kind == ENUM else None
    # Fields of a oneof have presence; so does proto3's `optional`, which is encoded as a oneof.
    presence = not proto3 or message is not None or 9 in parts
    oneof = int_of_field(parts, 9) if 9 in parts else None
    return Field(name, number, kind, label == REPEATED, label == _REQUIRED, presence, message, names, oneof)
