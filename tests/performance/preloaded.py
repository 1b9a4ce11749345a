"""The topic that benchmarks read, filled before they begin."""

from __future__ import annotations

import itertools

from confluent_kafka import Producer

from millrace.sandbox import flights

TOPIC = "flights"
PARTITIONS = 4


def preload(bootstrap: str, events: int, topic: str = TOPIC) -> None:
    """Fill the topic with flights, from the year's beginning and again, dealt out evenly."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    table = flights.flights(month=None if events > 300_000 else 1)
    payloads = [event.payload for event in flights.events(table, dirty_share=0, seed=1)]
    for n, payload in enumerate(itertools.islice(itertools.cycle(payloads), events)):
        while True:
            try:
                producer.produce(topic, payload, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} records were not delivered")
