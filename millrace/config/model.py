"""Model of an environment file: streams, Kafka clusters, jobs and everything around them.

Every model is frozen and refuses unknown keys. Checks that need more than one
section (such as a job that reads an undeclared stream) are in
:mod:`millrace.config.checks.run_environment_checks`, so that one load can report all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PrivateAttr

from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.config.aws.regions import REGION, TWO_ZONES
from millrace.config.base import Model, Slug, TableName, grouped
from millrace.config.document.locations import Locations
from millrace.config.engines import Job
from millrace.config.engines.emr import EmrJob, EmrWorker
from millrace.config.engines.glue import GlueJob
from millrace.config.kafka.clusters import ExternalCluster, KafkaCluster, MskCluster
from millrace.config.network_storage_governance_observability import (
    ExistingTable,
    Governance,
    HistoryServer,
    Network,
    Observability,
    Storage,
)
from millrace.config.processing_rate import Rate
from millrace.config.queries import LandingQueries, LandQuery, Query, RouteQuery
from millrace.config.sinks import Sink
from millrace.config.sources import Stream
from millrace.config.sources.base import Basis, Traffic
from millrace.config.sources.kafka import KafkaTopic
from millrace.config.sources.kinesis import KinesisStream

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


class Environment(Model):
    """Everything that is deployed into one account and region."""

    # The key of caches: callers ask again at once for the same object, which never changes. Without them, time would grow with the
    # square of the environment.
    __hash__ = object.__hash__

    name: Slug = Field(description="Name of the file without its suffix; it is not a key of the file.")
    project: Slug = Field(
        description="Name of the project; every deployed name contains it and the name of the environment."
    )
    account: str | None = Field(
        default=None,
        pattern=r"^[0-9]{12}$",
        description="AWS account of the environment; left out, the account of the credentials. `000000000000` is "
        "LocalStack.",
    )
    region: str = Field(
        default="us-east-1",
        pattern=REGION,
        description="AWS region of all resources.",
    )
    removal: Literal["retain", "destroy"] = Field(
        default="retain",
        description="`destroy` lets `cdk destroy` delete the data that is marked as disposable.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tags of all resources, in addition to `millrace:*`, for example for cost allocation.",
    )
    network: Network = Field(default=Network(), description="VPC of the jobs: a new or an existing one.")
    storage: Storage = Field(
        default=Storage(), description="Buckets, keys, database, retention and table maintenance."
    )
    governance: Governance = Field(
        default=Governance(),
        description="Rules of your company: permissions boundary, role path, name prefix, bootstrap.",
    )
    observability: Observability = Field(
        default=Observability(), description="Alarms and their recipients, and Prometheus."
    )
    history: HistoryServer | None = Field(default=None, description="Deploys Spark's history server.")
    partition_buffer: float = Field(
        default=0.0,
        ge=0,
        le=2,
        description="Spare shards and partitions as a share of the computed ones, with a core for each.",
    )
    kafka: dict[Slug, KafkaCluster] = Field(
        default_factory=dict, description="Kafka clusters, by the name that streams use."
    )
    streams: dict[Slug, Stream] = Field(
        min_length=1, description="Sources, by name: Kinesis streams and Kafka topics."
    )
    tables: dict[TableName, ExistingTable] = Field(
        default_factory=dict, description="Existing reference tables, by the name that jobs use."
    )
    jobs: dict[Slug, Job] = Field(
        min_length=1, description="Jobs by name: each is an application that runs its queries on one engine."
    )
    _places: Locations = PrivateAttr(default=Locations())
    _deployed: DeployedSizes = PrivateAttr(default=DeployedSizes())

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Sinks of all queries, in the file's order."""
        return tuple(sink for job in self.jobs.values() for sink in job.sinks)

    @property
    def queries(self) -> Iterator[tuple[str, str, Query]]:
        """Job, name and settings of each query, in the file's order."""
        return ((job, name, query) for job, own in self.jobs.items() for name, query in own.queries.items())

    @property
    def table_writers(self) -> dict[str, list[str]]:
        """Jobs of the queries that write each table, by table in the file's order; a job once for each query."""
        return grouped(
            (table, job) for job, _, query in self.queries for table in query.created_tables_by_place.values()
        )

    def maintained_tables(self, job: str) -> tuple[str, ...]:
        """Return the tables that a job maintains: those that it writes and no earlier job in the file writes."""
        return tuple(table for table, (first, *_) in self.table_writers.items() if first == job)

    def readers_of_table(self, table: str) -> Iterator[tuple[str, str]]:
        """Yield job and name of each query that derives from a table."""
        return (
            (job, name) for job, name, query in self.queries if table in dict(query.source_tables_and_routes)
        )

    @property
    def landing_queries(self) -> LandingQueries:
        """Queries that land each table, in the file's order."""
        return grouped(
            (query.table, (job, name, query))
            for job, name, query in self.queries
            if isinstance(query, LandQuery | RouteQuery)
        )

    @property
    def created_clusters(self) -> dict[str, MskCluster]:
        """MSK clusters that the environment makes, by logical name."""
        owned = {name: each for name, each in self.kafka.items() if isinstance(each, MskCluster)}
        return {name: each for name, each in owned.items() if each.existing is None}

    @property
    def value_locations(self) -> Locations:
        """File and line of each value; empty for an environment that a program built."""
        return self._places

    @property
    def deployed_sizes(self) -> DeployedSizes:
        """Sizes of what exists of it; none unless somebody looked (:meth:`with_deployed_sizes`)."""
        return self._deployed

    def with_deployed_sizes(self, sizes: DeployedSizes) -> Environment:
        """Return the environment with what exists of it: a plan keeps each size that suffices."""
        other = self.model_copy()
        other._deployed = sizes
        return other

    @property
    def zone_count(self) -> int:
        """Availability Zones of its network: as given, as deployed, else two or three by its region."""
        network = self.network
        if network.vpc is not None:
            return len(network.subnets)
        number = network.availability_zones or len(network.zone_ids) or self.deployed_sizes.zones
        return number or (2 if self.region in TWO_ZONES else 3)
