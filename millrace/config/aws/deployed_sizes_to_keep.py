"""Sizes of deployed resources that AWS never shrinks, or that would be replaced: a plan keeps those that suffice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter


@dataclass(frozen=True)
class DeployedCluster:
    """An MSK cluster that exists.

    Attributes
    ----------
    storage_gib
        Volume of each broker; None for Express.
    replication
        Copies of its topics' partitions; None without a topic.
    """

    brokers: int
    broker_type: str
    storage_gib: int | None = None
    replication: int | None = None


@dataclass(frozen=True)
class DeployedSizes:
    """Sizes of all that exists of an environment.

    Attributes
    ----------
    clusters
        By logical name.
    partitions
        Partitions of its Kafka topics, by the stream's logical name.
    zones
        Availability Zones of its own VPC; None without one.
    in_vpc
        Whether a deployed job runs in a VPC, by the job's name.
    in_turns
        Whether a deployed job has bounded runs, by the job's name.
    modes
        Capacity modes of its Kinesis streams, by the stream's logical name.
    """

    clusters: Mapping[str, DeployedCluster] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    zones: int | None = None
    in_vpc: Mapping[str, bool] = field(default_factory=dict)
    in_turns: Mapping[str, bool] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Write it as text, which :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DeployedSizes:
        """Read it from the text that :meth:`to_json` writes."""
        return TypeAdapter(cls).validate_json(text)
