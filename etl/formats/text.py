"""Text: a payload is the value of the schema's only field.

A dead letter of the stage ``decode`` is a null payload or bytes that are not UTF-8. An empty
payload is an empty text.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.formats import TextFormat
from . import schema_files
from .base import Decoder
from .decoding import decoder_output_and_checks as shared


def open_decoder(_form: TextFormat, spark: SparkSession, schema: str, _open_up_to: int | None) -> TextDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`."""
    return TextDecoder(schema_files.read_ddl_schema(spark, schema))


@dataclass(frozen=True)
class TextDecoder(Decoder):
    """Decoder of UTF-8 into one column.

    Parameters
    ----------
    schema
        One ``STRING`` field; the configuration has checked this.
    """

    schema: StructType

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`."""
        payload = F.col("payload")
        [field] = self.schema.fields
        verdict = F.when(payload.isNull(), shared.dead_letter_verdict("decode", shared.TOMBSTONE)).when(
            ~shared.valid_utf8_condition(payload), shared.dead_letter_verdict("decode", shared.NOT_UTF8)
        )
        record = F.struct(payload.cast("string").alias(field.name))
        held = rows.withColumns({"_record": record, "_verdict": verdict})
        return shared.decoded_or_dead_letter(held, self.schema, "_record", "_verdict")
