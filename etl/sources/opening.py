"""Opens what a query reads, with what guards it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from etl import engines
from etl.checkpoint import Checkpoint
from etl.errors import StartError
from etl.settings import Connection, JobSettings, KafkaSource, KinesisSource
from etl.sources import kafka, kafka_partitions, kinesis
from etl.sources.kafka_partitions import Watch
from etl.sources.kinesis_guard import KinesisGuard
from etl.tables import Table


def open_stream(
    spark: SparkSession,
    job: JobSettings,
    source: KinesisSource,
    checkpoint: Checkpoint,
    table: Table,
    endpoint: str | None,
) -> tuple[KinesisGuard, Callable[[], DataFrame]]:
    """Make what guards a stream, and what opens it, with limits for the shards that it has at that moment.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    source
        What is read.
    checkpoint
        The query's, at the stream's place in it.
    table
        Where the stream is landed.
    endpoint
        Another endpoint than the region's own.
    """

    def count_shards() -> int:
        return kinesis.open_shards(source, endpoint)

    tails = kinesis.tails(source, endpoint) if engines.module(job.engine).PASSES_OVER_CLOSED_SHARDS else None
    guard = KinesisGuard(source, checkpoint, table, kinesis.horizon(source, endpoint), tails)

    def opened() -> DataFrame:
        read = source
        if source.records_per_batch is not None:
            guard.count_shards, guard.shards = count_shards, count_shards()
            read = kinesis.shared_out(source, guard.shards)
        begun = checkpoint.begun(spark)
        return kinesis.read(spark, read, engine=job.engine, endpoint=endpoint, begun=begun)

    return guard, opened


def open_topic(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    source: KafkaSource,
    binds: Mapping[str, str],
    partitions: int | None,
) -> DataFrame:
    """Open a topic as a streaming DataFrame in the envelope's shape.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    name
        Of the query.
    source
        What is read.
    binds
        Names and values of ``--bind``.
    partitions
        Least number of tasks of a batch.

    Raises
    ------
    StartError
        No such connection, or nothing that answers for it.
    """
    return kafka.read(spark, source, connected(job, name, source, binds), partitions=partitions)


def connected(job: JobSettings, name: str, source: KafkaSource, binds: Mapping[str, str]) -> Connection:
    """Find the connection of a topic; parameters and errors as of :func:`open_topic`."""
    if source.connection not in job.connections:
        raise StartError(f"query {name}: there is no connection {source.connection}")
    return kafka.bind(source.connection, job.connections[source.connection], binds)


def watched(
    spark: SparkSession, job: JobSettings, name: str, source: KafkaSource, binds: Mapping[str, str]
) -> Watch | None:
    """Make the watch of a topic that several jobs share out, which has looked once; None for one read whole.

    Parameters as of :func:`open_topic`.

    Raises
    ------
    StartError
        The topic has partitions that no list knows, or the brokers do not say.
    """
    watch = kafka_partitions.watch(spark, source, connected(job, name, source, binds))
    if watch is not None:
        watch.at_start()
    return watch
