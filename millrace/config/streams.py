"""Streams and the Kafka clusters that they may lie on."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config import kafka_versions
from millrace.config.base import ClusterArn, KeyArn, Model, RoleArn, Slug
from millrace.config.kafka_login import IamLogin, Login, TlsLogin
from millrace.config.units import Duration, Size

Basis = Literal["assumed", "measured"]
"""Whether somebody measured a figure, or it is a guess that every number after it must show."""


class Traffic(Model):
    """What arrives on a stream."""

    records_per_second: float = Field(gt=0, le=1e8, description="Average arrival rate.")
    peak_factor: float = Field(default=1.0, ge=1, le=1000, description="Peak rate divided by average rate.")
    record_size: Size = Field(description="Mean size of a record, key and payload, such as 600B.")
    basis: Basis = Field(default="assumed", description="`measured` only when somebody did.")


class KinesisStream(Model):
    """A Kinesis data stream."""

    kind: Literal["kinesis"]
    traffic: Traffic
    mode: Literal["provisioned", "on-demand"] = "provisioned"
    shards: int | None = Field(
        default=None, ge=1, description="Pins the shard count; left out, the plan computes it."
    )
    retention: Duration = Field(default=timedelta(hours=24), description="24h to 8760h.")
    shards_now: int | None = Field(
        default=None,
        ge=1,
        description="Open shards of the deployed stream: the plan then checks that Kinesis takes the change.",
    )
    fan_out_consumers: tuple[Slug, ...] = Field(
        default=(),
        description="Fan-out consumers of programs other than this environment's jobs; 20 with the jobs' own.",
    )
    shard_level_metrics: bool = False
    max_record_size: Size | None = Field(
        default=None, description="Largest record, up to 10MiB; left out, 1 MiB."
    )
    existing: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^(arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{12}:stream/)?[a-zA-Z0-9_.-]{1,128}$"
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="Name of a stream that somebody else owns, its ARN where it is in another account: "
        "read, never changed.",
    )
    existing_key: KeyArn | None = Field(
        default=None, description="The key of an existing stream, so that jobs may use no other."
    )
    read_role: RoleArn | None = Field(
        default=None, description="The role in the other account that jobs take to read an existing stream."
    )
    disposable: bool = Field(
        default=False, description="With removal: destroy, the stream goes with its stack."
    )


class KafkaTopic(Model):
    """A Kafka topic on one of the environment's clusters."""

    kind: Literal["kafka"]
    cluster: Slug
    traffic: Traffic
    topic: str | None = Field(
        default=None, pattern=r"^[a-zA-Z0-9._-]{1,249}$", description="Left out, the stream's own name."
    )
    pattern: str | None = Field(
        default=None,
        min_length=1,
        description="In place of one topic, all existing ones whose whole name this regular expression matches, "
        "those of later too.",
    )
    partitions: int | None = Field(
        default=None, ge=1, description="Pins the partition count; left out, the plan computes it."
    )
    retention: Duration = timedelta(days=7)
    compression: Literal["producer", "zstd", "lz4", "snappy", "gzip", "uncompressed"] = "producer"
    existing: bool = Field(
        default=False, description="The topic belongs to somebody else: read, never changed."
    )
    disposable: bool = Field(
        default=False, description="With removal: destroy, the topic goes with its stack."
    )


Stream = Annotated[KinesisStream | KafkaTopic, Field(discriminator="kind")]


class MskCluster(Model):
    """An MSK cluster: one that this environment owns, or an existing one of this account."""

    kind: Literal["msk"]
    existing: ClusterArn | None = Field(
        default=None,
        description="ARN of a cluster that somebody else owns: read, never changed; left out, one is made.",
    )
    authentication: Login = Field(
        default=IamLogin(), description="How jobs sign in; another than iam with `existing` only."
    )
    tier: Literal["standard", "express", "serverless"] = "standard"
    version: str = Field(
        default=kafka_versions.DEFAULT,
        description="Kafka version as MSK names it, such as 3.9.x.kraft; a bare 3.9.x keeps its metadata in ZooKeeper, and a "
        "cluster that was made so stays so.",
    )
    broker_type: str | None = Field(
        default=None, description="Such as kafka.m7g.large; left out, the plan chooses."
    )
    brokers: int | None = Field(
        default=None, ge=2, description="Pins the number of brokers; left out, the plan computes it."
    )
    disposable: bool = Field(
        default=False, description="With removal: destroy, the cluster goes with its stack."
    )


class ExternalCluster(Model):
    """A Kafka cluster that somebody else runs."""

    kind: Literal["external"]
    bootstrap_servers: str = Field(min_length=3, description="host:port, comma separated.")
    authentication: Login = Field(default=TlsLogin(), description="How jobs sign in.")
    arn: ClusterArn | None = Field(
        default=None, description="The MSK cluster behind it; jobs with authentication iam may use no other."
    )


KafkaCluster = Annotated[MskCluster | ExternalCluster, Field(discriminator="kind")]
