"""Backfill from Kafka topics by a range of the times that producers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...commits.duplicate_look_up_bounds import DuplicateLookUp
from ...launch.entry_script_arguments import BackfillRequest
from ...launch.kafka_connections import Connection
from ...launch.sources import KafkaSource
from ...record import batch_accounts, envelope
from ..base import BackfillPart, Parts, arrived_between_condition, backfill_time_steps
from ..batch_offsets import offset_ranges_condition
from .connection import check_kafka_sign_in, connection_options
from .range_reader import KafkaRangeReader, Ranges
from .topic_stream import options_of_streams_and_batches

APART = timedelta(hours=1)
"""Largest distance of a record's time from those of its neighbours: the range of offsets is extended by it."""

AHEAD = timedelta(days=1)
"""A Kafka record's time is valid up to this long after now."""


def topic_range_reader(source: KafkaSource, connection: Connection) -> Parts:
    """Read a Kafka stream, a part for each step of a range.

    A record with an impossible arrival time, which its producer set, is read with its neighbours. It is landed
    as a query would land it (:func:`etl.record.envelope.with_bounded_arrival`).

    Parameters
    ----------
    connection
        Connection after :func:`etl.sources.kafka.connection.apply_bind_options`.
    """
    pattern = source.is_pattern

    def backfill_parts(spark: SparkSession, request: BackfillRequest) -> Iterator[BackfillPart]:
        check_kafka_sign_in(spark, connection)
        reader = KafkaRangeReader(
            spark, connection_options(connection), options_of_streams_and_batches(source)
        )
        planned = batch_accounts.utc_now()
        latest = planned + AHEAD
        with reader.closing_consumer() as consumer:
            only = source.reading_options.partitions
            places = reader.partitions(consumer, source.topic, pattern=pattern, only=only)

        def in_envelope_with_bounded_times(records: DataFrame, since: datetime, until: datetime) -> DataFrame:
            result = envelope.from_kafka(records, source.name, several=pattern)
            own = F.col("_arrived_at").between(F.expr("timestamp_micros(0)"), F.lit(latest))
            kept = result.where(~F.coalesce(own, F.lit(False)) | arrived_between_condition(since, until))
            return envelope.with_bounded_arrival(kept, planned, timedelta(seconds=source.retention_seconds))

        for since, until in backfill_time_steps(request):
            with reader.closing_consumer() as consumer:
                bounds = (round(at.timestamp() * 1000) for at in (since - APART, until + APART, latest))
                apart = reader.offsets_between_times(consumer, places, *bounds)
            if not apart:
                continue

            def read_around_overflowing_times(
                since: datetime = since, until: datetime = until, apart: Ranges = apart
            ) -> DataFrame | None:
                odd = reader.find_overflowing_times(apart)
                return (
                    in_envelope_with_bounded_times(
                        reader.read_without_overflowing_times(apart, odd), since, until
                    )
                    if odd
                    else None
                )

            shards = {f"{t}/{n}" if pattern else str(n): offsets for (t, n), offsets in apart.items()}
            records = in_envelope_with_bounded_times(
                reader.read_without_overflowing_times(apart, {}), since, until
            )
            yield BackfillPart(
                batch_accounts.iso_text(since),
                records,
                DuplicateLookUp(offset_ranges_condition(source.name, shards)),
                read_around_overflowing_times,
            )

    return backfill_parts
