"""What a decoder is, whatever the format: payloads to columns, or to a stage and a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


class Decoder(Protocol):
    """Payload to columns."""

    @property
    def schema(self) -> StructType:
        """Columns that a good record has."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns, ``_bytes``, ``_stage`` and ``_error``.

        Every row comes out: a good one with the last three null, a bad one with the schema's
        columns null, its payload as ``_bytes`` and the reason. Other columns are kept.
        """


@dataclass(frozen=True)
class DecoderWrapper:
    """What stands around a decoder, and gives rows of its columns."""

    decoder: Decoder

    @property
    def schema(self) -> StructType:
        """The decoder's."""
        return self.decoder.schema


Observe = Callable[[DataFrame, str], DataFrame]
"""Looks at rows on their way: it is handed them, and what is null for each good one, as SQL, and hands them on."""


@runtime_checkable
class PrecheckingDecoder(Protocol):
    """A decoder that knows which rows are bad before they have their columns."""

    def decode_observed(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """See :func:`decode_observed`."""


def decode_observed(decoder: Decoder, rows: DataFrame, observe: Observe) -> DataFrame:
    """Decode rows that something observes as soon as it is known which are bad.

    Spark copies the rows that it observes. Where they have their columns only afterwards, those are made once,
    together with what becomes of them.

    Parameters
    ----------
    decoder
        Whose columns.
    rows
        As :meth:`Decoder.decode` takes them.
    observe
        Is called once, with all of the rows. Their other columns are there, those of the schema may not be yet.
    """
    if isinstance(decoder, PrecheckingDecoder):
        return decoder.decode_observed(rows, observe)
    return observe(decoder.decode(rows), "_error")
