"""Shards of a stream: positions of a batch in them, and records of closed shards that a connector skips.

The connector of EMR Serverless treats a shard that it finds closed as read to its end
(``docs/kinesis.md``). Its unread records, and all records of a shard that opened and
closed between two listings, would be lost. A closed shard gets no more records, so its rest
can be read by any client at any time, also repeatedly.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from ...launch.protobuf import wire_format
from ...launch.sources import KinesisSource
from ...record import envelope
from ...record.errors import LossError

PAGE = 10_000
"""Most records of one GetRecords call (Kinesis service limit); a call also ends at 10 MiB."""

PAUSE_SECONDS = 0.2
"""Seconds between two reads of a shard, which allows five a second (Kinesis API reference, GetRecords)."""

AGGREGATE = bytes.fromhex("f3899ac2")
"""First bytes of an aggregate of Kinesis' producer library; the API returns it unchanged."""

_DIGEST_BYTES = 16
_KEYS, _RECORDS, _KEY_INDEX, _DATA = 1, 3, 1, 3
"""Fields of the messages AggregatedRecord and Record (awslabs' amazon-kinesis-producer, aggregation-format.md)."""

SPLIT_AGGREGATE = (
    "millrace: this engine cannot read records that the Kinesis Producer Library aggregates: its connector may end a "
    "batch inside an aggregate and does not number the records in it, so they cannot be told apart; turn off "
    "aggregation in the producer, or read the stream on Glue (docs/kinesis.md, Past an aggregate): record "
)

COLUMNS = (
    "data BINARY, streamName STRING, partitionKey STRING, sequenceNumber STRING, "
    "approximateArrivalTimestamp TIMESTAMP"
)
"""Columns of the connectors."""

Records = Sequence[Mapping[str, Any]]
"""Records of boto3: ``Data``, ``PartitionKey``, ``SequenceNumber``, ``ApproximateArrivalTimestamp``."""

Packed = list[tuple[str, bytes]]
"""Partition key and data of each record in an aggregate."""


AFTER, ENDED = "AFTER_SEQUENCE_NUMBER", "SHARD_END"


@dataclass(frozen=True)
class ShardPositions:
    """Positions of the shards in an entry of Spark's offset log.

    The connectors with open source write the same form. An entry of another form has no shards here: then
    it is not used for checks, and ``known`` is false.

    Attributes
    ----------
    shards
        All shards of the entry.
    read
        Sequence number of the last record that was read, by shard.
    ended
        Shards that were read to their end.
    """

    shards: frozenset[str]
    read: Mapping[str, str]
    ended: frozenset[str]
    known: bool = True

    @classmethod
    def from_offset(cls, offset: Any) -> ShardPositions:
        """Parse an entry, decoded from JSON; None gives no shard.

        Parameters
        ----------
        offset
            ``{"metadata": {...}, "shardId-…": {"iteratorType": …, "iteratorPosition": …}}``.
        """
        if offset is None:
            return cls(frozenset(), {}, frozenset())
        shards = {k: v for k, v in offset.items() if k != "metadata"} if isinstance(offset, dict) else {}
        shaped = [
            isinstance(v, dict) and {"iteratorType", "iteratorPosition"} <= v.keys() for v in shards.values()
        ]
        if not shaped or not all(shaped):
            return cls(frozenset(), {}, frozenset(), known=False)
        return cls(
            frozenset(shards),
            {k: v["iteratorPosition"] for k, v in shards.items() if v["iteratorType"] == AFTER},
            frozenset(k for k, v in shards.items() if v["iteratorType"] == ENDED),
        )

    @property
    def shards_read(self) -> frozenset[str]:
        """Shards that the batch reads."""
        return self.shards - self.ended

    def shards_advanced_since(self, earlier: ShardPositions) -> Mapping[str, str]:
        """Return the shards that were read further since, with the last record of each."""
        return {k: v for k, v in self.read.items() if earlier.read.get(k) != v}


@dataclass(frozen=True)
class Shard:
    """Shard as ``ListShards`` describes it."""

    id: str
    parents: tuple[str, ...]
    closed: bool


@dataclass(frozen=True)
class UnreadShardRest:
    """Rest of a closed shard, after a record or (None) from its beginning."""

    shard: str
    after: str | None


def unread_shard_rests(
    shards: Iterable[Shard], before: ShardPositions, current: ShardPositions
) -> list[UnreadShardRest]:
    """Find closed shards that the connector no longer reads and that may have unread records.

    Parameters
    ----------
    shards
        All shards of the stream, open and closed.
    before, current
        Positions at the start of the batch before and of the current batch. A shard that is in neither was read to its
        end long ago, unless it descends from one of the batch before, or there was no such batch.

    Returns
    -------
    list of UnreadShardRest
        Parents first. They include the records that the batch before did read.
    """
    by_id = {s.id: s for s in shards}

    def is_or_descends_from_earlier_shard(shard: str) -> bool:
        if not before.shards or shard in before.shards:
            return True
        return any(is_or_descends_from_earlier_shard(p) for p in by_id[shard].parents if p in by_id)

    return [
        UnreadShardRest(s.id, before.read.get(s.id))
        for s in sorted(by_id.values(), key=lambda s: s.id)
        if s.closed
        and s.id not in current.shards_read
        and s.id not in before.ended
        and is_or_descends_from_earlier_shard(s.id)
    ]


def split_kinesis_aggregate(data: bytes) -> Packed | None:
    """Split an aggregate into its records; return None if the data is no aggregate, as the connectors do.

    Any producer can write the first bytes of an aggregate. A real one ends with the MD5 of the message in between.

    Parameters
    ----------
    data
        Data of a record, from the API.
    """
    body, digest = data[len(AGGREGATE) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not (data.startswith(AGGREGATE) and body):
        return None
    if hashlib.md5(body, usedforsecurity=False).digest() != digest:
        return None
    try:
        parts = wire_format.values_by_field(body)
        keys = [str(key, "utf-8") for key in cast(list[bytes], parts.get(_KEYS, []))]
        return [_parse_aggregated_record(each, keys) for each in parts.get(_RECORDS, [])]
    except (wire_format.WireError, UnicodeDecodeError, LookupError, TypeError):
        return None


def _parse_aggregated_record(message: Any, keys: Sequence[str]) -> tuple[str, bytes]:
    parts = wire_format.values_by_field(message)
    index, data = parts[_KEY_INDEX][-1], parts[_DATA][-1]
    if isinstance(index, bytes) or isinstance(data, int):
        raise wire_format.WireError("a record of the aggregate has fields of the wrong types")
    return keys[index], data


def list_shards(client: Any, stream: str) -> list[Shard]:
    """Return a stream's shards.

    Parameters
    ----------
    client
        A boto3 ``kinesis`` client.
    """
    shards, request = [], {"StreamName": stream}
    while request:
        page = client.list_shards(**request)
        for shard in page["Shards"]:
            parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
            closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
            shards.append(Shard(shard["ShardId"], tuple(filter(None, parents)), closed))
        # boto3's paginator repeats the name beside the token, which Kinesis refuses (boto/botocore#2009).
        request = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
    return shards


def read_shard_pages(
    client: Any,
    stream: str,
    tail: UnreadShardRest,
    since: datetime | None = None,
    limit: int = PAGE,
    ask: Callable[..., Any] = lambda call, **asked: call(**asked),
) -> Iterator[Sequence[Any]]:
    """Read the rest of a shard, a call at a time: to its end, or for an open shard to its last record now.

    Parameters
    ----------
    client, stream
        As in :func:`list_shards`.
    since
        Start time of a rest that would start at the beginning of its shard.
    limit
        Most records of a call.
    ask
        Makes one call of the client with named arguments.

    Yields
    ------
    sequence
        Records of boto3, at least one.
    """
    kind, place = "TRIM_HORIZON", dict[str, Any]()
    if tail.after is not None:
        kind, place = "AFTER_SEQUENCE_NUMBER", {"StartingSequenceNumber": tail.after}
    elif since is not None:
        kind, place = "AT_TIMESTAMP", {"Timestamp": since}
    iterator = ask(
        client.get_shard_iterator, StreamName=stream, ShardId=tail.shard, ShardIteratorType=kind, **place
    )["ShardIterator"]
    while iterator:
        answer = ask(client.get_records, ShardIterator=iterator, Limit=limit)
        # An empty answer is not the end: Kinesis searches a shard piece by piece.
        if answer["Records"]:
            yield answer["Records"]
        elif not answer.get("MillisBehindLatest"):
            return
        iterator = answer.get("NextShardIterator")
        time.sleep(PAUSE_SECONDS)


def to_envelope(spark: SparkSession, source: KinesisSource, records: Records) -> DataFrame:
    """Convert records of the API to the envelope.

    Parameters
    ----------
    records
        Records outside an aggregate, or each alone in one.

    Raises
    ------
    LossError
        An aggregate has several records.
    """
    rows = [_as_unaggregated_record(record, source.stream) for record in records]
    return envelope.from_kinesis(spark.createDataFrame(rows, COLUMNS), source.name)


def _as_unaggregated_record(
    record: Mapping[str, Any], stream: str
) -> tuple[bytearray, str, str, str, datetime]:
    """Return a record of the Kinesis API in the form of a connector."""
    number, arrived = record["SequenceNumber"], record["ApproximateArrivalTimestamp"]
    packed = split_kinesis_aggregate(record["Data"])
    # Data that is no aggregate, or an empty one, is an ordinary record; the only record of an aggregate has its number.
    if not packed:
        return bytearray(record["Data"]), stream, record["PartitionKey"], number, arrived
    if len(packed) > 1:
        raise LossError(f"{SPLIT_AGGREGATE}{stream}/{number}, arrived {arrived:%Y-%m-%dT%H:%M:%SZ}")
    [(key, data)] = packed
    return bytearray(data), stream, key, number, arrived
