"""Calls of the Kinesis API for one stream, which wait while it is throttled or unreachable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from typing import Any

from millrace.etl.services import aws_clients
from millrace.etl.services.backoff import Backoff
from millrace.etl.sources.kinesis.closed_shards import Shard

EXPIRED, GONE = "ExpiredIteratorException", "ResourceNotFoundException"
"""Error codes of GetRecords and GetShardIterator (Kinesis API reference)."""


@dataclass
class KinesisService:
    """API of one stream, with the credentials of this process' environment."""

    stream: str
    region: str
    endpoint: str

    @cached_property
    def client(self) -> Any:
        """boto3's client."""
        return aws_clients.make_client("kinesis", self.region, self.endpoint)

    def shards(self) -> list[Shard]:
        """Return all shards, open and closed."""
        return self._list_shards_and_time()[0]

    def now(self) -> datetime:
        """Return the time of the service's clock, in whole seconds."""
        return self._list_shards_and_time()[1]

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

    def _list_shards_and_time(self) -> tuple[list[Shard], datetime]:
        shards: list[Shard] = []
        # boto3's paginator repeats the stream's name beside a token, which Kinesis refuses (API reference, ListShards).
        request = {"StreamName": self.stream}
        while True:
            answer = self._call_until_answered("ListShards", partial(self.client.list_shards, **request))
            for shard in answer["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                closed = shard["SequenceNumberRange"].get("EndingSequenceNumber") is not None
                shards.append(Shard(shard["ShardId"], tuple(filter(None, parents)), closed))
            if answer.get("NextToken") is None:
                date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
                return shards, datetime.now(UTC) if date is None else parsedate_to_datetime(date)
            request = {"NextToken": answer["NextToken"]}

    def _call_until_answered(self, action: str, call: Callable[[], Any]) -> Any:
        return aws_clients.call_until_answered(call, Backoff(f"Kinesis stream {self.stream}, {action}"))
