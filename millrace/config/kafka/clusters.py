"""Kafka clusters that hold topics of the environment, and settings of topics that keep impossible times out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from millrace.config.aws import kafka_versions
from millrace.config.base import ClusterArn, Model, remove_schema_default
from millrace.config.kafka.login import IamLogin, Login, TlsLogin
from millrace.config.units import Size

Tier = Literal["standard", "express", "serverless"]


class MskCluster(Model):
    """An MSK cluster: one that this environment owns, or an existing one of this account."""

    makes_topics: ClassVar[bool] = True
    """True if the environment can create its own topics on it."""

    kind: Literal["msk"]
    existing: ClusterArn | None = Field(
        default=None,
        description="ARN of an existing cluster, which is never changed; left out, a cluster is created.",
    )
    authentication: Login = Field(
        default=IamLogin(),
        description="Authentication of jobs; only an `existing` cluster may have another kind than iam.",
    )
    tier: Tier = Field(
        default="standard",
        description="Kind of brokers: `standard`, `express`, or a serverless cluster. Left out, the plan takes the cheaper of the "
        "first two; a deployed cluster keeps its own.",
        examples=["standard"],
        json_schema_extra=remove_schema_default,
    )
    version: str = Field(
        default=kafka_versions.DEFAULT,
        description="Kafka version as MSK names it, such as 3.9.x.kraft. 3.9.x keeps its metadata in ZooKeeper; a "
        "cluster that was created with it cannot change that.",
    )
    broker_type: str | None = Field(
        default=None, description="Type of the brokers, such as kafka.m7g.large; left out, the plan chooses."
    )
    brokers: int | None = Field(
        default=None,
        ge=2,
        le=1_000,
        description="Pins the number of brokers; left out, the plan computes it.",
    )
    storage: Size | None = Field(
        default=None,
        ge=1024**3,
        le=16384 * 1024**3,
        description="Pins the volume of each Standard broker; left out, the plan computes it in coarse steps. It never "
        "shrinks, and grows by at least 10GiB at a time, six hours apart.",
        examples=["500GiB"],
    )
    disposable: bool = Field(
        default=False, description="With removal: destroy, the cluster is deleted with its stack."
    )

    @property
    def tier_is_given(self) -> bool:
        """True if the file gives the tier."""
        return "tier" in self.model_fields_set


class ExternalCluster(Model):
    """A Kafka cluster that is given by its addresses; Millrace never changes it."""

    makes_topics: ClassVar[bool] = False

    kind: Literal["external"]
    bootstrap_servers: str = Field(min_length=3, description="Addresses host:port, separated by commas.")
    authentication: Login = Field(default=TlsLogin(), description="Authentication of jobs.")
    arn: ClusterArn | None = Field(
        default=None,
        description="ARN, if it is an MSK cluster; limits the permissions of jobs with authentication iam to it.",
    )


KafkaCluster = Annotated[MskCluster | ExternalCluster, Field(discriminator="kind")]


_HOUR_MS, _CENTURY_MS = 3_600_000, 36_525 * 86_400_000

TIME_LIMITS: Mapping[str, str] = {
    "message.timestamp.after.max.ms": str(_HOUR_MS),
    "message.timestamp.before.max.ms": str(_CENTURY_MS),
}
"""Topic settings with which brokers refuse records whose time is surely wrong: more than an hour later than the broker's
clock, which is Kafka 4's own default (KIP-1030), or more than a century earlier. Kafka 3.6 and later have both settings
(KIP-937), and ``AWS::MSK::Topic`` supports no earlier version.
"""
