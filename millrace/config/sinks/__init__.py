"""Sinks of queries: tables of the lake, databases, streams, indexes. One module for each kind.

``docs/sinks.md`` says what each guarantees.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.sinks.base import SinkConfig

GROUP = "millrace.sinks"
"""Entry points by which an installed distribution adds kinds."""

SINKS = {
    "iceberg": "millrace.config.sinks.iceberg:IcebergSink",
    "jdbc": "millrace.config.sinks.jdbc:JdbcSink",
    "dynamodb": "millrace.config.sinks.dynamodb:DynamoDbSink",
    "kinesis": "millrace.config.sinks.kinesis:KinesisSink",
    "kafka": "millrace.config.sinks.kafka:KafkaSink",
    "opensearch": "millrace.config.sinks.opensearch:OpenSearchSink",
    "parquet": "millrace.config.sinks.parquet:ParquetSink",
    "delta": "millrace.config.sinks.delta:DeltaSink",
} | {each.name: each.value for each in entry_points(group=GROUP)}
"""Class with the configuration of a sink, by ``kind``."""

KINDS: dict[str, type[SinkConfig]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in SINKS.items()
}

if TYPE_CHECKING:
    Sink = SinkConfig
else:
    Sink = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
