"""What a query reads, as its launch document says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class KinesisSource:
    """A Kinesis stream as a query reads it.

    Attributes
    ----------
    stream
        The stream's own name.
    start
        Where a query without a checkpoint begins: ``earliest``, ``latest`` or a moment in ISO 8601, UTC.
    records_per_shard
        Limit for one shard and batch, with as many shards as the plan has.
    fetch_seconds
        Longest time one batch reads from one shard.
    retention_seconds
        How long the stream keeps a record; no older one can come again.
    consumer
        Name of the query's own fan-out consumer; ``None`` shares what a shard gives all readers.
    role
        ARN of the role that is taken to read a stream of another account.
    records_per_batch
        Limit for a batch, shared out among the shards that the stream has when the job runs; ``None``
        leaves ``records_per_shard`` as it is.
    """

    kind: Literal["kinesis"]
    name: str
    stream: str
    region: str
    start: str
    records_per_shard: int
    fetch_seconds: float
    retention_seconds: int
    consumer: str | None = None
    role: str | None = None
    records_per_batch: int | None = None


@dataclass(frozen=True)
class KafkaReading:
    """How a topic is read, where a query says more than its name.

    Attributes
    ----------
    pattern
        Whether ``topic`` is a regular expression (Java's), for all topics whose whole name it matches.
    partitions
        Only these of the topic; ``None`` for all, also those of later.
    partition_count
        Partitions that the topic has as far as the lists of ``partitions`` know; a topic with more is refused.
    min_records_per_batch, max_delay_seconds
        A batch waits until so many records are there, or so long.
    start_offsets
        Partition to offset, in place of the source's ``start``.
    headers
        Whether records keep theirs.
    group_id_prefix
        What the names of its consumer groups begin with; ``None`` for Spark's own.
    lag_group
        Consumer group to which the ends of committed batches are written, for tools that show the lag.
    null_payload
        What a record without a payload is: bad data, or the delete of what has its key.
    """

    pattern: bool = False
    partitions: tuple[int, ...] | None = None
    partition_count: int | None = None
    min_records_per_batch: int | None = None
    max_delay_seconds: float | None = None
    start_offsets: Mapping[str, int] | None = None
    headers: bool = True
    group_id_prefix: str | None = None
    lag_group: str | None = None
    null_payload: Literal["dead_letter", "delete"] = "dead_letter"


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka topic as a query reads it; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    reading
        ``None`` for a topic that is read whole, with headers, as soon as there are records.
    """

    kind: Literal["kafka"]
    name: str
    topic: str
    connection: str
    start: str
    records_per_batch: int
    retention_seconds: int
    reading: KafkaReading | None = None


@dataclass(frozen=True)
class SecretLogin:
    """What a cluster lets in by, or is known by, and the secret of Secrets Manager that holds it.

    Attributes
    ----------
    secret
        ARN of a JSON object: see :mod:`etl.sources.kafka_login`.
    """

    kind: Literal["scram-sha-512", "plain", "mutual-tls", "tls"]
    secret: str


@dataclass(frozen=True)
class Connection:
    """How to reach a Kafka cluster.

    MSK's brokers are known to AWS only: ``cluster`` is looked up at start by the
    job's own role, unless ``--bind kafka.NAME.bootstrap=HOST:PORT`` gives them.
    """

    kind: Literal["msk", "external"]
    cluster: str | None
    bootstrap_servers: str | None
    authentication: Literal["iam", "tls", "none"] | SecretLogin
