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
        description="The partitions to read, if several jobs share a topic; `millrace split` writes these lists.",
    )
    min_records_per_batch: int | None = Field(
        default=None,
        ge=1,
        description="A batch starts when so many records have arrived, or when max_delay has passed.",
    )
    max_delay: Duration | None = Field(
        default=None, description="Longest wait of records for min_records_per_batch."
    )
    min_partitions: int | None = Field(
        default=None,
        ge=1,
        le=200_000,
        description="Pins the minimum of tasks of a batch; left out, the plan computes it.",
    )
    start_offsets: dict[Partition, Offset] | None = Field(
        default=None,
        min_length=1,
        description="First offset of each partition for a query without a checkpoint, instead of start.",
    )
    group_id_prefix: GroupPrefix | None = Field(
        default=None,
        description="Prefix of the names of its consumer groups, for a cluster whose ACLs name groups; left out, "
        "spark-kafka-source.",
    )
    lag_group: GroupPrefix | None = Field(
        default=None,
        description="A consumer group to which the job writes the end offsets of committed batches, so that the "
        "usual tools show the lag. The job never reads these offsets. Left out, it writes none.",
    )
    headers: bool = Field(default=True, description="True if records keep their headers.")
    null_payload: Literal["dead_letter", "delete"] = Field(
        default="dead_letter",
        description="Meaning of a record without a payload (a tombstone of a compacted topic): a dead letter, or, "
        "in a land query, the delete of the rows with its key, which derive queries with latest_by "
        "carry out.",
    )
