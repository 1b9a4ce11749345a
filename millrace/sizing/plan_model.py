"""Contents of a plan: immutable figures, each with the reason for its value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Generic, Literal, TypeVar

from millrace.config.document.problems import Path
from millrace.config.engines import KINDS

T = TypeVar("T", int, float, str)

Origin = Literal["computed", "pinned"]


@dataclass(frozen=True)
class FigureInput:
    """A value that a figure was computed from.

    Attributes
    ----------
    name
        Its symbol or key.
    value
        With its unit.
    how
        Its formula or reason; empty if it was only read.
    origin
        A benchmark, the price table, the limits; empty for a value of the environment file alone.
    path
        Key of the environment file that gives it, or whose default it is.
    inputs
        What it was computed from itself.
    """

    name: str
    value: str
    how: str = ""
    origin: str = ""
    path: Path = ()
    inputs: tuple[FigureInput | str, ...] = ()


Inputs = tuple[FigureInput | str, ...]
"""Inputs of a number; one that is a number of the plan itself is given by its key, such as ``jobs.flights.cores``."""


@dataclass(frozen=True)
class Figure(Generic[T]):
    """One number of the plan and its reason.

    Attributes
    ----------
    value
        The number (or the name, for a worker type).
    unit
        Such as ``shards``, ``records``, ``s``, ``USD/month``.
    why
        One line with the inputs, such as ``"8 executors of 4 cores, and the driver"``.
    origin
        ``pinned`` if the environment file gives it.
    assumed
        Whether any of its inputs was not measured.
    formula
        In words and symbols; empty if ``why`` says it all.
    inputs
        Returns what it was computed from; called only to show it, because a search for a plan makes many figures.
    """

    value: T
    unit: str
    why: str
    origin: Origin = "computed"
    assumed: bool = False
    formula: str = ""
    inputs: Callable[[], Inputs] = field(default=tuple, repr=False, compare=False)


def pinned_figure(value: T, unit: str, why: str, path: Path) -> Figure[T]:
    """Return a figure that the environment file gives at a path."""
    return Figure(
        value, unit, why, "pinned", inputs=lambda: (FigureInput(str(path[-1]), str(value), path=path),)
    )


@dataclass(frozen=True)
class CostItem:
    """One line of a monthly bill, in USD for 730 hours."""

    name: str
    usd: float
    why: str
    assumed: bool = False
    unconfirmed: bool = False
    """True if nobody has compared its price with a page of AWS."""
    inputs: Callable[[], Inputs] = field(default=tuple, repr=False, compare=False)
    """As those of a :class:`Figure`."""


@dataclass(frozen=True)
class StreamPlan:
    """A stream's size. ``partitions`` are shards for Kinesis; ``None`` for on-demand streams."""

    name: str
    kind: str
    mode: str
    partitions: Figure[int] | None
    expected_partitions: Figure[int]
    """Partitions that readers find: the planned ones, or those that AWS opens for an on-demand stream's rate."""
    cost: tuple[CostItem, ...]


@dataclass(frozen=True)
class ClusterPlan:
    """An MSK cluster's size; ``None`` if the tier has no such number (serverless)."""

    name: str
    tier: str
    brokers: Figure[int] | None
    broker_type: Figure[str] | None
    storage_gib_per_broker: Figure[int] | None
    cost: tuple[CostItem, ...]
    volume_mib: int | None = None
    """MiB/s of throughput that each volume is provisioned with; ``None`` for the default."""


@dataclass(frozen=True)
class QueryPlan:
    """One query's limits."""

    name: str
    trigger_seconds: Figure[float]
    latency_seconds: Figure[float]
    """Largest age of a record at this query's commit; threshold of the alarm on record age."""
    records_per_batch: Figure[int] | None
    """``None`` for derive queries, which read complete snapshots of their landing table."""
    records_per_partition: Figure[int] | None
    """The batch limit divided by the source's partitions, for Kinesis."""
    repartition: Figure[int] | None
    """Set when the source has fewer partitions than the job has cores."""
    cores: Figure[int]
    """The query's part of its job's cores."""
    batch_seconds: Figure[float]
    """Duration of a batch with the records that arrive at the peak between two triggers."""
    catch_up_seconds: Figure[float] | None
    """Seconds until the backlog of an outage is gone, at a constant peak; ``None`` for derive queries."""


@dataclass(frozen=True)
class ScalingPlan:
    """Range of a job's executors; a value that the engine does not let one set is ``None``.

    Attributes
    ----------
    fixed
        Whether all of them run all the time: ``scaling: fixed``, or new ones would come too late for a peak.
    """

    min_executors: Figure[int]
    initial_executors: Figure[int]
    allocation_ratio: Figure[float] | None
    idle_timeout_seconds: Figure[int] | None
    shuffle_timeout_seconds: Figure[int] | None
    fixed: bool = False


@dataclass(frozen=True)
class RunPlan:
    """Runs of a job that runs in turns.

    Attributes
    ----------
    every_seconds
        Time from the start of one run to the start of the next.
    start_seconds
        Slowest start, until the first batch.
    seconds
        Billed time of a run at the average rate; the mean of all runs of a month with this average.
    longest_seconds
        Time of a run at the peak.
    """

    every_seconds: Figure[int]
    start_seconds: Figure[float]
    seconds: Figure[float]
    longest_seconds: Figure[float]

    @property
    def billed_share(self) -> float:
        """Share of the time in which workers are billed."""
        return min(1.0, self.seconds.value / self.every_seconds.value)


@dataclass(frozen=True)
class WorkerChoice:
    """One way to run a job: an engine, its workers, their number and cost.

    Attributes
    ----------
    engine, worker, architecture
        Names of them; Glue has one architecture.
    vcpu, memory_gib
        Size of one worker.
    executors
        Number for the job's cores; the driver is an additional worker.
    usd
        Cost a month, with all workers running.
    memory_needed_gib
        Memory that one executor needs.
    refused
        Reason why it is not possible, or ``None``.
    unproven
        Reason why its speed is unknown, or ``None`` if the job's rate was measured on such workers.
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

    @property
    def workers(self) -> int:
        """Executors and the driver."""
        return self.executors + 1

    @property
    def engine_name(self) -> str:
        """The engine, with the architecture if it has several."""
        kind = KINDS[self.engine]
        return f"{kind.title} {self.architecture}" if kind.by_architecture else kind.title

    def __str__(self) -> str:
        return f"{self.engine_name}, {self.workers} of {self.worker}"


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
    """Disk of one worker; Glue's depends on the worker type."""
    memory: Figure[float]
    """Memory that one executor needs, in GiB."""
    scaling: ScalingPlan
    network: Figure[str]
    """``vpc``, or ``none``: it reaches AWS by public endpoints."""
    worker_usd_hour: float
    choices: Callable[[], tuple[WorkerChoice, ...]] = field(repr=False, compare=False)
    """Returns the plan's choice, then all others that are possible, cheapest first, then those that are not."""
    run: RunPlan | None = None
    """Its bounded runs; ``None`` for a job that runs all the time."""
    advice: tuple[str, ...] = ()
    expected_usd: Figure[float] | None = None
    """Cost of a month's workers under the stated traffic, if simulated (:mod:`millrace.sizing.simulation.expected_cost`)."""
    late_at_rise: Mapping[str, float] = field(default_factory=dict)
    """Share of records in time, by query that only all workers keep in time when traffic rises to its peak; simulated, too."""

    @property
    def scheduled_starts_per_hour(self) -> int:
        """Starts in an hour by its schedule; 0 for a job that runs all the time."""
        return 0 if self.run is None else math.ceil(3600 / self.run.every_seconds.value)


RUNBOOK = "docs/runbook.md"
"""Document with the meaning of each kind of alarm, and the commands to run."""

Missing = Literal["missing", "notBreaching"]


@dataclass(frozen=True)
class Alarm:
    """One CloudWatch alarm.

    Attributes
    ----------
    name
        Its name without the environment's prefix, such as ``job/flights/land-flights/record-age``.
    subject
        Subject that it watches: ``job/NAME``, ``stream/NAME`` or ``cluster/NAME``.
    namespace, metric, dimensions, statistic
        Metric that it watches.
    threshold
        In the metric's unit.
    above
        Goes off above the threshold; otherwise below it.
    period
        Seconds.
    periods, of
        Goes off when ``periods`` of the last ``of`` periods are beyond the threshold.
    missing
        Treatment of a period without data. With ``missing``, the absence of data itself notifies people: the alarm's state
        becomes ``INSUFFICIENT_DATA``.
    why
        One line for the person who is notified.
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
    def watches_job(self) -> bool:
        """True if it watches a job."""
        return self.subject.startswith("job/")

    @property
    def goes_off_in_silence(self) -> bool:
        """True if it goes off when nothing is reported."""
        return self.missing == "missing"

    @property
    def runbook_heading(self) -> str:
        """Its heading in ``docs/runbook.md``; the steps do not depend on the job, stream or cluster."""
        parts = self.name.split("/")
        return re.sub(r"-\d+$", "", parts[2] if parts[0] == "stream" else parts[-1])


@dataclass(frozen=True)
class NetworkPlan:
    """Network path from jobs to AWS.

    Attributes
    ----------
    egress
        ``endpoints``, ``nat``, ``existing`` for an existing VPC, or ``none`` without a VPC.
    services
        Endpoint names of all services that are called, except S3, which has a gateway.
    zones
        Number of zones with endpoints or gateways; 0 for an existing VPC or none.
    """

    egress: Figure[str]
    services: tuple[str, ...]
    zones: int


@dataclass(frozen=True)
class Plan:
    """All computed numbers of one environment."""

    __hash__ = object.__hash__  # as that of an environment

    environment: str
    region: str
    prices: date
    """Date of the price table."""
    prices_of: str
    """Region of the price table; another region's, if this one has no table."""
    streams: Mapping[str, StreamPlan]
    clusters: Mapping[str, ClusterPlan]
    jobs: Mapping[str, JobPlan]
    network: NetworkPlan
    alarms: tuple[Alarm, ...]
    shared: tuple[CostItem, ...]
    """Cost of shared parts: keys, endpoints or NAT, alarms, the history server."""
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """Advice on several jobs; each job has its own."""
    left_out: tuple[str, ...] = ()
    """Costs that are not in the bill, because their rate is unknown."""

    @cached_property
    def cost_items_by_key(self) -> Mapping[str, tuple[CostItem, ...]]:
        """Lines of the bill by key, such as ``jobs.flights``; the key ``shared`` has those of no single member."""
        members: dict[str, Mapping[str, StreamPlan | ClusterPlan | JobPlan]] = {
            "streams": self.streams,
            "clusters": self.clusters,
            "jobs": self.jobs,
        }
        found = {
            f"{section}.{name}": each.cost for section, of in members.items() for name, each in of.items()
        }
        return found | {"shared": self.shared}
