"""What a backfill reads: a topic or a stream by steps of arrival, or lines of files."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import accounts, envelope
from etl.errors import StartError, describe
from etl.launch import BackfillRequest
from etl.settings import (
    Connection,
    KafkaSource,
    KinesisSource,
)
from etl.settings_sources import KafkaReading
from etl.sinks.iceberg import Bound
from etl.sinks.kinesis_tail import Tail
from etl.sources import kafka
from etl.sources.bounds import Range, offset_bound
from etl.sources.kafka_poison import Reader
from etl.sources.kafka_ranges import Ranges
from etl.sources.kinesis_tails import AGGREGATE

STEP = timedelta(hours=6)
"""Of arrival: each is a transaction."""


APART = timedelta(hours=1)
"""How far a Kafka record's own time may be from that of its neighbours: so much more of the topic is looked at."""


AHEAD = timedelta(days=1)
"""A Kafka record's time is its own up to so much after now."""


LARGEST_BYTES = 256 * 1024 * 1024
"""Of a file, as it is stored: a task holds it as a whole."""


_KINESIS = (
    "data BINARY, streamName STRING, partitionKey STRING, sequenceNumber STRING, "
    "approximateArrivalTimestamp TIMESTAMP"
)


_LINES = "path STRING, line LONG, modified TIMESTAMP, payload BINARY"


@dataclass(frozen=True)
class Part:
    """Records that go into the table in one transaction.

    Attributes
    ----------
    name
        For reports: a time, or a file.
    records
        In the envelope's shape.
    bound
        Where in the table they can be.
    around
        Gives those records once more where Spark cannot read one for its time; looks at each where it is told to be
        thorough, and gives None where it finds none of that kind.
    """

    name: str
    records: DataFrame
    bound: Bound
    around: Callable[[bool], DataFrame | None] | None = None


Parts = Callable[[SparkSession, BackfillRequest], Iterator[Part]]


def of_topic(source: KafkaSource, connection: Connection) -> Parts:
    """Read a Kafka stream, a part for each step of a range.

    A record whose own time is none that it can have arrived at is taken with the records beside it: its producer chose
    that time. It is landed as a query would (:func:`etl.envelope.bounded`).

    Parameters
    ----------
    source
        The query's.
    connection
        After :func:`etl.sources.kafka.bind`.
    """
    reading = source.reading or KafkaReading()
    options = {} if reading.group_id_prefix is None else {"groupIdPrefix": reading.group_id_prefix}

    def parts(spark: SparkSession, request: BackfillRequest) -> Iterator[Part]:
        kafka.sign_in(spark, connection)
        reader = Reader(spark, kafka.connecting(connection), options, reading.headers)
        planned = accounts.now()
        latest = planned + AHEAD
        places = reader.partitions(source.topic, pattern=reading.pattern, only=reading.partitions)

        def enveloped(records: DataFrame, since: datetime, until: datetime) -> DataFrame:
            found = envelope.from_kafka(records, source.name, several=reading.pattern)
            arrived = F.col("_arrived_at")
            odd = arrived.isNull() | (arrived < F.expr("timestamp_micros(0)")) | (arrived >= F.lit(latest))
            kept = found.where(odd | ((arrived >= F.lit(since)) & (arrived < F.lit(until))))
            return envelope.bounded(kept, planned, timedelta(seconds=source.retention_seconds))

        for since, until in _steps(request):
            apart = reader.between(places, *map(_millis, (since - APART, until + APART, latest)))
            if not apart:
                continue

            def around(
                thorough: bool, since: datetime = since, until: datetime = until, apart: Ranges = apart
            ) -> DataFrame | None:
                odd = reader.overflowing(apart, thorough=thorough)
                return enveloped(reader.around(apart, odd), since, until) if odd else None

            shards: dict[str, dict[str, Range]] = {source.name: {}}
            for (topic, number), offsets in apart.items():
                shards[source.name][f"{topic}/{number}" if reading.pattern else str(number)] = offsets
            records = enveloped(reader.around(apart, {}), since, until)
            yield Part(
                accounts.text(since), records, Bound(offset_bound(source.name, shards[source.name])), around
            )

    return parts


def of_stream(source: KinesisSource, endpoint: str | None) -> Parts:
    """Read a Kinesis stream by its API, a task for each shard and a part for each step of a range.

    No connector ends at a time. Shards that are closed are read, too.

    Parameters
    ----------
    source
        The query's.
    endpoint
        Another endpoint than the region's own.
    """
    tail = Tail(source.stream, source.region, endpoint)

    def parts(spark: SparkSession, request: BackfillRequest) -> Iterator[Part]:
        client = tail.client()
        shards = tail.shards(client)
        client.close()
        for since, until in _steps(request):
            rows = spark.sparkContext.parallelize(shards, len(shards)).mapPartitions(
                partial(_of_shards, tail, since, until)
            )
            read = spark.createDataFrame(rows, _KINESIS)
            yield _within(source.name, envelope.from_kinesis(read, source.name), since, until)

    return parts


def of_files(name: str) -> Parts:
    """Read lines of files, a part for each file; those that end in ``.gz`` are opened.

    Parameters
    ----------
    name
        Of the source, as the table has it.
    """

    def parts(spark: SparkSession, request: BackfillRequest) -> Iterator[Part]:
        try:
            listed = spark.read.format("binaryFile").load(request.origin)
            found = {row["path"]: row["length"] for row in listed.select("path", "length").collect()}
        except (CapturedException, Py4JJavaError) as error:
            raise StartError(f"--from {request.origin}: {describe(error)}") from error
        large = [path for path, length in found.items() if length > LARGEST_BYTES]
        if large or not found:
            raise StartError(
                f"--from {request.origin}: "
                + (
                    f"{large[0]} is above {LARGEST_BYTES >> 20} MiB: cut it"
                    if large
                    else "there are no files"
                )
            )
        for path in sorted(found):
            # A name may hold what Spark takes for a pattern.
            file = spark.read.format("binaryFile").load(re.sub(r"([\[\]{}*?\\])", r"\\\1", path))
            lines = spark.createDataFrame(
                file.select("path", "modificationTime", "content").rdd.flatMap(_lines), _LINES
            )
            number = F.col("line").cast("string")
            records = lines.select(
                F.concat_ws("/", "path", number).alias("_id"),
                F.lit(name).alias("_source"),
                F.col("path").alias("_shard"),
                F.lpad(number, envelope.POSITION_DIGITS, "0").alias("_position"),
                F.lit(None).cast("binary").alias("_key"),
                F.lit(None).cast(envelope.HEADERS).alias("_headers"),
                F.col("modified").alias("_arrived_at"),
                "payload",
            )
            yield Part(path, records, Bound((F.col("_source") == name) & (F.col("_shard") == path)))

    return parts


def _within(source: str, records: DataFrame, since: datetime, until: datetime) -> Part:
    arrived = F.col("_arrived_at")
    within: Column = (arrived >= F.lit(since)) & (arrived < F.lit(until))
    return Part(accounts.text(since), records.where(within), Bound((F.col("_source") == source) & within))


def _steps(request: BackfillRequest) -> Iterator[tuple[datetime, datetime]]:
    assert request.since is not None, "a stream is read by time"
    assert request.until is not None, "a stream is read by time"
    start, end = request.since.astimezone(UTC), request.until.astimezone(UTC)
    while start < end:
        border = min(start + STEP, end)
        yield start, border
        start = border


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _of_shards(
    tail: Tail, since: datetime, until: datetime, shards: Iterable[str]
) -> Iterator[tuple[Any, ...]]:
    client = tail.client()
    try:
        for shard in shards:
            for record in tail.records(client, shard, since, until):
                if record["Data"].startswith(AGGREGATE):
                    raise ValueError(
                        f"{shard}, {record['SequenceNumber']}: an aggregate of Kinesis' producer library, which only "
                        "the engine's connector takes apart: use a land query of another name with its start in time"
                    )
                yield (
                    bytearray(record["Data"]),
                    tail.stream,
                    record["PartitionKey"],
                    record["SequenceNumber"],
                    record["ApproximateArrivalTimestamp"],
                )
    finally:
        client.close()


def _lines(file: Any) -> Iterator[tuple[str, int, datetime, bytearray]]:
    path, modified, content = file
    lines = (gzip.decompress(content) if path.endswith(".gz") else bytes(content)).split(b"\n")
    # The last line ends with the file; an empty one between others is a record, and a bad one.
    for number, line in enumerate(lines if lines[-1] else lines[:-1]):
        yield path, number, modified, bytearray(line.removesuffix(b"\r"))
