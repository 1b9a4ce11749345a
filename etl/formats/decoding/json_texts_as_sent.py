r"""Texts of a JSON record as its sender wrote them.

Spark's parser writes again what is no text but stands in a ``STRING`` field: ``1.10`` becomes ``1.1``, ``1e400`` becomes
``"Infinity"``, 29 digits become 17, and an emoji inside an object two escapes. And it replaces a lone surrogate by a question
mark.

So a record that may hold such a value is parsed once more, from a text in which each value says what it is: a number becomes a
text that begins with one mark, and a text begins with another (:func:`with_marked_texts`). What the parser copies is then told apart from
what it reads, and numbers are never read at all (:func:`value_as_sender_wrote_it`).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from .decoder_output_and_checks import valid_utf8_condition

_TEXT, _NUMBER = (f"{secrets.token_hex(8)}{kind}" for kind in "tn")
"""Before a text, and before a number that has become one; no payload knows them."""

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_BARE_NUMBERS = rf'(?s)\G((?:[^"0-9-]++|{_STRING})*+)(-?+[0-9][-+0-9.eE]*+)'
_TEXTS = rf'(?s)\G((?:[^"]++|{_STRING}(?=[ \t\r\n]*+:))*+)"((?:[^"\\]++|\\.)*+")'
_COPIED = r"^(?:-?[0-9]++\.[0-9]++(?:E-?[0-9]++)?+)\z"
_ANY_SUSPECTED = r'\x01[-0-9"\[{]'
_ANY_COPIED = r'\x01(?:[\[{]|(?:-?[0-9]++\.[0-9]++(?:E-?[0-9]++)?+|0|"-?Infinity")(?=\x01|\z))'
_OTHER_COPIES = ("0", '"Infinity"', '"-Infinity"')

_HIGH, _LOW = (rf"u[dD][{digits}][0-9a-fA-F]{{2}}" for digits in ("89abAB", "c-fC-F"))
_PAIR = rf"\\{_HIGH}\\{_LOW}"
_DOUBLED_PAIR = rf"(?<!\\)((?:\\{{4}})*+)\\\\({_HIGH})\\\\({_LOW})"


_BACKSLASH = r"\\"

LONGEST_NAME = 50_000
"""Most characters of a name; the parser of Spark 4.1 has this limit, that of 3.5 none."""

_CHARACTER = r'(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|.))'
_BLANKS_AND_COLON = r"[ \t\r\n]*+:"
_LONG_NAME = rf'(?s)\A(?:[^"]++|"{_CHARACTER}{{0,{LONGEST_NAME}}}+"|{_STRING}(?!{_BLANKS_AND_COLON}))*+{_STRING}{_BLANKS_AND_COLON}'
"""From the beginning, text by text: a look from each quote would take hours for a value full of them."""


def too_long_name_condition(text: Column) -> Column:
    """Return a condition: a name in a JSON text is longer than the parser of every Spark line takes."""
    return (F.octet_length(text) > LONGEST_NAME) & text.rlike(_LONG_NAME)


def lone_surrogate_condition(text: Column) -> Column:
    """Return a condition: a JSON text has an escape of half a character."""
    alone = F.regexp_replace(F.replace(text, F.lit("\\\\"), F.lit(" ")), _PAIR, " ")
    return text.contains(r"\u") & alone.rlike(r"\\u[dD][89a-fA-F]")


def exactly_readable_condition(text: Column) -> Column:
    """Return a condition: a text is UTF-8, and neither :func:`too_long_name_condition` nor :func:`lone_surrogate_condition`.

    A text without a backslash, and therefore without an escape, needs one look: what stands before its first one is all of it
    (as in :func:`valid_utf8_condition`).
    """
    plain = F.split(text, _BACKSLASH, 2).getItem(0) == text
    return ~too_long_name_condition(text) & (
        plain | (valid_utf8_condition(text) & ~lone_surrogate_condition(text))
    )


def text_not_rewritten_condition(value: Column) -> Column:
    """Return a condition: a text that the parser returned cannot be one that it wrote itself."""
    number = (value.contains(".") & value.rlike(_COPIED)) | value.isin(*_OTHER_COPIES)
    return ~(value.startswith("{") | value.startswith("[") | ((value < ":") & number))


def texts_not_rewritten_condition(values: Iterable[Column]) -> Column:
    """Return the same condition on several texts; an expression for each makes the code longer than Java compiles."""
    joined = F.concat_ws("\1", F.lit(""), *values)
    # The first search is a third of the time of the second.
    return ~(joined.rlike(_ANY_SUSPECTED) & joined.rlike(_ANY_COPIED))


def name_pattern(name: str) -> str:
    r"""Return a pattern of a name between quotes in a JSON text, with each escape that a sender may use but those of ``\u``.

    PHP writes ``content\/type`` for ``content/type``.
    """
    return re.escape(json.dumps(name, ensure_ascii=False)[1:-1]).replace("/", r"\\?+/")


def possible_non_text_condition(text: Column, names: Iterable[str]) -> Column:
    """Return a condition: in a JSON text, the value of one of these names may be a number, an object or an array."""
    any_name = "|".join(map(name_pattern, sorted(set(names))))
    return text.contains(r"\u") | text.rlike(rf'"(?:{any_name})"[ \t\r\n]*+:[ \t\r\n]*+[-0-9{{\[]')


def with_marked_texts(text: Column) -> Column:
    """Return a JSON text with a mark before each text that is no name, and each number as a marked text."""
    numbers = F.regexp_replace(text, _BARE_NUMBERS, rf'$1"{_NUMBER}$2"')
    return F.regexp_replace(numbers, _TEXTS, rf'$1"{_TEXT}$2')


def marked_number_condition(value: Column) -> Column:
    """Return a condition: a value of a marked text was a number."""
    return value.startswith(_TEXT + _NUMBER)


def marked_text_condition(value: Column) -> Column:
    """Return a condition: a value of a marked text was a text."""
    return value.startswith(_TEXT) & ~marked_number_condition(value)


def scalar_without_mark(value: Column) -> Column:
    """Return a text or number of a marked text as its sender wrote it."""
    return F.regexp_replace(value, f"^{_TEXT}(?:{_NUMBER})?+", "")


def value_as_sender_wrote_it(value: Column) -> Column:
    """Return a value of a marked text as its sender wrote it.

    An object or array is compact JSON: without blanks between its parts, its texts with no more escapes than they need.
    """
    return (
        F.when(value.startswith(_TEXT), scalar_without_mark(value))
        .when(value.startswith("{") | value.startswith("["), _container_without_marks(value))
        .otherwise(value)
    )


def _container_without_marks(value: Column) -> Column:
    """Return an object or array without marks, and with characters instead of pairs of escapes."""
    numbers = F.regexp_replace(value, f'"{_TEXT}{_NUMBER}([^"]*+)"', "$1")
    bare = F.replace(numbers, F.lit(_TEXT), F.lit(""))
    # As a text in JSON, in which all escapes but those of pairs are escaped themselves.
    escapes = (("\\", r"\\"), ('"', r"\""))
    quoted = reduce(lambda found, each: F.replace(found, *map(F.lit, each)), escapes, bare)
    single = F.regexp_replace(quoted, _DOUBLED_PAIR, r"$1\\$2\\$3")
    read = F.from_json(F.concat(F.lit('{"v":"'), single, F.lit('"}')), "v STRING")["v"]
    return F.when(bare.rlike(_PAIR), read).otherwise(bare)
