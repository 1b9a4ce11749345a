r"""Numbers out of all range: decimals that would take their reader forever, and what becomes Infinity.

A ``DOUBLE`` or ``FLOAT`` of more than its type holds is Infinity when it is read, and is looked for then (:func:`all_finite`).
Decimals are found in a text before it is read.

Java writes a decimal out to its column's scale before it looks whether it fits: ``1e10000000`` becomes ten million digits,
and digits by the million are read in quadratic time. Three looks at a JSON text, each of them linear, and each only
where the one before it found something:

1. Is each value behind the name of a ``DECIMAL`` field plainly a number of a few digits? A search for the quoted name, which
   Java's regular expressions do by leaps; any other costs several times as much (:func:`may_have_large_exponent`).
2. Is there a long exponent, or a run of very many digits, anywhere in the text (the same)?
3. Is one of those in a ``DECIMAL`` field? What would take long is written otherwise, so that such a
   field refuses it, and only the fields with a decimal are read (:func:`without_large_exponents`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    StringType,
    StructField,
    StructType,
)

from .rows import holds_for_all, reason

MOST_DIGITS = 1000
"""Of a decimal; Jackson reads no longer number since 2.15."""

EXPONENT_DIGITS = 3
"""Of a decimal; a ``DECIMAL`` ends at 38 places before and behind the point."""

_PLAIN = (
    rf"^[-+]?+(?:[0-9]{{1,{MOST_DIGITS}}}+(?:\.[0-9]{{0,{MOST_DIGITS}}}+)?+|\.[0-9]{{1,{MOST_DIGITS}}}+)"
    rf"(?:[eE][-+]?+0{{0,9}}+[0-9]{{1,{EXPONENT_DIGITS}}}+)?+\z"
)
"""A text that is read as a decimal at once, or refused."""

_NUMBER = r"-?+[0-9]{1,99}+(?:\.[0-9]{0,99}+)?+(?:[eE][-+]?+[0-9]{1,3}+)?+"
_LIST = r"\[[-+0-9.,\s]*+\]"
_MAP = r'\{\s*+(?:"[^"\\]*+"\s*+:\s*+(?:null|[-+0-9.]++)\s*+,?+\s*+)*+\}'
_HARMLESS = rf'(?!\s*+:\s*+(?:null|"?+{_NUMBER}"?+|{_LIST}|{_MAP})\s*+[,}}\]])'

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


def all_finite(kind: DataType, value: Column) -> Column | None:
    """Whether no number in a value, at any depth, is infinite; None for a kind that holds no ``DOUBLE`` or ``FLOAT``.

    Parameters
    ----------
    value
        The column. Of one that holds arrays or maps it must be no expression that takes long: Spark evaluates it again, as
        it has no generated code for what is asked of each item.
    """
    return holds_for_all(
        kind, value, lambda k, v: F.abs(v) != float("inf") if isinstance(k, DoubleType | FloatType) else None
    )


RANGE = "a number out of range: "
"""What a dead letter says before the names of fields."""


def out_of_range(schema: StructType, record: Column) -> Column | None:
    """The verdict on a record with an infinite number, null for one without; None where no field holds a number of these.

    Parameters
    ----------
    record
        As for :func:`all_finite`.
    """
    asked = {f.name: all_finite(f.dataType, record.getField(f.name)) for f in schema.fields}
    names = F.concat_ws(", ", *(F.when(~fits, F.lit(n)) for n, fits in asked.items() if fits is not None))
    if not any(fits is not None for fits in asked.values()):
        return None
    return F.when(names != "", reason("schema", F.concat(F.lit(RANGE), names)))


def is_flat(kind: DataType) -> bool:
    """Whether there is neither an array nor a map in a type."""
    if isinstance(kind, StructType):
        return all(is_flat(field.dataType) for field in kind.fields)
    return not isinstance(kind, ArrayType | MapType)


def decimals(kind: DataType) -> bool:
    """Whether there is a decimal in a type, at any depth."""
    return next(_names(kind, ""), None) is not None


def with_decimals(schema: StructType) -> StructType:
    """The fields that hold a decimal, as they are."""
    return StructType([f for f in schema.fields if decimals(f.dataType)])


def as_texts(schema: StructType) -> StructType:
    """The fields, texts in the place of decimals."""
    return StructType(
        [
            StructField(f.name, StringType() if isinstance(f.dataType, DecimalType) else f.dataType)
            for f in schema
        ]
    )


def _names(kind: DataType, name: str) -> Iterator[str]:
    """The field that each decimal is the value of, or in whose array or map it is."""
    if isinstance(kind, DecimalType):
        yield name
    elif isinstance(kind, ArrayType):
        yield from _names(kind.elementType, name)
    elif isinstance(kind, MapType):
        yield from _names(kind.valueType, name)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _names(field.dataType, field.name)


def decimal(text: Column, kind: DecimalType) -> Column:
    """A decimal out of a text; null where that is none, does not fit, or would take long."""
    return F.when(text.rlike(_PLAIN), text.cast(kind))


def may_have_large_exponent(text: Column, schema: StructType) -> Column | None:
    """Whether a JSON text may hold a decimal that takes long; None where the schema has no decimal.

    Parameters
    ----------
    text
        JSON, or anything.
    """
    names = sorted(set(_names(schema, "")))
    if not names:
        return None
    plain = [n for n in names if re.fullmatch(r"[^\"\\/\x00-\x1f]+", n)]
    # A letter of ASCII is written as \u00.. or as itself.
    escapes = r"\u00" if all(n.isascii() for n in plain) else r"\u"
    odd = [text.rlike(f'"{re.escape(n)}"{_HARMLESS}') for n in plain]
    first = reduce(lambda a, b: a | b, [*odd, text.contains(escapes)])
    far = text.rlike(_LONG) | ((F.length(text) >= MOST_DIGITS) & text.rlike(_MANY))
    return far if len(plain) < len(names) else first & far


def without_large_exponents(text: Column) -> Column:
    """A JSON text with what takes long written otherwise: exponents as 999, and texts as one that is no number.

    Parameters
    ----------
    text
        JSON, or anything.
    """
    return F.regexp_replace(F.regexp_replace(text, _NUMBERS, "$1e999"), _TEXTS, '"x"')
