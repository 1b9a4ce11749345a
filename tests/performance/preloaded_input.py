"""Input of the benchmarks, written before they start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from confluent_kafka import Producer

from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from tests.flight_records import flight_records

TOPIC = "flights"
PARTITIONS = 4


def clean(events: int, month: int | None = 1) -> Iterator[RecordToSend]:
    """So many flights, all good, of a month or of the whole year, from its beginning and again."""
    made = list(flight_records(records_from_nycflights.read_departures(month=month), dirty_share=0, seed=1))
    return itertools.islice(itertools.cycle(made), events)


def preload(bootstrap: str, events: int, topic: str = TOPIC) -> None:
    """Fill the topic with flights, from the year's beginning and again, dealt out evenly."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    for n, event in enumerate(clean(events, month=None if events > 300_000 else 1)):
        while True:
            try:
                producer.produce(topic, event.payload, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} records were not delivered")
