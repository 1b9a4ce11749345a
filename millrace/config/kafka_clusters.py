"""Kafka clusters that hold topics of the environment."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from millrace.config import kafka_versions
from millrace.config.base import ClusterArn, Model
from millrace.config.kafka_login import IamLogin, Login, TlsLogin


class MskCluster(Model):
    """An MSK cluster: one that this environment owns, or an existing one of this account."""

    makes_topics: ClassVar[bool] = True
    """True if the environment can create its own topics on it."""

    kind: Literal["msk"]
    existing: ClusterArn | None = Field(
        default=None,
        description="ARN of a cluster that somebody else owns: read, never changed; left out, one is made.",
    )
    authentication: Login = Field(
        default=IamLogin(), description="How jobs sign in; another than iam with `existing` only."
    )
    tier: Literal["standard", "express", "serverless"] = Field(
        default="standard", description="Kind of brokers: `standard`, `express`, or a serverless cluster."
    )
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
    """A Kafka cluster that is given by its addresses; Millrace never changes it."""

    makes_topics: ClassVar[bool] = False

    kind: Literal["external"]
    bootstrap_servers: str = Field(min_length=3, description="host:port, comma separated.")
    authentication: Login = Field(default=TlsLogin(), description="How jobs sign in.")
    arn: ClusterArn | None = Field(
        default=None, description="The MSK cluster behind it; jobs with authentication iam may use no other."
    )


KafkaCluster = Annotated[MskCluster | ExternalCluster, Field(discriminator="kind")]
