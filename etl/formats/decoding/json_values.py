"""Values of a JSON record, made of what Spark's parser reads.

Times are read as texts and ``TINYINT`` as ``SMALLINT``, as the parser takes more for them than they hold. A record of which the
quick way is not certain is made of its texts, as :mod:`.json_texts_as_sent` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from . import json_texts_as_sent, out_of_range_numbers, times
from .decoder_output_and_checks import (
    all_leaves_condition,
    distinct_keys_condition,
    field_names_of_type,
    with_replaced_leaf_types,
    with_replaced_leaves,
)


def is_read_as_other_type(kind: DataType) -> bool:
    """Check that a value of a type is made here, of what Spark's parser reads for another type."""
    return isinstance(kind, StringType | ByteType) or times.is_time_or_date_type(kind)


def parser_schema(schema: StructType) -> StructType:
    """Return the types that the parser reads: a time as a text, and a larger number than ``TINYINT``, of which it takes 255."""

    def parser_type(kind: DataType) -> DataType:
        return (
            StringType()
            if times.is_time_or_date_type(kind)
            else ShortType()
            if isinstance(kind, ByteType)
            else kind
        )

    found = with_replaced_leaf_types(schema, parser_type)
    assert isinstance(found, StructType)
    return found


def type_reading_values_as_texts(kind: DataType) -> DataType | None:
    """Return a type with a text for each value whose writing matters, and without all others."""
    if isinstance(kind, StructType):
        parts = [
            (f.name, part)
            for f in kind.fields
            if (part := type_reading_values_as_texts(f.dataType)) is not None
        ]
        return StructType([StructField(*each) for each in parts]) if parts else None
    if isinstance(kind, ArrayType):
        part = type_reading_values_as_texts(kind.elementType)
        return part and ArrayType(part)
    if isinstance(kind, MapType):
        part = type_reading_values_as_texts(kind.valueType)
        return part and MapType(StringType(), part)
    return StringType() if is_read_as_other_type(kind) or isinstance(kind, DecimalType) else None


def quick_value(kind: DataType, value: Column) -> Column:
    """Return a value of the schema's type, or null where that is not certain (:func:`certainty_conditions_of_quick_values`)."""

    def quick_leaf_value(kind: DataType, value: Column, _: Column) -> Column:
        return (
            times.time_from_common_form(kind, value)
            if times.is_time_or_date_type(kind)
            else value.cast("tinyint")
        )

    return with_replaced_leaves(
        kind,
        value,
        None,
        lambda k: isinstance(k, ByteType) or times.is_time_or_date_type(k),
        quick_leaf_value,
    )


def _quick_value_certain_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a parsed value without parts is what :func:`quick_value` makes of it. Null meets it."""
    if times.is_time_or_date_type(kind):
        return times.time_from_common_form(kind, value).isNotNull()
    if isinstance(kind, ByteType):
        return _tinyint_fits_condition(value)
    if isinstance(kind, MapType):
        return distinct_keys_condition(value)
    return out_of_range_numbers.all_numbers_finite_condition(kind, value)


def map_keys_distinct_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a map has each name once; None for a type that is no map."""
    return distinct_keys_condition(value) if isinstance(kind, MapType) else None


def certainty_conditions_of_quick_values(
    fields: StructType, value_of: Callable[[str], Column]
) -> Iterator[Column]:
    """Yield conditions on parsed values; a record that does not meet them all is parsed again."""
    for each in fields:
        if (
            sound := all_leaves_condition(each.dataType, value_of(each.name), _quick_value_certain_condition)
        ) is not None:
            yield sound

    def leaf_text_not_rewritten_condition(kind: DataType, value: Column) -> Column | None:
        return (
            json_texts_as_sent.text_not_rewritten_condition(value) if isinstance(kind, StringType) else None
        )

    texts = []
    if flat := [
        text for each in fields for text in _texts_outside_arrays_and_maps(each.dataType, value_of(each.name))
    ]:
        texts.append(json_texts_as_sent.texts_not_rewritten_condition(flat))
    for each in fields:
        nested = None if out_of_range_numbers.has_no_array_or_map(each.dataType) else value_of(each.name)
        if (
            nested is not None
            and (as_written := all_leaves_condition(each.dataType, nested, leaf_text_not_rewritten_condition))
            is not None
        ):
            texts.append(as_written)
    if texts:
        names = field_names_of_type(fields, lambda kind: isinstance(kind, StringType))
        yield reduce(lambda a, b: a & b, texts) | ~json_texts_as_sent.possible_non_text_condition(
            F.col("payload").cast("string"), names
        )


def _texts_outside_arrays_and_maps(kind: DataType, value: Column) -> Iterator[Column]:
    """Yield the texts of a value that has neither arrays nor maps."""
    if isinstance(kind, StringType):
        yield value
    elif isinstance(kind, StructType) and out_of_range_numbers.has_no_array_or_map(kind):
        for field in kind.fields:
            yield from _texts_outside_arrays_and_maps(field.dataType, value[field.name])


def _tinyint_fits_condition(value: Column) -> Column:
    return value.between(-128, 127)


def exact_value(kind: DataType, value: Column, text: Column) -> Column:
    """Return a value of a record, of its text by :func:`etl.formats.decoding.json_texts_as_sent.with_marked_texts`."""
    if isinstance(kind, ByteType):
        return value.cast("tinyint")
    return (
        _time_of_text(kind, text)
        if times.is_time_or_date_type(kind)
        else json_texts_as_sent.value_as_sender_wrote_it(text)
    )


def column_names_read_from_text_by_type(schema: StructType) -> list[tuple[DataType, list[str]]]:
    """Return the columns that :func:`exact_value` makes of a text alone, by their types."""
    made = [f for f in schema if isinstance(f.dataType, StringType) or times.is_time_or_date_type(f.dataType)]
    kinds = {str(f.dataType): f.dataType for f in made}
    return [(kind, [f.name for f in made if f.dataType == kind]) for kind in kinds.values()]


def _time_of_text(kind: DataType, text: Column) -> Column:
    written = json_texts_as_sent.scalar_without_mark(text)
    number = F.when(
        json_texts_as_sent.marked_number_condition(text), times.time_from_epoch_number(kind, written)
    )
    return F.coalesce(
        number, F.when(~json_texts_as_sent.marked_number_condition(text), times.time_from_text(kind, written))
    )


def written_as_type_condition(kind: DataType, text: Column) -> Column | None:
    """Return a condition: a value is written as one of its type, as far as the parser does not know."""
    if times.is_time_or_date_type(kind):
        return _time_of_text(kind, text).isNotNull()
    if isinstance(kind, ByteType):
        return _tinyint_fits_condition(json_texts_as_sent.scalar_without_mark(text).cast("int"))
    if isinstance(kind, DecimalType):
        return json_texts_as_sent.marked_number_condition(text) | ~text.contains(",")
    return None
