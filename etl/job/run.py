"""Build of running queries from a job's settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ..checkpoints import table_ends
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.initial_snapshot import start_with_all_files, with_batch_ends
from ..formats.decoding import data_rules, routes
from ..launch.settings import DeriveSettings, DirectSettings, JobSettings, LandSettings, QuerySettings
from ..queries import derive, spark_settings
from ..queries import open_sources as sources
from ..queries.derive import Deriver
from ..queries.direct import DirectBatchWriter
from ..queries.land import Lander, table_schema
from ..queries.query_parts import (
    await_landing_table,
    batch_transform_and_schema,
    direct_routes,
    enrich_then_transform,
    open_derived_stream,
    prepare_sink,
    source_table,
)
from ..record import batch_accounts, tables
from ..record.batch_accounts import Reporter
from ..record.commits import source_digest
from ..record.errors import StartError
from ..record.query import Query
from ..record.tables import Table
from ..sinks.dead_letters import DeadLetters
from ..sinks.iceberg import IcebergSink
from ..sources.base import reader_of
from .checkpoint_check import CheckpointManifests


def build(
    spark: SparkSession, job: JobSettings, binds: Mapping[str, str], report: Reporter
) -> tuple[Query, ...]:
    """Make tables and queries, so that every error shows before the first record is read.

    Raises
    ------
    StartError
        Settings, tables, checkpoints or sources that do not fit.
    """
    spark_settings.prepare(spark, job)
    manifests = CheckpointManifests(spark, job, report, binds)
    job = manifests.check_all()
    # Landing tables first: a derive query of the same job reads one.
    order = sorted(job.queries, key=lambda q: isinstance(q, DeriveSettings))
    built = ((q, _query(spark, job, q, binds, report)) for q in order)
    queries = tuple(manifests.with_state_check(_handled(query, job, q, binds, report)) for q, query in built)
    lacking = [query.name for query in queries if query.fix_end is None]
    if lacking and job.run_every_seconds is not None:
        raise StartError(f"query {', '.join(lacking)}: its source cannot tell where a bounded run ends")
    return queries


def open_query(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    most: int | None,
    *,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    """Open one query of a job for a measurement; ``most`` limits the rows of a batch of a derive query."""
    spark_settings.prepare(spark, job)
    return _query(spark, job, next(q for q in job.queries if q.name == name), binds, report, most)


def _query(
    spark: SparkSession,
    job: JobSettings,
    query: QuerySettings,
    binds: Mapping[str, str],
    report: Reporter,
    most: int | None = derive.ROWS_PER_BATCH,
) -> Query:
    if isinstance(query, DeriveSettings):
        return _derive(spark, job, query, binds, report, most)
    return _read(spark, job, query, binds, report)


def _handled(
    query: Query, job: JobSettings, settings: QuerySettings, binds: Mapping[str, str], report: Reporter
) -> Query:
    """Add the batch handlers that the kinds of its sources need."""
    for source in {source.kind: source for source in settings.sources}.values():
        query = reader_of((source,)).with_batch_handlers(query, job, settings, binds, report)
    return query


def _read(
    spark: SparkSession,
    job: JobSettings,
    query: LandSettings | DirectSettings,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    decoder = routes.query_decoder(spark, query.routes)
    table = Table.of(job.catalog, query.table if isinstance(query, LandSettings) else query.dead_letters)
    read = sources.open_sources(spark, job, query.name, query.sources, table, binds, query.repartition)
    tables.ensure(spark, table, table_schema(decoder.schema), report=report)
    handler: Lander | DirectBatchWriter
    if isinstance(query, LandSettings):
        handler = Lander(query, decoder, IcebergSink(table), read.checkpoint, report, read.guards)
    else:
        ends = direct_routes(spark, job, query, table, binds, report)
        handler = DirectBatchWriter(
            query.name,
            decoder,
            ends,
            IcebergSink(table),
            read.guards.replayed,
            read.checkpoint,
            report,
            data_rules.counts(query.routes),
        )
    location = read.checkpoint.location
    return Query(
        query.name,
        read.rows,
        handler,
        location,
        query.trigger_seconds,
        read.reopen,
        check=read.watch,
        fix_end=read.fix_end,
    )


def _derive(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    binds: Mapping[str, str],
    report: Reporter,
    most: int | None,
) -> Query:
    for table in query.landings:
        await_landing_table(spark, job, query.name, table, report)
    landing = source_table(spark, job, query.name, query.source_table)

    def schemas() -> list[StructType]:
        return [spark.table(str(Table.of(job.catalog, name))).schema for name in query.landings]

    before = schemas()
    checkpoint = Checkpoint(f"{job.checkpoints}/{query.name}", source=source_digest(query.landings))
    compose = enrich_then_transform(spark, job, query.name, query, report)
    rows = open_derived_stream(spark, job, query, compose, landing, most)
    begun = start_with_all_files(spark, rows, checkpoint, query.name)
    for name in begun:
        report.emit(
            "started_from_full_table",
            query=query.name,
            table=name,
            at=batch_accounts.iso_text(batch_accounts.now()),
        )
    compose, schema = batch_transform_and_schema(spark, query, compose, rows, landing)
    sink = prepare_sink(spark, job, query.sink, schema, binds, report, query.key)
    letters = None
    if query.dead_letters is not None:
        letters = DeadLetters(Table.of(job.catalog, query.dead_letters), query.name)
        letters.prepare(spark)
    handler = Deriver(query, landing, compose, sink, letters, checkpoint, report)

    def rebuild() -> Query | None:
        return None if schemas() == before else _derive(spark, job, query, binds, report, most)

    built = Query(
        query.name,
        rows,
        handler,
        checkpoint.location,
        query.trigger_seconds,
        rebuild=rebuild,
        output_mode=query.state.output_mode if query.state is not None and query.state.key else "append",
        fix_end=partial(table_ends.fix_end, spark, rows, checkpoint),
        derives=True,
    )
    return with_batch_ends(built, checkpoint, whole_commits=query.state is not None)
