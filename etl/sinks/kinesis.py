"""Kinesis sink: a record for each row, with its identity in the data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sinks import KinesisSinkSettings
from ..record.errors import SinkError, StartError
from ..record.job_run_context import JobRun
from ..services import aws_clients
from ..services.aws_clients import UnknownOutcomeError
from ..services.backoff import Backoff
from .base import BatchIdentity, Refuse, Reread, WriteCounts, refuse_unwritable_map_keys
from .delivery import python_task_writes
from .delivery.kinesis_tail import QUIET_SECONDS, StreamTail, identity_of_record
from .delivery.python_task_writes import (
    Entry,
    Refused,
    RequestWriter,
    RowsCountedInPlan,
    RowToSend,
    UnsupportedRowError,
)
from .delivery.sink_end_offset_marks import TASK_RETRIED, StreamEndMarks

MOST_RECORDS = 500
MOST_BYTES = 5 * 1024 * 1024
"""Limits of one PutRecords (Kinesis API reference; regions with larger limits accept smaller requests too)."""

KEY_CHARACTERS = 256
"""Longest partition key (the same page)."""


@dataclass
class RecordWriter(RequestWriter):
    """Writer of one partition's records.

    Parameters
    ----------
    once
        True to search the stream for written records before a request without an answer is repeated. Not for results of many
        records: their identity is in the stream from earlier batches.
    """

    MOST, MOST_BYTES = MOST_RECORDS, MOST_BYTES

    tail: StreamTail
    max_record_bytes: int
    once: bool

    def to_entry_and_size(self, record: RowToSend) -> tuple[dict[str, Any], int]:
        """Return data and partition key."""
        key = record.key if record.key is not None else record.id
        if not 0 < len(key) <= KEY_CHARACTERS:
            raise UnsupportedRowError(
                f"the partition key has {len(key)} characters; Kinesis allows 1 to {KEY_CHARACTERS}"
            )
        data = record.text.encode()
        size = len(data) + len(key.encode())
        if size > self.max_record_bytes:
            raise UnsupportedRowError(
                f"the record has {size} bytes with its partition key; the limit is {self.max_record_bytes}"
            )
        return {"Data": data, "PartitionKey": key}, size

    def write_rest_and_yield_refused(self) -> Iterator[Refused]:
        """Write the waiting rows, repeated until all are written; yield none, as a shard refuses only for a time."""
        from botocore.exceptions import ClientError

        waiting = self.take_waiting_entries()
        try:
            while waiting:
                waiting = self._put_records_and_return_refused(waiting)
        except ClientError as error:
            raise SinkError(f"Kinesis stream {self.tail.stream}: {error}") from error
        yield from ()

    def _put_records_and_return_refused(self, waiting: list[Entry]) -> list[Entry]:
        """Write records in one request; return those that were refused."""
        began = time.monotonic()
        entries = [entry for _, entry in waiting]
        try:
            answer = aws_clients.call_until_answered(
                lambda: self.client.put_records(StreamName=self.tail.stream, Records=entries),
                self.backoff,
                once=self.once,
            )
        except UnknownOutcomeError as unsure:
            self.backoff.wait(str(unsure))
            return self._records_not_in_stream(waiting, began)
        error_codes = [result.get("ErrorCode") for result in answer["Records"]]
        left = [each for each, code in zip(waiting, error_codes, strict=True) if code]
        self.written += len(waiting) - len(left)
        codes = ", ".join(sorted({code for code in error_codes if code}))
        self.backoff.wait_before_sending_rest(len(waiting), len(left), f"records: {codes}")
        return left

    def _records_not_in_stream(self, waiting: list[Entry], began: float) -> list[Entry]:
        """Return the records that the stream does not hold, after a request whose answer was lost."""
        time.sleep(QUIET_SECONDS)
        now = self.tail.service_time(self.client)
        since = now - timedelta(seconds=time.monotonic() - began)
        wanted = {(record.source, record.id) for record, _ in waiting}
        identities = {
            identity
            for shard in self.tail.shard_ids(self.client)
            for record in self.tail.records_of_shard(self.client, shard, since, now)
            if (identity := identity_of_record(record["Data"])) in wanted
        }
        left = [each for each in waiting if (each[0].source, each[0].id) not in identities]
        self.written += len(waiting) - len(left)
        return left


def open_sink(settings: KinesisSinkSettings, run: JobRun, _key: tuple[str, ...]) -> KinesisSink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`."""
    return KinesisSink(settings, run.binds.get("kinesis.endpoint"))


def _make_writer(tail: StreamTail, max_record_bytes: int, once: bool) -> RecordWriter:
    """Make a writer in the task of a partition."""
    task = TaskContext.get()
    if once and task is not None and task.attemptNumber():
        raise SinkError(TASK_RETRIED)
    return RecordWriter(
        tail.make_client(), Backoff(f"Kinesis stream {tail.stream}"), tail, max_record_bytes, once
    )


@dataclass(frozen=True)
class KinesisSink:
    """A Kinesis stream; the data of a record is the row as JSON, with ``_source`` and ``_id``.

    Parameters
    ----------
    settings
        Stream, and column of the partition key.
    endpoint
        Endpoint other than the region's own.
    """

    settings: KinesisSinkSettings
    endpoint: str | None = None
    acts_on_rdd: bool = True

    @cached_property
    def _end_marks(self) -> StreamEndMarks:
        return StreamEndMarks(self.settings.stream)

    @property
    def _tail(self) -> StreamTail:
        return StreamTail(self.settings.stream, self.settings.region, self.endpoint)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Check that the stream and the column of its key exist.

        Raises
        ------
        StartError
            The stream or column does not exist, or the stream cannot be described.
        """
        key, what = self.settings.key, f"Kinesis stream {self.settings.stream}"
        refuse_unwritable_map_keys(schema, what)
        if key is not None and key not in schema.fieldNames():
            raise StartError(f"{what}: the sink's key is column {key}, which the rows do not have")
        aws_clients.call_at_start(
            what,
            self._tail.make_client(),
            lambda asked: asked.describe_stream_summary(StreamName=self.settings.stream),
        )

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Put a record for each row.

        Guarantee, for records: a repeated batch puts only the records that the stream lacks, after a kill of the driver,
        a failure of the batch or a task, or a lost answer to a request. Every record has its
        identity, and the stream is read from the time before the batch (:mod:`etl.sinks.delivery.sink_end_offset_marks`). Nothing is
        lost: records that a shard refuses are put again until it accepts them. Duplicates remain possible if no read of
        the stream can detect them: from a task that Spark repeats after its end (a lost executor), from a batch after a
        reset of the checkpoint, and for results with state, whose identities are in the stream from earlier batches. A
        reader recognises them by ``_source`` and ``_id``, which are the same each time. The order within a
        partition key is kept unless some of its records were refused.
        """
        if place is None or not place.name or "_source" not in rows.columns:
            return self._send(rows, refuse)
        return self._end_marks.write_compared_with_mark(
            rows,
            place,
            reread,
            Backoff(f"Kinesis stream {self.settings.stream}"),
            self._service_time_text,
            partial(self._tail.identities_in_stream, rows.sparkSession),
            partial(self._send_rows_not_in_stream, refuse),
        )

    def _service_time_text(self) -> str:
        with closing(self._tail.make_client()) as client:
            return self._tail.service_time(client).isoformat()

    def _send_rows_not_in_stream(
        self, refuse: Refuse, rows: DataFrame, known: DataFrame | None
    ) -> WriteCounts:
        """Put the rows without those that the stream holds."""
        if known is None:
            return self._send(rows, refuse, once=True)
        counted = RowsCountedInPlan((F.count(F.lit(1)).alias("offered"),))
        # A broadcast join keeps the order of a key's records.
        new = counted.observe(rows).join(F.broadcast(known), ["_source", "_id"], "left_anti")
        done = self._send(new.select(*(F.col(f"`{c}`") for c in rows.columns)), refuse, once=True)
        assert done.ran is not None, "a pass over the batch tells which frame it sent"
        return replace(done, offered=counted.values_after_action(done.ran)["offered"])

    def _send(self, rows: DataFrame, refuse: Refuse, *, once: bool = False) -> WriteCounts:
        key = F.col(f"`{self.settings.key}`") if self.settings.key else F.lit(None)
        return python_task_writes.send_batch(
            rows, key, partial(_make_writer, self._tail, self.settings.max_record_bytes, once), refuse
        )
