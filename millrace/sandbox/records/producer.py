"""Producers that add every acknowledged record to a ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from threading import Event as Flag
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as KafkaClient

from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.ledger import Ledger

MOST_AT_ONCE = 500
"""Maximum number of records of one PutRecords call (Kinesis service limit)."""

_BATCH_BYTES = 5 * 1024**2
"""Maximum number of bytes of one call, keys included (API reference, "PutRecords"; newer regions take more)."""

_ATTEMPTS = 20
_JOIN_SECONDS = 120.0


class RecordProducer(Protocol):
    """Producer that sends events and adds them to its ledger."""

    ledger: Ledger

    def send(self, events: Iterable[RecordToSend], *, sent: Callable[[int], None]) -> None:
        """Send all events; call ``sent`` with the number of records acknowledged at a time."""


class BackgroundThread(AbstractContextManager["BackgroundThread"]):
    """Work in a thread of its own, such as sending, for as long as a block lasts or until it is stopped.

    Parameters
    ----------
    work
        Function that ends soon after its flag is set.
    name
        Name of the thread.
    """

    def __init__(self, work: Callable[[Flag], object], name: str) -> None:
        self._work, self._name = work, name
        self._stop, self._failures = Flag(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:  # raised again by check, in the caller's thread
            self._failures.append(error)

    @property
    def done(self) -> bool:
        """True after the end of the work."""
        return not self._thread.is_alive()

    def raise_error_of_work(self) -> None:
        """Raise the error of the work, if any."""
        if self._failures:
            raise self._failures[0]

    def ask_to_stop(self) -> None:
        """Ask it to end soon, without a wait."""
        self._stop.set()

    def stop(self) -> None:
        """Ask it to end, wait for that, and raise its error, if any.

        Raises
        ------
        SandboxError
            It does not end.
        """
        self.ask_to_stop()
        self._thread.join(timeout=_JOIN_SECONDS)
        self.raise_error_of_work()
        if not self.done:
            raise SandboxError(f"{self._name} did not stop within {_JOIN_SECONDS:.0f} s")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
            return
        self.ask_to_stop()  # the block's own error counts
        self._thread.join(timeout=_JOIN_SECONDS)


class KinesisProducer:
    """Producer for a Kinesis stream with ``PutRecords``; throttled records are sent again.

    Parameters
    ----------
    stream
        The stream's own name; an identity is ``stream/sequence number``.
    batch
        Records in one call, at most 500.
    """

    def __init__(self, client: Any, stream: str, *, batch: int = MOST_AT_ONCE) -> None:
        self.ledger = Ledger()
        self._client = client
        self._stream = stream
        self._batch = batch

    def send(self, events: Iterable[RecordToSend], *, sent: Callable[[int], None]) -> None:
        """Send all events.

        Raises
        ------
        SandboxError
            Records were refused twenty times in a row.
        AwsError
            The service refused a call, or could not be reached.
        """
        for batch in self._split_into_batches(events):
            sent(self._send_batch_and_return_its_size(batch))

    def _split_into_batches(self, events: Iterable[RecordToSend]) -> Iterator[list[RecordToSend]]:
        batch: list[RecordToSend] = []
        size = 0
        for event in events:
            weight = len(event.payload) + len(event.key)
            if batch and size + weight > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(event)
            size += weight
            if len(batch) == self._batch:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _send_batch_and_return_its_size(self, batch: list[RecordToSend]) -> int:
        pending = batch
        for attempt in range(_ATTEMPTS):
            records = [{"Data": event.payload, "PartitionKey": event.key.decode()} for event in pending]
            with translating_aws_errors(f"cannot put records into stream {self._stream}"):
                answer = self._client.put_records(StreamName=self._stream, Records=records)
            refused = []
            for event, record in zip(pending, answer["Records"], strict=True):
                if "SequenceNumber" in record:
                    self.ledger.add(f"{self._stream}/{record['SequenceNumber']}", event.payload, event.dirt)
                else:
                    refused.append(event)
            if not refused:
                return len(batch)
            pending = refused
            time.sleep(min(2.0, 0.05 * 2**attempt))
        raise SandboxError(
            f"stream {self._stream} refused {len(pending)} records in each of {_ATTEMPTS} attempts"
        )


def produce_with_backpressure(client: KafkaClient, topic: str, value: bytes, **more: Any) -> None:
    """Hand a record to librdkafka, and wait for acknowledgements while its queue is full."""
    while True:
        try:
            return client.produce(topic, value, **more)
        except BufferError:
            client.poll(0.1)


class KafkaProducer:
    """Idempotent producer for a Kafka topic; an identity is ``topic/partition/offset``.

    Parameters
    ----------
    settings
        Further settings of librdkafka, such as authentication.
    """

    def __init__(self, bootstrap: str, topic: str, *, settings: Mapping[str, Any] | None = None) -> None:
        self.ledger = Ledger()
        self._topic = topic
        self._errors: list[KafkaError] = []
        self._client = KafkaClient(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "log_level": 0,  # an error comes with its record; librdkafka would write about a stopped broker
                "compression.type": "lz4",
                **(settings or {}),
            }
        )

    def send(self, events: Iterable[RecordToSend], *, sent: Callable[[int], None]) -> None:
        """Send all events and wait until the broker has them.

        Raises
        ------
        SandboxError
            The broker refused a record.
        """
        for event in events:
            self._produce_record(event, sent)
        if self._client.flush(60):
            raise SandboxError(
                f"topic {self._topic}: the brokers did not acknowledge all records within 60 s"
            )
        self._raise_first_error()

    def _produce_record(self, event: RecordToSend, sent: Callable[[int], None]) -> None:
        def note_acknowledgement(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._errors.append(error)
                return
            self.ledger.add(
                f"{self._topic}/{message.partition()}/{message.offset()}", event.payload, event.dirt
            )
            sent(1)

        produce_with_backpressure(
            self._client, self._topic, event.payload, key=event.key, on_delivery=note_acknowledgement
        )
        self._client.poll(0)
        self._raise_first_error()

    def _raise_first_error(self) -> None:
        if self._errors:
            raise SandboxError(f"topic {self._topic} refused a record: {self._errors[0].str()}")
