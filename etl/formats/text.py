"""Text: a payload is the value of the one field that its schema has.

A dead letter of the stage ``decode`` is a null payload and bytes that are not UTF-8. An empty
payload is an empty text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.format_kinds import Format
from . import schemas
from .decoding import rows as shared


@dataclass(frozen=True)
class TextFormat(Format):
    """A payload is a value; the query's ``schema`` is DDL of one ``STRING`` field."""

    kind: Literal["text"] = "text"

    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> TextDecoder:
        """Make what decodes, as :meth:`etl.launch.format_kinds.Format.decoder` says."""
        return TextDecoder(schemas.read_ddl(spark, schema))


@dataclass(frozen=True)
class TextDecoder:
    """Decodes UTF-8 into one column.

    Parameters
    ----------
    schema
        One ``STRING`` field, as the configuration has seen.
    """

    schema: StructType

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode as :meth:`etl.formats.base.Decoder.decode` says."""
        payload = F.col("payload")
        [field] = self.schema.fields
        verdict = F.when(payload.isNull(), shared.reason("decode", shared.TOMBSTONE)).when(
            ~shared.valid_text(payload), shared.reason("decode", shared.NOT_UTF8)
        )
        record = F.struct(payload.cast("string").alias(field.name))
        held = rows.withColumns({"_record": record, "_verdict": verdict})
        return shared.decoded_or_dead_letter(held, self.schema, "_record", "_verdict")
