"""Base of all engines: the keys of their jobs, and what checks, planning and deployment need from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from millrace.config.base import Model, RoleArn, Slug, remove_schema_default
from millrace.config.document.problems import Finding, Path
from millrace.config.engines.versions import SparkLine, spark_line_of, version_row
from millrace.config.formats import PayloadFormat
from millrace.config.processing_rate import Rate
from millrace.config.queries import Query
from millrace.config.sinks import Sink
from millrace.config.units import Duration, Size, format_duration

GIB = 1024**3


@dataclass(frozen=True)
class HourlyBillItem:
    """An item that AWS bills for each hour of a worker.

    Attributes
    ----------
    item
        Name of its line in the bill.
    units
        Units per hour.
    price
        Name of a unit's price, and the fallback if no table has it.
    why
        In words, with ``{count}`` workers and ``{hours}``.
    """

    item: str
    units: float
    price: tuple[str, str]
    why: str


class Worker(NamedTuple):
    """A worker that an engine offers.

    Attributes
    ----------
    tasks
        Number of tasks that run on it at once.
    own
        Whether the job's file allows it.
    hourly_bill_items
        Items that are billed for an hour of it.
    """

    name: str
    architecture: str
    vcpu: int
    memory_gib: float
    tasks: int
    own: bool
    hourly_bill_items: tuple[HourlyBillItem, ...]


class CatchUp(Model):
    """Time in which a job must catch up after an outage."""

    outage: Duration = Field(description="Length of the outage: R of the sizing model.")
    within: Duration = Field(
        ge=timedelta(seconds=1),
        description="Time from the start of the job until there is no backlog, at the peak rate: C of the sizing model.",
    )


class MemoryBesideBatches(Model):
    """Known memory that a job needs in addition to its batches."""

    tables: Size | None = Field(
        default=None, description="All joined tables together, as each executor holds them."
    )
    state: Size | None = Field(
        default=None, description="State of all queries together: windows, keys, joined streams."
    )


class JobBase(Model, ABC):
    """A job: the keys that all engines share, and the properties of its engine.

    Attributes
    ----------
    title
        The engine's name in messages.
    spark_version_by_engine_version
        Spark version by version of the engine.
    ships
        Groups of jars that the engine has on its class path.
    heap_share
        Name of the limit for the share of a worker's memory that is heap.
    scales_itself
        Whether the engine itself adds and removes executors; if not, Spark's dynamic allocation does.
    named
        Kind of resource that has the job's name and must be unique, in words; None if only its stack has the name.
    zones
        Availability Zones to which the engine is limited by its documents, by region. Other regions are unknown.
    by_architecture
        Whether jobs choose the architecture of their workers.
    english_tags
        Whether tags may have English letters only.
    remote_writes
        Whether its runs write to Prometheus from the VPC.
    carries_libraries
        Whether its Python may lack boto3, so that the job's archive brings it.
    describes_streams
        Whether its Kinesis connector calls DescribeStream, the older API.
    reads_aggregates
        Whether its Kinesis connector ends no batch inside an aggregate of the Kinesis Producer Library.
    log_group_endings
        Endings that it appends to the name of the job's log group, with ``{job}``.
    metric_namespaces
        Namespaces in which it writes metrics with the job's role.
    runs_without_vpc
        Whether its runs reach Kinesis, S3 and CloudWatch by AWS's public endpoints, without a VPC.
    bounded_bill_is_unproven
        Whether only an account can prove how bounded runs are billed (``docs/unproved.md``).
    """

    title: ClassVar[str]
    spark_version_by_engine_version: ClassVar[Mapping[str, str]]
    ships: ClassVar[frozenset[str]] = frozenset()
    heap_share: ClassVar[str]
    scales_itself: ClassVar[bool] = True
    named: ClassVar[str | None] = None
    zones: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    by_architecture: ClassVar[bool] = False
    english_tags: ClassVar[bool] = False
    remote_writes: ClassVar[bool] = False
    carries_libraries: ClassVar[bool] = False
    describes_streams: ClassVar[bool] = False
    reads_aggregates: ClassVar[bool] = True
    log_group_endings: ClassVar[tuple[str, ...]] = ()
    metric_namespaces: ClassVar[tuple[str, ...]] = ()
    runs_without_vpc: ClassVar[bool] = False
    bounded_bill_is_unproven: ClassVar[bool] = False

    engine: str
    version: str
    queries: dict[Slug, Query] = Field(
        min_length=1, description="Queries of the job by name; each has its own checkpoint."
    )
    renamed_from: Slug | None = Field(
        default=None,
        description="First name of a job that was renamed: it keeps the checkpoints of that name, and so its position and "
        "its tables. It stays in the file; `millrace deploy` removes the job with the old name.",
        examples=["flights"],
    )
    latency: Duration = Field(default=timedelta(seconds=60), description="SLA from arrival to commit.")
    run: Literal["continuous", "bounded", "auto"] | None = Field(
        default=None,
        description="`bounded` runs the job in turns: a run starts each period, processes what had arrived when it began, and ends. "
        "It costs less where the load is low. `continuous` runs it all the time. `auto` lets the plan take what costs less; a "
        "deployed job keeps its way. Left out, the job is bounded if it has `run_every`, else continuous.",
        examples=["auto"],
    )
    run_every: Duration | None = Field(
        default=None,
        description="Pins the period of bounded runs. Period, start and work together must fit into `latency`. Whole minutes, 5 "
        "minutes to a day; left out, the plan chooses it.",
        examples=["10m"],
    )
    rate: Rate | None = Field(
        default=None,
        description="Processing rate of the queries without their own `rate`; left out, the plan uses a cautious "
        "default for the payload's format. `millrace bench` measures the rate.",
        examples=[{"records_per_second_per_core": 5000}],
    )
    goal: Literal["latency", "throughput"] = Field(
        default="latency",
        description="`throughput` chooses batches with little fixed time, independent of the SLA, and adds "
        "`buffer` to the cores.",
    )
    buffer: float = Field(
        default=0.2, ge=0, le=4, description="For goal throughput: spare capacity as a share of the peak."
    )
    catch_up: CatchUp | None = Field(
        default=None,
        description="Adds the cores to catch up after an outage in this time; left out, ten minutes of outage are "
        "caught up within a day.",
    )
    memory: MemoryBesideBatches = Field(
        default=MemoryBesideBatches(),
        description="Memory that executors need in addition to their batches, if you know it; left out, the plan "
        "estimates it.",
    )
    cores: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Pins the executor cores; left out, the plan computes them.",
    )
    max_workers: int | None = Field(
        default=None, ge=2, le=100_000, description="Pins the number of workers, driver included."
    )
    scaling: Literal["auto", "fixed"] = Field(
        default="auto",
        description="`fixed` keeps all workers all the time: no auto scaling on Glue; on EMR Serverless the minimum of "
        "executors equals the maximum, and their capacity is initialized before a start. Left out, the plan does so where "
        "new workers would come too late for a peak.",
        examples=["fixed"],
        json_schema_extra=remove_schema_default,
    )
    role: RoleArn | None = Field(
        default=None,
        description="An existing role for the job; left out, a role with the needed permissions is created.",
    )
    restarts_per_hour: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Most starts in an hour; a job that ends again after that stays stopped.",
    )
    batch_retries: int = Field(
        default=3,
        ge=0,
        le=10,
        description="Failures in a row of one query that are retried, each after a longer wait; the next failure ends its job.",
    )
    spark: dict[str, str] = Field(
        default_factory=dict, description="Extra Spark settings; those that Millrace owns are refused."
    )

    @property
    def display_version(self) -> str:
        """The version as messages name it."""
        return self.version

    @classmethod
    def nearest_listed_version(cls, version: str) -> str:
        """Return a version as the kind lists it; for one that is newer than all listed, the newest before it in its series."""
        return version if version in cls.spark_version_by_engine_version else version_row(version).name

    @classmethod
    def spark_of_version(cls, version: str) -> str:
        """Return the Spark version of a version, such as 3.5.6."""
        return cls.spark_version_by_engine_version[cls.nearest_listed_version(version)]

    @property
    def spark_version(self) -> str:
        """Spark version, such as 3.5.6."""
        return self.spark_of_version(self.version)

    @property
    def spark_line(self) -> SparkLine:
        """Spark line, which decides which jars fit."""
        return spark_line_of(self.spark_version)

    @property
    def worker_is_given(self) -> bool:
        """True if the file gives the worker."""
        return "worker" in self.model_fields_set

    @property
    def has_sla(self) -> bool:
        """True if its size depends on ``latency``: without ``goal: throughput``, or in bounded runs."""
        return self.goal == "latency" or self.run_every is not None

    @property
    def sla_words(self) -> str:
        """Its SLA, as tables name it."""
        return f"SLA {format_duration(self.latency)}" if self.has_sla else "no SLA"

    @property
    def has_bounded_runs(self) -> bool:
        """True if the file asks for bounded runs."""
        return self.run == "bounded" or self.run_every is not None

    @property
    def processor_architecture(self) -> Literal["x86_64", "arm64"]:
        """Architecture of its workers."""
        return getattr(self, "architecture", "x86_64")

    @property
    def least_and_initial_executors(self) -> tuple[int | None, int | None]:
        """Least and initial number of executors, if the file gives them."""
        return getattr(self, "min_executors", None), getattr(self, "initial_executors", None)

    @property
    @abstractmethod
    def tasks_per_worker(self) -> int:
        """Number of tasks that run at once on one worker."""

    @property
    @abstractmethod
    def disk_gib(self) -> int:
        """Disk of one worker."""

    @property
    @abstractmethod
    def hourly_bill_items(self) -> tuple[HourlyBillItem, ...]:
        """Items that AWS bills for an hour of its worker."""

    @abstractmethod
    def check(self, path: Path) -> Iterable[Finding]:
        """Yield findings for values that the engine does not accept."""

    @classmethod
    @abstractmethod
    def possible_workers(cls, required: Job, needed: Callable[[int, float], float]) -> Iterator[Worker]:
        """Yield the workers on which a job could run, whatever its engine.

        Parameters
        ----------
        needed
            GiB that a worker must have, by the number of tasks that run on it at once and the most GiB that one may have.
        """

    @abstractmethod
    def with_worker(self, worker: Worker) -> Self:
        """Return the job on another worker of its engine."""

    @property
    def formats(self) -> tuple[PayloadFormat, ...]:
        """Payload formats that its queries decode, in their order."""
        return tuple(
            each.format for query in self.queries.values() for each in query.stream_readings_by_place.values()
        )

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Sinks that its queries write, in their order."""
        return tuple(end.sink for query in self.queries.values() for end in query.sinks_by_place.values())


Job = JobBase
