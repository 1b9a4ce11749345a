"""What topics and streams hold, read once from their beginning to their end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, Message


def messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """Read a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": "true",
        }
    )
    left = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.subscribe([topic])
    while left:
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error():
            left -= 1
        else:
            yield message
    consumer.close()


def records(client: Any, stream: str) -> Iterator[bytes]:
    """Read the payloads of a stream, shard by shard."""
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while (answer := client.get_records(ShardIterator=iterator, Limit=10_000))["Records"]:
            yield from (record["Data"] for record in answer["Records"])
            iterator = answer["NextShardIterator"]
