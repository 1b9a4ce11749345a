"""Where a query may write: tables of the lake, databases, streams, indexes.

What each guarantees is said in ``docs/sinks.md``; that a named stream exists and that no two queries write one
place is checked in :mod:`millrace.config.check_sinks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from millrace.config.base import KeyArn, Model, SecretArn, Slug, TableName
from millrace.config.units import Size

Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a column."""

DomainArn = Annotated[
    str, StringConstraints(pattern=r"^arn:aws[a-z-]*:es:[a-z0-9-]+:\d{12}:domain/[a-z][a-z0-9-]{2,27}$")
]

FileSize = Field(
    default="128MiB",
    description="How large a file should be; a batch is written into no more files than that takes.",
)
Record = Field(default="1000KiB", description="Largest message; a larger one becomes a dead letter.")


class SinkModel(Model, ABC):
    """What sinks tell the checks.

    Attributes
    ----------
    refuses
        Whether a single row can be wrong for it, so that it needs a table of dead letters.
    replaces
        Whether a later result can take the place of an earlier one with its key.
    """

    refuses: ClassVar[bool] = True
    replaces: ClassVar[bool] = True

    @property
    @abstractmethod
    def place(self) -> tuple[str, str]:
        """Key of the file that names what is written, and its name where two sinks must not share it."""


class IcebergSink(SinkModel):
    """An Iceberg table, written once per record identity."""

    refuses: ClassVar[bool] = False
    kind: Literal["iceberg"]
    table: TableName

    @property
    def place(self) -> tuple[str, str]:
        """The table."""
        return "table", f"iceberg {self.table}"


class JdbcSink(SinkModel):
    """A table of PostgreSQL."""

    kind: Literal["jdbc"]
    url: str = Field(
        pattern=r"^jdbc:postgresql://[A-Za-z0-9.-]+(:\d{1,5})?/[A-Za-z0-9_-]+(\?[A-Za-z0-9=&._-]*)?$",
        description="jdbc:postgresql://host:port/database, without user and password.",
    )
    table: str = Field(
        pattern=r"^[a-z_][a-z0-9_]{0,49}(\.[a-z_][a-z0-9_]{0,49})?$",
        description="schema.table; made where it is missing. Without a schema, that of public.",
    )
    secret: SecretArn = Field(
        description="Secret with username and password, as JSON; the job's own role reads it at the start."
    )
    secret_key: KeyArn | None = Field(
        default=None, description="Customer key of the secret; left out, AWS' own key."
    )
    connections: int = Field(default=8, ge=1, le=200, description="Connections that write at once.")
    tls: Literal["verify-full", "off"] = Field(
        default="verify-full",
        description="verify-full: the server shows a certificate for its name; off: for a server on this machine only.",
    )
    authorities: str | None = Field(
        default=None,
        max_length=200,
        description="A .pem file below pipelines/ with the certificates of who signs the server's, such as RDS' bundle of "
        "the region; left out, those that Java trusts.",
    )

    @property
    def place(self) -> tuple[str, str]:
        """Database and table."""
        return "table", f"{self.url.split('?', 1)[0]} {self.table}"

    @property
    def host(self) -> str:
        """Name of the server, in lower case."""
        return self.url.removeprefix("jdbc:postgresql://").split("/", 1)[0].partition(":")[0].lower()

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the URL's parameters."""
        said = self.url.partition("?")[2].split("&")
        return tuple(each.partition("=")[0] for each in said if each)

    @property
    def port(self) -> int:
        """Where the server listens; 5432 where the URL does not say."""
        address = self.url.removeprefix("jdbc:postgresql://").split("/", 1)[0]
        return int(address.partition(":")[2] or 5432)


class KafkaSink(SinkModel):
    """A Kafka topic of this environment."""

    kind: Literal["kafka"]
    topic: Slug = Field(description="A Kafka topic among the environment's streams.")
    key: Column | None = Field(
        default=None, description="Column of the message's key; left out, the identity."
    )
    max_record_size: Size = Record  # type: ignore[assignment]  # pydantic parses the default (validate_default)

    @property
    def place(self) -> tuple[str, str]:
        """The topic."""
        return "topic", f"stream {self.topic}"


class KinesisSink(SinkModel):
    """A Kinesis stream of this environment."""

    kind: Literal["kinesis"]
    stream: Slug = Field(description="A Kinesis stream among the environment's streams.")
    key: Column | None = Field(
        default=None, description="Column of the partition key; left out, the identity."
    )
    max_record_size: Size = Record  # type: ignore[assignment]  # as above

    @property
    def place(self) -> tuple[str, str]:
        """The stream."""
        return "stream", f"stream {self.stream}"


class DynamoDbSink(SinkModel):
    """A DynamoDB table of this account, keyed by identity: ``_id``, and ``_source`` where rows are records."""

    kind: Literal["dynamodb"]
    table: str = Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$", description="Its name; it exists.")
    table_key: KeyArn | None = Field(
        default=None, description="Customer key of the table; left out, AWS' own."
    )

    @property
    def place(self) -> tuple[str, str]:
        """The table."""
        return "table", f"dynamodb {self.table}"


class OpenSearchSink(SinkModel):
    """An index of an OpenSearch domain, with the identity as the document's."""

    kind: Literal["opensearch"]
    domain: DomainArn
    endpoint: str = Field(
        pattern=r"^https://[A-Za-z0-9.-]+(:\d{1,5})?$", description="The domain's endpoint."
    )
    index: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,200}$")

    @property
    def place(self) -> tuple[str, str]:
        """Domain and index."""
        return "index", f"{self.endpoint}/{self.index}"


class ParquetSink(SinkModel):
    """A folder of Parquet files in the lake's bucket."""

    refuses: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    kind: Literal["parquet"]
    table: TableName = Field(description="Name of the folder, below parquet/ in the lake's bucket.")
    file_size: Size = FileSize  # type: ignore[assignment]  # as above

    @property
    def place(self) -> tuple[str, str]:
        """The folder."""
        return "table", f"parquet {self.table}"


class DeltaSink(SinkModel):
    """A Delta table in the lake's bucket, known by its path."""

    refuses: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    kind: Literal["delta"]
    table: TableName = Field(description="Name of the folder, below delta/ in the lake's bucket.")
    file_size: Size = FileSize  # type: ignore[assignment]  # as above

    @property
    def place(self) -> tuple[str, str]:
        """The folder."""
        return "table", f"delta {self.table}"


Sink = Annotated[
    IcebergSink
    | JdbcSink
    | KafkaSink
    | KinesisSink
    | DynamoDbSink
    | OpenSearchSink
    | ParquetSink
    | DeltaSink,
    Field(discriminator="kind"),
]
