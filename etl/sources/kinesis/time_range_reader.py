"""Reader of a Kinesis stream through its API: the records of a range of time, by the stream's own clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from ...services import aws_clients
from ...services.backoff import Backoff
from .closed_shards import UnreadShardRest, list_shards, read_shard_pages

SLACK = timedelta(seconds=5)
"""Subtracted from a time: the answer's clock has whole seconds, and a stream's servers have different clocks."""


@dataclass(frozen=True)
class KinesisTimeRangeReader:
    """Reader of one stream.

    Parameters
    ----------
    stream, region, endpoint
        Location of the stream; None for the region's own endpoint.
    """

    stream: str
    region: str
    endpoint: str | None

    def make_client(self) -> Any:
        """Make a client."""
        return aws_clients.make_client("kinesis", self.region, self.endpoint)

    def service_time(self, client: Any) -> datetime:
        """Return the time, by the clock of the service.

        Raises
        ------
        SinkError
            The service does not answer.
        """
        answer = aws_clients.call_until_answered(
            lambda: client.list_shards(StreamName=self.stream, MaxResults=1), Backoff(self._describe_stream)
        )
        # RFC 9110, section 6.6.1.
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return datetime.now(UTC) if date is None else parsedate_to_datetime(date).astimezone(UTC)

    def shard_ids(self, client: Any) -> list[str]:
        """Return the ids of all shards, including closed ones, which hold the records before a split or merge."""
        shards = aws_clients.call_until_answered(
            lambda: list_shards(client, self.stream), Backoff(self._describe_stream)
        )
        return [shard.id for shard in shards]

    def yield_records_of_shards(
        self, since: datetime, until: datetime, shards: Iterable[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the records of some shards, in a task."""
        with closing(self.make_client()) as client:
            for shard in shards:
                yield from self.records_of_shard(client, shard, since, until)

    def records_of_shard(
        self, client: Any, shard: str, since: datetime, until: datetime
    ) -> Iterator[dict[str, Any]]:
        """Yield the records of one shard that arrived between two times, extended by :data:`SLACK`.

        Parameters
        ----------
        client
            Client of :meth:`make_client`.
        since, until
            Times by the stream's clock.

        Returns
        -------
        Iterator
            Records as in ``GetRecords``.
        """
        backoff = Backoff(self._describe_stream)

        def call_with_backoff(call: Any, **asked: Any) -> Any:
            answer = aws_clients.call_until_answered(partial(call, **asked), backoff)
            backoff.reset_after_write()
            return answer

        whole = UnreadShardRest(shard, None)
        for page in read_shard_pages(client, self.stream, whole, since - SLACK, ask=call_with_backoff):
            yield from page
            if page[-1]["ApproximateArrivalTimestamp"] > until + SLACK:
                return

    @property
    def _describe_stream(self) -> str:
        return f"Kinesis stream {self.stream}, its records"
