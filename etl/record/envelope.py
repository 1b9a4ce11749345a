"""Envelope: one shape for the records of every source; later code does not depend on the source.

=============  ================================  ==================================================
column         type                              content
=============  ================================  ==================================================
_id            string                            ``topic/partition/offset`` or ``stream/sequenceNumber``
_source        string                            the stream's logical name
_shard         string                            Kafka partition, ``topic/partition`` where a stream has
                                                 several topics; null if a connector gives no shard
_position      string                            Kafka offset, 20 digits; Kinesis sequence number
_key           binary                            Kafka key, Kinesis partition key
_headers       array<struct<key,value>>          Kafka headers
_arrived_at    timestamp                         the source's time of the record; for Kafka within bounds,
                                                 see :func:`with_bounded_arrival`
payload        binary                            the record's bytes
=============  ================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType, TimestampType

from . import batch_accounts
from .column_expression_cache import CachedSelect

IDENTITY = ("_source", "_id")
"""Columns that identify a record: the stream's name, and the record's position in it."""

CARRIED = ("_id", "_source", "_arrived_at", "_landed_at")
"""Columns that a transform keeps: identity, and the times that latency and idempotence need."""

COLUMNS = ("_id", "_source", "_shard", "_position", "_key", "_headers", "_arrived_at")
"""Envelope without the payload, as landing tables keep it."""

ERASED = "erased"
"""``_stage`` of a landed row whose record was erased: it keeps the identity, so that the record does not land again."""

POSITION_DIGITS = 20
"""Digits of the largest offset (2**63 - 1 has 19), so that text sorts like numbers."""

HEADERS = "array<struct<key:string,value:binary>>"

SCHEMA = StructType(
    [
        StructField("_id", StringType()),
        StructField("_source", StringType()),
        StructField("_shard", StringType()),
        StructField("_position", StringType()),
        StructField("_key", BinaryType()),
        StructField(
            "_headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
        StructField("_arrived_at", TimestampType()),
    ]
)
"""Schema of the columns that landing tables keep."""

TIME_HEADER = "millrace-timestamp"
"""Header of a Kafka record whose ``_arrived_at`` was changed: its own time, in milliseconds, as text."""

DAYS_KEPT = timedelta(days=31)
"""Times up to this long before a batch are kept, even with a shorter retention of the topic."""


def from_kafka(records: DataFrame, source: str | Column, *, several: bool = False) -> DataFrame:
    """Put Kafka records into the envelope.

    Parameters
    ----------
    records
        Columns of Spark's Kafka source, with ``headers`` if it was read with ``includeHeaders``.
    source
        The stream's logical name, or a column that derives it from ``topic``.
    several
        True if the stream has several topics, so that a partition's number is not unique.
    """
    partition, offset = F.col("partition").cast("string"), F.col("offset").cast("string")
    headers = F.col("headers") if "headers" in records.columns else F.lit(None)
    return records.select(
        F.concat_ws("/", "topic", partition, offset).alias("_id"),
        (source if isinstance(source, Column) else F.lit(source)).alias("_source"),
        (F.concat_ws("/", "topic", partition) if several else partition).alias("_shard"),
        F.lpad(offset, POSITION_DIGITS, "0").alias("_position"),
        F.col("key").alias("_key"),
        headers.cast(HEADERS).alias("_headers"),
        F.col("timestamp").alias("_arrived_at"),
        F.col("value").alias("payload"),
    )


def from_kinesis(records: DataFrame, source: str) -> DataFrame:
    """Put Kinesis records into the envelope.

    Parameters
    ----------
    records
        Columns ``data``, ``streamName``, ``partitionKey``, ``sequenceNumber`` and
        ``approximateArrivalTimestamp``, which the connectors of Glue, EMR Serverless
        and the sandbox share. None of them has the shard.
    """
    return records.select(
        F.concat_ws("/", "streamName", "sequenceNumber").alias("_id"),
        F.lit(source).alias("_source"),
        F.lit(None).cast("string").alias("_shard"),
        F.col("sequenceNumber").alias("_position"),
        F.col("partitionKey").cast("binary").alias("_key"),
        F.lit(None).cast(HEADERS).alias("_headers"),
        F.col("approximateArrivalTimestamp").alias("_arrived_at"),
        F.col("data").alias("payload"),
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_bounded_arrival(
    records: DataFrame, planned: datetime, retention: timedelta, topics: Sequence[str] | None = None
) -> DataFrame:
    """Limit the arrival times of Kafka records, which producers set, so that a task writes into few days.

    ================================================  ==================================================
    the record's time                                 ``_arrived_at``
    ================================================  ==================================================
    from a retention before the batch was planned     the same
    (31 days at least) to a day after it
    before that, from 1970 on                         the beginning of its year
    any other, or none                                the time when the batch was planned
    ================================================  ==================================================

    The record's own time is then in its last header. It is the same in every replay of the batch.

    Parameters
    ----------
    records
        Rows in the envelope's shape.
    planned
        Time at which Spark planned the batch.
    topics
        Logical names of the Kafka streams; None if all are.
    """
    ends = (planned - max(retention, DAYS_KEPT), planned + timedelta(days=1), planned)
    times = ", ".join(map(_sql_micros_literal, (*ends, planned)))
    # All values that differ between batches, in one call into the JVM.
    return _select_with_bounded_arrival(tuple(topics or ())).select_from(
        records.withColumn(_ENDS, F.expr(f"array({times})"))
    )


_ENDS = "_ends"
"""Column of the lower and upper limit and the replacement: outside the generated code, as in :func:`time_column_outside_generated_code`."""


@cache
def _select_with_bounded_arrival(topics: tuple[str, ...]) -> CachedSelect:
    # No identity is empty. The optimizer knows that none is null; with that condition it would inline the array's elements.
    low, high, at = (f"{_ENDS}[CASE WHEN _id = '' THEN 3 ELSE {n} END]" for n in range(3))
    own = f"(unix_micros(_arrived_at) BETWEEN {low} AND {high})"
    if topics:
        names = ", ".join(f"'{name}'" for name in topics)
        own = f"({own} OR _source NOT IN ({names}))"
    text = "CAST(CAST(unix_millis(_arrived_at) AS STRING) AS BINARY)"
    header = f"array(named_struct('key', '{TIME_HEADER}', 'value', {text}))"
    changed = {
        "_headers": f"CASE WHEN _arrived_at IS NULL OR {own} THEN _headers "
        f"ELSE CAST(concat(coalesce(_headers, array()), {header}) AS {HEADERS}) END AS _headers",
        "_arrived_at": f"CASE WHEN {own} THEN _arrived_at "
        f"WHEN unix_micros(_arrived_at) BETWEEN 0L AND {low} THEN date_trunc('YEAR', _arrived_at) "
        f"ELSE timestamp_micros({at}) END AS _arrived_at",
    }
    return CachedSelect(lambda: [F.expr(changed.get(name, name)) for name in (*COLUMNS, "payload")])


def datetime_of_micros(micros: int) -> datetime:
    """Return the time of a number of microseconds since 1970, limited to Python's range without its outermost microseconds.

    Examples
    --------
    >>> datetime_of_micros(2**63 - 1)
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999998, tzinfo=datetime.timezone.utc)
    """
    first, last = -62_135_596_799_999_999, 253_402_300_799_999_998
    return _EPOCH + timedelta(microseconds=min(max(micros, first), last))


def _sql_micros_literal(at: datetime) -> str:
    return f"{(at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)}L"


_STAMPED = CachedSelect(lambda: (*COLUMNS, F.xxhash64("payload").alias("_hash"), "payload"))


def with_hash_and_landing_time(records: DataFrame, *more: Column) -> DataFrame:
    """Add the columns that decoders need: the hash of the payload, and the landing time.

    Parameters
    ----------
    records
        Rows in the envelope's shape.
    *more
        Named columns more.
    """
    landed_at = time_column_outside_generated_code(batch_accounts.utc_now()).alias("_landed_at")
    return _STAMPED.select_from(records, landed_at, *more)


def time_column_outside_generated_code(at: datetime, never: str = "_arrived_at IS NULL") -> Column:
    """Return one time for all rows, in a form that is not part of Spark's generated code.

    A literal is part of it: then each batch would be different code, compiled and warmed up again. Arrays
    are passed separately; an index that depends on the row keeps the optimizer
    from inlining the time.

    Parameters
    ----------
    never
        SQL condition that is false for all rows without the optimizer's knowledge; the default is a null ``_arrived_at``.
    """
    # As text it is one call into the JVM; with functions it is twenty.
    time = f"timestamp_micros({_sql_micros_literal(at)})"
    return F.expr(f"array({time}, {time})[CASE WHEN {never} THEN 1 ELSE 0 END]")
