"""Build of running queries from a job's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ..checkpoints import derive_bounded_run_end
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.derive_allowed_batch_ends import query_with_allowed_batch_ends
from ..checkpoints.derive_start_after_expiry import write_starts_and_list_expired_tables
from ..commits.commit_batch_once import source_digest
from ..formats.decoding import data_rules, decoder_per_topic
from ..launch.settings import DeriveSettings, DirectSettings, LandSettings, QuerySettings
from ..queries import open_sources as sources
from ..queries import required_spark_settings
from ..queries.derive import DeriveBatchWriter
from ..queries.direct import DirectBatchWriter
from ..queries.land import LandBatchWriter, landing_table_schema
from ..queries.query_and_repair_setup import (
    await_landing_table,
    batch_transform_and_schema,
    existing_landing_table,
    make_direct_routes,
    make_enrich_then_transform,
    open_derived_stream,
    prepare_sink,
)
from ..record import batch_accounts, tables
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from ..record.ready_query import ReadyQuery
from ..sinks.iceberg import IcebergSink
from ..sinks.refused_rows_dead_letters import DeadLetterTable
from ..sources.base import reader_of
from .checkpoint_check import CheckpointCheck

StateCheck = Callable[[DeriveSettings, DataFrame, StructType], None]
"""Compares a query's plan and its result with its checkpoint, see :meth:`CheckpointCheck.refuse_other_state_or_types`."""


def build_queries(run: JobRun) -> tuple[ReadyQuery, ...]:
    """Make tables and queries, so that every error shows before the first record is read.

    Raises
    ------
    StartError
        Settings, tables, checkpoints or sources that do not fit.
    """
    required_spark_settings.prepare_or_refuse_session(run.spark, run.job)
    manifests = CheckpointCheck(run)
    run = replace(run, job=manifests.check_all_and_apply_resets())
    # Landing tables first: a derive query of the same job reads one.
    order = sorted(run.job.queries, key=lambda q: isinstance(q, DeriveSettings))

    def build(query: QuerySettings) -> ReadyQuery:
        built = _with_source_batch_handlers(
            run, query, _build_query(run, query, manifests.refuse_other_state_or_types)
        )
        return replace(manifests.query_that_updates_manifest(built), rebuild=partial(build, query))

    queries = tuple(build(query) for query in order)
    lacking = [query.name for query in queries if query.determine_end is None]
    if lacking and run.job.run_every_seconds is not None:
        raise StartError(
            f"query {', '.join(lacking)}: `run_every` needs sources that can tell where a bounded run ends, "
            "and a source of this query cannot"
        )
    return queries


def open_query_for_measurement(run: JobRun, name: str, most: int | None) -> ReadyQuery:
    """Open one query of a job for a measurement; ``most`` limits the rows of a batch of a derive query."""
    required_spark_settings.prepare_or_refuse_session(run.spark, run.job)
    query = next(q for q in run.job.queries if q.name == name)
    if isinstance(query, DeriveSettings):
        return _build_derive_query(run, query, lambda *_: None, most)
    return _build_land_or_direct_query(run, query)


def _build_query(run: JobRun, query: QuerySettings, check: StateCheck) -> ReadyQuery:
    if isinstance(query, DeriveSettings):
        return _build_derive_query(run, query, check, query.rows_per_batch)
    return _build_land_or_direct_query(run, query)


def _with_source_batch_handlers(run: JobRun, settings: QuerySettings, query: ReadyQuery) -> ReadyQuery:
    """Add the batch handlers that the kinds of its sources need."""
    for source in {source.kind: source for source in settings.sources}.values():
        query = reader_of((source,)).with_batch_handlers(run, query, settings)
    return query


def _build_land_or_direct_query(run: JobRun, query: LandSettings | DirectSettings) -> ReadyQuery:
    decoder = decoder_per_topic.query_decoder(run.spark, query.routes)
    table = run.table(query.table if isinstance(query, LandSettings) else query.dead_letters)
    read = sources.open_sources(run, query, table)
    tables.create_or_evolve_table(run.spark, table, landing_table_schema(decoder.schema), report=run.report)
    handler: LandBatchWriter | DirectBatchWriter
    if isinstance(query, LandSettings):
        handler = LandBatchWriter(
            query, decoder, IcebergSink(table), read.checkpoint, run.report, read.guards
        )
    else:
        ends = make_direct_routes(run, query, table)
        handler = DirectBatchWriter(
            query.name,
            decoder,
            ends,
            IcebergSink(table),
            read.guards.replayed,
            read.checkpoint,
            run.report,
            data_rules.broken_rule_count_aggregates(query.routes),
            query.repartition,
        )
    return ReadyQuery(
        query.name,
        read.rows,
        handler,
        read.checkpoint.location,
        query.trigger_seconds,
        check=read.watch,
        determine_end=read.determine_end,
    )


def _build_derive_query(
    run: JobRun, query: DeriveSettings, check: StateCheck, most: int | None
) -> ReadyQuery:
    spark = run.spark
    for table in query.landing_tables:
        await_landing_table(run, query.name, table)
    landing = existing_landing_table(run, query.name, query.source_table)
    checkpoint = Checkpoint(f"{run.job.checkpoints}/{query.name}", source=source_digest(query.landing_tables))
    compose = make_enrich_then_transform(run, query.name, query)
    rows = open_derived_stream(run, query, compose, landing, most)
    compose, schema = batch_transform_and_schema(spark, query, compose, rows, landing)
    check(query, rows, schema)
    for name in write_starts_and_list_expired_tables(spark, rows, checkpoint, query.name):
        run.report.emit(
            "started_from_full_table",
            query=query.name,
            table=name,
            at=batch_accounts.iso_text(batch_accounts.utc_now()),
        )
    sink = prepare_sink(run, query.sink, schema, query.key, history=query.history)
    letters = None
    if query.dead_letters is not None:
        letters = DeadLetterTable(run.table(query.dead_letters), query.name)
        letters.prepare(spark)
    handler = DeriveBatchWriter(query, landing, compose, sink, letters, checkpoint, run.report)
    built = ReadyQuery(
        query.name,
        rows,
        handler,
        checkpoint.location,
        query.trigger_seconds,
        output_mode=query.state.output_mode if query.state is not None and query.state.key else "append",
        determine_end=partial(derive_bounded_run_end.checker_of_bounded_run_end, spark, rows, checkpoint),
        derives=True,
    )
    return query_with_allowed_batch_ends(built, checkpoint, whole_commits=query.state is not None)
