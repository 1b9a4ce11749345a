"""What an environment file may say: streams, Kafka clusters, jobs and where they live.

Every model is frozen and refuses unknown keys. Checks that need more than one
section (a job that reads a stream which nobody declared) stand in
:mod:`millrace.config.checks`, so that one load can report all of them at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from millrace.config.base import Model, RoleArn, Slug, TableName
from millrace.config.estate import (
    ExistingTable,
    Governance,
    HistoryServer,
    Network,
    Observability,
    Storage,
)
from millrace.config.places import Places
from millrace.config.queries import Query, written
from millrace.config.sinks import Sink
from millrace.config.streams import (
    Basis,
    ExternalCluster,
    KafkaCluster,
    KafkaTopic,
    KinesisStream,
    MskCluster,
    Stream,
    Traffic,
)
from millrace.config.units import Duration, Size

__all__ = [
    "Basis",
    "EmrJob",
    "EmrWorker",
    "Environment",
    "ExternalCluster",
    "GlueJob",
    "Job",
    "KafkaCluster",
    "KafkaTopic",
    "KinesisStream",
    "MskCluster",
    "Rate",
    "Stream",
    "Traffic",
]


class Rate(Model):
    """How fast a job is: what the benchmark found, or a guess that says so."""

    records_per_second_per_core: float | None = Field(
        default=None, ge=0.01, le=1e9, description="1/b of the sizing model; left out with `result`."
    )
    batch_overhead: Duration = Field(
        default=timedelta(seconds=2), description="a of the sizing model: the fixed cost of a batch."
    )
    basis: Basis = "assumed"
    result: str | None = Field(
        default=None,
        description="Result file of a benchmark, from the project's root: it gives both in place of the keys above.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Rate:
        if self.result is None and self.records_per_second_per_core is None:
            raise ValueError("records_per_second_per_core, or a benchmark's result")
        given = self.model_fields_set - {"result"}
        if self.result is not None and given:
            raise ValueError(f"result alone: the file gives {', '.join(sorted(given))}")
        return self


class CatchUp(Model):
    """How soon a job must be up to date again after it was away."""

    outage: Duration = Field(description="R of the sizing model: how long the job was away.")
    within: Duration = Field(
        description="C: from its start until nothing waits, at the peak rate all the time."
    )


class MemoryNeeds(Model):
    """What a job keeps in memory beside its batches, where somebody knows it."""

    tables: Size | None = Field(
        default=None, description="Tables that are joined, all together, as each executor holds them."
    )
    state: Size | None = Field(
        default=None, description="State of all queries together: windows, keys, joined streams."
    )


class JobBase(Model):
    """What jobs of both engines share."""

    queries: dict[Slug, Query] = Field(min_length=1)
    latency: Duration = Field(default=timedelta(seconds=60), description="SLA from arrival to commit.")
    rate: Rate
    goal: Literal["latency", "throughput"] = Field(
        default="latency",
        description="`throughput` takes the batches that waste least, whatever the SLA, and cores with `buffer`.",
    )
    buffer: float = Field(
        default=0.2, ge=0, le=4, description="With goal throughput: spare capacity as a share of the peak."
    )
    catch_up: CatchUp | None = Field(
        default=None,
        description="Cores for catching up after an outage; left out, the plan shows how long it takes.",
    )
    memory: MemoryNeeds = MemoryNeeds()
    cores: int | None = Field(
        default=None, ge=1, description="Pins the executor cores; left out, the plan computes them."
    )
    max_workers: int | None = Field(
        default=None, ge=2, description="Pins the number of workers, driver included."
    )
    role: RoleArn | None = Field(
        default=None, description="An existing role for the job; left out, one is made that allows its needs."
    )
    restarts_per_hour: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Starts in an hour after which a job that keeps ending stays ended.",
    )
    batch_retries: int = Field(
        default=3,
        ge=0,
        le=10,
        description="Failures in a row of one query, each with a longer wait, before its job fails.",
    )
    spark: dict[str, str] = Field(
        default_factory=dict, description="Extra Spark settings; those that Millrace owns are refused."
    )

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """What its queries write, in their order."""
        return tuple(end.sink for query in self.queries.values() for end in written(query).values())


class GlueJob(JobBase):
    """A Glue streaming job."""

    engine: Literal["glue"]
    version: Literal["5.1", "6.0"] = "5.1"
    worker: str = Field(
        default="G.1X", description="Worker type, such as G.025X, G.1X, G.2X; left out, the plan chooses."
    )
    maintenance_window: str = Field(
        default="Sun:5", pattern=r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):([01]?\d|2[0-3])$"
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Runs that Glue starts by itself after a failed one; without any, `restarts_per_hour` "
        "alone limits and counts them.",
    )
    timeout: Duration | None = Field(
        default=None,
        description="Ends a run after this time, below 7 days; left out, it runs on and on.",
    )


class EmrWorker(Model):
    """Size of an EMR Serverless worker."""

    vcpu: int = 4
    memory: Size = Field(default="16GiB")  # type: ignore[assignment]  # pydantic parses the default (validate_default)
    disk: Size = Field(default="20GiB")  # type: ignore[assignment]  # as above


class EmrJob(JobBase):
    """An EMR Serverless streaming job on an application of its own."""

    engine: Literal["emr"]
    version: Literal["emr-7.13.0", "emr-spark-8.0.0"] = "emr-7.13.0"
    worker: EmrWorker = Field(default=EmrWorker(), description="Left out, the plan chooses.")
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    image: str | None = Field(
        default=None,
        pattern=r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9._/-]+(:[\w.-]+|@sha256:[0-9a-f]{64})$",
        description="An image in Amazon ECR that is built on the release's own and serves driver and executors; its repository "
        "lets EMR Serverless pull it. Left out, AWS's own.",
    )
    python: str = Field(
        default="/usr/bin/python3.11",
        pattern=r"^/[\w./+-]+$",
        description="Interpreter in the image, Python 3.11 or later: it is always named, as the default of AWS's own images is "
        "older.",
    )
    retries_per_hour: int = Field(
        default=5, ge=1, le=10, description="Attempts of a job run in an hour; 1 is no retry."
    )
    min_executors: int | None = Field(
        default=None,
        ge=1,
        description="Executors that stay when there is little to do; left out, those that carry the average.",
    )
    initial_executors: int | None = Field(
        default=None, ge=1, description="Executors at a start; left out, all: a start finds a backlog."
    )
    idle_stop: Duration = Field(
        default=timedelta(minutes=15), description="An application without a run stops after this time."
    )


Job = Annotated[GlueJob | EmrJob, Field(discriminator="engine")]


class Environment(Model):
    """All that one account and region holds."""

    name: Slug = Field(description="The file's name; never written in the file.")
    project: Slug
    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    region: str = Field(default="us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    removal: Literal["retain", "destroy"] = Field(
        default="retain",
        description="`destroy` lets `cdk destroy` delete data that is also marked disposable.",
    )
    tags: dict[str, str] = Field(default_factory=dict)
    network: Network = Network()
    storage: Storage = Storage()
    governance: Governance = Governance()
    observability: Observability = Observability()
    history: HistoryServer | None = Field(default=None, description="Deploys Spark's history server.")
    partition_buffer: float = Field(
        default=0.0, ge=0, le=2, description="Spare partitions as a share of those computed."
    )
    kafka: dict[Slug, KafkaCluster] = Field(default_factory=dict)
    streams: dict[Slug, Stream] = Field(min_length=1)
    tables: dict[TableName, ExistingTable] = Field(
        default_factory=dict, description="Reference tables that somebody else owns, by the name jobs use."
    )
    jobs: dict[Slug, Job] = Field(min_length=1)
    _places: Places = PrivateAttr(default=Places())

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """What all queries write, in the file's order."""
        return tuple(sink for job in self.jobs.values() for sink in job.sinks)

    @property
    def places(self) -> Places:
        """Where each value was written; empty for an environment that a program built."""
        return self._places
