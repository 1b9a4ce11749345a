"""Columns of the fields of a Protobuf message."""

from __future__ import annotations

from collections.abc import Mapping

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

from ..launch.protobuf.descriptor_file import ENUM, Field, Message

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


def message_columns(message: Message) -> StructType:
    """Return the columns of a message's fields, in the order of their declaration."""
    return StructType([StructField(f.name, _column_type(f), not f.required) for f in message.fields])


def _column_type(field: Field) -> DataType:
    if field.message is None:
        kind = SCALARS[field.kind]
    else:
        kind = TimestampType() if field.message.is_timestamp else message_columns(field.message)
    if field.is_map:
        assert isinstance(kind, StructType), "an entry is a message"
        return MapType(kind["key"].dataType, kind["value"].dataType)
    return ArrayType(kind) if field.repeated else kind
