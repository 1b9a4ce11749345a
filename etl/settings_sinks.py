"""Where a query writes, as its launch document says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class IcebergSinkSettings:
    """An Iceberg table (``database.table``), appended to once per record identity."""

    kind: Literal["iceberg"]
    table: str


@dataclass(frozen=True)
class JdbcSinkSettings:
    """A table of PostgreSQL (``schema.table``).

    Attributes
    ----------
    url
        ``jdbc:postgresql://host:port/database``, without user and password.
    secret
        ARN of the secret that holds both, as JSON with ``username`` and ``password``.
    connections
        How many tasks write at once, each with a connection of its own.
    tls
        ``verify-full``: no word, no password goes to a server without a certificate for its name; ``off``: in the clear.
    authorities
        File below ``pipelines/`` with the certificates (PEM) of who may have signed the server's; left out, those of the
        JVM's trust store.
    """

    kind: Literal["jdbc"]
    url: str
    table: str
    secret: str
    region: str
    connections: int
    tls: Literal["verify-full", "off"] = "verify-full"
    authorities: str | None = None


@dataclass(frozen=True)
class KafkaSinkSettings:
    """A Kafka topic; ``connection`` names an entry of ``connections``.

    Attributes
    ----------
    key
        Column that becomes the message's key; the identity where it is left out.
    max_record_bytes
        Largest message, key, value and headers together.
    """

    kind: Literal["kafka"]
    topic: str
    connection: str
    key: str | None
    max_record_bytes: int


@dataclass(frozen=True)
class KinesisSinkSettings:
    """A Kinesis stream.

    Attributes
    ----------
    key
        Column that becomes the partition key; the identity where it is left out.
    max_record_bytes
        Largest record, data and partition key together.
    """

    kind: Literal["kinesis"]
    stream: str
    region: str
    key: str | None
    max_record_bytes: int


@dataclass(frozen=True)
class DynamoDbSinkSettings:
    """A DynamoDB table, keyed by identity."""

    kind: Literal["dynamodb"]
    table: str
    region: str


@dataclass(frozen=True)
class OpenSearchSinkSettings:
    """An index of an OpenSearch domain.

    Attributes
    ----------
    endpoint
        ``https://host[:port]``.
    """

    kind: Literal["opensearch"]
    endpoint: str
    index: str
    region: str


@dataclass(frozen=True)
class ParquetSinkSettings:
    """A folder of Parquet files.

    Attributes
    ----------
    files_per_batch
        Into how many files a batch goes at most: the plan's volume by the size of file that is wanted.
    """

    kind: Literal["parquet"]
    path: str
    files_per_batch: int


@dataclass(frozen=True)
class DeltaSinkSettings:
    """A Delta table by its path; ``files_per_batch`` as of :class:`ParquetSinkSettings`."""

    kind: Literal["delta"]
    path: str
    files_per_batch: int


SinkSettings = (
    IcebergSinkSettings
    | JdbcSinkSettings
    | KafkaSinkSettings
    | KinesisSinkSettings
    | DynamoDbSinkSettings
    | OpenSearchSinkSettings
    | ParquetSinkSettings
    | DeltaSinkSettings
)
"""Told apart by ``kind``."""
