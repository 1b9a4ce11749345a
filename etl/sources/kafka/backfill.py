"""A range of time of Kafka topics, by the times that producers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...launch.connections import Connection
from ...launch.document import BackfillRequest
from ...record import accounts, envelope
from ...record.lookup_bounds import Bound
from ..base import Part, Parts, steps
from ..offset_bounds import Range, offset_bound
from ..offset_ranges import Ranges
from .connection import connecting, sign_in
from .poison_records import Reader

if TYPE_CHECKING:
    from .source import KafkaSource

APART = timedelta(hours=1)
"""How far a Kafka record's own time may be from that of its neighbours: so much more of the topic is looked at."""

AHEAD = timedelta(days=1)
"""A Kafka record's time is its own up to so much after now."""


def of_topic(source: KafkaSource, connection: Connection) -> Parts:
    """Read a Kafka stream, a part for each step of a range.

    A record whose own time is none that it can have arrived at is taken with the records beside it: its producer chose
    that time. It is landed as a query would (:func:`etl.record.envelope.bounded`).

    Parameters
    ----------
    connection
        After :func:`etl.sources.kafka.connection.bind`.
    """
    reading = source.read_as
    options = {} if reading.group_id_prefix is None else {"groupIdPrefix": reading.group_id_prefix}

    def parts(spark: SparkSession, request: BackfillRequest) -> Iterator[Part]:
        sign_in(spark, connection)
        reader = Reader(spark, connecting(connection), options, reading.headers)
        planned = accounts.now()
        latest = planned + AHEAD
        places = reader.partitions(source.topic, pattern=reading.pattern, only=reading.partitions)

        def enveloped(records: DataFrame, since: datetime, until: datetime) -> DataFrame:
            found = envelope.from_kafka(records, source.name, several=reading.pattern)
            arrived = F.col("_arrived_at")
            odd = arrived.isNull() | (arrived < F.expr("timestamp_micros(0)")) | (arrived >= F.lit(latest))
            kept = found.where(odd | ((arrived >= F.lit(since)) & (arrived < F.lit(until))))
            return envelope.bounded(kept, planned, timedelta(seconds=source.retention_seconds))

        for since, until in steps(request):
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


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
