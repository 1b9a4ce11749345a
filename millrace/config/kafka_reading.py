"""Options for reading a Kafka topic, under Millrace's names, for Spark's Kafka source (``docs/sources.md``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config.base import Model
from millrace.config.units import Duration

Partition = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Number of a partition of a topic."""

Offset = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Offset of a record in a partition."""

GroupPrefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Prefix of a consumer group's name: plain text, as IAM and Kafka's ACLs compare prefixes."""


class KafkaReading(Model):
    """Options of a query on a Kafka topic; all are optional."""

    partitions: tuple[Partition, ...] | None = Field(
        default=None,
        min_length=1,
        description="Only these partitions, for a topic that several jobs share out; `millrace split` writes the "
        "lists.",
    )
    min_records_per_batch: int | None = Field(
        default=None,
        ge=1,
        description="A batch waits until so many records are there, or max_delay has passed.",
    )
    max_delay: Duration | None = Field(
        default=None, description="Longest that records wait for min_records_per_batch."
    )
    min_partitions: int | None = Field(
        default=None,
        ge=1,
        description="Pins the least number of tasks of a batch; left out, the plan computes it.",
    )
    start_offsets: dict[Partition, Offset] | None = Field(
        default=None,
        min_length=1,
        description="Where a query without a checkpoint begins, partition by partition, in place of start.",
    )
    group_id_prefix: GroupPrefix | None = Field(
        default=None,
        description="What the names of its consumer groups begin with, for a cluster whose ACLs name groups; left "
        "out, spark-kafka-source.",
    )
    lag_group: GroupPrefix | None = Field(
        default=None,
        description="A consumer group to which the ends of committed batches are written, so that ordinary tools show "
        "the query's lag; nothing is read from it. Left out, none is.",
    )
    headers: bool = Field(default=True, description="Whether records keep their headers.")
    null_payload: Literal["dead_letter", "delete"] = Field(
        default="dead_letter",
        description="What a record without a payload (a tombstone of a compacted topic) is: bad data, or, in a land "
        "query, the delete of what has its key, which derive queries with latest_by carry out.",
    )
