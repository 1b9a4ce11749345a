"""Tables of any size, with real rows or with files that exist only in Iceberg's metadata.

A file that no plan opens may as well not exist. So a table of 10^8 rows is made in seconds, and a plan that does open one of
its files fails at once: that old files are left out is proved by each such run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.record.envelope import COLUMNS, HEADERS, POSITION_DIGITS
from millrace.etl.record.tables import Table

FILES_PER_COMMIT = 1_000
BYTES_PER_ROW = 100
_MICROS = 1_000_000


@dataclass(frozen=True)
class Listed:
    """Files that are alike, but for their names.

    Attributes
    ----------
    count
        How many.
    rows
        In each.
    bounds
        Least and greatest value of columns, timestamps as ``datetime``.
    """

    count: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]]


def listed(
    spark: SparkSession,
    table: Table,
    files: Iterable[Listed],
    day: str | None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Append files to a table by metadata alone.

    Parameters
    ----------
    spark
        With the table's catalog.
    table
        Which exists, and is partitioned by day of ``day``.
    files
        A commit for each thousand of them at most.
    day
        None for a table without partitions.
    properties
        Of each commit.
    """
    jvm: Any = spark._jvm
    found = table.load_java_table(spark)
    builders = jvm.org.apache.iceberg.DataFiles

    def begun() -> Any:
        append = found.newAppend()
        for name, value in (properties or {}).items():
            append.set(name, value)
        return append

    waiting, number = begun(), 0
    for like in files:
        builder = builders.builder(found.spec()).withFormat("parquet").withPath("file:///none/none.parquet")
        builder = builder.withFileSizeInBytes(like.rows * BYTES_PER_ROW)
        builder = builder.withMetrics(_metrics(jvm, found.schema(), like))
        if day is not None:
            builder = builder.withPartitionPath(f"{day}_day={like.bounds[day][0].date().isoformat()}")
        one = builder.build()
        for _ in range(like.count):
            number += 1
            path = f"file:///none/{table.name}/{number}.parquet"
            waiting.appendFile(builders.builder(found.spec()).copy(one).withPath(path).build())
            if number % FILES_PER_COMMIT == 0:
                waiting.commit()
                waiting = begun()
    if number % FILES_PER_COMMIT:
        waiting.commit()


def _metrics(jvm: Any, schema: Any, like: Listed) -> Any:
    least, greatest = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    for column, ends in like.bounds.items():
        field = schema.findField(column)
        for found, value in zip((least, greatest), ends, strict=True):
            plain = int(value.timestamp() * _MICROS) if isinstance(value, datetime) else value
            found.put(
                field.fieldId(), jvm.org.apache.iceberg.types.Conversions.toByteBuffer(field.type(), plain)
            )
    return jvm.org.apache.iceberg.Metrics(like.rows, None, None, None, None, least, greatest)


def arrived(total: int, per_file: int, until: datetime, per_second: float, source: str) -> Iterable[Listed]:
    """Files of a landing table or of a sink behind it, in the order of arrival.

    Parameters
    ----------
    total, per_file
        Rows.
    until
        When the last one was landed.
    per_second
        Rows of a second.
    source
        Logical name of the stream.
    """
    per_file = min(per_file, total)
    files = total // per_file
    span = timedelta(seconds=per_file / per_second)
    for place in range(files, 0, -1):
        first, last = until - place * span, until - (place - 1) * span
        first = max(first, datetime(last.year, last.month, last.day, tzinfo=UTC))  # a file has one day
        times = {"_arrived_at": (first, last), "_landed_at": (first, last)}
        yield Listed(1, per_file, {"_source": (source, source), **times})


def alike(files: int, per_file: int, until: datetime, source: str) -> Iterable[Listed]:
    """So many files of one day, a thousand of which are alike.

    Parameters
    ----------
    files, per_file, until, source
        As of :func:`arrived`.
    """
    for first in range(0, files, FILES_PER_COMMIT):
        last = until - timedelta(minutes=5 * (files - first) / FILES_PER_COMMIT)
        times = dict.fromkeys(("_arrived_at", "_landed_at"), (last - timedelta(minutes=1), last))
        count = min(FILES_PER_COMMIT, files - first)
        yield Listed(count, per_file, {"_source": (source, source), **times})


SEQUENCES, SEQUENCE_DIGITS = "4968042419681332793507059317107", 56
"""What sequence numbers of Kinesis begin with, and how many digits they have."""


def sequence_of(number: Column) -> Column:
    """Of as many digits as those of Kinesis."""
    return F.lpad(number.cast("string"), SEQUENCE_DIGITS, SEQUENCES)


@dataclass(frozen=True)
class Numbered:
    """Records with numbers, the same whenever they are made.

    Attributes
    ----------
    first, count
        Their numbers.
    since
        Arrival of the first.
    per_second
        How many arrive in a second.
    source, origin
        Logical and own name of the stream.
    partitions
        Of a topic, over which they are spread in turn; None for a stream of Kinesis.
    ahead
        By how many offsets each partition of a topic is ahead of the one before.
    """

    first: int
    count: int
    since: datetime
    per_second: float
    source: str = "events"
    origin: str = "events"
    partitions: int | None = None
    ahead: int = 0

    def envelope(self, spark: SparkSession, tasks: int = 2) -> DataFrame:
        """In the envelope's shape."""
        number = F.col("id") + self.first
        micros = (F.col("id") * (_MICROS / self.per_second)).cast("bigint") + int(
            self.since.timestamp() * _MICROS
        )
        if self.partitions is None:
            shard, position = F.lit(None).cast("string"), sequence_of(number)
            identity = F.concat_ws("/", F.lit(self.origin), position)
        else:
            shard = (number % self.partitions).cast("string")
            offset = F.floor(number / self.partitions) + (number % self.partitions) * self.ahead
            offset = offset.cast("string")
            position = F.lpad(offset, POSITION_DIGITS, "0")
            identity = F.concat_ws("/", F.lit(self.origin), shard, offset)
        return spark.range(0, self.count, 1, tasks).select(
            identity.alias("_id"),
            F.lit(self.source).alias("_source"),
            shard.alias("_shard"),
            position.alias("_position"),
            F.substring(F.md5(number.cast("string")), 1, 8).cast("binary").alias("_key"),
            F.lit(None).cast(HEADERS).alias("_headers"),
            F.timestamp_micros(micros).alias("_arrived_at"),
            F.to_json(F.struct(number.alias("n"))).cast("binary").alias("payload"),
        )

    def good(self, spark: SparkSession, tasks: int = 2) -> DataFrame:
        """As good records of a landing table, landed when they arrived."""
        number = F.get_json_object(F.col("payload").cast("string"), "$.n").cast("bigint")
        return self.envelope(spark, tasks).select(
            *COLUMNS,
            F.xxhash64("payload").alias("_hash"),
            F.col("_arrived_at").alias("_landed_at"),
            number.alias("n"),
        )

    def ends(self) -> dict[str, dict[str, int]]:
        """Where a topic's partitions end after them, as Spark's Kafka source says it."""
        assert self.partitions is not None, f"{self.source}: not a topic"
        end = (self.first + self.count) // self.partitions
        return {self.origin: {str(p): end + p * self.ahead for p in range(self.partitions)}}


def write(spark: SparkSession, table: Table, rows: DataFrame) -> None:
    """Append rows to a table whose other columns stay empty."""
    shape = spark.table(str(table)).schema
    have = set(rows.columns)
    rows.select(
        *(
            F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name)
            for f in shape.fields
        )
    ).writeTo(str(table)).append()


def borrowed(
    spark: SparkSession, table: Table, donor: Table, rows: int, properties: Mapping[str, str]
) -> None:
    """Append files of another table of the same shape, the newest first, until there are so many rows.

    Writing real rows takes longer than anything that is measured, so they are written once for all sizes.
    """
    found = donor.load_java_table(spark)
    files = found.newScan().planFiles().iterator()
    there = []
    while files.hasNext():
        file = files.next().file()
        there.append((str(file.path()), int(file.recordCount()), file))
    append = table.load_java_table(spark).newAppend()
    for name, value in properties.items():
        append.set(name, value)
    held = 0
    for _, count, file in sorted(there, key=lambda each: each[0], reverse=True):
        if held >= rows:
            break
        append.appendFile(file)
        held += count
    append.commit()


def opaque(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The same rows as ``foreachBatch`` hands them over: the optimizer sees neither their origin nor their number."""
    inner = rows._jdf
    made = spark._jsparkSession.internalCreateDataFrame(inner.queryExecution().toRdd(), inner.schema(), False)
    return DataFrame(made, spark)
