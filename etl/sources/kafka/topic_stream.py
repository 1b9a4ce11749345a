"""Kafka topics as streaming DataFrames in the envelope's shape."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...launch.kafka_connections import Connection
from ...launch.parse_start_position import epoch_milliseconds_text, start_time
from ...launch.sources import KafkaReadingOptions, KafkaSource
from ...record import envelope
from .connection import connection_options


def open_topic_stream(
    spark: SparkSession, sources: Sequence[KafkaSource], connection: Connection, *, partitions: int | None
) -> DataFrame:
    """Open the topics of a leg as one streaming DataFrame in the envelope's shape.

    A batch is a fixed range of offsets of each partition: a replay holds the same records.

    Parameters
    ----------
    sources
        Sources of one connection that differ in topic, name and limit only; the limits are added up.
    connection
        Connection after :func:`etl.sources.kafka.connection.apply_bind_options`.
    partitions
        Fewest tasks of a batch.
    """
    together = dataclasses.replace(
        sources[0],
        topic=",".join(s.topic for s in sources),
        records_per_batch=sum(s.records_per_batch for s in sources),
    )
    chosen = stream_options(together, connection, partitions=partitions)
    return to_envelope(spark.readStream.format("kafka").options(**chosen).load(), sources)


def to_envelope(records: DataFrame, sources: Sequence[KafkaSource]) -> DataFrame:
    """Convert records of a leg to the envelope.

    Parameters
    ----------
    records
        Columns of Spark's Kafka source.
    """
    first, *others = sources
    if not others:
        return envelope.from_kafka(records, first.name, several=first.is_pattern)
    names = F.create_map(*(F.lit(text) for s in sources for text in (s.topic, s.name)))
    return envelope.from_kafka(records, F.coalesce(names[F.col("topic")], F.col("topic")))


def stream_options(source: KafkaSource, connection: Connection, *, partitions: int | None) -> dict[str, str]:
    """Return the options of Spark's Kafka source.

    Parameters
    ----------
    source
        Topic to read, and the limits of a batch.
    connection
        Connection with its bootstrap servers.
    partitions
        Fewest tasks of a batch: large offset ranges are split, without a shuffle.
    """
    return {
        **connection_options(connection),
        **_topic_option(source.topic, source.reading_options),
        **_start_options(source, source.reading_options),
        "maxOffsetsPerTrigger": str(source.records_per_batch),
        **_minimum_batch_options(source.reading_options),
        **options_of_streams_and_batches(source, partitions),
    }


def options_of_streams_and_batches(source: KafkaSource, partitions: int | None = None) -> dict[str, str]:
    """Return the options of Spark's Kafka source that streams and batches share; ``partitions`` as in :func:`stream_options`."""
    said = source.reading_options
    chosen = {
        # Not configurable: data loss is always an error.
        "failOnDataLoss": "true",
        "includeHeaders": "true" if said.headers else "false",
        # Records of aborted transactions were never published.
        "kafka.isolation.level": "read_committed",
    }
    if least := said.min_partitions or partitions:
        chosen["minPartitions"] = str(least)
    if said.group_id_prefix is not None:
        chosen["groupIdPrefix"] = said.group_id_prefix
    return chosen


def _topic_option(topic: str, reading: KafkaReadingOptions) -> dict[str, str]:
    if reading.pattern:
        return {"subscribePattern": topic}
    if reading.partitions is not None:
        return {"assign": json.dumps({topic: list(reading.partitions)})}
    return {"subscribe": topic}


def _minimum_batch_options(reading: KafkaReadingOptions) -> dict[str, str]:
    if reading.min_records_per_batch is None:
        return {}
    chosen = {"minOffsetsPerTrigger": str(reading.min_records_per_batch)}
    if reading.max_delay_seconds is not None:
        chosen["maxTriggerDelay"] = f"{round(reading.max_delay_seconds * 1000)}ms"
    return chosen


def _start_options(source: KafkaSource, reading: KafkaReadingOptions) -> dict[str, str]:
    if reading.start_offsets is not None:
        return {"startingOffsets": json.dumps({source.topic: dict(reading.start_offsets)})}
    moment = start_time(source.start)
    if moment is None:
        return {"startingOffsets": source.start}
    # A partition without a record since then starts at its end.
    return {
        "startingTimestamp": epoch_milliseconds_text(moment),
        "startingOffsetsByTimestampStrategy": "latest",
    }
