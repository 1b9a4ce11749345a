"""End of a Kinesis stream: the time by its own clock, and the identities of its latest records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from ...services import aws
from ...services.backoff import Backoff
from . import closed_shards
from .closed_shards import list_shards, pages

SLACK = timedelta(seconds=5)
"""Subtracted from a time: the answer's clock has whole seconds, and a stream's servers have different clocks."""

QUIET_SECONDS = 2.0
"""Seconds after which a request whose answer was lost has been carried out, or never will be."""

Identity = tuple[str, str]
"""``_source`` and ``_id`` of a record."""

_KNOWN = StructType([StructField("_source", StringType()), StructField("_id", StringType())])


@dataclass(frozen=True)
class StreamTail:
    """Records of a stream from a time on.

    Parameters
    ----------
    stream, region, endpoint
        Location of the stream; None for the region's own endpoint.
    """

    stream: str
    region: str
    endpoint: str | None

    def client(self) -> Any:
        """Make a client."""
        return aws.client("kinesis", self.region, self.endpoint)

    def now(self, client: Any) -> datetime:
        """Return the time, by the clock of the service.

        Raises
        ------
        SinkError
            The service does not answer.
        """
        answer = aws.call_until_answered(
            lambda: client.list_shards(StreamName=self.stream, MaxResults=1), Backoff(self._what)
        )
        return _date(answer)

    def shards(self, client: Any) -> list[str]:
        """Return the ids of all shards, including closed ones, which hold the records before a split or merge."""
        shards = aws.call_until_answered(lambda: list_shards(client, self.stream), Backoff(self._what))
        return [shard.id for shard in shards]

    def held_identities(self, spark: SparkSession, since: str) -> DataFrame | None:
        """Return the identities of the stream's records since a time; persisted, and the caller must unpersist them.

        Parameters
        ----------
        spark
            Session that runs a task for each shard.
        since
            ISO 8601, from :meth:`now` before any of them was written.

        Returns
        -------
        DataFrame or None
            ``_source`` and ``_id``; None if it holds none.
        """
        time.sleep(QUIET_SECONDS)
        with closing(self.client()) as client:
            until, shards = self.now(client), self.shards(client)
        read = partial(self.read_shards, datetime.fromisoformat(since), until)
        records = spark.sparkContext.parallelize(shards, len(shards)).mapPartitions(read)
        identities = records.map(lambda record: identity_of(record["Data"])).filter(bool)
        rows = spark.createDataFrame(identities, _KNOWN).persist()
        if rows.isEmpty():
            rows.unpersist()
            return None
        return rows

    def identities(self, client: Any, shard: str, since: datetime, until: datetime) -> Iterator[Identity]:
        """Return the identities of one shard's records, see :meth:`records`; records of other producers are left out."""
        result = (identity_of(record["Data"]) for record in self.records(client, shard, since, until))
        return filter(None, result)

    def read_shards(
        self, since: datetime, until: datetime, shards: Iterable[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the records of some shards, in a task."""
        with closing(self.client()) as client:
            for shard in shards:
                yield from self.records(client, shard, since, until)

    def records(self, client: Any, shard: str, since: datetime, until: datetime) -> Iterator[dict[str, Any]]:
        """Yield the records of one shard that arrived between two times, extended by :data:`SLACK`.

        Parameters
        ----------
        client
            Client of :meth:`client`.
        since, until
            Times by the stream's clock.

        Returns
        -------
        Iterator
            Records as in ``GetRecords``.
        """
        backoff = Backoff(self._what)

        def patiently(call: Any, **asked: Any) -> Any:
            answer = aws.call_until_answered(partial(call, **asked), backoff)
            backoff.reset_after_write()
            return answer

        whole = closed_shards.ShardRest(shard, None)
        for page in pages(client, self.stream, whole, since - SLACK, ask=patiently):
            yield from page
            if page[-1]["ApproximateArrivalTimestamp"] > until + SLACK:
                return

    @property
    def _what(self) -> str:
        return f"Kinesis stream {self.stream}, its end"


def _date(answer: dict[str, Any]) -> datetime:
    """Return the time of an answer: its header ``Date`` (RFC 9110, section 6.6.1)."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return datetime.now(UTC) if date is None else parsedate_to_datetime(date).astimezone(UTC)


def identity_of(data: bytes) -> Identity | None:
    """Return ``_source`` and ``_id`` of a record; None if a sink did not write it.

    Examples
    --------
    >>> identity_of(b'{"_source":"flights","_id":"t/0/1","n":1}')
    ('flights', 't/0/1')
    >>> identity_of(b"[]") is None
    True
    """
    try:
        fields = json.loads(data)
        source, identity = fields["_source"], fields["_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return (source, identity) if isinstance(source, str) and isinstance(identity, str) else None
