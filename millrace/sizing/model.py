"""What a plan holds: immutable figures, each with the reason for its value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Generic, Literal, TypeVar

from millrace.config.engines import KINDS

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
    unconfirmed: bool = False
    """Whether nobody has read its price on a page of AWS."""


@dataclass(frozen=True)
class StreamPlan:
    """A stream's size. ``partitions`` are shards for Kinesis; ``None`` for on-demand streams."""

    name: str
    kind: str
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
    cores: Figure[int]
    """Of its job's."""
    batch_seconds: Figure[float]
    """How long a batch takes that holds what arrives at the peak between two triggers."""
    catch_up_seconds: Figure[float] | None
    """Until nothing waits after an outage, at the peak all the time; ``None`` for derive queries."""


@dataclass(frozen=True)
class ScalingPlan:
    """Between which numbers a job's executors move; what an engine lets nobody set is ``None``."""

    min_executors: Figure[int]
    initial_executors: Figure[int]
    allocation_ratio: Figure[float] | None
    idle_timeout_seconds: Figure[int] | None
    shuffle_timeout_seconds: Figure[int] | None


@dataclass(frozen=True)
class Choice:
    """One way to run a job: an engine, its workers, how many, and what they cost.

    Attributes
    ----------
    engine, worker, architecture
        Of it; Glue has one architecture.
    vcpu, memory_gib
        Of one worker.
    executors
        For the job's cores; the driver is one more.
    usd
        A month, all workers running.
    memory_needed_gib
        Of one executor.
    refused
        Why it cannot be, or ``None``.
    unproven
        Why its speed is not known, or ``None`` where the job's rate was measured on its like.
    release
        The engine with its version, where that is another one than the file's.
    unconfirmed
        Prices that it rests on and nobody confirmed, where it is of another version.
    """

    engine: str
    worker: str
    architecture: str
    vcpu: int
    memory_gib: float
    executors: int
    usd: float
    memory_needed_gib: float
    refused: str | None = None
    unproven: str | None = None
    release: str | None = None
    unconfirmed: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        """Executors and the driver."""
        return self.executors + 1

    @property
    def place(self) -> str:
        """The engine, and the architecture where it has several."""
        kind = KINDS[self.engine]
        engine = self.release or kind.title
        return f"{engine} {self.architecture}" if kind.by_architecture else engine

    def __str__(self) -> str:
        return f"{self.place}, {self.workers} of {self.worker}"


@dataclass(frozen=True)
class JobPlan:
    """One job's size on its engine."""

    name: str
    engine: str
    version: str
    worker: str
    cores: Figure[int]
    executors: Figure[int]
    max_workers: Figure[int]
    """Executors and the driver."""
    queries: Mapping[str, QueryPlan]
    cost: tuple[CostItem, ...]
    architecture: str
    vcpu: int
    memory_gib: int
    disk_gib: int
    """Of one worker, as its engine has it; a Glue worker's disk comes with its type."""
    memory: Figure[float]
    """GiB that one executor needs."""
    scaling: ScalingPlan
    worker_usd_hour: float
    choices: tuple[Choice, ...]
    """This plan first, then all others that would do, the cheapest first, then those that would not."""
    cheaper_version: Choice | None = None
    """The same workers on a later version of the engine, where that costs less."""
    advice: tuple[str, ...] = ()
    expected_usd: Figure[float] | None = None
    """A month's workers under the stated traffic, where that was played (:mod:`millrace.sizing.simulation.expected_cost`)."""
    late_at_rise: Mapping[str, float] = field(default_factory=dict)
    """Share of records in time, by query, when a peak finds the workers of the average, and not with all of them; played too."""

    @property
    def runner_up(self) -> Choice | None:
        """The cheapest other way that would do."""
        return next((each for each in self.choices[1:] if each.refused is None), None)


RUNBOOK = "docs/runbook.md"
"""Says of each alarm, by its kind, what it means and what to type."""

Missing = Literal["missing", "notBreaching"]


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
        What a period without data counts as. Where it is ``missing``, silence is what people are called for: the alarm's state
        becomes ``INSUFFICIENT_DATA``.
    why
        One line for whoever is called.
    """

    name: str
    subject: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: Literal["Maximum", "Sum", "Average", "SampleCount"]
    threshold: float
    above: bool
    period: int
    periods: int
    of: int
    missing: Missing
    why: str

    @property
    def of_job(self) -> bool:
        """Whether it watches a job."""
        return self.subject.startswith("job/")

    @property
    def silence(self) -> bool:
        """Whether it goes off when nothing is reported."""
        return self.missing == "missing"

    @property
    def kind(self) -> str:
        """Its heading in ``docs/runbook.md``: what is to be done does not depend on where it went off."""
        parts = self.name.split("/")
        return re.sub(r"-\d+$", "", parts[2] if parts[0] == "stream" else parts[-1])


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
    prices_of: str
    """Whose prices they are: another region's, where this one has no table."""
    streams: Mapping[str, StreamPlan]
    clusters: Mapping[str, ClusterPlan]
    jobs: Mapping[str, JobPlan]
    network: NetworkPlan
    alarms: tuple[Alarm, ...]
    shared: tuple[CostItem, ...]
    """What no stream or job owns alone: keys, endpoints or NAT, alarms, the history server."""
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """What concerns several jobs; the jobs have their own."""
    left_out: tuple[str, ...] = ()
    """What costs money and is on no line of the bill, as no rate of it is known."""
