"""Sinks: each writes a batch idempotently and says what it guarantees. One module for each kind, imported when a job has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl.settings_sources import Connection

if TYPE_CHECKING:
    from etl.sinks.base import Sink

SINKS = {
    "iceberg": "etl.sinks.iceberg:IcebergSinkSettings",
    "jdbc": "etl.sinks.jdbc:JdbcSinkSettings",
    "dynamodb": "etl.sinks.dynamodb:DynamoDbSinkSettings",
    "kinesis": "etl.sinks.kinesis:KinesisSinkSettings",
    "kafka": "etl.sinks.kafka:KafkaSinkSettings",
    "opensearch": "etl.sinks.opensearch:OpenSearchSinkSettings",
    "parquet": "etl.sinks.parquet:ParquetSinkSettings",
    "delta": "etl.sinks.delta:DeltaSinkSettings",
}
"""By ``kind``, where its settings are: a frozen dataclass whose fields are the keys of the launch document."""


@dataclass(frozen=True)
class JobContext:
    """What a sink may ask of its job: Kafka connections by name, and the binds, such as endpoints of local servers."""

    connections: Mapping[str, Connection]
    binds: Mapping[str, str]


@dataclass(frozen=True)
class SinkSettings(ABC):
    """Where a query writes, as its launch document says it; :mod:`etl.strict` reads the class of its ``kind``."""

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
        """Table (``database.table``) of the job's catalog, which queries append to themselves; None for a place beside it."""
        return None

    @abstractmethod
    def open(self, context: JobContext) -> Sink:
        """Make what writes; nothing is made or asked yet, unless an implementation says so.

        Raises
        ------
        StartError
            It names what the job has not.
        """
