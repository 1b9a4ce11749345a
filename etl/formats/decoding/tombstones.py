"""Null payloads that delete: the delete of a record's key, as in compacted topics of Kafka; they are not bad data."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base import DecoderWrapper
from .rows import TOMBSTONE

STAGE = "delete"
"""``_stage`` of a landed row that deletes; its ``_error`` is null, so it is a good record."""


@dataclass(frozen=True)
class TombstoneDecoder(DecoderWrapper):
    """Decoder that takes a null payload for a delete."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`; a delete has the stage :data:`STAGE` and no error."""
        decoded = self.decoder.decode(rows)
        deletes = F.col("_error").eqNullSafe(TOMBSTONE)
        changed = {
            "_stage": F.when(deletes, F.lit(STAGE)).otherwise(F.col("_stage")).alias("_stage"),
            "_error": F.when(~deletes, F.col("_error")).alias("_error"),
        }
        return decoded.select(*(changed.get(name, F.col(f"`{name}`")) for name in decoded.columns))
