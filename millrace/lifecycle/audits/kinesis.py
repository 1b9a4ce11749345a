"""Records that a Kinesis stream took in: by CloudWatch's counters, or by a second read of its shards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.audits.hourly_audit import (
    HOUR,
    MINUTE,
    AuditResult,
    LaggingShard,
    NotAudited,
    ShardRecord,
    compare_counts_by_hour,
    compare_shards_by_record,
)
from millrace.lifecycle.audits.records_in_tables import LandedRecords
from millrace.lifecycle.aws_error_messages import translating_aws_errors

COUNTED = timedelta(days=15)
"""Retention of CloudWatch's counts by the minute (Amazon CloudWatch User Guide, "Metrics retention")."""

_BETWEEN_CALLS = 0.25
"""Seconds between two calls: a shard answers five GetRecords a second, including those of the job."""

_LATE = 5 * MINUTE
"""Lag of a shard's first unread record behind the youngest landed record, up to which the shard is not behind."""

_ENDED = "SHARD_END"
"""Position that the connectors write for a closed shard that was read to its end."""

_AT = {"AFTER_SEQUENCE_NUMBER": 0, "AT_SEQUENCE_NUMBER": 1}
"""Kinds of positions that name a record, and the distance of the last read record before it."""

Progress = Callable[[int], None]
"""Called with the number of records that were read."""


def incoming_records_by_minute(
    cloudwatch: Any, stream: str, begin: datetime, end: datetime
) -> dict[datetime, int]:
    """Return the records that arrived, by the minute: the sum of ``IncomingRecords``.

    Parameters
    ----------
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
    with translating_aws_errors("cannot read the stream's incoming records from CloudWatch"):
        asked = {"MetricDataQueries": [query], "StartTime": begin, "EndTime": end}
        return {
            at.astimezone(UTC): round(value)
            for result in list_all(cloudwatch, "get_metric_data", "MetricDataResults", **asked)
            for at, value in zip(result["Timestamps"], result["Values"], strict=True)
        }


def parents_by_shard(kinesis: Any, stream: str) -> dict[str, tuple[str, ...]]:
    """Return every shard, open or closed, with its parents."""
    return {
        shard["ShardId"]: tuple(
            shard[key] for key in ("ParentShardId", "AdjacentParentShardId") if key in shard
        )
        for shard in list_shards(kinesis, stream)
    }


def list_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    """Return all shards of a stream that still have records, as Kinesis describes them."""
    shards, request = [], {"StreamName": stream}
    while request:
        page = kinesis.list_shards(**request)
        shards += page["Shards"]
        # boto3's paginator repeats the name beside the token, which Kinesis refuses (boto/botocore#2009).
        request = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
    return shards


def last_sequence_number_by_shard(
    positions: Mapping[str, Any], shards: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the last sequence number that a query has read, by shard; infinite for a shard that it has finished.

    Parameters
    ----------
    positions
        From the query's checkpoint, as the connector writes them; those of other connectors are ignored.
    shards
        From :func:`parents_by_shard`. A shard that is not in the checkpoint, but has a child there, is finished.
    """
    known = _shard_positions_if_known_format(positions) or {}
    behind: dict[str, float] = {}
    for shard, at in known.items():
        if at["iteratorType"] == _ENDED:
            behind[shard] = math.inf
        elif at["iteratorType"] in _AT:
            behind[shard] = int(at["iteratorPosition"]) - _AT[at["iteratorType"]]
    passed = list(known)
    while passed:
        parents = [parent for parent in shards.get(passed.pop(), ()) if parent not in {*known, *behind}]
        behind |= dict.fromkeys(parents, math.inf)
        passed += parents
    return behind


def _shard_positions_if_known_format(positions: Mapping[str, Any]) -> dict[str, Any] | None:
    known = {shard: at for shard, at in positions.items() if shard != "metadata"}
    if not known or not all(isinstance(v, dict) and "iteratorType" in v for v in known.values()):
        return None
    return known


def records_by_shard(
    kinesis: Any,
    stream: str,
    shards: Iterable[str],
    begin: datetime,
    until: datetime,
    progress: Progress,
) -> dict[str, list[ShardRecord]]:
    """Return the records of every shard since a time, to its end or past another time.

    Parameters
    ----------
    shards
        Their ids.
    begin, until
        UTC. ``until`` is necessary, as the read of a shard with constant writes reaches no end.
    progress
        Called with the number of records that were read so far.
    """
    by_shard: dict[str, list[ShardRecord]] = {}
    count = 0
    with translating_aws_errors("cannot read the stream"):
        for shard in shards:
            records: list[ShardRecord] = []
            start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": begin}
            for page in _pages_of_records(kinesis, 10_000, StreamName=stream, ShardId=shard, **start):
                records += [
                    ShardRecord(r["SequenceNumber"], r["ApproximateArrivalTimestamp"].astimezone(UTC))
                    for r in page
                ]
                count += len(page)
                progress(count)
                if records and records[-1].at >= until:
                    break
            by_shard[shard] = [a for a in records if a.at >= begin]
    return by_shard


def _pages_of_records(kinesis: Any, limit: int, **start: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the records of each call, maybe none, from a position to the shard's end or its last record now."""
    iterator = kinesis.get_shard_iterator(**start)["ShardIterator"]
    while iterator:
        answer = kinesis.get_records(ShardIterator=iterator, Limit=limit)
        yield answer["Records"]
        if not answer["Records"] and not answer["MillisBehindLatest"]:
            return
        iterator = answer.get("NextShardIterator")
        time.sleep(_BETWEEN_CALLS)


def lagging_shards(
    kinesis: Any, stream: str, positions: Mapping[str, Any]
) -> tuple[LaggingShard, ...] | None:
    """Ask each shard for the first record that the query has not read.

    The query continues there after its last committed batch, so the record may have landed in the meantime: a shard may look
    up to a batch further behind than it is, never further ahead.

    Parameters
    ----------
    positions
        From the query's checkpoint, as the connector writes them.

    Returns
    -------
    tuple or None
        Shards with such a record, the furthest behind first; None where the connector's format is unknown.
    """
    if (known := _shard_positions_if_known_format(positions)) is None:
        return None
    lagging = []
    with translating_aws_errors("cannot read the backlog of the shards"):
        shards = parents_by_shard(kinesis, stream)
        done = last_sequence_number_by_shard(positions, shards)
        for shard in shards:
            at = known.get(shard, {"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""})
            if done.get(shard) != math.inf:
                first = _first_arrival_after(kinesis, stream, shard, at)
                lagging += [] if first is None else [LaggingShard(shard, first)]
    return tuple(sorted(lagging, key=lambda behind: behind.since))


def _first_arrival_after(kinesis: Any, stream: str, shard: str, at: Mapping[str, str]) -> datetime | None:
    request: dict[str, Any] = {
        "StreamName": stream,
        "ShardId": shard,
        "ShardIteratorType": at["iteratorType"],
    }
    if at["iteratorType"] in _AT:
        request["StartingSequenceNumber"] = at["iteratorPosition"]
    elif at["iteratorType"] == "AT_TIMESTAMP":
        # The connectors write a time in milliseconds.
        request["Timestamp"] = datetime.fromtimestamp(float(at["iteratorPosition"]) / 1000, UTC)
    first = next((page[0] for page in _pages_of_records(kinesis, 1, **request) if page), None)
    return None if first is None else first["ApproximateArrivalTimestamp"].astimezone(UTC)


def audit_stream_by_counts(
    cloudwatch: Any,
    landed: LandedRecords,
    hours: Sequence[datetime],
    *,
    query: str,
    stream: str,
    table: str,
    unread: Sequence[LaggingShard] | None = None,
    whole: bool = True,
) -> AuditResult | NotAudited:
    """Compare CloudWatch's counts with a table.

    Counts do not show which records are missing. So from the hour on in which a shard has an unread record, missing
    records count as waiting: until that shard is read, it hides missing records of other shards in the same hours, which
    only a read of the records shows. Where the read positions are unknown, the youngest landed record is the border, and
    a shard that is far behind looks like missing records.

    Parameters
    ----------
    hours
        Starts of hours that have ended, UTC.
    query, stream, table
        For the report; ``stream`` is the stream's own name.
    unread
        From :func:`lagging_shards`.
    whole
        Whether the query started at the oldest record; if not, records before the first landed one do not belong to it.

    Returns
    -------
    Audit or Unaudited
        The latter where CloudWatch has counted nothing and records landed: it counts another stream, or none.
    """
    begin, end = hours[0] - 10 * MINUTE, hours[-1] + HOUR + 10 * MINUTE
    minutes = landed.counts_by_minute(begin, end)
    newest = max(minutes, default=begin)
    came = incoming_records_by_minute(cloudwatch, stream, begin, end)
    if minutes and not any(came.values()):
        why = (
            f"CloudWatch counted no incoming record, but {minutes.total():,} records of the stream landed; "
            "`--read` compares with the records themselves"
        )
        return NotAudited(query, stream, why)
    # All read records are in the table: a record of a minute ago may still be on its way there.
    border = newest if unread is None else min([each.since for each in unread], default=end)
    began = None if whole or landed.has_record_before(hours[0]) else min(minutes, default=end)
    counts = tuple(
        hour if hour.start + HOUR <= border else replace(hour, missing=0, waiting=hour.missing)
        for hour in compare_counts_by_hour(hours, came, minutes, began=began)
    )
    late = tuple(each for each in unread or () if each.since < newest - _LATE)
    return AuditResult(query, stream, table, "counters", counts, behind=late)


def audit_stream_by_records(
    kinesis: Any,
    landed: LandedRecords,
    hours: Sequence[datetime],
    progress: Progress,
    *,
    query: str,
    stream: str,
    table: str,
    positions: Mapping[str, Any],
    whole: bool = True,
) -> AuditResult:
    """Compare the stream's records, one by one, with a table.

    Parameters
    ----------
    landed, hours, query, stream, table, whole
        As for :func:`audit_stream_by_counts`; the current hour is allowed.
    progress
        Called with the number of records that were read so far.
    positions
        From the query's checkpoint, as the connector writes them; read before this call.
    """
    end = hours[-1] + HOUR
    with translating_aws_errors("cannot list the stream's shards"):
        listed = parents_by_shard(kinesis, stream)
    shards = records_by_shard(kinesis, stream, listed, hours[0], min(end, datetime.now(UTC)), progress)
    there = landed.sequence_numbers_since(hours[0] - HOUR)
    began = None
    if not whole and not landed.has_record_before(hours[0]):
        began = min((a.at for each in shards.values() for a in each if a.sequence in there), default=end)
    records, holes = compare_shards_by_record(
        hours, shards, there, read=last_sequence_number_by_shard(positions, listed), began=began
    )
    return AuditResult(query, stream, table, "records", records, holes)
