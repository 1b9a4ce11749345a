r"""Redaction: values of configured fields reach no table, not even inside a dead letter.

In a good record the column is null. In a dead letter the field's value is cut out of the
bytes, which then differ from the source's; ``_hash`` is still that of the complete
payload. A dead letter need not be JSON. Where the field's name appears as a word, in any quotes, followed by a colon or an equals
sign and a value with a clear end, that value is cut. After anything else (a comment, a comma, nothing) the rest of the record is
cut. All bytes are withheld if a name could hide in them: text that is not UTF-8 or no object,
and an escape (``\u0065mail``) in a possible name; and for formats that name no fields.

Each search is linear: none restarts inside text that another one has read.

Keys and headers of a Kafka record are not payload and are not redacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..base import DecoderWrapper, Observe
from .decoder_output_and_checks import CHANGE, valid_utf8_condition

WITHHELD = " (bytes withheld, as the query redacts fields)"
"""Suffix of a dead letter's error when its bytes are withheld."""

_SCALAR = r"""(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|true|false|null|[-+.\dEe]++)(?=\s*+(?:[,}\]]|\z))"""
"""A value whose end is certain."""

_ESCAPED_NAME = r"""(?s)(?:\A|["'`])(?:[^"'`\\]++|\\(?![ux0-7]))*+\\[ux0-7][^"'`]*+["'`]\s*+[:=/#]"""
"""An escape between two quotes, followed by a character that may follow a name, also the start of a comment. A search for the end
of the comment could continue to the end of the record, for each name again."""


@dataclass(frozen=True)
class RedactingDecoder(DecoderWrapper):
    """Decoder whose rows do not hold certain fields.

    Parameters
    ----------
    decoder
        Decoder of the rows.
    fields
        Names of top-level columns of its schema; at least one.
    readable
        True if the bytes name their fields, as JSON does. All bytes of other formats are withheld.
    """

    fields: tuple[str, ...]
    readable: bool = True

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, then remove the fields; columns as in :meth:`etl.formats.base.Decoder.decode`."""
        return self._without_redacted_fields(self.decoder.decode(rows))

    def decode_and_observe(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """Do the same for rows that are observed; redaction does not change whether a row is good."""
        return self._without_redacted_fields(self.decoder.decode_and_observe(rows, observe))

    def _without_redacted_fields(self, decoded: DataFrame) -> DataFrame:
        bare = self.redacted_payload(F.col("_bytes"))
        gone = {name: F.lit(None).cast(self.schema[name].dataType) for name in self.fields}
        if CHANGE in self.schema.fieldNames():
            # The row before a change has the same fields.
            old = F.col(CHANGE)["before"]
            bare_row = reduce(lambda row, name: row.withField(name, gone[name]), self.fields, old)
            gone[CHANGE] = F.when(F.col(CHANGE).isNotNull(), F.col(CHANGE).withField("before", bare_row))
        return decoded.withColumns(
            {**gone, "_bytes": bare, "_error": redacted_error(F.col("_error"), F.col("_bytes"), bare)}
        )

    def redacted_payload(self, payload: Column) -> Column:
        """Return the bytes of a payload without the values of the fields; null where a value could hide in them.

        Parameters
        ----------
        payload
            Bytes as they arrived.
        """
        return F.when(
            self._payload_kept_condition(payload), self._payload_without_values(payload).cast("binary")
        )

    def _payload_kept_condition(self, payload: Column) -> Column:
        if not self.readable:
            return F.length(payload) == 0
        return _no_hidden_name_condition(payload) & ~payload.cast("string").rlike(
            rf"(?iu){_alternation_pattern(map(_escaped_name_pattern, self.fields))}"
        )

    def _payload_without_values(self, payload: Column) -> Column:
        name = rf"""(?<!\w)({_alternation_pattern(map(re.escape, self.fields))}(?!\w)["'`]?+)"""
        value = rf"(?:(\s*+[:=]\s*+)(?:{_SCALAR}|.*+)|.*+)"
        return F.regexp_replace(payload.cast("string"), f"(?siu){name}{value}", "$1$2null")


def _alternation_pattern(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(patterns, key=len, reverse=True))})"


def _escaped_name_pattern(name: str) -> str:
    """Return a pattern of a name of which at least one letter is written as an escape."""
    return rf"(?=[^\\]{{0,{len(name) - 1}}}+\\){''.join(map(_letter_or_escape_pattern, name))}"


def _letter_or_escape_pattern(letter: str) -> str:
    codes = {ord(each) for case in (letter, letter.lower(), letter.upper()) for each in case}
    ways = (rf"u{code:04x}|u\{{0*+{code:x}\}}|x{code:02x}|{code:03o}" for code in sorted(codes))
    itself = "" if letter.isalnum() else rf"|\\{re.escape(letter)}"
    return rf"(?:{re.escape(letter)}|\\(?:{'|'.join(ways)}){itself})"


def redacted_error(error: Column, payload: Column, redacted: Column) -> Column:
    """Return the error of a dead letter, with a note if its bytes are withheld."""
    return F.when(payload.isNotNull() & redacted.isNull(), F.concat(error, F.lit(WITHHELD))).otherwise(error)


def _no_hidden_name_condition(payload: Column) -> Column:
    """Return a condition: no name in the bytes can hide. They are empty, or UTF-8 that starts an object, with no escaped name."""
    text = payload.cast("string")
    return (F.length(payload) == 0) | (
        valid_utf8_condition(payload) & text.rlike(r"\A\s*+\{") & ~text.rlike(_ESCAPED_NAME)
    )
