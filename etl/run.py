"""From a job's settings to running queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from etl import accounts, derive, direct, land, routed, routed_direct, session, tables
from etl.accounts import Reporter
from etl.beginning import begin_with_everything, kept_whole
from etl.checkpoint import Checkpoint
from etl.derive import Composition, Deriver
from etl.formats import build as formats
from etl.manifests import Manifests
from etl.outward import Outward, OutwardDirect, prepared
from etl.parts import composition, derived, source_table, written
from etl.results import time_of
from etl.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    LandSettings,
    QuerySettings,
    RoutedDirectSettings,
    RoutedSettings,
)
from etl.sinks.base import DELETED
from etl.sinks.iceberg import IcebergSink
from etl.sinks.iceberg_keyed import KeyedIcebergSink
from etl.sinks.letters import Letters
from etl.sources import opening as sources
from etl.sources.kafka_times import timed
from etl.state import Upserter
from etl.supervise import Query
from etl.tables import Table


def build(
    spark: SparkSession, job: JobSettings, binds: Mapping[str, str], report: Reporter
) -> tuple[Query, ...]:
    """Make tables and queries, so that every mistake shows before the first record is read.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    binds
        Names and values of ``--bind``.
    report
        Where batches are reported.

    Raises
    ------
    StartError
        Whatever does not fit.
    """
    session.prepare(spark, job)
    kept = Manifests(spark, job, report, binds)
    job = kept.checked()
    # Landing tables first: a derive query of the same job reads one.
    order = sorted(job.queries, key=lambda q: isinstance(q, DeriveSettings))
    built = ((q, _query(spark, job, q, binds, report)) for q in order)
    return tuple(kept.kept(timed(query, job, q, binds, report)) for q, query in built)


def opened(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    most: int | None,
    *,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    """One query of a job, to be measured; ``most`` rows in a batch where it derives from a table."""
    session.prepare(spark, job)
    query = next(q for q in job.queries if q.name == name)
    if isinstance(query, DeriveSettings):
        return _derive(spark, job, query, binds, report, most)
    return _query(spark, job, query, binds, report)


def _query(
    spark: SparkSession,
    job: JobSettings,
    query: QuerySettings,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    if isinstance(query, LandSettings):
        return _land(spark, job, query, binds, report)
    if isinstance(query, RoutedSettings):
        return routed.query(spark, job, query, binds, report)
    if isinstance(query, DirectSettings):
        return _direct(spark, job, query, binds, report)
    if isinstance(query, RoutedDirectSettings):
        return routed_direct.query(spark, job, query, binds, report)
    return _derive(spark, job, query, binds, report)


def _land(
    spark: SparkSession, job: JobSettings, query: LandSettings, binds: Mapping[str, str], report: Reporter
) -> Query:
    decoder = formats.of_query(spark, query)
    table = Table.of(job.catalog, query.table)
    read = sources.opened(spark, job, query.name, query.sources, table, binds, query.repartition)
    sources.landing_table(spark, table, read, decoder, report)
    guard = read.guards[0] if read.guards else None
    splits = read.splits_aggregates(job)
    handler = land.Lander(query, decoder, IcebergSink(table), read.checkpoint, report, guard, splits)
    return Query(
        query.name,
        read.rows,
        handler,
        read.checkpoint.location,
        query.trigger_seconds,
        read.reopen,
        check=read.watch,
    )


def _direct(
    spark: SparkSession, job: JobSettings, query: DirectSettings, binds: Mapping[str, str], report: Reporter
) -> Query:
    decoder = formats.of_query(spark, query)
    letters = Table.of(job.catalog, query.dead_letters)
    read = sources.opened(spark, job, query.name, query.sources, letters, binds, query.repartition)
    sources.landing_table(spark, letters, read, decoder, report)
    compose = composition(spark, job, query.name, query, report)
    kept, checkpoint = IcebergSink(letters), read.checkpoint
    handler: Callable[[DataFrame, int], None]
    if query.sink.lake_table is not None:
        table = Table.of(job.catalog, query.sink.lake_table)
        tables.ensure(spark, table, compose.schema(spark, letters), report=report)
        handler = direct.Director(query, decoder, compose, IcebergSink(table), kept, checkpoint, report)
    else:
        sink = prepared(spark, job, query.sink, compose.schema(spark, letters), binds)
        handler = OutwardDirect(query, decoder, compose, sink, kept, checkpoint, report)
    return Query(
        query.name,
        read.rows,
        handler,
        checkpoint.location,
        query.trigger_seconds,
        None if read.guards else read.reopen,
        check=read.watch,
    )


def _derive(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    binds: Mapping[str, str],
    report: Reporter,
    most: int | None = derive.ROWS_PER_BATCH,
) -> Query:
    landing = source_table(spark, job, query.name, query.source_table)
    checkpoint = Checkpoint(f"{job.checkpoints}/{query.name}")
    compose = composition(spark, job, query.name, query, report)
    rows = derived(spark, job, query, compose, landing, most)
    begun = begin_with_everything(spark, rows, checkpoint, query.name)
    for name in begun:
        report.emit("begun_with_everything", query=query.name, table=name, at=accounts.text(accounts.now()))
    if (query.state is not None or query.latest_by) and begun:
        # Files come in no order: of two batches the second might hold the earlier record of a key, and rows that a
        # watermark, which the first one moved on, leaves out.
        rows = derived(spark, job, query, compose, landing, None)
    compose, schema = written(spark, query, compose, rows, landing)
    handler: Callable[[DataFrame, int], None]
    if query.sink.lake_table is None:
        handler = _outward(spark, job, query, compose, schema, checkpoint, binds, report)
    else:
        table = Table.of(job.catalog, query.sink.lake_table)
        if query.key:
            time = time_of(schema, query.key)
            shape = StructType([f for f in schema.fields if f.name != DELETED])
            tables.ensure(spark, table, shape, time=time, report=report)
            handler = Upserter(query, compose, KeyedIcebergSink(table, time), report)
        else:
            tables.ensure(spark, table, schema, report=report)
            handler = Deriver(query, landing, compose, IcebergSink(table), checkpoint, report)
    built = Query(
        query.name,
        rows,
        handler,
        checkpoint.location,
        query.trigger_seconds,
        output_mode="update" if query.state is not None and query.state.key else "append",
    )
    return kept_whole(built, checkpoint)


def _outward(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    compose: Composition,
    schema: StructType,
    checkpoint: Checkpoint,
    binds: Mapping[str, str],
    report: Reporter,
) -> Outward:
    """What writes a derive query's batches to a sink beside the lake's tables."""
    sink = prepared(spark, job, query.sink, schema, binds)
    letters = None
    if query.dead_letters is not None:
        letters = Letters(Table.of(job.catalog, query.dead_letters), query.name)
        letters.prepare(spark)
    return Outward(query, compose, sink, letters, checkpoint, report)
