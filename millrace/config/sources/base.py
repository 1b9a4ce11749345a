"""Base of all streams: their keys, and what checks and planning need from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from millrace.config.aws.iam_statements import Grant
from millrace.config.base import Model
from millrace.config.document.problems import Finding
from millrace.config.sources.stream_metrics import StreamAlarm, StreamMetrics, StreamReaderTiming
from millrace.config.units import Duration, Size
from millrace.etl.launch import sources as launch

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names
    from millrace.config.model import Environment
    from millrace.config.queries import SourceQueryBase

HOURS = 730
"""Hours of a month, as AWS bills."""

SECONDS = HOURS * 3600
GB = 10**9

MOST_RECORDS_PER_SECOND = 100_000_000
"""Highest rate of a stream that any input may state."""

FEWEST_RECORDS_PER_SECOND = 1e-6
"""Lowest rate: a record in twelve days."""

Basis = Literal["assumed", "measured"]
"""Basis of a figure: measured, or an assumption that every number derived from it shows."""


class Traffic(Model):
    """Traffic of a stream."""

    records_per_second: float = Field(
        ge=FEWEST_RECORDS_PER_SECOND, le=MOST_RECORDS_PER_SECOND, description="Average arrival rate."
    )
    peak_factor: float = Field(
        default=1.0,
        ge=1,
        le=1000,
        description="Peak rate divided by average rate: 3.67 for 11,000 at the peak and 3,000 on average.",
    )
    record_size: Size = Field(description="Mean size of a record, key and payload, such as 600B.")
    basis: Basis = Field(default="assumed", description="`measured` only if somebody measured the traffic.")

    @property
    def peak_records_per_second(self) -> float:
        """Arrival rate at the peak."""
        return self.records_per_second * self.peak_factor

    @property
    def monthly_gb(self) -> float:
        """Incoming data in GB of 10⁹ bytes a month, at the average rate."""
        return self.records_per_second * self.record_size * SECONDS / GB


@dataclass(frozen=True)
class StreamUse:
    """A place in the file that declares a stream.

    Attributes
    ----------
    name
        Name of the stream in the file.
    environment
        Its valid parts.
    clusters
        Names of all Kafka clusters that the file declares, broken or not.
    """

    name: str
    environment: Environment
    clusters: Set[str]


@dataclass(frozen=True)
class StreamReadingContext:
    """A query's reading of a stream: the query, its trigger and its limits.

    Attributes
    ----------
    job, name, query
        The query's job, its name, and its section in the file.
    trigger_seconds
        Trigger of the query.
    records_per_batch
        Most records of the stream in a batch.
    records_per_partition
        Most records of one partition in a batch; None for a query that reads no stream with such a limit.
    handed_over_seconds
        Seconds in which a partition delivers that many records of average size to one reader; 0 without such a limit.
    """

    names: Names
    job: str
    name: str
    query: SourceQueryBase
    trigger_seconds: float
    records_per_batch: int
    records_per_partition: int | None
    handed_over_seconds: float


@dataclass(frozen=True)
class ReadingJob:
    """A job that reads streams.

    Attributes
    ----------
    job
        Its name.
    queries
        Its queries that read streams.
    """

    names: Names
    job: str
    queries: Mapping[str, SourceQueryBase]


@dataclass(frozen=True)
class PartitionLimit:
    """A limit of one partition, for writes or reads.

    Attributes
    ----------
    limit
        Per second: the name of a number in ``millrace/sizing/limits.yaml``, or the number itself.
    of
        Limited quantity; all readers without an own consumer share the outgoing bytes.
    """

    limit: str | float
    of: Literal["records in", "bytes in", "bytes out"]


@dataclass(frozen=True)
class MonthlyStreamUsage:
    """Monthly usage of a stream.

    Attributes
    ----------
    partitions
        Billed shards.
    assumed
        Whether their number is assumed.
    readers
        Queries that read it without an own consumer.
    consumers
        Registered consumers, of our own queries and of others.
    """

    partitions: int
    assumed: bool
    readers: int
    consumers: int
    advantage: bool = False


@dataclass(frozen=True)
class Charge:
    """A line of a stream's bill: ``quantity`` times a price of the price table, and the reason."""

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
        Key of the file that gives it a name different from the environment's.
    is_public
        Whether a job outside of any VPC reaches it.
    services
        Services that jobs call from the VPC to read it, by the names of their interface endpoints.
    repeats
        Whether a batch that is replayed holds the same records.
    fetched_whole
        Whether connectors hold all records of a partition in a batch before they return the first one.
    fans_out
        Whether a query can have its own consumer.
    in_firehose
        Whether Amazon Data Firehose can read it.
    parts
        Word for its partitions, which is also the key of the file that pins their number.
    limits
        Limits of one partition.
    refuses_fewer
        Whether it rejects records if it has fewer partitions than the traffic needs.
    limits_parts
        Whether a batch's limit applies to each partition, not to all together.
    splits
        Whether several jobs can each read a part of its partitions.
    counted
        Whether the number of unread records is known.
    read_in_ways
        Whether a query may have options for reading it (:class:`millrace.config.kafka.reading_options.KafkaReading`).
    metrics
        Metrics that CloudWatch has without configuration.
    jars
        Groups of jars that EMR Serverless lacks, each with the reason in words.
    engine_jars
        Jars that an engine ships but does not put on the class path, by engine.
    """

    title: ClassVar[str]
    named_by: ClassVar[str]
    is_public: ClassVar[bool] = False
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
    jars: ClassVar[Mapping[str, str]] = {}
    engine_jars: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    kind: str
    traffic: Traffic
    retention: Duration = timedelta(days=7)

    @property
    @abstractmethod
    def name_scope(self) -> str:
        """Scope in which its name must be unique, in words."""

    @property
    def is_created(self) -> bool:
        """True if it is a resource under the environment's prefix."""
        return False

    @property
    def given_partitions(self) -> int | None:
        """Number of its partitions, if the file pins it."""
        pinned: int | None = getattr(self, self.parts)
        return pinned

    @property
    def belongs_to_others(self) -> bool:
        """True if the file says that it exists: somebody else owns it, so it is read, and never changed."""
        return bool(getattr(self, "existing", None))

    @property
    def topic_or_capacity_mode(self) -> str:
        """Key of its sizing: a topic, or the capacity mode."""
        return getattr(self, "mode", "topic")

    @property
    def elastic_limit_names(self) -> tuple[str, str] | None:
        """Names of the limits for service-managed scaling, initial number and headroom; None if the plan sets the number."""
        return None

    @property
    def traffic_as_service_counts(self) -> Traffic:
        """Traffic as the service counts it: aggregates of records where the producers make them."""
        return self.traffic

    @property
    def has_shard_metrics(self) -> bool:
        """True if each partition has billed metrics: the file asks for them, of a stream of its own."""
        return self.is_created and getattr(self, "shard_level_metrics", False)

    @property
    def ports_outside_vpc(self) -> tuple[int, ...]:
        """Ports of its servers that no URL of the file names; for Kafka clusters, they come from elsewhere."""
        return ()

    @property
    def cluster_name(self) -> str | None:
        """Logical name of its Kafka cluster."""
        return getattr(self, "cluster", None)

    @property
    def topic_pattern(self) -> str | None:
        """Regular expression that its topics match; None for a single topic."""
        return getattr(self, "pattern", None)

    @property
    def foreign_kms_key(self) -> str | None:
        """Key that encrypts it, if somebody else owns the key."""
        return getattr(self, "existing_key", None)

    @property
    def kms_via_service(self) -> str | None:
        """Service through which jobs decrypt it with a key that the file does not name."""
        return None

    @property
    def cross_account_role(self) -> str | None:
        """Role in another account that jobs assume to read it."""
        return getattr(self, "read_role", None)

    def most_consumers(self, *, advantage: bool) -> int:
        """Return the most registered consumers, in an account with or without On-demand Advantage."""
        return 0

    @property
    def consumers_of_other_programs(self) -> tuple[str, ...]:
        """Names of its registered readers in addition to the jobs' own."""
        return getattr(self, "fan_out_consumers", ())

    @abstractmethod
    def physical_name(self, name: str, prefix: str) -> str:
        """Return its deployed name; the pattern, for a stream of several topics.

        Parameters
        ----------
        prefix
            Prefix of the environment's resources.
        """

    @abstractmethod
    def arn(self, name: str, names: Names) -> str:
        """Return its ARN; for a pattern, that of all topics with its literal prefix."""

    def offset_log_key(self, name: str) -> tuple[str, ...]:
        """Return a key that is equal for streams which share one line of Spark's offset log, as in its class in the core."""
        return (name,)

    @abstractmethod
    def check(self, use: StreamUse) -> Iterator[Finding]:
        """Yield findings that its keys alone do not show."""

    @abstractmethod
    def launch_settings(self, name: str, context: StreamReadingContext) -> launch.Source:
        """Return it for the launch document.

        Parameters
        ----------
        context
            The query that reads it.
        """

    @classmethod
    def grants(cls, streams: Mapping[str, Self], context: ReadingJob) -> Iterable[Grant]:  # noqa: ARG003 - for those that need some
        """Yield the permissions of a job that reads streams of this kind, by their names in the file."""
        return ()

    def charges(self, usage: MonthlyStreamUsage) -> Iterable[Charge]:
        """Yield its monthly costs."""
        return ()

    def alarms(
        self,
        name: str,
        names: Names,
        readers: Sequence[StreamReaderTiming],
    ) -> Iterable[StreamAlarm]:
        """Yield its alarms.

        Parameters
        ----------
        readers
            Queries that land it.
        """
        return ()

    def finding_if_resize_refused(self, name: str, wanted: int) -> Finding | None:
        """Return a finding if the service does not allow a change to this number of partitions at once."""
        return None
