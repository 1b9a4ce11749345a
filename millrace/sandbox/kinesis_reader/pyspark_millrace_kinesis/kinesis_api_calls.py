"""Calls of the Kinesis API for one stream, which wait while it is throttled or unreachable."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from millrace.etl.services.aws_clients import Answer, call_until_answered
from millrace.etl.services.backoff import Backoff
from millrace.etl.sources.kinesis.closed_shards import Shard, list_shards
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
