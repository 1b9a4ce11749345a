"""A range of time of a Kinesis stream, by its API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ...launch.document import BackfillRequest
from ...record import batch_accounts, envelope
from ...record.lookup_bounds import Bound
from ..base import Part, Parts, arrived, steps
from .closed_shards import AGGREGATE, COLUMNS
from .tail import Tail

if TYPE_CHECKING:
    from .source import KinesisSource


def read_stream_range(source: KinesisSource, endpoint: str | None) -> Parts:
    """Read a Kinesis stream by its API, a task for each shard and a part for each step of a range.

    No connector ends at a time. Shards that are closed are read, too.

    Parameters
    ----------
    endpoint
        Another endpoint than the region's own.
    """
    tail = Tail(source.stream, source.region, endpoint)

    def parts(spark: SparkSession, request: BackfillRequest) -> Iterator[Part]:
        client = tail.client()
        shards = tail.shards(client)
        client.close()
        for since, until in steps(request):
            rows = spark.sparkContext.parallelize(shards, len(shards)).mapPartitions(
                partial(_of_shards, tail, since, until)
            )
            read = spark.createDataFrame(rows, COLUMNS)
            within = arrived(since, until)
            records = envelope.from_kinesis(read, source.name).where(within)
            yield Part(batch_accounts.text(since), records, Bound((F.col("_source") == source.name) & within))

    return parts


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
