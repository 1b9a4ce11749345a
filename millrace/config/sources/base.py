"""What every kind of stream says of itself: its keys, and what checks and planning ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from millrace.config.base import Model
from millrace.config.grants import Grant
from millrace.config.problems import Finding
from millrace.config.sources.metrics import StreamAlarm, StreamMetrics, StreamReader
from millrace.config.units import Duration, Size

if TYPE_CHECKING:
    from millrace.config.model import Environment
    from millrace.config.names import Names
    from millrace.config.queries import SourceQuery

HOURS = 730
"""Of a month, as AWS bills."""

SECONDS = HOURS * 3600
GB = 10**9

Basis = Literal["assumed", "measured"]
"""Whether somebody measured a figure, or it is a guess that every number after it must show."""


class Traffic(Model):
    """What arrives on a stream."""

    records_per_second: float = Field(gt=0, le=1e8, description="Average arrival rate.")
    peak_factor: float = Field(
        default=1.0,
        ge=1,
        le=1000,
        description="Peak rate divided by average rate: 3.67 where 11,000 arrive at the peak and 3,000 on average.",
    )
    record_size: Size = Field(description="Mean size of a record, key and payload, such as 600B.")
    basis: Basis = Field(default="assumed", description="`measured` only when somebody did.")

    @property
    def monthly_gb(self) -> float:
        """What comes in, in GB of 10⁹ bytes a month, at the average rate."""
        return self.records_per_second * self.record_size * SECONDS / GB


@dataclass(frozen=True)
class StreamUse:
    """Where a file declares a stream.

    Attributes
    ----------
    name
        Of the stream in the file.
    environment
        Its valid parts.
    clusters
        Names of all Kafka clusters that the file declares, broken or not.
    """

    name: str
    environment: Environment
    clusters: frozenset[str]


@dataclass(frozen=True)
class StreamContext:
    """Where a query reads a stream, and how much of it in a batch.

    Attributes
    ----------
    names
        The deployed names.
    job, name, query
        The query's job, its name, and what the file says of it.
    trigger_seconds
        Of the query.
    records_per_batch
        Most of a batch that are the stream's.
    records_per_partition
        Most of a batch that are one partition's; None for a query that reads nothing with such a limit.
    handed_over_seconds
        In which a partition hands so many over, of its average size, to one reader; 0 where nothing bounds it.
    """

    names: Names
    job: str
    name: str
    query: SourceQuery
    trigger_seconds: float
    records_per_batch: int
    records_per_partition: int | None
    handed_over_seconds: float


@dataclass(frozen=True)
class JobReading:
    """A job that reads streams.

    Attributes
    ----------
    names
        The deployed names.
    job
        Its name.
    queries
        Those of its queries that read streams.
    """

    names: Names
    job: str
    queries: Mapping[str, SourceQuery]


@dataclass(frozen=True)
class PartitionLimit:
    """What one partition takes in, or hands out.

    Attributes
    ----------
    limit
        A second: the name of a number in ``millrace/sizing/limits.yaml``, or the number itself.
    of
        What of; what goes out is shared by all readers without a consumer of their own.
    """

    limit: str | float
    of: Literal["records in", "bytes in", "bytes out"]


@dataclass(frozen=True)
class Usage:
    """How a stream is used in a month.

    Attributes
    ----------
    partitions
        Shards that are paid for, and whether their number is assumed.
    readers
        Queries that read it without a consumer of their own.
    consumers
        Registered ones, of our own queries and of others.
    """

    partitions: int
    assumed: bool
    readers: int
    consumers: int


@dataclass(frozen=True)
class Charge:
    """A line of a stream's bill: ``quantity`` times a price of the price table, and why."""

    name: str
    quantity: float
    price: str
    why: str
    assumed: bool


class StreamConfig(Model, ABC):
    """A kind of stream.

    Attributes
    ----------
    title
        Its name in words.
    named_by
        Key of the file that gives it another name than the environment's.
    services
        Services that jobs call from the VPC to read it, by the names of their interface endpoints.
    repeats
        Whether a batch that is replayed holds the same records.
    fetched_whole
        Whether connectors hold all that a batch has of a partition before they give the first record out.
    fans_out
        Whether a query can have a consumer of its own.
    in_firehose
        Whether Amazon Data Firehose can read it.
    parts
        What it is divided into, in words; the key of the file that pins their number.
    limits
        Of one such part.
    refuses_fewer
        Whether it turns records away where there are fewer parts than the traffic needs.
    limits_parts
        Whether readers take so many records of each part, and not of all together.
    splits
        Whether several jobs can share its parts out.
    counted
        Whether it is known how many records wait unread.
    read_in_ways
        Whether a query may say more of how it reads it (:class:`millrace.config.kafka_reading.KafkaReading`).
    metrics
        What CloudWatch tells of it by itself.
    servers
        Class of :class:`millrace.sandbox.stream_servers.StreamServer`, for test traffic and samples; None where there is none.
    jars
        Groups of jars that EMR Serverless lacks, each with the reason in words.
    engine_jars
        By engine, jars that it ships without putting them on the class path.
    """

    title: ClassVar[str]
    named_by: ClassVar[str]
    services: ClassVar[tuple[str, ...]] = ()
    repeats: ClassVar[bool] = True
    fetched_whole: ClassVar[bool] = False
    fans_out: ClassVar[bool] = False
    in_firehose: ClassVar[bool] = False
    parts: ClassVar[str] = "partitions"
    limits: ClassVar[tuple[PartitionLimit, ...]]
    refuses_fewer: ClassVar[bool] = False
    limits_parts: ClassVar[bool] = False
    splits: ClassVar[bool] = False
    counted: ClassVar[bool] = False
    read_in_ways: ClassVar[bool] = False
    metrics: ClassVar[StreamMetrics | None] = None
    servers: ClassVar[str | None] = None
    jars: ClassVar[Mapping[str, str]] = {}
    engine_jars: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    kind: str
    traffic: Traffic
    retention: Duration = timedelta(days=7)

    @property
    @abstractmethod
    def name_scope(self) -> str:
        """Where its name must be its own, in words."""

    @property
    def is_created(self) -> bool:
        """Whether it is a resource under the environment's prefix."""
        return False

    @property
    @abstractmethod
    def given_partitions(self) -> int | None:
        """Number of its parts, where the file says it."""

    @property
    @abstractmethod
    def belongs_to_others(self) -> bool:
        """Whether it belongs to somebody else: it is read, and never changed."""

    @property
    def sizing(self) -> str:
        """How its size is told: a topic, or by whom its parts are provided."""
        return "topic"

    @property
    def elastic_limits(self) -> tuple[str, str] | None:
        """Names of the limits by which the service divides it, the first number and the headroom; None where we do."""
        return None

    @property
    def metered(self) -> bool:
        """Whether each part has metrics that are paid for."""
        return False

    @property
    def ports(self) -> tuple[int, ...]:
        """On which servers listen outside the VPC that is made here; those of Kafka clusters are known by these."""
        return ()

    @property
    def cluster_name(self) -> str | None:
        """The Kafka cluster that it lies on, by its logical name."""
        return None

    @property
    def matches(self) -> str | None:
        """Regular expression whose matches are its topics; None where it is one."""
        return None

    @property
    def given_key(self) -> str | None:
        """The key that encrypts it, where it is somebody else's."""
        return None

    @property
    def service_of_unknown_key(self) -> str | None:
        """Service through which jobs decrypt it by a key that the file does not name."""
        return None

    @property
    def other_role(self) -> str | None:
        """The role of another account that jobs take to read it."""
        return None

    @property
    def consumers(self) -> tuple[str, ...]:
        """Names of readers that are registered at it beside the jobs' own."""
        return ()

    @abstractmethod
    def own_name(self, name: str, prefix: str) -> str:
        """Its own name; of a stream of several topics, their pattern.

        Parameters
        ----------
        prefix
            Of the environment's resources.
        """

    @abstractmethod
    def arn(self, name: str, names: Names) -> str:
        """Its ARN, or that of all topics whose names begin as its pattern does."""

    def leg(self, name: str) -> tuple[str, ...]:
        """Streams of a query that are alike in this are one line of Spark's offset log: as its class in the core has it."""
        return (name,)

    @abstractmethod
    def check(self, use: StreamUse) -> Iterator[Finding]:
        """Find what its keys alone do not tell."""

    @abstractmethod
    def settings(self, name: str, context: StreamContext) -> dict[str, Any]:
        """Write it for the launch document; the keys are the fields of its class in ``etl/sources``.

        Parameters
        ----------
        context
            Who reads it.
        """

    @classmethod
    def grants(cls, streams: Mapping[str, Self], context: JobReading) -> Iterable[Grant]:  # noqa: ARG003 - for those that need some
        """What a job may do that reads streams of this kind, by their names in the file."""
        return ()

    def charges(self, usage: Usage) -> Iterable[Charge]:
        """What it costs in a month."""
        return ()

    def alarms(
        self,
        name: str,
        names: Names,
        readers: Sequence[StreamReader],
    ) -> Iterable[StreamAlarm]:
        """When somebody is told of it.

        Parameters
        ----------
        readers
            Queries that land it.
        """
        return ()

    def put_charge(self, records: int, record_bytes: float) -> Charge | None:
        """What it costs to put records of a mean size into it; None for nothing."""
        return None

    def refuse_change(self, name: str, wanted: int) -> Finding | None:
        """Find that the service would not take so many parts at once."""
        return None
