"""Change events in Avro, read as the JSON that Kafka Connect's JsonConverter makes of them.

Both converters get the same values of Connect. So without its logical types a datum has what the JSON has: days and times as numbers, a
decimal as the bytes of its unscaled value. Each writer's schema reads its own datums, whatever columns the table had then. A decimal whose
scale may not be its column's comes with it, as Debezium's ``VariableScaleDecimal`` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DecimalType, StringType, StructField, StructType

from ...launch.formats import MOST_DIGITS, AvroFormat
from ...record.errors import StartError
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
    given = avro.writer_schemas(spark, form, path, _with_digits_of_spark)
    if _events_are_rows(events):
        given = _key_schemas_from_registry(spark, form, path) | given
    types = {
        identity: avro.spark_type_of_datum(spark, _with_logical_types(text, "decimal"), path)
        for identity, text in given.items()
    }
    writers = {identity: _with_logical_types(text) for identity, text in given.items()}
    scales = {kind.scale for kind in shared.types_within(events.row) if isinstance(kind, DecimalType)}
    schema = StructType([StructField(_JSON, StringType())])
    text = json.dumps({"type": "record", "name": "Event", "fields": [{"name": _JSON, "type": "string"}]})
    return AvroChangeDecoder(
        events,
        _AvroToJsonDecoder(schema, text, form.framing, writers, open_up_to, types=types, scales=scales),
    )


def _events_are_rows(events: ChangeDecoder) -> bool:
    """Check that events are flattened: then a delete may be its key alone."""
    return not events.envelope.fields_of_rows(StructType()).fields


def _key_schemas_from_registry(spark: SparkSession, form: AvroFormat, path: str) -> dict[str, str]:
    """Return the schemas of a topic's keys, by the names of ``TopicNameStrategy``; without them deletes are dead letters."""
    if form.subject is None or not form.subject.endswith("-value"):
        return {}
    subject = f"{form.subject.removesuffix('value')}key"
    try:
        found = avro.writer_schemas(spark, replace(form, subject=subject), path, _with_digits_of_spark)
    except StartError:
        return {}
    return {identity: text for identity, text in found.items() if "fields" in json.loads(text)}


def _with_digits_of_spark(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema with no more digits than a column; Confluent's converter writes 64 where Connect knows none (``money``).

    The bytes of each number are read, so one that has more digits is a dead letter.
    """
    digits = part.get("precision")
    return part | {"precision": min(digits, MOST_DIGITS)} if isinstance(digits, int) else part


def _with_logical_types(schema: str, *kept: str) -> str:
    """Return a schema without the other logical types."""

    def part_with_kept(part: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in part.items() if k != "logicalType" or v in kept}

    return json.dumps(json.loads(schema, object_hook=part_with_kept))


@dataclass(frozen=True)
class _AvroToJsonDecoder(avro.AvroDecoder):
    """Decoder of datums into their text as JSON.

    Parameters
    ----------
    types
        Type of the datums of each writer's schema, in which only decimals have their logical type.
    scales
        Scales of the query's columns.
    """

    types: Mapping[str, StructType] = field(default_factory=dict, kw_only=True)
    scales: Set[int] = field(default_factory=frozenset, kw_only=True)

    def _with_parsed_datum_and_end_mark(self, rows: DataFrame) -> DataFrame:
        # Datums in a projection of its own, and a column for each writer: every value of an event would parse the datum again.
        datums = {
            f"_datum_{number}": F.when(
                self._writer_schema_id() == identity,
                avro.parse_datum_and_end_mark(
                    self._datum_bytes_with_end_mark(self._harmless_condition),
                    avro.widened_schema_json_with_end_mark(writer, dates_as_long=False),
                ),
            )
            for number, (identity, writer) in enumerate(self.writers.items())
        }
        found = F.lit(None)
        for name, identity in zip(datums, self.writers, strict=True):
            result = self._event_as_json(F.col(name), self.types[identity])
            found = F.when(self._writer_schema_id() == identity, result).otherwise(found)
        return rows.withColumns(datums).withColumn("_parsed", found).drop(*datums)

    def _event_as_json(self, parsed: Column, kind: StructType) -> Column:
        datum, end = parsed["datum"], parsed["end"]
        text = F.to_json(
            shared.with_replaced_leaves(kind, datum, None, self._has_other_form_in_json, _value_for_json)
        )
        if (readable := shared.all_texts_utf8_condition(kind, datum)) is not None:
            # In the place of bytes that are no text it would write another character.
            text = F.when(readable, text).otherwise(F.lit(bytearray(b"\xff")).cast("string"))
        flags = shared.all_leaves_condition(kind, datum, avro_value_range_checks.boolean_byte_condition)
        return F.struct(
            F.struct(text.alias(_JSON)).alias("datum"),
            (end if flags is None else F.when(flags, end)).alias("end"),
        )

    def _has_other_form_in_json(self, kind: DataType) -> bool:
        return (
            bool(self.scales - {kind.scale})
            if isinstance(kind, DecimalType)
            else isinstance(kind, BooleanType)
        )


def _value_for_json(kind: DataType, value: Column, _: Column) -> Column:
    if not isinstance(kind, DecimalType):
        return avro_value_range_checks.boolean_from_byte(value)
    return F.when(value.isNotNull(), F.struct(F.lit(kind.scale).alias("scale"), value.alias("value")))


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
        takes_key = "_key" in others and _events_are_rows(self.events)
        payload = F.coalesce("payload", "_key") if takes_key else F.col("payload")
        read = self.datums.decode(rows.withColumns({_PAYLOAD: F.col("payload"), "payload": payload}))
        letter, text = F.struct(*_LETTER), F.col(_JSON).cast("binary")
        bad = F.col("_error").isNotNull() & (F.col("_error") != shared.TOMBSTONE)
        kept = [F.col(f"`{name}`").alias(_KEY if name == "_key" else name) for name in others]
        events = read.select(
            *kept,
            _PAYLOAD,
            F.when(bad, letter).alias(_LETTERED),
            F.when(F.col(_PAYLOAD).isNotNull(), text).alias("payload"),
            F.when(F.col(_PAYLOAD).isNull(), text).alias("_key"),
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
