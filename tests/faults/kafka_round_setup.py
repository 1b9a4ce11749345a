"""Test stage with a topic of a real Kafka broker as the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from millrace.sandbox.programs import kafka_broker
from tests.faults import small_job_documents
from tests.faults.round_setup import Stage

LARGEST = 10 << 20


@dataclass
class KafkaStage(Stage):
    """Starts a broker of its own, and stops it at the end."""

    partitions: int = 2

    def create_stream(self, shards: int) -> None:
        self.broker = self.ending.enter_context(kafka_broker.running_broker())
        self.bootstrap = self.broker.bootstrap
        self.broker.create_topic(self.stream, self.partitions)

    def put(self, key: str, payload: bytes | None, dirt: str | None) -> None:
        """A record with a null payload (a tombstone) too, and some with a null key."""
        refused: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)
                return
            identity = f"{self.stream}/{message.partition()}/{message.offset()}"
            self.feed.producer.ledger.add(identity, payload or b"", dirt)
            if payload is None:
                # Spark's hash of nothing is its seed; a dead letter of nothing keeps nothing.
                self.feed.producer.ledger.hashes[-1] = 42
                self.feed.producer.ledger.payloads[-1] = None

        settings = {"bootstrap.servers": self.bootstrap, "message.max.bytes": LARGEST, "log_level": 3}
        self._producer = getattr(self, "_producer", None) or Producer(settings)
        self._producer.produce(
            self.stream, value=payload, key=None if key == "-" else key, on_delivery=acknowledged
        )
        self._producer.flush(30)
        if refused:
            raise RuntimeError(f"the broker refused a record: {refused[0].str()}")

    def _source(self) -> dict[str, Any]:
        return small_job_documents.topic(self.stream, 10_000)
