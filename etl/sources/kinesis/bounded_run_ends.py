"""End of a bounded run of a Kinesis query: the last record of each shard at the start of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from ...launch.parse_start_position import start_time
from ...launch.sources import KinesisSource
from ...record.errors import StartError
from ...record.ready_query import IsEndReached
from ...services.aws_clients import errors_as_start_error
from . import closed_shards, connector_stream
from .closed_shards import Shard, UnreadShardRest
from .missed_records_guard import KinesisLossGuard
from .time_range_reader import KinesisTimeRangeReader

_CLOCK = timedelta(seconds=1)
_FIRST, _WIDER = timedelta(seconds=5), 12
"""A shard is read this far back for its last record, then so many times as far: a busy shard has it among few records."""


def checker_of_bounded_run_end(
    spark: SparkSession, source: KinesisSource, endpoint: str | None, guard: KinesisLossGuard, *, closed: bool
) -> IsEndReached:
    """Return the check of the end of a bounded run, which is fixed at the records that the stream holds now.

    The API has no number for the end of an open shard, so the last record before now is looked up, by the stream's own clock.

    Parameters
    ----------
    source
        Stream to read.
    endpoint
        Endpoint other than the region's own.
    guard
        Guard of the query, which knows the positions of its batches.
    closed
        True if the connector reads closed shards; otherwise the guard lands their rest with the next batch that has records.

    Raises
    ------
    StartError
        The stream cannot be read, or the query starts at a moment that each run would choose anew.
    """
    if source.start == "latest":
        raise StartError(
            f"stream {source.stream}: a job with `run_every` must start at `earliest` or a time, not at "
            "`latest`"
        )
    with errors_as_start_error(f"stream {source.stream}"):
        kinesis = connector_stream.make_kinesis_client(source, endpoint)
        # The service tells whole seconds: what arrived in the current one counts.
        now = KinesisTimeRangeReader(source.stream, source.region, endpoint).service_time(kinesis) + _CLOCK
        shards = [s for s in closed_shards.list_shards(kinesis, source.stream) if closed or not s.closed]
        ends = last_record_positions_by_shard(kinesis, source, shards, now)
    return lambda batch: guard.has_landed_up_to(spark, batch, ends)


def last_record_positions_by_shard(
    client: Any, source: KinesisSource, shards: Sequence[Shard], until: datetime
) -> Mapping[str, tuple[str, datetime]]:
    """Return sequence number and arrival of the last record of each shard that arrived before a time and that the query reads.

    Parameters
    ----------
    client
        A boto3 ``kinesis`` client.
    until
        Time by the stream's clock.
    """
    since = start_time(source.start)
    with ThreadPoolExecutor(connector_stream.CALLS, "ends") as pool:
        records = pool.map(
            partial(_last_record_position, client, source, until), (shard.id for shard in shards)
        )
        return {
            shard.id: last
            for shard, last in zip(shards, records, strict=True)
            # Records before the start of the query are never read.
            if last is not None and (since is None or last[1] >= since)
        }


def _last_record_position(
    client: Any, source: KinesisSource, until: datetime, shard: str
) -> tuple[str, datetime] | None:
    back, newest = _FIRST, timedelta(seconds=source.retention_seconds)
    while True:
        last = None
        try:
            for page in closed_shards.read_shard_pages(
                client, source.stream, UnreadShardRest(shard, None), until - back
            ):
                before = [each for each in page if each["ApproximateArrivalTimestamp"] < until]
                last = before[-1] if before else last
                if len(before) < len(page):
                    break
        except client.exceptions.ResourceNotFoundException:
            return None  # a closed shard whose records have all expired
        if last is not None:
            return str(last["SequenceNumber"]), last["ApproximateArrivalTimestamp"]
        if back >= newest:
            return None
        back = min(back * _WIDER, newest)
