"""Change events in Avro, read as the JSON that Kafka Connect's JsonConverter makes of them.

Both converters get the same values of Connect. So without its logical types a datum has what the JSON has: days and times as numbers, a
decimal as the bytes of its unscaled value. Each writer's schema reads its own datums, whatever columns the table had then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ...launch.formats import AvroFormat
from .. import avro, avro_value_range_checks
from ..base import Decoder
from ..decoding import decoder_output_and_checks as shared
from .decoder import ChangeDecoder

_JSON, _PAYLOAD, _KEY, _LETTERED = (f"_event_{name}" for name in ("json", "payload", "key", "letter"))
_LETTER = ("_bytes", "_stage", "_error")


def open_decoder(
    events: ChangeDecoder, form: AvroFormat, spark: SparkSession, path: str, open_up_to: int | None
) -> AvroChangeDecoder:
    """Make the decoder.

    Parameters
    ----------
    events
        Decoder of the events as JSON.
    path
        The query's schema file, for messages.

    Raises
    ------
    StartError
        As in :func:`etl.formats.avro.make_avro_decoder`.
    """
    avro.set_avro_limits_in_driver(spark)
    writers = {
        identity: json.dumps(json.loads(text, object_hook=_without_logical_type))
        for identity, text in avro.writer_schemas(spark, form, path).items()
    }
    types = {identity: avro.spark_type_of_datum(spark, text, path) for identity, text in writers.items()}
    schema = StructType([StructField(_JSON, StringType())])
    text = json.dumps({"type": "record", "name": "Event", "fields": [{"name": _JSON, "type": "string"}]})
    return AvroChangeDecoder(
        events, _AvroToJsonDecoder(schema, text, form.framing, writers, open_up_to, types=types)
    )


def _without_logical_type(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema without its logical type."""
    return {key: value for key, value in part.items() if key != "logicalType"}


@dataclass(frozen=True)
class _AvroToJsonDecoder(avro.AvroDecoder):
    """Decoder of datums into their text as JSON.

    Parameters
    ----------
    types
        Type of the datums of each writer's schema.
    """

    types: Mapping[str, StructType] = field(default_factory=dict, kw_only=True)

    def _column_read_by_writer_schema(self, shape: Callable[[str], str], condition: Column) -> Column:
        found = F.lit(None)
        for identity, writer in self.writers.items():
            one, kind = (
                avro.parse_datum_and_end_mark(
                    self._datum_bytes_with_end_mark(condition),
                    avro.widened_schema_json_with_end_mark(writer, dates_as_long=False),
                ),
                self.types[identity],
            )
            text = F.to_json(avro_value_range_checks.with_booleans_from_bytes(kind, one["datum"]))
            if (readable := shared.all_texts_utf8_condition(kind, one["datum"])) is not None:
                # In the place of bytes that are no text it would write another character.
                text = F.when(readable, text).otherwise(F.lit(bytearray(b"\xff")).cast("string"))
            flags, end = (
                shared.all_leaves_condition(
                    kind, one["datum"], avro_value_range_checks.boolean_byte_condition
                ),
                one["end"],
            )
            result = F.struct(
                F.struct(text.alias(_JSON)).alias("datum"),
                (end if flags is None else F.when(flags, end)).alias("end"),
            )
            found = F.when(self._writer_schema_id() == identity, result).otherwise(found)
        return found


@dataclass(frozen=True)
class AvroChangeDecoder(Decoder):
    """Decoder of change events in Avro.

    Parameters
    ----------
    events
        Decoder of the events as JSON.
    datums
        Decoder of the datums into JSON.
    """

    events: ChangeDecoder
    datums: avro.AvroDecoder

    @property
    def schema(self) -> StructType:
        """Columns of a row, and the change."""
        return self.events.schema

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.changes.decoder.ChangeDecoder.decode`."""
        others = [name for name in rows.columns if name != "payload"]
        read = self.datums.decode(rows.withColumn(_PAYLOAD, F.col("payload")))
        letter = F.struct(*_LETTER)
        bad = F.col("_error").isNotNull() & (F.col("_error") != shared.TOMBSTONE)
        # The key is in Avro, too: to the events as JSON it says nothing.
        kept = [F.col(f"`{name}`").alias(_KEY if name == "_key" else name) for name in others]
        events = read.select(
            *kept,
            _PAYLOAD,
            F.when(bad, letter).alias(_LETTERED),
            F.col(_JSON).cast("binary").alias("payload"),
        )
        found, refused = self.events.decode(events), F.col(_LETTERED)
        own = {
            "_bytes": F.when(F.col("_error").isNotNull(), F.col(_PAYLOAD)),
            **{n: F.col(n) for n in _LETTER[1:]},
        }
        return found.select(
            *(F.col(_KEY if name == "_key" else f"`{name}`").alias(name) for name in others),
            *(F.when(refused.isNull(), F.col(f"`{f.name}`")).alias(f.name) for f in self.schema),
            *(F.when(refused.isNull(), own[n]).otherwise(refused[n]).alias(n) for n in _LETTER),
        )
