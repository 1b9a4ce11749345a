"""Registry of the sinks that a launch document may name; each is imported when a job uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .connections import Connection

if TYPE_CHECKING:
    from ..record.batch_accounts import Reporter
    from ..sinks.base import Sink

SINKS = {
    "iceberg": ".sinks.iceberg:IcebergSinkSettings",
    "jdbc": ".sinks.jdbc:JdbcSinkSettings",
    "dynamodb": ".sinks.dynamodb:DynamoDbSinkSettings",
    "kinesis": ".sinks.kinesis:KinesisSinkSettings",
    "kafka": ".sinks.kafka:KafkaSinkSettings",
    "opensearch": ".sinks.opensearch:OpenSearchSinkSettings",
    "parquet": ".sinks.parquet:ParquetSinkSettings",
    "delta": ".sinks.delta:DeltaSinkSettings",
}
"""Class of each sink's settings, by ``kind``: a frozen dataclass whose fields are the keys of the launch document."""


@dataclass(frozen=True)
class JobContext:
    """Data of the job and the query that a sink may use.

    Attributes
    ----------
    connections
        Connections to Kafka, by name.
    binds
        Such as endpoints of local servers.
    catalog
        Catalog of the lake's tables.
    key
        Columns that identify a row, which a later one replaces; empty where rows are records.
    report
        Gets an event for each alteration of a table.
    """

    connections: Mapping[str, Connection]
    binds: Mapping[str, str]
    catalog: str = ""
    key: tuple[str, ...] = ()
    report: Reporter | None = None


@dataclass(frozen=True)
class SinkSettings(ABC):
    """Settings of a sink in a launch document; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS = SINKS
    NAMED_BY = "table"
    """Field with the name of the target."""

    kind: str

    @property
    def target(self) -> str:
        """Name of the target in manifests of checkpoints."""
        return f"{self.kind} {getattr(self, self.NAMED_BY)}"

    @property
    def lake_table(self) -> str | None:
        """Table (``database.table``) in the job's catalog, which can be backfilled and measured; None for any other target."""
        return None

    @abstractmethod
    def open(self, context: JobContext) -> Sink:
        """Make the sink; nothing is created or called yet, unless an implementation says so.

        Raises
        ------
        StartError
            The settings name something that the job does not have.
        """
