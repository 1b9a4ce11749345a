"""What an environment file may say: streams, Kafka clusters, jobs and where they live.

Every model is frozen and refuses unknown keys. Checks that need more than one
section (a job that reads a stream which nobody declared) stand in
:mod:`millrace.config.checks`, so that one load can report all of them at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from millrace.config.places import Places
from millrace.config.units import Duration, Size

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$")]
"""A logical name: lower case, digits and hyphens, so that every AWS name derived from it is legal."""

TableName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,126}$")]
"""A table's name inside the environment's database."""

TransformName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_]\w*$")]
"""``package.module:function``, importable from the repository's root."""

Basis = Literal["assumed", "measured"]
"""Whether somebody measured a figure, or it is a guess that every number after it must show."""


class Model(BaseModel):
    """Base of every section: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


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
    fan_out_consumers: tuple[Slug, ...] = Field(
        default=(), description="Registered enhanced fan-out consumers, at most 20."
    )
    shard_level_metrics: bool = False
    max_record_size: Size | None = Field(
        default=None, description="Largest record, up to 10MiB; left out, 1 MiB."
    )
    existing: str | None = Field(
        default=None, description="Name of a stream that somebody else owns: read, never changed."
    )


class KafkaTopic(Model):
    """A Kafka topic on one of the environment's clusters."""

    kind: Literal["kafka"]
    cluster: Slug
    traffic: Traffic
    topic: str | None = Field(
        default=None, pattern=r"^[a-zA-Z0-9._-]{1,249}$", description="Left out, the stream's own name."
    )
    partitions: int | None = Field(
        default=None, ge=1, description="Pins the partition count; left out, the plan computes it."
    )
    retention: Duration = timedelta(days=7)
    compression: Literal["producer", "zstd", "lz4", "snappy", "gzip", "uncompressed"] = "producer"
    existing: bool = Field(
        default=False, description="The topic belongs to somebody else: read, never changed."
    )


Stream = Annotated[KinesisStream | KafkaTopic, Field(discriminator="kind")]


class MskCluster(Model):
    """An MSK cluster that this environment owns."""

    kind: Literal["msk"]
    tier: Literal["standard", "express", "serverless"] = "standard"
    version: str = Field(default="3.9.x", description="Kafka version: 3.8.x, 3.9.x, 4.0.x or 4.1.x.")
    broker_type: str | None = Field(
        default=None, description="Such as kafka.m7g.large; left out, the plan chooses."
    )
    brokers: int | None = Field(
        default=None, ge=2, description="Pins the number of brokers; left out, the plan computes it."
    )


class ExternalCluster(Model):
    """A Kafka cluster that somebody else runs."""

    kind: Literal["external"]
    bootstrap_servers: str = Field(min_length=3, description="host:port, comma separated.")
    authentication: Literal["iam", "tls", "none"] = "tls"


KafkaCluster = Annotated[MskCluster | ExternalCluster, Field(discriminator="kind")]


class Network(Model):
    """Where jobs run."""

    vpc: str | None = Field(
        default=None, pattern=r"^vpc-[0-9a-f]{8,17}$", description="An existing VPC; left out, one is made."
    )
    subnets: tuple[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$")], ...] = ()
    cidr: str = "10.42.0.0/16"
    availability_zones: int = Field(default=3, ge=2, le=3, description="MSK Express wants three.")


class Rate(Model):
    """How fast a job is: what the benchmark found, or a guess that says so."""

    records_per_second_per_core: float = Field(ge=0.01, le=1e9, description="1/b of the sizing model.")
    batch_overhead: Duration = Field(
        default=timedelta(seconds=2), description="a of the sizing model: the fixed cost of a batch."
    )
    basis: Basis = "assumed"


class Enrichment(Model):
    """A broadcast join against a reference table."""

    table: TableName
    on: dict[str, str] = Field(min_length=1, description="Column of the stream: column of the table.")
    columns: dict[str, str] = Field(min_length=1, description="New column: column of the table.")
    refresh: Duration = Field(default=timedelta(hours=1), description="How often the table is read again.")


class IcebergSink(Model):
    """An Iceberg table, written once per record identity."""

    kind: Literal["iceberg"]
    table: TableName


class LandQuery(Model):
    """Writes every record, good or bad, to an append-only landing table."""

    kind: Literal["land"]
    source: Slug = Field(description="A stream of this environment.")
    table: TableName
    format: Literal["json"] = "json"
    schema_: str = Field(
        alias="schema", description="DDL file below pipelines/, such as pipelines/flights/schemas/flight.ddl."
    )
    start: Literal["earliest", "latest"] = "earliest"
    trigger: Duration | None = Field(
        default=None, description="Pins the trigger; left out, the plan computes it."
    )
    records_per_batch: int | None = Field(
        default=None, ge=1, description="Pins the limit; left out, the plan computes it."
    )


class DeriveQuery(Model):
    """Reads the good records of a landing table, transforms them and writes a sink."""

    kind: Literal["derive"]
    source: TableName = Field(description="The table of a land query.")
    enrich: tuple[Enrichment, ...] = ()
    transform: TransformName | None = None
    sink: IcebergSink
    trigger: Duration | None = Field(
        default=None, description="Pins the trigger; left out, the plan computes it."
    )


Query = Annotated[LandQuery | DeriveQuery, Field(discriminator="kind")]


class JobBase(Model):
    """What jobs of both engines share."""

    queries: dict[Slug, Query] = Field(min_length=1)
    latency: Duration = Field(default=timedelta(seconds=60), description="SLA from arrival to commit.")
    rate: Rate
    cores: int | None = Field(
        default=None, ge=1, description="Pins the executor cores; left out, the plan computes them."
    )
    max_workers: int | None = Field(
        default=None, ge=2, description="Pins the number of workers, driver included."
    )
    spark: dict[str, str] = Field(
        default_factory=dict, description="Extra Spark settings; those that Millrace owns are refused."
    )


class GlueJob(JobBase):
    """A Glue streaming job."""

    engine: Literal["glue"]
    version: Literal["4.0", "5.0", "5.1", "6.0"] = "5.1"
    worker: str = Field(default="G.1X", description="Worker type, such as G.025X, G.1X, G.2X.")
    maintenance_window: str = Field(
        default="Sun:5", pattern=r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):([01]?\d|2[0-3])$"
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
    worker: EmrWorker = EmrWorker()
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    retries_per_hour: int = Field(default=5, ge=1, le=10)


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
    partition_buffer: float = Field(
        default=0.0, ge=0, le=2, description="Spare partitions as a share of those computed."
    )
    kafka: dict[Slug, KafkaCluster] = Field(default_factory=dict)
    streams: dict[Slug, Stream] = Field(min_length=1)
    jobs: dict[Slug, Job] = Field(min_length=1)
    _places: Places = PrivateAttr(default=Places())

    @property
    def places(self) -> Places:
        """Where each value was written; empty for an environment that a program built."""
        return self._places
