"""Protocol of a decoder, for any format: payloads to columns, or to a stage and a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..launch import typed_json
from ..launch.formats import Format
from ..record.errors import OWN_REPETITION


class Decoder(Protocol):
    """Decoder of payloads into columns."""

    @property
    def schema(self) -> StructType:
        """Columns of a good record."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns, ``_bytes``, ``_stage`` and ``_error``.

        Every row is returned: a good one with the last three null, a bad one with the schema's
        columns null, its payload as ``_bytes`` and the reason. Other columns are kept.
        """


def open_decoder(form: Format, spark: SparkSession, schema: str, open_up_to: int | None = None) -> Decoder:
    """Make the decoder of a format; every error in its schema shows here, before the first record.

    Parameters
    ----------
    schema
        Path of the query's schema file.
    open_up_to
        Most bytes, after decompression, of data that the format itself compresses; None decompresses none.

    Raises
    ------
    StartError
        The file is missing, or the format cannot use it.
    """
    decoder: Decoder = typed_json.import_module_of(form).open_decoder(form, spark, schema, open_up_to)
    return decoder


@dataclass(frozen=True)
class DecoderWrapper:
    """Base class for wrappers of a decoder that return rows with its columns."""

    decoder: Decoder

    @property
    def schema(self) -> StructType:
        """Columns of the decoder."""
        return self.decoder.schema


UNCERTAIN = f"{OWN_REPETITION}of a small batch needs the exact way, so all of it is read again"
"""Message of a task that fails because a decoder by :func:`decoder_failing_if_uncertain` is not certain of a record."""


@runtime_checkable
class DecoderWithExactWay(Protocol):
    """Decoder with a second, exact way for records of which its quick one is not certain."""

    def decoder_failing_if_uncertain(self) -> Decoder:
        """See :func:`decoder_failing_if_uncertain`."""


def decoder_failing_if_uncertain(decoder: Decoder) -> Decoder:
    """Return a decoder whose task fails with :data:`UNCERTAIN` at a record that needs the exact way; itself if it has none.

    The exact way is half of a plan, which takes longer to make than a batch of few records.
    """
    if isinstance(decoder, DecoderWithExactWay):
        return decoder.decoder_failing_if_uncertain()
    if isinstance(decoder, DecoderWrapper):
        return replace(decoder, decoder=decoder_failing_if_uncertain(decoder.decoder))
    return decoder


Observe = Callable[[DataFrame, str], DataFrame]
"""Observes rows: gets them and a SQL expression that is null for each good row, and returns the rows."""


@runtime_checkable
class PrecheckingDecoder(Protocol):
    """Decoder that knows which rows are bad before it makes their columns."""

    def decode_and_observe(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """See :func:`decode_and_observe`."""


def decode_and_observe(decoder: Decoder, rows: DataFrame, observe: Observe) -> DataFrame:
    """Decode rows and observe them as soon as it is known which are bad.

    Spark copies the rows that it observes. If their columns are made only afterwards, this happens in one step,
    together with the operations that follow.

    Parameters
    ----------
    rows
        As in :meth:`Decoder.decode`.
    observe
        Called once, with all rows. Their other columns exist then; those of the schema may not exist yet.
    """
    if isinstance(decoder, PrecheckingDecoder):
        return decoder.decode_and_observe(rows, observe)
    return observe(decoder.decode(rows), "_error")
