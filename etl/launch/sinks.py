"""Sinks in a launch document; :mod:`etl.sinks` has a module for each kind, which writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

if TYPE_CHECKING:
    from .settings import JobSettings


def canonical_server(url: str, port: int) -> str:
    """Return host, port and path of a URL in one spelling: a host's name has no case, and ``port`` may be left out."""
    host, slash, path = url.partition("//")[2].partition("?")[0].partition("/")
    return f"{host.lower()}{'' if ':' in host else f':{port}'}{slash}{path}"


class SinkSettings:
    """Settings of a sink; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS: ClassVar[dict[str, type[SinkSettings]]] = {}
    MODULE = "..sinks.{kind}"
    """Module with its ``open_sink``: see :func:`etl.sinks.base.open_sink`."""
    NAMED_BY = "table"
    """Field with the name of the target."""

    kind: str

    @property
    def kind_and_target_name(self) -> str:
        """Kind of the sink and name of its target, for manifests of checkpoints."""
        return f"{self.kind} {getattr(self, self.NAMED_BY)}"

    def server(self, job: JobSettings) -> str | None:
        """Return the database, cluster, domain or region that has the target, for manifests; None for the job's own catalog or bucket."""
        return None

    @property
    def lake_table(self) -> str | None:
        """Table (``database.table``) in the job's catalog, which can be backfilled and measured; None for any other target."""
        return None

    def with_target(self, target: str) -> Self:
        """Return the same sink with another target."""
        return type(self)(**{**vars(self), self.NAMED_BY: target})


@dataclass(frozen=True)
class IcebergSinkSettings(SinkSettings):
    """An Iceberg table (``database.table``) to which each record identity is appended once."""

    table: str

    kind: Literal["iceberg"] = "iceberg"

    @property
    def lake_table(self) -> str:
        """The table."""
        return self.table


@dataclass(frozen=True)
class JdbcSinkSettings(SinkSettings):
    """Table of PostgreSQL (``schema.table``).

    Attributes
    ----------
    url
        ``jdbc:postgresql://host:port/database``, without user and password.
    secret
        ARN of the secret that holds both, as JSON with ``username`` and ``password``.
    connections
        Number of tasks that write at once, each with its own connection.
    tls
        ``verify-full``: no password is sent to a server without a certificate for its name; ``off``: no encryption.
    authorities
        File below ``pipelines/`` with the certificates (PEM) of the authorities that may sign the server's; without it, those
        of the JVM's trust store.
    """

    url: str
    table: str
    secret: str
    region: str
    connections: int
    tls: Literal["verify-full", "off"] = "verify-full"
    authorities: str | None = None
    kind: Literal["jdbc"] = "jdbc"

    def server(self, job: JobSettings) -> str:
        """Return host, port and database."""
        return canonical_server(self.url, 5432)


@dataclass(frozen=True)
class DynamoDbSinkSettings(SinkSettings):
    """A DynamoDB table, keyed by identity."""

    table: str
    region: str
    kind: Literal["dynamodb"] = "dynamodb"

    def server(self, job: JobSettings) -> str:
        """Return the region."""
        return self.region


@dataclass(frozen=True)
class KinesisSinkSettings(SinkSettings):
    """A Kinesis stream.

    Attributes
    ----------
    key
        Column of the partition key; the identity if it is left out.
    max_record_bytes
        Largest record: data and partition key together.
    """

    NAMED_BY = "stream"
    stream: str
    region: str
    key: str | None
    max_record_bytes: int
    kind: Literal["kinesis"] = "kinesis"

    def server(self, job: JobSettings) -> str:
        """Return the region."""
        return self.region


@dataclass(frozen=True)
class KafkaSinkSettings(SinkSettings):
    """A Kafka topic; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    key
        Column of the message key; the identity if it is left out.
    max_record_bytes
        Largest message: key, value and headers together.
    """

    NAMED_BY = "topic"
    topic: str
    connection: str
    key: str | None
    max_record_bytes: int
    kind: Literal["kafka"] = "kafka"

    def server(self, job: JobSettings) -> str:
        """Return the name of the cluster; for one that is known by its brokers only, that of the connection."""
        return job.connections[self.connection].cluster or self.connection


@dataclass(frozen=True)
class OpenSearchSinkSettings(SinkSettings):
    """An index of an OpenSearch domain.

    Attributes
    ----------
    endpoint
        ``https://host[:port]``.
    """

    NAMED_BY = "index"
    endpoint: str
    index: str
    region: str
    kind: Literal["opensearch"] = "opensearch"

    def server(self, job: JobSettings) -> str:
        """Return host and port."""
        return canonical_server(self.endpoint, 443)


@dataclass(frozen=True)
class ParquetSinkSettings(SinkSettings):
    """A folder of Parquet files.

    Attributes
    ----------
    files_per_batch
        Most files of a batch: the plan's volume divided by the target file size.
    """

    NAMED_BY = "path"
    path: str
    files_per_batch: int
    kind: Literal["parquet"] = "parquet"


SinkSettings.KINDS.update(
    iceberg=IcebergSinkSettings,
    jdbc=JdbcSinkSettings,
    dynamodb=DynamoDbSinkSettings,
    kinesis=KinesisSinkSettings,
    kafka=KafkaSinkSettings,
    opensearch=OpenSearchSinkSettings,
    parquet=ParquetSinkSettings,
)
