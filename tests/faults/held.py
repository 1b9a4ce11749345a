"""What topics, streams and the files of a sink hold, read once from their beginning to their end."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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


def rows(s3: Any, bucket: str, folder: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Read columns of the files that a Parquet sink's manifests name."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/_manifests/")
    for key in [item["Key"] for page in pages for item in page.get("Contents", ())]:
        if not key.endswith(".json"):
            continue
        held = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        for name in held["files"]:
            body = s3.get_object(Bucket=bucket, Key=f"{folder}/{held['folder']}/{name}")["Body"].read()
            found = pq.read_table(pa.BufferReader(body), columns=list(columns))
            yield from zip(*(column.to_pylist() for column in found.columns), strict=True)
