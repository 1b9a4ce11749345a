"""Null payloads that are no bad data: the delete of what has the record's key, as compacted topics of Kafka have it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base import DecoderWrapper
from .rows import TOMBSTONE

STAGE = "delete"
"""``_stage`` of a landed row that deletes; it is a good record, as its ``_error`` is null."""


@dataclass(frozen=True)
class Deleting(DecoderWrapper):
    """A decoder that takes a null payload for a delete."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """As :meth:`etl.formats.base.Decoder.decode`; a delete has the stage :data:`STAGE` and no error."""
        decoded = self.decoder.decode(rows)
        deletes = F.col("_error").eqNullSafe(TOMBSTONE)
        changed = {
            "_stage": F.when(deletes, F.lit(STAGE)).otherwise(F.col("_stage")).alias("_stage"),
            "_error": F.when(~deletes, F.col("_error")).alias("_error"),
        }
        return decoded.select(*(changed.get(name, F.col(f"`{name}`")) for name in decoded.columns))
