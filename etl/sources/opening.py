"""Opens what a query reads, with what guards it, and the landing table that it goes into."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from etl import engines, land, tables
from etl.accounts import Reporter
from etl.checkpoint import Checkpoint
from etl.decoder import Decoder
from etl.errors import StartError
from etl.settings import Connection, JobSettings, KafkaSource, KinesisSource
from etl.sources import kafka, kafka_partitions, kinesis
from etl.sources.kafka_partitions import Watch
from etl.sources.kinesis_guard import KinesisGuard
from etl.sources.legs import Topics, in_order, read_topics, union
from etl.tables import Table


@dataclass(frozen=True)
class Opened:
    """What a query reads: one leg for each line of its offset log, in the log's order.

    Attributes
    ----------
    rows
        Of all legs, in the envelope's shape.
    checkpoint
        The query's.
    topics
        Legs of Kafka.
    guards
        Of the legs of Kinesis.
    reopen
        Opens all legs again, with limits for the shards, and secrets, of that moment.
    watch
        Of a topic that several jobs share out; None for any other.
    """

    rows: DataFrame
    checkpoint: Checkpoint
    topics: tuple[Topics, ...]
    guards: tuple[KinesisGuard, ...]
    reopen: Callable[[], DataFrame]
    watch: Watch | None

    def splits_aggregates(self, job: JobSettings) -> bool:
        """Whether the engine's connector may end a batch inside an aggregate of Kinesis' producer library."""
        return bool(self.guards) and engines.module(job.engine).SPLITS_AGGREGATES


def opened(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    sources: Sequence[KinesisSource | KafkaSource],
    table: Table,
    binds: Mapping[str, str],
    partitions: int | None,
) -> Opened:
    """Open the sources of a query.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    name
        Of the query.
    sources
        What it reads, each once.
    table
        Where streams are landed, which their guards look into.
    binds
        Names and values of ``--bind``.
    partitions
        Least number of tasks of a batch of a Kafka leg.

    Raises
    ------
    StartError
        No such connection, nothing that answers for it, brokers that let the job not in, or a shared topic with
        partitions that no list knows.
    """
    location = f"{job.checkpoints}/{name}"
    topics: list[Topics] = []
    guards: list[KinesisGuard] = []
    openers: list[Callable[[], DataFrame]] = []
    watch: Watch | None = None
    for place, leg in enumerate(in_order(sources)):
        checkpoint = Checkpoint(location, place)
        if isinstance(leg, KinesisSource):
            guard, opener = _stream(spark, job, leg, checkpoint, table, binds.get("kinesis.endpoint"))
            guards.append(guard)
        else:
            connection = _connection(job, name, leg[0], binds)
            kafka.sign_in(spark, connection)
            watch = watch or _watch(spark, leg[0], connection)
            topics.append(Topics(leg, checkpoint))
            opener = partial(read_topics, spark, leg, connection, partitions=partitions)
        openers.append(opener)

    def reopen() -> DataFrame:
        return union([opener() for opener in openers])

    return Opened(reopen(), Checkpoint(location), tuple(topics), tuple(guards), reopen, watch)


def landing_table(
    spark: SparkSession, table: Table, read: Opened, decoder: Decoder, report: Reporter
) -> Table:
    """Make the table that takes a query's records or its dead letters, or alter it, or check it.

    Parameters
    ----------
    spark
        The job's session.
    table
        Its name.
    read
        What the query reads.
    decoder
        Of its payloads.
    report
        Where alterations are told.

    Raises
    ------
    StartError
        It has another shape.
    """
    shape = land.table_schema(read.rows.schema["_headers"], decoder.schema)
    tables.ensure(spark, table, shape, report=report)
    return table


def _stream(
    spark: SparkSession,
    job: JobSettings,
    source: KinesisSource,
    checkpoint: Checkpoint,
    table: Table,
    endpoint: str | None,
) -> tuple[KinesisGuard, Callable[[], DataFrame]]:
    """Make what guards a stream, and what opens it, with limits for the shards that it has at that moment."""

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


def _connection(job: JobSettings, name: str, source: KafkaSource, binds: Mapping[str, str]) -> Connection:
    if source.connection not in job.connections:
        raise StartError(f"query {name}: there is no connection {source.connection}")
    return kafka.resolved(kafka.bind(source.connection, job.connections[source.connection], binds))


def _watch(spark: SparkSession, source: KafkaSource, connection: Connection) -> Watch | None:
    """Make the watch of a topic that several jobs share out, which has looked once; None for one read whole."""
    watch = kafka_partitions.watch(spark, source, connection)
    if watch is not None:
        watch.at_start()
    return watch
