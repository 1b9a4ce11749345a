"""Avro: one datum in each payload, bare or after the header of a registry's serializer.

=============  =====================================================================
framing        before the datum
=============  =====================================================================
``none``       nothing: it was written with the query's own schema
``confluent``  byte 0, then the writer's schema id in 4 bytes, big-endian
``glue``       byte 3, a byte for compression (0 none, 5 zlib), the schema version's UUID in 16 bytes
=============  =====================================================================

Stages of a dead letter:

``decompress``
    A datum inside Glue's framing that is cut off, or larger than the query allows after decompression.
``decode``
    A null or empty payload, a missing header, a datum that is cut off or was written with another schema, bytes
    after it, a text in it that is not UTF-8, and anything larger than the limits below.
``schema``
    A writer's schema id that was not known when the query started; an ``int`` of more than 32 bits, a decimal of more digits
    than the schema has, a time outside the years 1 to 9999.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DecimalType, IntegerType, StructType

from ..launch.formats import AvroFormat
from ..record import errors
from ..record.errors import StartError
from . import avro_schemas, avro_value_range_checks, schema_files
from .base import Decoder
from .decoding import decode_in_python_by_arrow
from .decoding import decoder_output_and_checks as shared
from .decoding.decompress import STAGE, with_decompressed_column
from .decoding.out_of_range_numbers import contains_decimal

LONGEST_VALUE = 64 << 20
"""Most bytes of a text or of ``bytes``; records of MSK and Kinesis are smaller."""

MOST_ITEMS = 4_000_000
"""Most items in one block of an array or map."""


LARGE = 64 << 10
"""Bytes of a payload above which the length of each decimal is checked first. Spark computes the digits of a decimal,
which takes seconds for a megabyte."""

_LIMITS = {
    "org.apache.avro.limits.string.maxLength": LONGEST_VALUE,
    "org.apache.avro.limits.bytes.maxLength": LONGEST_VALUE,
    "org.apache.avro.limits.collectionItems.maxLength": MOST_ITEMS,
}
"""Without these limits Avro allocates memory for the length that a payload states before it checks that the bytes or items
are there: five bytes are enough to allocate two gigabytes and crash the executor."""

_MARK_BYTES = 16
_HEADER_BYTES = {"none": 0, "confluent": 5, "glue": 18}


_OVER = "_made_over"
_OVER_INT = "a number out of range: an int of more than 32 bits"
_MORE_DIGITS = "a decimal of more digits than the schema has"
_UNFIT = "not one datum of the schema: incomplete, or written with another schema"


def open_decoder(form: AvroFormat, spark: SparkSession, schema: str, open_up_to: int | None) -> AvroDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`; Glue's serializer compresses datums."""
    return make_avro_decoder(
        spark, form, schema_files.read_text_schema_file(spark, schema), schema, open_up_to
    )


@dataclass(frozen=True)
class AvroDecoder(Decoder):
    """Decoder of Avro by Spark's ``from_avro``, in one pass and without Python.

    ``from_avro`` returns the same nulls for a bad datum as for a record of nulls, and ignores bytes after
    the datum. So it reads a record of two fields: the datum, and 16 random bytes that are added after it.
    They are found there only if the datum was read completely and ended where the payload does.

    Parameters
    ----------
    schema
        Columns, as Spark maps the reader's schema.
    reader
        The reader's schema, JSON.
    framing
        See the module.
    writers
        Writer's schema (JSON) by id; ``{"": reader}`` without framing.
    open_up_to
        Most bytes, after decompression, of a datum that Glue's framing holds compressed; None decompresses none.
    mark
        The random bytes after the datum.
    readers
        The reader's schema with the units in which a writer wrote its times, by the writer's id.
    """

    schema: StructType
    reader: str
    framing: str
    writers: Mapping[str, str]
    open_up_to: int | None = None
    mark: bytes = field(default_factory=lambda: secrets.token_bytes(_MARK_BYTES), repr=False)
    readers: Mapping[str, str] = field(default_factory=dict)

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`."""
        # Once for each task: the settings of the first row apply to the rows after it.
        first = F.monotonically_increasing_id().bitwiseAND(F.lit(2**33 - 1)) == 0
        limits = F.when(
            first, F.concat_ws("", *map(F.expr, map(_sql_that_sets_limit, _LIMITS.items())))
        ).otherwise("")
        limited = rows.withColumn("_limits", limits)
        if self._decompresses_glue_frames:
            packed = F.when(self._compressed_condition(), F.expr("substring(payload, 19)"))
            limited = with_decompressed_column(
                limited,
                packed,
                self.open_up_to or 0,
                arrow=decode_in_python_by_arrow.can_return_arrow_columns(),
            )
        if contains_decimal(self.schema):
            # In a projection of its own, as the condition names it at each leaf: each would parse the datum.
            large = F.when(F.length(self._datum_bytes()) > LARGE, self._datum_with_decimals_as_bytes())
            limited = limited.withColumn("_decimals", large)
        limited = limited.withColumn("_harmless", self._only_short_decimals_condition())
        parsed = self._with_parsed_datum_and_end_mark(limited)
        ints = [F.col("_parsed.datum")[f.name] for f in self.schema if isinstance(f.dataType, IntegerType)]
        most, least = (f(F.lit(0), F.lit(0), *ints) for f in (F.greatest, F.least))
        # In a projection of its own, as the verdict uses it twice: together they would be more code than Java compiles.
        over = F.when(most > 2**31 - 1, most).when(least < -(2**31), least)
        held = parsed.withColumn(_OVER, over).withColumn("_verdict", self._dead_letter_verdict())
        values = {
            f.name: avro_value_range_checks.value_in_column_type(
                f, F.col("_parsed.datum")[f.name], dates_as_long=self._reads_dates_as_long
            )
            for f in self.schema
        }
        return shared.decoded_or_dead_letter(
            held.drop("_limits", "_decimals", "_harmless", "_opened"),
            self.schema,
            "_parsed",
            "_verdict",
            values,
        )

    @cached_property
    def _reads_dates_as_long(self) -> bool:
        return avro_value_range_checks.can_read_dates_as_long(json.loads(self.reader))

    @property
    def _decompresses_glue_frames(self) -> bool:
        return self.framing == "glue" and self.open_up_to is not None

    def _compressed_condition(self) -> Column:
        return F.hex(F.substring("payload", 1, 2)) == "0305"

    def _datum_bytes(self) -> Column:
        body = F.expr(f"substring(payload, {_HEADER_BYTES[self.framing] + 1})")
        return (
            F.when(self._compressed_condition(), F.col("_opened.content")).otherwise(body)
            if self._decompresses_glue_frames
            else body
        )

    def _only_short_decimals_condition(self) -> Column:
        """Return a condition: no decimal has more bytes than one that fits a column."""
        if not contains_decimal(self.schema):
            return F.lit(True)
        fitting = shared.all_leaves_condition(
            self.schema,
            F.col("_decimals.datum"),
            lambda kind, value: (
                F.length(value) <= avro_value_range_checks.DECIMAL_BYTES
                if isinstance(kind, DecimalType)
                else None
            ),
        )
        return F.coalesce(cast(Column, fitting), F.lit(True))

    def _datum_with_decimals_as_bytes(self) -> Column:
        return self._column_read_by_writer_schema(
            partial(_end_mark_schema_with_decimals_as_bytes, dates_as_long=self._reads_dates_as_long),
            _condition_that_sets_limits_first(),
        )

    def _with_parsed_datum_and_end_mark(self, rows: DataFrame) -> DataFrame:
        """Add ``_parsed`` with ``datum`` and ``end``, both null where the payload cannot be read."""
        shape = partial(widened_schema_json_with_end_mark, dates_as_long=self._reads_dates_as_long)
        return rows.withColumn("_parsed", self._column_read_by_writer_schema(shape, self._harmless_condition))

    @property
    def _harmless_condition(self) -> Column:
        return _condition_that_sets_limits_first() & F.col("_harmless")

    def _datum_bytes_with_end_mark(self, condition: Column) -> Column:
        return F.when(condition, F.concat(self._datum_bytes(), F.lit(bytearray(self.mark))))

    def _column_read_by_writer_schema(self, shape: Callable[[str], str], condition: Column) -> Column:
        parsed = F.lit(None)
        for identity, writer in self.writers.items():
            one = parse_datum_and_end_mark(
                self._datum_bytes_with_end_mark(condition),
                shape(writer),
                shape(self.readers.get(identity, self.reader)),
            )
            parsed = (
                one
                if self.framing == "none"
                else F.when(self._writer_schema_id() == identity, one).otherwise(parsed)
            )
        return parsed

    def _writer_schema_id(self) -> Column:
        """Return the id of the writer's schema; null without a header."""
        payload, header = F.col("payload"), _HEADER_BYTES[self.framing]
        if self.framing == "confluent":
            identity = F.conv(F.hex(F.substring(payload, 2, 4)), 16, 10)
            marked = F.hex(F.substring(payload, 1, 1)) == "00"
        else:
            digits = F.lower(F.hex(F.substring(payload, 3, 16)))
            identity = F.regexp_replace(digits, "(.{8})(.{4})(.{4})(.{4})(.{12})", "$1-$2-$3-$4-$5")
            marked = F.hex(F.substring(payload, 1, 2)).isin(
                "0300", *(["0305"] if self._decompresses_glue_frames else [])
            )
        return F.when(marked & (F.length(payload) >= header), identity)

    def _dead_letter_verdict(self) -> Column:
        payload, end, datum = F.col("payload"), F.col("_parsed.end"), F.col("_parsed.datum")
        verdict = F.when(payload.isNull(), shared.dead_letter_verdict("decode", shared.TOMBSTONE)).when(
            F.length(payload) == 0, shared.dead_letter_verdict("decode", shared.EMPTY)
        )
        if self.framing != "none":
            text = f"no header of {self.framing} framing"
            if self.framing == "glue":
                verdict = self._verdict_if_not_decompressed(verdict)
            verdict = verdict.when(
                self._writer_schema_id().isNull(), shared.dead_letter_verdict("decode", text)
            ).when(
                ~self._writer_schema_id().isin(list(self.writers)),
                shared.dead_letter_verdict(
                    "schema", F.concat(F.lit("unknown schema id: "), self._writer_schema_id())
                ),
            )
        long = f"a decimal of more than {avro_value_range_checks.DECIMAL_BYTES} bytes"
        verdict = verdict.when(~F.col("_harmless"), shared.dead_letter_verdict("decode", long))
        if contains_decimal(self.schema):
            verdict = verdict.when(
                end.isNull() & (self._datum_with_decimals_as_bytes()["end"] == F.lit(bytearray(self.mark))),
                shared.dead_letter_verdict("schema", _MORE_DIGITS),
            )
        verdict = verdict.when(end.isNull(), shared.dead_letter_verdict("decode", _UNFIT)).when(
            end != F.lit(bytearray(self.mark)),
            shared.dead_letter_verdict("decode", "unexpected bytes after the datum"),
        )
        over = F.concat(F.lit(f"{_OVER_INT}: "), F.col(_OVER).cast("string"))
        verdict = verdict.when(F.col(_OVER).isNotNull(), shared.dead_letter_verdict("schema", over))
        # Columns of an int are checked above.
        others = StructType([f for f in self.schema if not isinstance(f.dataType, IntegerType)])
        checks: tuple[tuple[StructType, shared.Leaf, str, str], ...] = (
            (self.schema, avro_value_range_checks.boolean_byte_condition, "decode", _UNFIT),
            (
                self.schema,
                avro_value_range_checks.digits_fit_condition,
                "schema",
                _MORE_DIGITS,
            ),
            (others, avro_value_range_checks.int_fits_condition, "schema", _OVER_INT),
            (
                self.schema,
                avro_value_range_checks.date_number_in_years_condition
                if self._reads_dates_as_long
                else avro_value_range_checks.time_in_years_condition,
                "schema",
                "a time out of range (years 1 to 9999)",
            ),
        )
        for parts, holds, stage, text in checks:
            if (fitting := shared.all_leaves_condition(parts, datum, holds)) is not None:
                verdict = verdict.when(~fitting, shared.dead_letter_verdict(stage, text))
        readable = shared.all_texts_utf8_condition(self.schema, datum)
        if readable is not None:
            verdict = verdict.when(
                ~readable, shared.dead_letter_verdict("decode", "a text in it is not UTF-8")
            )
        return verdict

    def _verdict_if_not_decompressed(self, verdict: Column) -> Column:
        if not self._decompresses_glue_frames:
            refused = "compressed inside Glue's framing, and the query has no decompress_up_to"
            return verdict.when(self._compressed_condition(), shared.dead_letter_verdict("decode", refused))
        other = self._compressed_condition() & (F.hex(F.substring("payload", 19, 1)) != "78")
        error = F.col("_opened.error")
        return verdict.when(other, shared.dead_letter_verdict(STAGE, "not zlib, as Glue's header says")).when(
            error.isNotNull(), shared.dead_letter_verdict(STAGE, error)
        )


def parse_datum_and_end_mark(framed: Column, writer: str, reader: str | None = None) -> Column:
    """Return what a schema of :func:`widened_schema_json_with_end_mark` reads; ``reader`` is the writer's if it is None."""
    # Else Spark refuses times before 1900, as it may not know by which calendar they were written.
    options = {"mode": "PERMISSIVE", "avroSchema": reader or writer, "datetimeRebaseMode": "CORRECTED"}
    return from_avro(framed, writer, options)


def _sql_that_sets_limit(limit: tuple[str, int]) -> str:
    """Return SQL that sets a limit in the JVM that runs it; no Spark setting reaches the executors on every engine."""
    name, value = limit
    return f"java_method('java.lang.System', 'setProperty', '{name}', '{value}')"


def _condition_that_sets_limits_first() -> Column:
    """Return a condition that is always true and depends on the column that sets the limits, so that they are set first.

    With ``isNull`` the optimizer would know the answer and remove the column that sets them.
    """
    return F.length("_limits") >= 0


def widened_schema_json_with_end_mark(schema: str, *, dates_as_long: bool) -> str:
    """Return the schema of a record of two fields: the datum, read with :func:`etl.formats.avro_value_range_checks.schema_of_wider_types`, and the mark after it."""
    return _schema_json_with_end_mark(
        avro_value_range_checks.schema_of_wider_types(json.loads(schema), dates_as_long=dates_as_long)
    )


def _schema_json_with_end_mark(schema: Any) -> str:
    end = {"type": "fixed", "name": "End", "size": _MARK_BYTES}
    fields = [{"name": "datum", "type": schema}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "Framed", "namespace": "millrace", "fields": fields})


def _end_mark_schema_with_decimals_as_bytes(schema: str, *, dates_as_long: bool) -> str:
    """Return the same framed schema with bytes of any length instead of decimals."""
    text = widened_schema_json_with_end_mark(schema, dates_as_long=dates_as_long)
    return json.dumps(json.loads(text, object_hook=_bytes_for_decimal))


def _bytes_for_decimal(part: dict[str, Any]) -> Any:
    return {k: v for k, v in part.items() if (k, v) != ("logicalType", "decimal")}


def make_avro_decoder(
    spark: SparkSession, settings: AvroFormat, text: str, path: str, open_up_to: int | None = None
) -> AvroDecoder:
    """Make the decoder, so that every error in a schema shows before the first record.

    Parameters
    ----------
    spark
        Session whose Avro library reads the schemas.
    path
        Origin of the schema, for messages.
    open_up_to
        Most bytes of a compressed datum, after decompression.

    Raises
    ------
    StartError
        A schema is wrong, Spark has no types for it or a writer's schema does not fit; or the
        engine has no spark-avro.
    """
    set_avro_limits_in_driver(spark)
    reader = json.dumps(avro_schemas.parse_schema_json(spark, text, path))
    found = {"": reader} if settings.framing == "none" else writer_schemas(spark, settings, path)
    schema = shared.schema_with_checked_names(spark_type_of_datum(spark, reader, path), path)
    readers = {}
    for identity, writer in found.items():
        where = f"{path}: writer {identity}"
        _refuse_incompatible_schemas(spark, reader, writer, where)
        readers[identity] = avro_schemas.reader_in_units_of_writer(spark, reader, writer, where)
    return AvroDecoder(schema, reader, settings.framing, found, open_up_to, readers=readers)


def set_avro_limits_in_driver(spark: SparkSession) -> None:
    """Set Avro's limits for decoding in the driver: other code of Avro may run there before the first record."""
    jvm: Any = spark._jvm
    for name, value in _LIMITS.items():
        jvm.java.lang.System.setProperty(name, str(value))


def writer_schemas(
    spark: SparkSession,
    settings: AvroFormat,
    path: str,
    hook: Callable[[dict[str, Any]], Any] | None = None,
) -> dict[str, str]:
    """Return the writers' schemas, as JSON, by the ids of a framing; parameters and errors as in :func:`make_avro_decoder`.

    ``hook`` may change each object of a schema.
    """
    if settings.registry is not None and settings.subject is not None:
        found = avro_schemas.writer_schemas_from_registry(spark, settings.registry, settings.subject)
    else:
        found = avro_schemas.writer_schemas_from_folder(str(settings.writers), settings.framing)
    return {
        i: json.dumps(avro_schemas.parse_schema_json(spark, w, f"{path}: writer {i}", hook))
        for i, w in found.items()
    }


def spark_type_of_datum(spark: SparkSession, reader: str, path: str) -> StructType:
    """Return the type of a schema's datums, as Spark maps it; parameters and errors as in :func:`make_avro_decoder`."""
    try:
        parsed = from_avro(F.lit(bytearray()), _schema_json_with_end_mark(json.loads(reader)))
        schema = spark.range(1).select(parsed.alias("parsed")).schema["parsed"].dataType
    except TypeError as error:
        raise StartError(
            f"{path}: spark-avro is missing on this engine; add its jar to the job's jars, as Millrace "
            "does when it deploys a job"
        ) from error
    except (Py4JJavaError, AnalysisException) as error:
        raise StartError(f"{path}: {errors.describe_error(error)}") from error
    assert isinstance(schema, StructType)
    datum = schema["datum"].dataType
    assert isinstance(datum, StructType)
    return datum


def _refuse_incompatible_schemas(spark: SparkSession, reader: str, writer: str, where: str) -> None:
    jvm: Any = spark._jvm
    one, other = (avro_schemas.parse_java_schema(spark, each, where) for each in (reader, writer))
    result = jvm.org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility(one, other)
    if result.getType().toString() != "COMPATIBLE":
        found = result.getResult().getIncompatibilities()
        reasons = "; ".join(f"{i.getLocation()}: {i.getMessage()}" for i in found)
        raise StartError(
            f"{where}: records written with this schema cannot be read with the schema of the query: {reasons}"
        )
