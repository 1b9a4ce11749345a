"""Avro: one datum in each payload, bare or behind the header of a registry's serializer.

=============  =====================================================================
framing        before the datum
=============  =====================================================================
``none``       nothing: it was written with the query's own schema
``confluent``  byte 0, then the writer's schema id in 4 bytes, big-endian
``glue``       byte 3, a byte for compression (0 none, 5 zlib), the schema version's UUID in 16 bytes
=============  =====================================================================

A dead letter has the stage

``decompress``
    A datum inside Glue's framing that is larger than the query allows when open, or cut off.
``decode``
    A null or empty payload, no such header, a datum that is cut off or was written with another schema, bytes
    behind it, a text in it that is not UTF-8, and anything larger than the limits below.
``schema``
    The id of a writer's schema that was not known when the query started.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DecimalType, StructType

from ..launch.format_kinds import Format
from ..record import errors
from ..record.errors import StartError
from . import avro_schemas, schemas
from .decoding import arrow
from .decoding import rows as shared
from .decoding.decompress import STAGE, with_decompressed
from .decoding.out_of_range_numbers import decimals

LONGEST_VALUE = 64 << 20
"""Bytes of a text or of ``bytes``; MSK and Kinesis take smaller records."""

MOST_ITEMS = 4_000_000
"""Items of one block of an array or map."""

DECIMAL_BYTES = 64
"""Of a decimal in a payload of more than :data:`LARGE` bytes; 17 hold the 38 digits of the longest one."""

LARGE = 64 << 10
"""Bytes of a payload whose decimals are looked at as bytes first. Spark works out how many digits each has, which for a
megabyte takes seconds."""

_LIMITS = {
    "org.apache.avro.limits.string.maxLength": LONGEST_VALUE,
    "org.apache.avro.limits.bytes.maxLength": LONGEST_VALUE,
    "org.apache.avro.limits.collectionItems.maxLength": MOST_ITEMS,
}
"""Without them Avro makes room for as many bytes or items as a length says before it looks whether they are there:
five bytes are enough for two gigabytes, and the end of the executor."""

_MARK_BYTES = 16
_HEADER_BYTES = {"none": 0, "confluent": 5, "glue": 18}
_MOST_DIGITS = 38
"""Of a decimal of Spark's."""

_UNFIT = "not one datum of the schema: incomplete, or written with another schema"


@dataclass(frozen=True)
class AvroFormat(Format):
    """One Avro datum; the query's ``schema`` is the reader's, an ``.avsc`` file.

    Attributes
    ----------
    framing
        What stands before the datum: nothing, or the header of a registry's serializer.
    writers
        Folder below ``pipelines/`` with a writer's schema per id; None where ``registry`` has them, or there
        is but the query's ``schema``.
    registry
        URL of a Confluent registry, whose versions of ``subject`` are read at start.
    """

    IN_LINES = False

    kind: Literal["avro"]
    framing: Literal["none", "confluent", "glue"]
    writers: str | None
    registry: str | None
    subject: str | None

    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> AvroDecoder:
        """Make what decodes, as :meth:`etl.launch.format_kinds.Format.decoder` says; Glue's serializer compresses datums."""
        return decoder(spark, self, schemas.read_schema(spark, schema), schema, open_up_to)


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes Avro by Spark's ``from_avro``, in one pass and without Python.

    ``from_avro`` gives the same nulls for a bad datum as for a record of nulls, and does not mind what
    follows. So datum and schema are set into a record of two: the datum, and 16 bytes behind it that
    nobody can guess. They are found there only if the datum was read whole and ended where the payload does.

    Parameters
    ----------
    schema
        Columns, as Spark maps the reader's schema.
    reader
        The reader's schema, JSON.
    framing
        See the module.
    writers
        Id to the schema, JSON, that a datum was written with; ``{"": reader}`` without framing.
    open_up_to
        Most bytes of a datum that is compressed inside Glue's framing; None opens none.
    mark
        The bytes behind the datum.
    """

    schema: StructType
    reader: str
    framing: str
    writers: Mapping[str, str]
    open_up_to: int | None = None
    mark: bytes = field(default_factory=lambda: secrets.token_bytes(_MARK_BYTES), repr=False)

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode as :meth:`etl.formats.base.Decoder.decode` says."""
        # Once for each task: what the first row sets holds for those behind it.
        first = F.monotonically_increasing_id().bitwiseAND(F.lit(2**33 - 1)) == 0
        limits = F.when(first, F.concat_ws("", *map(F.expr, map(_set, _LIMITS.items())))).otherwise("")
        limited = rows.withColumn("_limits", limits)
        if self._opens:
            packed = F.when(self._packed(), F.expr("substring(payload, 19)"))
            limited = with_decompressed(limited, packed, self.open_up_to or 0, arrow=arrow.available())
        limited = limited.withColumn("_harmless", self._harmless())
        parsed = limited.withColumn("_parsed", self._parsed())
        record = F.col("_parsed.datum")
        if decimals(self.schema):
            # By the type's name: of it everything may be null, and a cast to fewer digits may make it so.
            record = record.cast(self.schema.simpleString())
        held = parsed.withColumn("_verdict", self._verdict()).withColumn("_record", record)
        return shared.decoded_or_dead_letter(
            held.drop("_limits", "_harmless", "_parsed", "_opened"), self.schema, "_record", "_verdict"
        )

    @property
    def _opens(self) -> bool:
        return self.framing == "glue" and self.open_up_to is not None

    def _packed(self) -> Column:
        return F.hex(F.substring("payload", 1, 2)) == "0305"

    def _body(self) -> Column:
        body = F.expr(f"substring(payload, {_HEADER_BYTES[self.framing] + 1})")
        return F.when(self._packed(), F.col("_opened.content")).otherwise(body) if self._opens else body

    def _harmless(self) -> Column:
        """Whether no decimal has more bytes than one that fits a column."""
        if not decimals(self.schema):
            return F.lit(True)
        found = self._read(_without_decimals, _limits_are_set())
        fitting = shared.holds_for_all(
            self.schema,
            found["datum"],
            lambda kind, value: F.length(value) <= DECIMAL_BYTES if isinstance(kind, DecimalType) else None,
        )
        return (F.length(self._body()) <= LARGE) | F.coalesce(cast(Column, fitting), F.lit(True))

    def _parsed(self) -> Column:
        """``datum`` and ``end``; both null where it cannot be read."""
        return self._read(framed_schema, _limits_are_set() & F.col("_harmless"))

    def _read(self, shape: Callable[[str], str], condition: Column) -> Column:
        framed = F.when(condition, F.concat(self._body(), F.lit(bytearray(self.mark))))
        options = {"mode": "PERMISSIVE", "avroSchema": shape(self.reader)}
        parsed = F.lit(None)
        for identity, writer in self.writers.items():
            one = from_avro(framed, shape(writer), options)
            parsed = one if self.framing == "none" else F.when(self._id() == identity, one).otherwise(parsed)
        return parsed

    def _id(self) -> Column:
        """Of the writer's schema; null without a header."""
        payload, header = F.col("payload"), _HEADER_BYTES[self.framing]
        if self.framing == "confluent":
            identity = F.conv(F.hex(F.substring(payload, 2, 4)), 16, 10)
            marked = F.hex(F.substring(payload, 1, 1)) == "00"
        else:
            digits = F.lower(F.hex(F.substring(payload, 3, 16)))
            identity = F.regexp_replace(digits, "(.{8})(.{4})(.{4})(.{4})(.{12})", "$1-$2-$3-$4-$5")
            marked = F.hex(F.substring(payload, 1, 2)).isin("0300", *(["0305"] if self._opens else []))
        return F.when(marked & (F.length(payload) >= header), identity)

    def _verdict(self) -> Column:
        payload, end, datum = F.col("payload"), F.col("_parsed.end"), F.col("_parsed.datum")
        verdict = F.when(payload.isNull(), shared.reason("decode", shared.TOMBSTONE)).when(
            F.length(payload) == 0, shared.reason("decode", shared.EMPTY)
        )
        if self.framing != "none":
            text = f"no header of {self.framing} framing"
            if self.framing == "glue":
                verdict = self._unopened(verdict)
            verdict = verdict.when(self._id().isNull(), shared.reason("decode", text)).when(
                ~self._id().isin(list(self.writers)),
                shared.reason("schema", F.concat(F.lit("unknown schema id: "), self._id())),
            )
        long = f"a decimal of more than {DECIMAL_BYTES} bytes"
        verdict = verdict.when(~F.col("_harmless"), shared.reason("decode", long))
        verdict = verdict.when(end.isNull(), shared.reason("decode", _UNFIT)).when(
            end != F.lit(bytearray(self.mark)), shared.reason("decode", "unexpected bytes after the datum")
        )
        fitting = shared.holds_for_all(
            self.schema,
            datum,
            lambda kind, value: value.cast(kind).isNotNull() if isinstance(kind, DecimalType) else None,
        )
        if fitting is not None:
            verdict = verdict.when(
                ~fitting, shared.reason("schema", "a decimal of more digits than the schema has")
            )
        readable = shared.texts(self.schema, datum)
        if readable is not None:
            verdict = verdict.when(~readable, shared.reason("decode", "a text in it is not UTF-8"))
        return verdict

    def _unopened(self, verdict: Column) -> Column:
        if not self._opens:
            refused = "compressed inside Glue's framing, and the query has no decompress_up_to"
            return verdict.when(self._packed(), shared.reason("decode", refused))
        other = self._packed() & (F.hex(F.substring("payload", 19, 1)) != "78")
        error = F.col("_opened.error")
        return verdict.when(other, shared.reason(STAGE, "not zlib, as Glue's header says")).when(
            error.isNotNull(), shared.reason(STAGE, error)
        )


def _set(limit: tuple[str, int]) -> str:
    """Set a limit in whichever JVM this runs; no setting of Spark's reaches executors on every engine."""
    name, value = limit
    return f"java_method('java.lang.System', 'setProperty', '{name}', '{value}')"


def _limits_are_set() -> Column:
    """Always true; looks at what sets the limits, so that they are set before.

    Were it asked whether that is null, the optimizer would know the answer, and take away the column that sets them.
    """
    return F.length("_limits") >= 0


def framed_schema(schema: str) -> str:
    """A record of the datum, read with :func:`_wide`, and of what stands behind it."""
    return _framed(_wide(json.loads(schema)))


def _framed(schema: Any) -> str:
    end = {"type": "fixed", "name": "End", "size": _MARK_BYTES}
    fields = [{"name": "datum", "type": schema}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "Framed", "namespace": "millrace", "fields": fields})


def _wide(part: Any) -> Any:
    """A schema whose decimals have as many digits as their bytes hold.

    Of a decimal of up to 18 digits Spark takes the last eight bytes, whatever stands before them
    (``AvroDeserializer.createDecimal``): a longer one would be another number, without a word.
    """
    if isinstance(part, list):
        return [_wide(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: value if key == "default" else _wide(value) for key, value in part.items()}
    if part.get("logicalType") == "decimal" and part.get("type") in ("bytes", "fixed"):
        size = part.get("size", DECIMAL_BYTES)
        found["precision"] = max(part["precision"], min(len(str(2 ** (8 * size - 1) - 1)) - 1, _MOST_DIGITS))
    return found


def _without_decimals(schema: str) -> str:
    """The same frame, bytes in the place of decimals of any length."""

    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(each) for each in part]
        if not isinstance(part, dict):
            return part
        if part.get("type") == "bytes" and part.get("logicalType") == "decimal":
            return "bytes"
        return {key: value if key == "default" else bare(value) for key, value in part.items()}

    return json.dumps(bare(json.loads(framed_schema(schema))))


def decoder(
    spark: SparkSession, settings: AvroFormat, text: str, path: str, open_up_to: int | None = None
) -> AvroDecoder:
    """Make the decoder, so that every mistake in a schema shows before the first record.

    Parameters
    ----------
    spark
        Its Avro reads the schemas.
    path
        Where it came from, for messages.
    open_up_to
        Most bytes of a compressed datum, when open.

    Raises
    ------
    StartError
        A schema that is wrong, that Spark has no types for or that a writer's does not fit; or an
        engine without spark-avro.
    """
    jvm: Any = spark._jvm
    for name, value in _LIMITS.items():
        # Where the driver decodes: something else of Avro's may be used before the first record is.
        jvm.java.lang.System.setProperty(name, str(value))
    reader = json.dumps(avro_schemas.parse(spark, text, path))
    writers = {"": reader}
    if settings.framing != "none":
        if settings.registry is not None and settings.subject is not None:
            found = avro_schemas.from_registry(settings.registry, settings.subject)
        else:
            found = avro_schemas.from_folder(str(settings.writers), settings.framing)
        writers = {
            i: json.dumps(avro_schemas.parse(spark, w, f"{path}: writer {i}")) for i, w in found.items()
        }
    schema = _columns(spark, reader, path)
    for identity, writer in writers.items():
        _compatible(spark, reader, writer, f"{path}: writer {identity}")
    return AvroDecoder(schema, reader, settings.framing, writers, open_up_to)


def _columns(spark: SparkSession, reader: str, path: str) -> StructType:
    try:
        parsed = from_avro(F.lit(bytearray()), _framed(json.loads(reader)))
        schema = spark.range(1).select(parsed.alias("parsed")).schema["parsed"].dataType
    except TypeError as error:
        raise StartError(
            f"{path}: this engine has no spark-avro, which the job's jars should hold"
        ) from error
    except (Py4JJavaError, AnalysisException) as error:
        raise StartError(f"{path}: {errors.describe(error)}") from error
    assert isinstance(schema, StructType)
    datum = schema["datum"].dataType
    assert isinstance(datum, StructType)
    return shared.check_names(datum, path)


def _compatible(spark: SparkSession, reader: str, writer: str, where: str) -> None:
    jvm: Any = spark._jvm
    one, other = (avro_schemas.java_schema(spark, each, where) for each in (reader, writer))
    result = jvm.org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility(one, other)
    if result.getType().toString() != "COMPATIBLE":
        found = result.getResult().getIncompatibilities()
        reasons = "; ".join(f"{i.getLocation()}: {i.getMessage()}" for i in found)
        raise StartError(
            f"{where}: records written with this schema cannot be read with the schema of the query: {reasons}"
        )
