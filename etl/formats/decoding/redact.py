r"""Redaction: what certain fields hold never reaches a table, not even inside a dead letter.

In a good record the column is null. In a dead letter the field's value is cut out of the
bytes, which are no longer what the source gave; its ``_hash`` still is that of the whole
payload. A dead letter need not be JSON. Where the field's name stands as a word, in whatever quotes, a value is cut that plainly
ends where it does, behind a colon or an equals sign; behind anything else (a comment, a comma, nothing) all is cut to the end of
the record. Bytes in which a name could hide are withheld as a whole: text that is not UTF-8 or no object,
and an escape (``\u0065mail``) in what may be a name; and all of a format that names no fields.

Each look at the bytes is linear: none starts from the beginning within what another one has read.

Keys and headers of a Kafka record are not payload; they stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..base import Decoder, DecoderWrapper, Observe, decode_observed
from .rows import valid_text

WITHHELD = " (bytes withheld, as the query redacts fields)"
"""Ends the error of a dead letter without bytes."""

_SCALAR = r"""(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|true|false|null|[-+.\dEe]++)(?=\s*+(?:[,}\]]|\z))"""
"""A value that plainly ends where it does."""

_ESCAPED_NAME = r"""(?s)(?:\A|["'`])(?:[^"'`\\]++|\\(?![ux0-7]))*+\\[ux0-7][^"'`]*+["'`]\s*+[:=/#]"""
"""An escape between two quotes, and behind them what may follow a name, with a comment before it. The search for an end of the
comment could continue to the end of the record, for each name again."""


@runtime_checkable
class RedactsPayload(Protocol):
    """A decoder that knows what of a payload a dead letter may hold."""

    def redacted_payload(self, payload: Column) -> Column:
        """The bytes of a payload without what redacted fields hold; null where it could hide in them."""


@dataclass(frozen=True)
class RedactingDecoder(DecoderWrapper):
    """A decoder whose rows do not hold certain fields.

    Parameters
    ----------
    decoder
        Whose rows they are.
    fields
        Names of top-level columns of its schema; at least one.
    readable
        Whether the bytes name the fields that they hold, as JSON does. Others are withheld as a whole.
    """

    fields: tuple[str, ...]
    readable: bool = True

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, then take the fields out; columns as :meth:`etl.formats.base.Decoder.decode` has them."""
        return self._taken_out(self.decoder.decode(rows))

    def decode_observed(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """The same of rows that are observed; none is better or worse for what is taken out."""
        return self._taken_out(decode_observed(self.decoder, rows, observe))

    def _taken_out(self, decoded: DataFrame) -> DataFrame:
        bare = self.redacted_payload(F.col("_bytes"))
        gone = {name: F.lit(None).cast(self.schema[name].dataType) for name in self.fields}
        return decoded.withColumns(
            {**gone, "_bytes": bare, "_error": redacted_error(F.col("_error"), F.col("_bytes"), bare)}
        )

    def redacted_payload(self, payload: Column) -> Column:
        """The bytes of a payload without what the fields hold; null where it could hide in them.

        Parameters
        ----------
        payload
            Bytes as they came.
        """
        return F.when(self._shown(payload), self._cut(payload).cast("binary"))

    def _shown(self, payload: Column) -> Column:
        if not self.readable:
            return F.length(payload) == 0
        return _readable(payload) & ~payload.cast("string").rlike(rf"(?iu){_any(map(_escaped, self.fields))}")

    def _cut(self, payload: Column) -> Column:
        name = rf"""(?<!\w)({_any(map(re.escape, self.fields))}(?!\w)["'`]?+)"""
        value = rf"(?:(\s*+[:=]\s*+)(?:{_SCALAR}|.*+)|.*+)"
        return F.regexp_replace(payload.cast("string"), f"(?siu){name}{value}", "$1$2null")


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(patterns, key=len, reverse=True))})"


def _escaped(name: str) -> str:
    """A name of which at least one letter is written as an escape."""
    return rf"(?=[^\\]{{0,{len(name) - 1}}}+\\){''.join(map(_letter_or_escape, name))}"


def _letter_or_escape(letter: str) -> str:
    codes = {ord(each) for case in (letter, letter.lower(), letter.upper()) for each in case}
    ways = (rf"u{code:04x}|u\{{0*+{code:x}\}}|x{code:02x}|{code:03o}" for code in sorted(codes))
    itself = "" if letter.isalnum() else rf"|\\{re.escape(letter)}"
    return rf"(?:{re.escape(letter)}|\\(?:{'|'.join(ways)}){itself})"


def redacted_payload(decoder: Decoder, payload: Column) -> Column:
    """A payload as a dead letter may hold it, whatever the decoder: whole where it redacts nothing."""
    return decoder.redacted_payload(payload) if isinstance(decoder, RedactsPayload) else payload


def redacted_error(error: Column, payload: Column, bare: Column) -> Column:
    """The error of a dead letter, with a note where its bytes are withheld."""
    return F.when(payload.isNotNull() & bare.isNull(), F.concat(error, F.lit(WITHHELD))).otherwise(error)


def _readable(payload: Column) -> Column:
    """Whether every name in the bytes can be seen: none, or UTF-8 that begins as an object, no name escaped."""
    text = payload.cast("string")
    return (F.length(payload) == 0) | (
        valid_text(payload) & text.rlike(r"\A\s*+\{") & ~text.rlike(_ESCAPED_NAME)
    )
