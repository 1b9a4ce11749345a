"""What a Kinesis stream took in: by CloudWatch's counters, or by reading its shards once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.lifecycle.audit import HOUR, MINUTE, Arrival, Audit, by_counters, by_records
from millrace.lifecycle.audit_table import Landed
from millrace.lifecycle.problems import told

COUNTED = timedelta(days=15)
"""How long CloudWatch keeps counts by the minute (Amazon CloudWatch User Guide, "Metrics retention")."""

_BETWEEN_CALLS = 0.25
"""Seconds: a shard answers five GetRecords a second, which the job's own reads share."""

Progress = Callable[[int], None]
"""Told how many records were read."""


def counted(cloudwatch: Any, stream: str, begin: datetime, end: datetime) -> dict[datetime, int]:
    """Records that came in by the minute: the sum of ``IncomingRecords``.

    Parameters
    ----------
    cloudwatch
        A boto3 client.
    stream
        The stream's own name.
    begin, end
        UTC, whole minutes.
    """
    query = {
        "Id": "came",
        "MetricStat": {
            "Metric": {
                "Namespace": "AWS/Kinesis",
                "MetricName": "IncomingRecords",
                "Dimensions": [{"Name": "StreamName", "Value": stream}],
            },
            "Period": 60,
            "Stat": "Sum",
        },
    }
    found: dict[datetime, int] = {}
    with told("asking CloudWatch what the stream took in"):
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[query], StartTime=begin, EndTime=end, ScanBy="TimestampAscending"
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                    found[at.astimezone(UTC)] = round(value)
    return found


def arrivals(kinesis: Any, stream: str, begin: datetime, progress: Progress) -> dict[str, list[Arrival]]:
    """Every record of every shard, open or closed, since a moment.

    Parameters
    ----------
    kinesis
        A boto3 client.
    stream
        The stream's own name.
    begin
        UTC.
    progress
        Told how many records were read so far.
    """
    found: dict[str, list[Arrival]] = {}
    count = 0
    with told("reading the stream"):
        shards = [
            shard
            for page in kinesis.get_paginator("list_shards").paginate(StreamName=stream)
            for shard in page["Shards"]
        ]
        for shard in shards:
            iterator = kinesis.get_shard_iterator(
                StreamName=stream,
                ShardId=shard["ShardId"],
                ShardIteratorType="AT_TIMESTAMP",
                Timestamp=begin,
            )["ShardIterator"]
            records: list[Arrival] = []
            while iterator:
                answer = kinesis.get_records(ShardIterator=iterator, Limit=10_000)
                records += [
                    Arrival(r["SequenceNumber"], r["ApproximateArrivalTimestamp"].astimezone(UTC))
                    for r in answer["Records"]
                ]
                count += len(answer["Records"])
                progress(count)
                if not answer["Records"] and not answer["MillisBehindLatest"]:
                    break
                iterator = answer.get("NextShardIterator")
                time.sleep(_BETWEEN_CALLS)
            found[shard["ShardId"]] = [a for a in records if a.at >= begin]
    return found


def compare_counts(
    cloudwatch: Any, landed: Landed, hours: Sequence[datetime], *, query: str, stream: str, table: str
) -> Audit:
    """Compare CloudWatch's counts with a table.

    Counts do not say which records are missing. So what is short from the hour of the youngest record that
    landed on passes for waiting; before it a shard that is far behind the others looks like a hole, and
    reading the records tells.

    Parameters
    ----------
    cloudwatch
        A boto3 client.
    landed
        The table.
    hours
        Starts of hours that have ended, UTC.
    query, stream, table
        For the report; ``stream`` is the stream's own name.
    """
    begin, end = hours[0] - 10 * MINUTE, hours[-1] + HOUR + 10 * MINUTE
    minutes = landed.minutes(begin, end)
    newest = max(minutes, default=begin)
    found = tuple(
        hour if hour.start + HOUR <= newest else replace(hour, missing=0, waiting=hour.missing)
        for hour in by_counters(hours, counted(cloudwatch, stream, begin, end), minutes)
    )
    return Audit(query, stream, table, "counters", found)


def compare_records(
    kinesis: Any,
    landed: Landed,
    hours: Sequence[datetime],
    progress: Progress,
    *,
    query: str,
    stream: str,
    table: str,
) -> Audit:
    """Compare the stream's records, one by one, with a table.

    Parameters
    ----------
    kinesis
        A boto3 client.
    landed, hours, query, stream, table
        As for :func:`compare_counts`; an hour at hand is welcome.
    progress
        Told how many records were read so far.
    """
    shards = arrivals(kinesis, stream, hours[0], progress)
    found, holes = by_records(hours, shards, landed.sequences(hours[0] - HOUR))
    return Audit(query, stream, table, "records", found, holes)
