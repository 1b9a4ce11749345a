"""Values of a row in a change event: the types in which an envelope writes them, and what they become.

Debezium (``documentation/modules/ROOT/pages/connectors/postgresql.adoc``, "Data type mappings") writes a DATE as days since
1970, a time without a zone as a number whose unit depends on the column, and with ``decimal.handling.mode=precise`` a number as
the bytes of its unscaled value; the scale stands in the event's schema only. AWS DMS writes bytes as hexadecimal digits.

What a type does not hold exactly is null here, and the record a dead letter (:func:`misread_field_name_columns`).
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ..decoding import json_texts_as_sent, times
from ..decoding.decoder_output_and_checks import (
    all_leaves_condition,
    contains_type,
    evaluate_once,
    with_replaced_leaf_types,
    with_replaced_leaves,
)

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a value that the database did not log, such as an unchanged TOAST value of PostgreSQL."""

_UNAVAILABLE_UUID = str(
    uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3)
)
"""The same in an array of UUIDs: Java's ``UUID.nameUUIDFromBytes``."""

_UNAVAILABLE_HSTORE = f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'
"""The same in an ``hstore`` with ``hstore.handling.mode=json`` (``PostgresValueConverter`` of Debezium)."""

EVENT = "_change_raw"
"""Column with the event as it arrived, beside those of its rows."""

_BASE64 = r"^(?=.{2,20}\z|.{22}==\z)(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
"""At most 16 bytes: a DECIMAL has 38 digits."""

_SHORT = 8
"""Characters of base64 for six bytes, which Spark's 64-bit numbers hold."""

_LARGEST_SCALE = 999
"""Of a number with its own scale, as the exponent of other decimals: Spark writes out all digits before it checks them."""

_LARGEST_SIZE = 16
"""Bytes of a number of 38 digits."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999, in days since 1970."""

_EPOCH = "1970-01-01"

_UNQUOTED = r"^-?+[0-9]++(?:[eE][-+]?+[0-9]++)?+\z"

_BARE = f"={secrets.token_hex(8)}"
"""Before a value that has no quotes in its event; neither base64 nor hexadecimal digits, and no payload knows it."""

_HEX = r"^(?:0x)?((?:[0-9A-Fa-f]{2})*+)\z"


@dataclass(frozen=True)
class WireTypes:
    """Types in which an envelope writes values.

    Attributes
    ----------
    numeric
        True for Debezium: days and epoch times are numbers, of which the schema declares the unit.
    unscaled
        True if a DECIMAL is the bytes of its unscaled value.
    hexadecimal
        True if bytes are hexadecimal digits.
    """

    numeric: bool = False
    unscaled: bool = False
    hexadecimal: bool = False

    def wire_schema(self, row: StructType) -> StructType:
        """Return the types in which a parser reads a row, each nullable: an event may hold its key only."""
        found = with_replaced_leaf_types(row, self._wire_type)
        assert isinstance(found, StructType)
        return found

    def _wire_type(self, kind: DataType) -> DataType:
        if isinstance(kind, DateType) and self.numeric:
            return IntegerType()
        return StringType() if self._needs_conversion(kind) else kind

    def _needs_conversion(self, kind: DataType) -> bool:
        return (
            times.is_time_or_date_type(kind)
            or (self.unscaled and isinstance(kind, DecimalType))
            or (self.hexadecimal and isinstance(kind, BinaryType))
        )

    def _converted_from_wire(self, kind: DataType, value: Column) -> Column:
        if isinstance(kind, DateType) and self.numeric:
            return F.when(value.between(_FIRST_DAY, _LAST_DAY), F.date_add(F.lit(_EPOCH).cast("date"), value))
        if isinstance(kind, DecimalType):
            return _decimal_of_unscaled(kind, value)
        if isinstance(kind, BinaryType):
            written = F.unhex(F.regexp_extract(value, _HEX, 1))
            return F.when(value.rlike(_HEX), written)
        if self.numeric and not times.declares_unit(kind):
            # A number would be a year: "1700".
            value = F.when(value.rlike(r"^\d{4}-\d\d-\d\d[T ]"), value)
        return F.coalesce(times.time_from_common_form(kind, value), times.time_from_text(kind, value))

    def _may_be_bare(self, kind: DataType) -> bool:
        """Check that a value means something else without quotes: a number is also a text of base64 or of hexadecimal digits."""
        return (self.unscaled and isinstance(kind, DecimalType)) or (
            self.hexadecimal and isinstance(kind, BinaryType)
        )

    def bare_value_columns(
        self, fields: StructType, event: Column
    ) -> tuple[Column, Mapping[str, Callable[[Column], Column]]] | None:
        """Return how values without quotes are told from texts; None for a schema without such values.

        Parameters
        ----------
        fields
            Fields of an event that hold rows or values, with the types of the row's columns.
        event
            The event as text.

        Returns
        -------
        tuple
            The event's fields as marked texts (:func:`etl.formats.decoding.json_texts_as_sent.with_marked_texts`), parsed only if a
            value may lack its quotes, else null; and by each field's name, the field of these as what the parser read, with
            a mark of this module before values without quotes.
        """
        found = StructType([f for f in fields if contains_type(f.dataType, self._may_be_bare)])
        if not found.fields:
            return None

        def settled_condition(kind: DataType, value: Column) -> Column | None:
            return ~_possibly_bare_condition(value) if self._may_be_bare(kind) else None

        settled = [all_leaves_condition(f.dataType, F.col(f"`{f.name}`"), settled_condition) for f in found]
        unsettled = ~reduce(and_, (each for each in settled if each is not None))
        shape = StructType(
            [StructField(f.name, with_replaced_leaf_types(f.dataType, lambda _: StringType())) for f in found]
        )
        texts = F.from_json(json_texts_as_sent.with_marked_texts(event), shape)

        def told_apart(_: DataType, value: Column, text: Column) -> Column:
            settled = ~_possibly_bare_condition(value) | json_texts_as_sent.marked_text_condition(text)
            number = F.when(json_texts_as_sent.marked_number_condition(text), value).otherwise("")
            return F.when(settled, value).when(value.isNotNull(), F.concat(F.lit(_BARE), number))

        def marked_field(field: StructField, marked: Column) -> Column:
            read = F.col(f"`{field.name}`")
            value = with_replaced_leaves(
                field.dataType, read, marked[field.name], self._may_be_bare, told_apart
            )
            return F.when(marked.isNull(), read).otherwise(value)

        return F.when(unsettled, texts), {f.name: partial(marked_field, f) for f in found}

    def field_value(self, field: StructField, wire: Column) -> Column:
        """Return a field's value, of what the parser read; null, at any depth, where the type does not hold it."""
        return with_replaced_leaves(
            field.dataType,
            wire,
            None,
            self._needs_conversion,
            lambda kind, value, _: self._converted_from_wire(kind, value),
        )

    def row_struct(self, row: StructType, wire: Column) -> Column:
        """Return a row, null where the parser read none."""
        values = (self.field_value(f, wire[f.name]).alias(f.name) for f in row)
        return F.when(wire.isNotNull(), F.struct(*values))

    def misread_field_name_columns(self, row: StructType, wire: Column) -> Iterator[Column]:
        """Yield the name of each field whose value its type does not hold, with the likely unit of a time, and null for all others."""

        def converted_condition(kind: DataType, value: Column) -> Column | None:
            return (
                self._converted_from_wire(kind, value).isNotNull() if self._needs_conversion(kind) else None
            )

        for field in row:
            value = wire[field.name]
            if (fits := all_leaves_condition(field.dataType, value, converted_condition)) is not None:
                timed = contains_type(field.dataType, times.is_time_or_date_type)
                hint = times.unit_hint(field.dataType, value.cast("string")) if timed else F.lit("")
                yield F.when(~fits, F.concat(F.lit(field.name), hint))


def no_placeholder_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: no part of a value is Debezium's placeholder; None for a type that cannot be one.

    In an array of numbers or days each byte of the placeholder is an element (``UnchangedToastedPlaceholder`` of Debezium).
    """
    placeholder = UNAVAILABLE.encode()
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, IntegerType | LongType | DateType):
        days = isinstance(kind.elementType, DateType)
        parts = (
            F.date_add(F.lit(_EPOCH).cast("date"), each) if days else F.lit(each) for each in placeholder
        )
        return value.isNull() | (value != F.array(*parts).cast(kind))

    def not_placeholder_condition(kind: DataType, value: Column) -> Column | None:
        if isinstance(kind, StringType):
            return ~value.isin(UNAVAILABLE, _UNAVAILABLE_UUID, _UNAVAILABLE_HSTORE)
        return value != F.lit(bytearray(placeholder)) if isinstance(kind, BinaryType) else None

    return all_leaves_condition(kind, value, not_placeholder_condition)


def _possibly_bare_condition(text: Column) -> Column:
    """Return a condition: a value that the parser returned as text may be a number or ``true`` without quotes."""
    return ((text < ":") & text.rlike(_UNQUOTED)) | (text == "true")


def _decimal_of_unscaled(kind: DecimalType, text: Column) -> Column:
    """Return a number from the unscaled value in base64, or from an object with its own scale (VariableScaleDecimal).

    A whole number without quotes is itself: so Debezium writes a NUMBER(p, 0) of Oracle and a BIGINT UNSIGNED of MySQL.
    """
    plain = F.struct(
        F.lit(kind.scale).alias("scale"), F.unbase64(F.when(text.rlike(_BASE64), text)).alias("value")
    )
    # A value without quotes is no BINARY.
    own = F.from_json(text, "scale INT, value BINARY")
    parts = F.when(text.startswith("{"), own).otherwise(plain)
    short = (F.length(text) <= _SHORT) & text.rlike(_BASE64)
    # The first character has the first six bits.
    sign = F.when((text < "A") | (text >= "g"), "F" * 16).otherwise("0" * 16)
    digits = F.conv(F.substring(F.concat(sign, F.hex(F.unbase64(text))), -16, 16), 16, -10)
    # Lambdas name values; as columns they would be computed once for each place that uses them. Spark interprets them.
    long = evaluate_once(
        F.when(parts["scale"].between(-_LARGEST_SCALE, _LARGEST_SCALE), parts),
        lambda each: evaluate_once(
            F.hex(F.when(F.length(each["value"]).between(1, _LARGEST_SIZE), each["value"])),
            lambda digits: evaluate_once(
                _digits_of_twos_complement(digits),
                lambda number: _number_with_scale(kind, number, each["scale"]),
            ),
        ),
    )
    bare = F.substring(text, len(_BARE) + 1, _LARGEST_SCALE)
    whole = F.when(bare.rlike(r"^-?+[0-9]{1,38}\z"), bare.cast(kind))
    return (
        F.when(text.startswith(_BARE), whole)
        .when(short, F.concat(digits, F.lit(f"E-{kind.scale}")).cast(kind))
        .when(text.isNotNull(), long)
    )


def _number_with_scale(kind: DecimalType, number: Column, scale: Column) -> Column:
    """Return a number of its unscaled digits; null where it has more places than the type."""
    zeros = F.length(number) - F.length(F.regexp_replace(number, r"0++\z", ""))
    fits = (scale - zeros <= kind.scale) | (number == "0")
    return F.when(fits, F.concat(number, F.lit("E"), (-scale).cast("string")).cast(kind))


def _digits_of_twos_complement(given: Column) -> Column:
    """Return the decimal digits of a number in two's complement, most significant byte first (``BigInteger.toByteArray``)."""
    negative = F.substring(given, 1, 1) >= "8"
    inverted = F.translate(given, "0123456789ABCDEF", "FEDCBA9876543210")
    digits = F.lpad(F.when(negative, inverted).otherwise(given), 32, "0")
    places = ((1, 8), (9, 12), (21, 12))
    parts = [F.conv(F.substring(digits, *at), 16, 10).cast("decimal(20,0)") for at in places]
    power = F.lit(str(2**48)).cast("decimal(15,0)")
    whole = (((parts[0] * power + parts[1]) * power) + parts[2]).cast("decimal(38,0)")
    below = F.concat(F.lit("-"), (whole + 1).cast("decimal(38,0)").cast("string"))
    return F.when(negative, below).otherwise(whole.cast("string"))
