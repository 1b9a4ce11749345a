"""What a plan holds: immutable figures, each with the reason for its value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Generic, Literal, TypeVar

T = TypeVar("T", int, float, str)

Origin = Literal["computed", "pinned"]


@dataclass(frozen=True)
class Figure(Generic[T]):
    """One number of the plan and why it is what it is.

    Attributes
    ----------
    value
        The number (or the name, for a worker type).
    unit
        Such as ``shards``, ``records``, ``s``, ``USD/month``.
    why
        One line with the inputs, such as ``"8 executors of 4 cores, and the driver"``.
    origin
        ``pinned`` when the environment file gives it.
    assumed
        Whether anything it rests on was never measured.
    """

    value: T
    unit: str
    why: str
    origin: Origin = "computed"
    assumed: bool = False


@dataclass(frozen=True)
class CostItem:
    """One line of a monthly bill, in USD for 730 hours."""

    name: str
    usd: float
    why: str
    assumed: bool = False


@dataclass(frozen=True)
class StreamPlan:
    """A stream's size. ``partitions`` are shards for Kinesis; ``None`` for on-demand streams."""

    name: str
    kind: Literal["kinesis", "kafka"]
    mode: str
    partitions: Figure[int] | None
    expected_partitions: Figure[int]
    """What readers will find: the partitions, or for on-demand what its rate makes AWS open."""
    cost: tuple[CostItem, ...]


@dataclass(frozen=True)
class ClusterPlan:
    """An MSK cluster's size; ``None`` where the tier has no such number (serverless)."""

    name: str
    tier: str
    brokers: Figure[int] | None
    broker_type: Figure[str] | None
    storage_gib_per_broker: Figure[int] | None
    cost: tuple[CostItem, ...]


@dataclass(frozen=True)
class QueryPlan:
    """One query's limits."""

    name: str
    trigger_seconds: Figure[float]
    latency_seconds: Figure[float]
    """The oldest that a record may be when this query commits it: what its age is alarmed at."""
    records_per_batch: Figure[int] | None
    """``None`` for derive queries, which read whole snapshots of their landing table."""
    records_per_partition: Figure[int] | None
    """The batch limit divided by the source's partitions, for Kinesis."""
    repartition: Figure[int] | None
    """Set when the source has fewer partitions than the job has cores."""


@dataclass(frozen=True)
class JobPlan:
    """One job's size on its engine."""

    name: str
    engine: Literal["glue", "emr"]
    version: str
    worker: str
    cores: Figure[int]
    executors: Figure[int]
    max_workers: Figure[int]
    """Executors and the driver."""
    queries: Mapping[str, QueryPlan]
    cost: tuple[CostItem, ...]


Missing = Literal["breaching", "notBreaching"]


@dataclass(frozen=True)
class Alarm:
    """One CloudWatch alarm.

    Attributes
    ----------
    name
        Its name without the environment's prefix, such as ``job/flights/land-flights/record-age``.
    subject
        What it watches: ``job/NAME``, ``stream/NAME`` or ``cluster/NAME``.
    namespace, metric, dimensions, statistic
        What is measured.
    threshold
        In the metric's unit.
    above
        Goes off above the threshold; otherwise below it.
    period
        Seconds.
    periods, of
        Goes off when so many of the last ``of`` periods are beyond the threshold.
    missing
        What a period without data counts as.
    why
        One line for whoever is called.
    """

    name: str
    subject: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: Literal["Maximum", "Sum", "Average"]
    threshold: float
    above: bool
    period: int
    periods: int
    of: int
    missing: Missing
    why: str


@dataclass(frozen=True)
class NetworkPlan:
    """How jobs reach AWS.

    Attributes
    ----------
    egress
        ``endpoints``, ``nat``, or ``existing`` for a VPC that is brought along.
    services
        Names of the endpoints of all services that are called, S3's gateway aside.
    zones
        In which endpoints or gateways stand; 0 for an existing VPC.
    """

    egress: Figure[str]
    services: tuple[str, ...]
    zones: int


@dataclass(frozen=True)
class Plan:
    """All computed numbers of one environment."""

    environment: str
    region: str
    prices: date
    """The date of the price table."""
    streams: Mapping[str, StreamPlan]
    clusters: Mapping[str, ClusterPlan]
    jobs: Mapping[str, JobPlan]
    network: NetworkPlan
    alarms: tuple[Alarm, ...]
    shared: tuple[CostItem, ...]
    """What no stream or job owns alone: keys, endpoints or NAT, alarms, the history server."""
    warnings: tuple[str, ...] = ()
