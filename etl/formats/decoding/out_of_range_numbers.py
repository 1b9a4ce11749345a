r"""Numbers out of range: decimals that take too long to read, and numbers that become Infinity.

A number larger than its ``DOUBLE`` or ``FLOAT`` holds becomes Infinity when it is read, and is checked then
(:func:`all_numbers_finite_condition`). Decimals are checked in the text before it is read.

Java expands a decimal to its column's scale before it checks whether it fits: ``1e10000000`` becomes ten million digits,
and reading millions of digits takes quadratic time. A JSON text is checked in three steps. Each is linear, and runs only
if the step before found something:

1. Is the value after each name of a ``DECIMAL`` field a plain number of a few digits? The search is for the quoted name, which
      Java's regular expressions find by skipping; any other search costs several times as much (:func:`possible_large_exponent_condition`).
2. Is there a long exponent, or a run of very many digits, anywhere in the text (same function)?
3. Is one of those in a ``DECIMAL`` field? The text is changed where reading takes long, so that such a
      field is refused, and only the fields with a decimal are read (:func:`with_large_exponents_replaced`).
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
)

from .decoder_output_and_checks import (
    all_leaves_condition,
    contains_type,
    field_names_of_type,
    verdict_naming_fields,
)
from .json_texts_as_sent import name_pattern

MOST_DIGITS = 1000
"""Most digits of a decimal; Jackson reads no longer number since 2.15."""

EXPONENT_DIGITS = 3
"""Most digits of a decimal's exponent; a ``DECIMAL`` has at most 38 digits before and after the point."""

_PLAIN = (
    rf"^[-+]?+(?:[0-9]{{1,{MOST_DIGITS}}}+(?:\.[0-9]{{0,{MOST_DIGITS}}}+)?+|\.[0-9]{{1,{MOST_DIGITS}}}+)"
    rf"(?:[eE][-+]?+0{{0,9}}[0-9]{{1,{EXPONENT_DIGITS}}}+)?+\z"
)
"""A text that is quickly read as a decimal, or refused."""

_NUMBER = r"-?+[0-9]{1,99}+(?:\.[0-9]{0,99}+)?+(?:[eE][-+]?+[0-9]{1,3}+)?+"
_LIST = r"\[[-+0-9.,\s]*+\]"
_MAP = r'\{\s*+(?:"[^"\\]*+"\s*+:\s*+(?:null|[-+0-9.]++)\s*+,?+\s*+)*+\}'
_HARMLESS = rf'(?!\s*+:\s*+(?:null|{_NUMBER}|"{_NUMBER}"|{_LIST}|{_MAP})\s*+[,}}\]])'

_ESCAPE = r"\\u[0-9a-fA-F]{4}"
_DIGIT = rf"(?:\p{{Nd}}|{_ESCAPE})"
_LONG = (
    rf"(?:(?<!\\u[0-9a-fA-F]{{0,3}})[eE]|\\u00[46]5)(?:[-+]|\\u002[bBdD])?+{_DIGIT}{{{EXPONENT_DIGITS + 1}}}"
)
_MANY = rf"(?<!\p{{Nd}}|\\u[0-9a-fA-F]{{0,4}}){_DIGIT}{{{MOST_DIGITS}}}+"

_OUT = rf"[-+]?+0*+[1-9][0-9]{{{EXPONENT_DIGITS}}}"
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_NUMBERS = rf"(?s)\G((?:[^\"eE]++|{_STRING}|[eE](?!{_OUT}))*+)[eE]{_OUT}[0-9]*+"
_OF_TEXT = rf"(?:[-+.eE]|{_DIGIT})"
_TEXTS = rf'"(?=[^"]*?{_LONG}|{_OF_TEXT}{{{MOST_DIGITS}}}+){_OF_TEXT}++"(?!\s*+:)'

_GROUPED = r'"(?=[^"]*?(?:,|\\u002[cC]))(?=[^"]*?(?:\p{Nd}|\\u003))(?:[-+.,eE]|\p{Nd}|\\u[0-9a-fA-F]{4})++"'
"""A text with commas, which Spark removes before it reads a decimal."""


def all_numbers_finite_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: no number in a value, at any depth, is infinite. None for a type without ``DOUBLE`` or ``FLOAT``.

    Parameters
    ----------
    value
        The column. With arrays or maps it must not be an expression that takes long: Spark evaluates it again, because
        it generates no code for a condition on each item.
    """
    return all_leaves_condition(
        kind, value, lambda k, v: F.abs(v) != float("inf") if isinstance(k, DoubleType | FloatType) else None
    )


RANGE = "a number out of range: "
"""Start of a dead letter's error; the names of fields follow."""


def out_of_range_verdict(schema: StructType, record: Column) -> Column | None:
    """Return the verdict on a record with an infinite number, null if it has none; None if no field can hold such a number.

    Parameters
    ----------
    record
        As in :func:`all_numbers_finite_condition`.
    """
    asked = {f.name: all_numbers_finite_condition(f.dataType, record.getField(f.name)) for f in schema.fields}
    return verdict_naming_fields(RANGE, ((name, ~fits) for name, fits in asked.items() if fits is not None))


def has_no_array_or_map(kind: DataType) -> bool:
    """Check that a type contains neither an array nor a map."""
    return not contains_type(kind, lambda part: isinstance(part, ArrayType | MapType))


def contains_decimal(kind: DataType) -> bool:
    """Check that a type contains a decimal, at any depth."""
    return contains_type(kind, _is_decimal)


def _is_decimal(kind: DataType) -> bool:
    return isinstance(kind, DecimalType)


def schema_of_decimal_fields(schema: StructType) -> StructType:
    """Return the fields that hold a decimal, unchanged."""
    return StructType([f for f in schema.fields if contains_decimal(f.dataType)])


def decimal_of_text(text: Column, kind: DecimalType) -> Column:
    """Convert a text to a decimal; null if it is none, does not fit, or would take long."""
    return F.when(text.rlike(_PLAIN), text.cast(kind))


def possible_large_exponent_condition(text: Column, schema: StructType) -> Column | None:
    """Return a condition: a JSON text may hold a decimal that takes long to read. None if the schema has no decimal.

    Parameters
    ----------
    text
        JSON or any other text.
    """
    return _condition_in_decimal_fields(text, schema, _large_exponent_condition(text))


def possible_misread_decimal_condition(text: Column, schema: StructType) -> Column | None:
    """Return the same condition, or: a JSON text may hold a decimal of which Spark makes another number."""
    return _condition_in_decimal_fields(text, schema, _large_exponent_condition(text) | text.rlike(_GROUPED))


def _large_exponent_condition(text: Column) -> Column:
    return text.rlike(_LONG) | ((F.length(text) >= MOST_DIGITS) & text.rlike(_MANY))


def _condition_in_decimal_fields(text: Column, schema: StructType, condition: Column) -> Column | None:
    names = sorted(set(field_names_of_type(schema, _is_decimal)))
    if not names:
        return None
    # JSON writes an ASCII letter as \u00.. or as itself.
    escapes = r"\u00" if all(n.isascii() for n in names) else r"\u"
    odd = [text.rlike(f'"{name_pattern(n)}"{_HARMLESS}') for n in names]
    return reduce(lambda a, b: a | b, [*odd, text.contains(escapes)]) & condition


def with_large_exponents_replaced(text: Column) -> Column:
    """Replace what takes long to read in a JSON text: exponents by 999, and texts by one that is no number.

    Parameters
    ----------
    text
        JSON or any other text.
    """
    return F.regexp_replace(F.regexp_replace(text, _NUMBERS, "$1e999"), _TEXTS, '"x"')
