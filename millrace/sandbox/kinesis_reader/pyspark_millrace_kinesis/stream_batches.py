"""Batches of a stream as fixed ranges of sequence numbers.

An offset has, for each shard that is read, its next position, as the connectors of Glue's family write it
(:class:`etl.sources.kinesis.closed_shards.ShardPositions`), and the batch's part of the shard: ``first``, the sequence
number of its first record, and ``records``, their number. So the end offset describes a batch completely, and a
second read gives the same records or an error.

A shard starts after its parents were read to their end, in an earlier batch. One offset has the end of a shard; the next
one has its children instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from botocore.exceptions import ClientError

from millrace.etl.record.errors import LossError
from millrace.etl.services.aws_clients import Answer, call_until_answered, error_code
from millrace.etl.services.backoff import Backoff
from millrace.etl.sources.kinesis.closed_shards import (
    AFTER,
    AGGREGATE,
    ENDED,
    PAGE,
    PAUSE_SECONDS,
    Shard,
    list_shards,
    split_kinesis_aggregate,
)
from millrace.etl.sources.kinesis.time_range_reader import KinesisTimeRangeReader

EXPIRED, GONE = "ExpiredIteratorException", "ResourceNotFoundException"
"""Error codes of GetRecords and GetShardIterator (Kinesis API reference)."""


class KinesisService(KinesisTimeRangeReader):
    """API of one stream, with the credentials of this process' environment."""

    @cached_property
    def client(self) -> Any:
        """boto3's client."""
        return self.make_client()

    def shards(self) -> list[Shard]:
        """Return all shards, open and closed."""
        return self._call_until_answered("ListShards", partial(list_shards, self.client, self.stream))

    def now(self) -> datetime:
        """Return the time of the service's clock, in whole seconds."""
        return self.service_time(self.client)

    def shard_iterator(self, shard: str, kind: str, place: str) -> str:
        """Return an iterator at a position of a shard.

        Parameters
        ----------
        kind, place
            As in an entry of the offset log: ``TRIM_HORIZON``, ``AT_TIMESTAMP`` with milliseconds since 1970, or
            ``AT_SEQUENCE_NUMBER`` and ``AFTER_SEQUENCE_NUMBER`` with a number.
        """
        request: dict[str, Any] = {"StreamName": self.stream, "ShardId": shard, "ShardIteratorType": kind}
        if kind == "AT_TIMESTAMP":
            request["Timestamp"] = datetime.fromtimestamp(int(place) / 1000, UTC)
        elif place:
            request["StartingSequenceNumber"] = place
        ask = partial(self.client.get_shard_iterator, **request)
        return str(self._call_until_answered("GetShardIterator", ask)["ShardIterator"])

    def get_records(self, iterator: str, limit: int) -> Any:
        """Read from an iterator, as boto3's ``get_records`` answers."""
        ask = partial(self.client.get_records, ShardIterator=iterator, Limit=limit)
        return self._call_until_answered("GetRecords", ask)

    def _call_until_answered(self, action: str, call: Callable[[], Answer]) -> Answer:
        return call_until_answered(call, Backoff(f"Kinesis stream {self.stream}, {action}"))


AT = "AT_SEQUENCE_NUMBER"
TRIM_HORIZON, LATEST, AT_TIMESTAMP = "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"
METADATA = "metadata"

_EMPTY_ANSWERS = 5
"""Empty answers in a row after which a shard's missing records count as expired."""

Offset = dict[str, Any]
Entry = Mapping[str, str]
Row = tuple[bytes, str, str, str, datetime]
"""Data, stream, partition key, sequence number, and arrival: the columns of the connectors."""


@dataclass(frozen=True)
class ShardRange:
    """Records of one shard in one batch.

    Parameters
    ----------
    first, last
        Sequence numbers of the first and the last record.
    """

    shard: str
    first: str
    last: str
    records: int


@dataclass
class BatchPlanner:
    """Planner of batches for one query, on its driver.

    Parameters
    ----------
    start
        Start position: ``TRIM_HORIZON``, ``LATEST``, or an offset as JSON.
    most_records
        Maximum number of records of one shard in a batch.
    seconds
        Longest time for reading shards; each is asked at least once.
    call
        Most records of one call.
    """

    service: KinesisService
    start: str
    most_records: int
    seconds: float
    call: int
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _told: Offset | None = field(default=None, repr=False)
    """The offset that was returned last."""
    _entries: dict[str, Entry] = field(default_factory=dict, repr=False)
    _iterators: dict[str, str] = field(default_factory=dict, repr=False)

    def initial_offset(self) -> Offset:
        """Return the start of a query without a checkpoint."""
        entries: dict[str, Entry] = {}
        if self.start == LATEST:
            # A time by the service's clock: the time of "latest" would be unknown later.
            at = {
                "iteratorType": AT_TIMESTAMP,
                "iteratorPosition": str(int(self.service.now().timestamp()) * 1000),
            }
            entries = {shard.id: at for shard in self.service.shards() if not shard.closed}
        elif self.start != TRIM_HORIZON:
            entries = {k: v for k, v in json.loads(self.start).items() if k != METADATA}
        if not entries:
            listed = self.service.shards()
            known = {shard.id for shard in listed}
            entries = {shard.id: _BEGINNING for shard in listed if not known.intersection(shard.parents)}
        return self._offset_of_entries(entries)

    def resume(self, offset: Offset) -> None:
        """Continue from an offset of Spark's log, unless an offset was returned already."""
        if self._told is None:
            self._remember_returned_offset(offset)

    def read_to_latest_offset(self) -> Offset:
        """Read on and return the end of the next batch: the offset before, where nothing has arrived.

        Raises
        ------
        LossError
            A shard no longer exists, but was not read to its end.
        SinkError
            The service stays busy or unreachable.
        """
        if self._told is None:
            self._remember_returned_offset(self.initial_offset())
        assert self._told is not None
        listed, fresh = self._list_shards(), dict[str, tuple[str, int]]()
        self._replace_ended_shards_by_children(listed, fresh)
        asked = self._readable_shards(listed)
        deadline = time.monotonic() + self.seconds
        while asked:
            asked = {shard for shard in sorted(asked) if self._read_once_and_tell_if_more(shard, fresh)}
            if time.monotonic() >= deadline:
                break
            if not asked and self._ended_shards() - fresh.keys():
                asked = self._replace_ended_shards_by_children(self._list_shards(), fresh)
        if fresh:
            self._told = self._offset_of_entries(self._entries)
        return self._told

    def _remember_returned_offset(self, offset: Offset) -> None:
        self._told = offset
        self._entries = {shard: entry for shard, entry in offset.items() if shard != METADATA}
        self._iterators = {}

    def _offset_of_entries(self, entries: Mapping[str, Entry]) -> Offset:
        return {
            METADATA: {"streamName": self.service.stream},
            **{k: dict(entries[k]) for k in sorted(entries)},
        }

    def _list_shards(self) -> dict[str, Shard]:
        return {shard.id: shard for shard in self.service.shards()}

    def _ended_shards(self) -> set[str]:
        return {shard for shard, entry in self._entries.items() if entry["iteratorType"] == ENDED}

    def _replace_ended_shards_by_children(
        self, listed: Mapping[str, Shard], fresh: Mapping[str, Any]
    ) -> set[str]:
        """Replace shards that have ended and gave this batch nothing by their children; return the new ones."""
        over = self._ended_shards() - fresh.keys()
        # A shard with descendants in the entries was read to its end.
        read_out = _ancestors(self._entries, listed)
        closed = over | (read_out - self._entries.keys())
        new = {
            shard.id
            for shard in listed.values()
            if shard.id not in self._entries
            and shard.id not in read_out
            and all(parent in closed or parent not in listed for parent in shard.parents)
        }
        for shard in over:
            children = {each.id for each in listed.values() if shard in each.parents}
            # Until its children have started, its entry shows that it was read: they are two, or wait for another parent.
            if shard not in listed or (children and children <= self._entries.keys() | new):
                del self._entries[shard]
        self._entries |= dict.fromkeys(new, _BEGINNING)
        return new

    def _readable_shards(self, listed: Mapping[str, Shard]) -> set[str]:
        """Return the shards that have not ended, and whose parents are read."""
        reading = self._entries.keys() - self._ended_shards()
        return {s for s in reading if s not in listed or not reading & set(listed[s].parents)}

    def _read_once_and_tell_if_more(self, shard: str, fresh: dict[str, tuple[str, int]]) -> bool:
        """Ask a shard once; return whether the batch may take more of it."""
        entry = self._entries[shard]
        first, taken = fresh.get(shard, ("", 0))
        try:
            if shard not in self._iterators:
                self._iterators[shard] = self.service.shard_iterator(
                    shard, entry["iteratorType"], entry["iteratorPosition"]
                )
            answer = self.service.get_records(
                self._iterators[shard], min(self.call, self.most_records - taken)
            )
        except ClientError as error:
            self._iterators.pop(shard, None)
            if error_code(error) == EXPIRED:
                return True
            if error_code(error) != GONE:
                raise
            raise LossError(
                f"stream {self.service.stream}: shard {shard} no longer exists, but was read only up to "
                f"{entry['iteratorPosition'] or 'nothing'}: its later records are lost"
            ) from error
        if records := answer["Records"]:
            first = first or str(records[0]["SequenceNumber"])
            taken += len(records)
            fresh[shard] = (first, taken)
            last = str(records[-1]["SequenceNumber"])
            self._entries[shard] = _offset_entry(AFTER, last, first, taken)
        if (following := answer.get("NextShardIterator")) is None:
            self._iterators.pop(shard, None)
            last = self._entries[shard]["iteratorPosition"] if taken else ""
            self._entries[shard] = _offset_entry(ENDED, last, first, taken) if taken else _END
            return False
        self._iterators[shard] = following
        if not records and answer.get("MillisBehindLatest"):
            self.sleep(PAUSE_SECONDS)  # nothing here, but records further on
            return True
        return bool(records) and taken < self.most_records


_BEGINNING: Entry = {"iteratorType": TRIM_HORIZON, "iteratorPosition": ""}
_END: Entry = {"iteratorType": ENDED, "iteratorPosition": ""}


def _offset_entry(kind: str, last: str, first: str, records: int) -> Entry:
    return {"iteratorType": kind, "iteratorPosition": last, "first": first, "records": str(records)}


def _ancestors(shards: Iterable[str], listed: Mapping[str, Shard]) -> set[str]:
    ancestors, next_up = set[str](), list(shards)
    while next_up:
        shard = listed.get(next_up.pop())
        parents = set(shard.parents) - ancestors if shard else set[str]()
        ancestors |= parents
        next_up += parents
    return ancestors


def ranges_between_offsets(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ShardRange]:
    """Return the ranges between two offsets: each shard's entry in the second one, unless the first one has the same."""
    return [
        ShardRange(shard, entry["first"], entry["iteratorPosition"], int(entry["records"]))
        for shard, entry in end.items()
        if shard != METADATA and "first" in entry and start.get(shard) != entry
    ]


def read_shard_range(
    service: KinesisService, asked: ShardRange, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Row]:
    """Read the records of a range; each record of an aggregate becomes a row, with the aggregate's number.

    Raises
    ------
    LossError
        Some of them have expired.
    """
    left, place, iterator, empty = asked.records, (AT, asked.first), "", 0
    while left and empty < _EMPTY_ANSWERS:
        try:
            iterator = iterator or service.shard_iterator(asked.shard, *place)
            answer = service.get_records(iterator, min(PAGE, left))
        except ClientError as error:
            if error_code(error) == EXPIRED:
                iterator = ""
                continue
            if error_code(error) == GONE:
                break
            raise
        if records := answer["Records"]:
            if place == (AT, asked.first) and records[0]["SequenceNumber"] != asked.first:
                break  # the stream silently returns its oldest record instead of an expired one
            yield from _rows_of_records(records, service.stream)
            left, empty, place = left - len(records), 0, (AFTER, str(records[-1]["SequenceNumber"]))
        else:
            empty += not answer.get("MillisBehindLatest")
            sleep(PAUSE_SECONDS)
        iterator = answer.get("NextShardIterator") or ""
        if not iterator:
            break
    if left or place[1] != asked.last:
        raise LossError(
            f"stream {service.stream}, {asked.shard}: {left} of {asked.records} records from {asked.first} to "
            f"{asked.last} are no longer in the stream, but were when the batch was planned; a new checkpoint "
            "(`millrace checkpoint reset`) reads what the stream still has"
        )


def _rows_of_records(records: list[Any], stream: str) -> Iterator[Row]:
    for record in records:
        data, number, arrived = (
            record[key] for key in ("Data", "SequenceNumber", "ApproximateArrivalTimestamp")
        )
        packed = split_kinesis_aggregate(data) if data.startswith(AGGREGATE) else None
        for key, each in packed or [(record["PartitionKey"], data)]:
            yield each, stream, key, number, arrived
