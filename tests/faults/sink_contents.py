"""Complete contents of the topics, streams and files of a sink."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message
from pyarrow import fs

from millrace.sandbox.programs.localstack import LocalStack


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


def records(client: Any, stream: str) -> Iterator[dict[str, Any]]:
    """Read the records of a stream, shard by shard, as boto3 gives them."""
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while (answer := client.get_records(ShardIterator=iterator, Limit=10_000))["Records"]:
            yield from answer["Records"]
            iterator = answer["NextShardIterator"]


def of_stack(stack: LocalStack) -> fs.FileSystem:
    """Open a LocalStack's S3."""
    scheme, _, address = stack.endpoint.partition("://")
    return fs.S3FileSystem(
        access_key="test", secret_key="test", region=stack.region, scheme=scheme, endpoint_override=address
    )


def rows(files: fs.FileSystem, folder: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Read columns of the files that a Parquet sink's manifests name."""
    manifests = files.get_file_info(fs.FileSelector(f"{folder}/_manifests", allow_not_found=True))
    for manifest in (each.path for each in manifests if each.path.endswith(".json")):
        held = json.loads(files.open_input_stream(manifest).read())
        for name in held["files"]:
            path = f"{folder}/{held['folder']}/{name}"
            result = pq.read_table(path, columns=list(columns), filesystem=files, partitioning=None)
            yield from zip(*(column.to_pylist() for column in result.columns), strict=True)
