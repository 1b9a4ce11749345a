"""Kinesis: a record for each row, with its identity in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import StructType

from etl.errors import StartError
from etl.settings_sinks import KinesisSinkSettings
from etl.sinks import aws, sending
from etl.sinks.backoff import Backoff
from etl.sinks.base import Again, Place, Refuse, Written
from etl.sinks.sending import Buffer, Record, Refused

MOST_RECORDS = 500
MOST_BYTES = 5 * 1024 * 1024
"""Of one PutRecords (Kinesis API reference; regions with larger requests take smaller ones, too)."""

KEY_CHARACTERS = 256
"""Longest partition key (the same page)."""


@dataclass
class RecordWriter:
    """Writes the records of one partition."""

    stream: str
    max_record_bytes: int
    client: Any
    backoff: Backoff
    written: int = 0
    _buffer: Buffer = field(default_factory=lambda: Buffer(MOST_RECORDS, MOST_BYTES))

    def add(self, record: Record) -> Iterable[Refused]:
        """Take a row; writes the rows before it where a request is full."""
        key = record.key if record.key is not None else record.id
        if not 0 < len(key) <= KEY_CHARACTERS:
            yield record, f"a partition key of {len(key)} characters; it has 1 to {KEY_CHARACTERS}"
            return
        data = record.text.encode()
        size = len(data) + len(key.encode())
        if size > self.max_record_bytes:
            yield record, f"a record of {size} bytes with its key; the most is {self.max_record_bytes}"
            return
        if self._buffer.full(size):
            yield from self.finish()
        self._buffer.put(record, {"Data": data, "PartitionKey": key}, size)

    def finish(self) -> Iterator[Refused]:
        """Write what waits, and again what a shard refused, until all of it is written."""
        from botocore.exceptions import ClientError

        waiting = [entry for _, entry, _ in self._buffer.take()]
        try:
            while waiting:
                waiting = self._put(waiting)
        except ClientError as error:
            raise aws.refuses(f"Kinesis stream {self.stream}", error) from error
        yield from ()

    def _put(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write records in one request; give back those that were refused."""
        answer = aws.patiently(
            lambda: self.client.put_records(StreamName=self.stream, Records=entries), self.backoff
        )
        told = [result.get("ErrorCode") for result in answer["Records"]]
        left = [entry for entry, code in zip(entries, told, strict=True) if code]
        self.written += len(entries) - len(left)
        if len(left) < len(entries):
            self.backoff.progress()
        if left:
            codes = ", ".join(sorted({code for code in told if code}))
            self.backoff.wait(f"{len(left)} of {len(entries)} records: {codes}")
        return left


@dataclass(frozen=True)
class _Opening:
    """Makes a writer where a partition is."""

    settings: KinesisSinkSettings
    endpoint: str | None

    def __call__(self) -> RecordWriter:
        client = aws.client("kinesis", self.settings.region, self.endpoint)
        what = f"Kinesis stream {self.settings.stream}"
        return RecordWriter(self.settings.stream, self.settings.max_record_bytes, client, Backoff(what))


@dataclass(frozen=True)
class KinesisSink:
    """A Kinesis stream; the data of a record is the row as JSON, ``_source`` and ``_id`` in it.

    Parameters
    ----------
    settings
        The stream, and the column of the partition key.
    endpoint
        Another endpoint than the region's own.
    """

    settings: KinesisSinkSettings
    endpoint: str | None = None
    sends: bool = True

    def prepare(self, spark: SparkSession, schema: StructType) -> None:  # noqa: ARG002 - not needed
        """Check that the stream and the column of its key are there.

        Raises
        ------
        StartError
            They are not, or the stream cannot be asked.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        key = self.settings.key
        if key is not None and key not in schema.fieldNames():
            raise StartError(f"Kinesis stream {self.settings.stream}: rows have no column {key} for its key")
        try:
            client = aws.client("kinesis", self.settings.region, self.endpoint)
            client.describe_stream_summary(StreamName=self.settings.stream)
        except (BotoCoreError, ClientError) as error:
            raise StartError(f"Kinesis stream {self.settings.stream}: {error}") from error

    def write(
        self,
        rows: DataFrame,
        place: Place | None,  # noqa: ARG002 - identity tells batches apart
        refuse: Refuse,
        again: Again | None = None,  # noqa: ARG002 - one attempt
    ) -> Written:
        """Put a record for each row.

        Guarantee: at least once. A stream takes no record back and knows no transaction: a batch or a task
        that comes again puts its records again. A reader tells them apart by ``_source`` and ``_id``, which
        every record holds and which are the same each time. Nothing is left out: records that a shard refuses are
        put again until it takes them. The order within a partition key is kept unless some of them
        were refused.
        """
        key = F.col(f"`{self.settings.key}`") if self.settings.key else F.lit(None)
        return sending.send(rows, key, _Opening(self.settings, self.endpoint), refuse)
