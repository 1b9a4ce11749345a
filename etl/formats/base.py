"""Base class of decoders, for any format: payloads to columns, or to a stage and a reason."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..launch import typed_json
from ..launch.formats import Format
from ..record.errors import OWN_REPETITION

UNCERTAIN = f"{OWN_REPETITION}of a small batch needs the exact way, so all of it is read again"
"""Message of a task that fails because a decoder of :meth:`Decoder.failing_if_uncertain` is not certain of a record; or the
``_stage`` of that record."""

Observe = Callable[[DataFrame, str], DataFrame]
"""Observes rows: gets them and a SQL expression that is null for each good row, and returns the rows."""


class Decoder(ABC):
    """Decoder of payloads into columns."""

    if TYPE_CHECKING:
        # At run time a field of the same name would take it for its default.
        @property
        def schema(self) -> StructType:
            """Columns of a good record."""

    @abstractmethod
    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns, ``_bytes``, ``_stage`` and ``_error``.

        Every row is returned: a good one with the last three null, a bad one with the schema's
        columns null, its payload as ``_bytes`` and the reason. Other columns are kept.
        """

    def decode_and_observe(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """Decode rows and observe them as soon as it is known which are bad.

        Spark copies the rows that it observes. If their columns are made only afterwards, this happens in one step,
        together with the operations that follow.

        Parameters
        ----------
        rows
            As in :meth:`decode`.
        observe
            Called once, with all rows. Their other columns exist then; those of the schema may not exist yet.
        """
        return observe(self.decode(rows), "_error")

    def failing_if_uncertain(self, marking: bool = False) -> Decoder:
        """Return a decoder whose task fails with :data:`UNCERTAIN` at a record that needs the exact way; itself if it has none.

        The exact way is half of a plan, which takes longer to make than a batch of few records.

        Parameters
        ----------
        marking
            True to set the record's ``_stage`` to :data:`UNCERTAIN` instead, so that a later task may fail.
        """
        return self

    def redacted_payload(self, payload: Column) -> Column:
        """Return a payload as a dead letter may hold it; null where a redacted value could hide in it."""
        return payload

    def changed_table_name(self, payload: Column) -> Column:
        """Return the table of the change in a payload; null or empty for what is no change of a table."""
        raise NotImplementedError("the configuration asks only formats that name the tables of changes")


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
class DecoderWrapper(Decoder):
    """Base class for wrappers of a decoder that return rows with its columns."""

    decoder: Decoder

    @property
    def schema(self) -> StructType:
        """Columns of the decoder."""
        return self.decoder.schema

    def failing_if_uncertain(self, marking: bool = False) -> Decoder:
        """See :meth:`Decoder.failing_if_uncertain`."""
        return replace(self, decoder=self.decoder.failing_if_uncertain(marking))

    def changed_table_name(self, payload: Column) -> Column:
        """See :meth:`Decoder.changed_table_name`."""
        return self.decoder.changed_table_name(payload)
