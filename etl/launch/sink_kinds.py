"""The sinks that a launch document may name, each with its settings, imported when a job has it."""

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
"""By ``kind``, where its settings are: a frozen dataclass whose fields are the keys of the launch document."""


@dataclass(frozen=True)
class JobContext:
    """What a sink may ask of its job and its query.

    Attributes
    ----------
    connections
        Of Kafka, by name.
    binds
        Such as endpoints of local servers.
    catalog
        That holds the lake's tables.
    key
        Columns that identify a row which a later one replaces; none where rows are records.
    report
        Where alterations of a table are told.
    """

    connections: Mapping[str, Connection]
    binds: Mapping[str, str]
    catalog: str = ""
    key: tuple[str, ...] = ()
    report: Reporter | None = None


@dataclass(frozen=True)
class SinkSettings(ABC):
    """Where a query writes, as its launch document says it; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS = SINKS
    NAMED_BY = "table"
    """Field that names what is written."""

    kind: str

    @property
    def target(self) -> str:
        """What is written, as manifests of checkpoints name it."""
        return f"{self.kind} {getattr(self, self.NAMED_BY)}"

    @property
    def lake_table(self) -> str | None:
        """Table (``database.table``) of the job's catalog, which can be backfilled and measured; None for a place beside it."""
        return None

    @abstractmethod
    def open(self, context: JobContext) -> Sink:
        """Make what writes; nothing is made or asked yet, unless an implementation says so.

        Raises
        ------
        StartError
            It names what the job has not.
        """
