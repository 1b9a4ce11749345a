"""From a sink's settings to what writes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from etl.errors import StartError
from etl.settings import JobSettings
from etl.settings_sinks import (
    DynamoDbSinkSettings,
    IcebergSinkSettings,
    JdbcSinkSettings,
    KafkaSinkSettings,
    KinesisSinkSettings,
    OpenSearchSinkSettings,
    ParquetSinkSettings,
    SinkSettings,
)
from etl.sinks import jdbc
from etl.sinks.base import Sink
from etl.sinks.delta import DeltaSink
from etl.sinks.dynamodb import DynamoDbSink
from etl.sinks.jdbc import JdbcSink
from etl.sinks.kafka import KafkaSink
from etl.sinks.kinesis import KinesisSink
from etl.sinks.opensearch import OpenSearchSink
from etl.sinks.parquet import ParquetSink
from etl.sources import kafka


def sink_of(job: JobSettings, settings: SinkSettings, binds: Mapping[str, str]) -> Sink:
    """Make a sink; nothing is made yet, and nothing asked but where the brokers of an MSK cluster are.

    Parameters
    ----------
    job
        Whose connections it may name.
    settings
        The sink's.
    binds
        Names and values of ``--bind``: endpoints of local servers.

    Raises
    ------
    StartError
        A Kafka connection that is not there, or whose brokers are not known; or an Iceberg table, which has handlers of its own.
    """
    if isinstance(settings, JdbcSinkSettings):
        endpoint = binds.get("secretsmanager.endpoint")
        return JdbcSink(settings, partial(jdbc.login, settings.secret, endpoint))
    if isinstance(settings, KafkaSinkSettings):
        if settings.connection not in job.connections:
            raise StartError(f"sink {settings.topic}: there is no connection {settings.connection}")
        connection = kafka.bind(settings.connection, job.connections[settings.connection], binds)
        return KafkaSink(settings, kafka.resolved(connection))
    if isinstance(settings, KinesisSinkSettings):
        return KinesisSink(settings, binds.get("kinesis.endpoint"))
    if isinstance(settings, DynamoDbSinkSettings):
        return DynamoDbSink(settings, binds.get("dynamodb.endpoint"))
    if isinstance(settings, OpenSearchSinkSettings):
        return OpenSearchSink(settings)
    if isinstance(settings, ParquetSinkSettings):
        return ParquetSink(settings)
    if isinstance(settings, IcebergSinkSettings):
        raise StartError(f"table {settings.table} is written by handlers of its own")
    return DeltaSink(settings)
