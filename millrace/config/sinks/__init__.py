"""Sinks of queries: tables of the lake, databases, streams, indexes. One module for each kind.

``docs/sinks.md`` says what each guarantees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.base import load_kinds
from millrace.config.sinks.base import SinkConfig

KINDS: dict[str, type[SinkConfig]] = load_kinds(
    "millrace.sinks",
    {
        "iceberg": "millrace.config.sinks.iceberg:IcebergSink",
        "jdbc": "millrace.config.sinks.jdbc:JdbcSink",
        "dynamodb": "millrace.config.sinks.dynamodb:DynamoDbSink",
        "kinesis": "millrace.config.sinks.kinesis:KinesisSink",
        "kafka": "millrace.config.sinks.kafka:KafkaSink",
        "opensearch": "millrace.config.sinks.opensearch:OpenSearchSink",
        "parquet": "millrace.config.sinks.parquet:ParquetSink",
    },
)
"""Class with the configuration of a sink, by ``kind``."""

if TYPE_CHECKING:
    Sink = SinkConfig
else:
    Sink = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
