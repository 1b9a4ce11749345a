"""The same stage with a topic of a real Kafka broker in the place of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from millrace.sandbox import jars, kafka
from tests.faults.stage import Stage

PARTITIONS = 2
LARGEST = 10 << 20


@dataclass
class KafkaStage(Stage):
    """Starts a broker of its own, and stops it at the end."""

    def create_stream(self, shards: int) -> None:
        self._running = kafka.running()
        self._broker = self._running.__enter__()
        self._broker.create_topic(self.stream, PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "message.max.bytes": LARGEST, "log_level": 3}
        )

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

        self._producer.produce(
            self.stream, value=payload, key=None if key == "-" else key, on_delivery=acknowledged
        )
        self._producer.flush(30)
        if refused:
            raise RuntimeError(f"the broker refused a record: {refused[0].str()}")

    def _binds(self) -> list[str]:
        return []

    def _source(self) -> dict[str, Any]:
        source = {"kind": "kafka", "name": "events", "topic": self.stream, "connection": "main"}
        return source | {
            "start": "earliest",
            "records_per_batch": 10_000,
            "retention_seconds": 86_400,
            "reading": None,
        }

    def _connections(self) -> dict[str, Any]:
        main = {"kind": "external", "cluster": None, "authentication": "none"}
        return {"main": main | {"bootstrap_servers": self._broker.bootstrap}}

    def _jars(self) -> list[Path]:
        return [*super()._jars(), *jars.files("kafka-client", self.line)]

    def close(self) -> None:
        for run in self.runs:
            run.kill()
        self.catalog.close()
        self._running.__exit__(None, None, None)
