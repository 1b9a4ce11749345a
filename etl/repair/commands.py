"""Commands that run once instead of a job: a replay of dead letters, a backfill of a derived table."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from ..formats.decoding import routes
from ..launch.settings import DeriveSettings, JobSettings, LandSettings
from ..queries import land, spark_settings
from ..queries.direct import ReplayToSinks
from ..queries.query_parts import (
    batch_transform_and_schema,
    direct_routes,
    enrich_then_transform,
    open_derived_stream,
    prepare_sink,
    source_table,
)
from ..record import tables
from ..record.batch_accounts import Reporter
from ..record.errors import StartError
from ..record.tables import Table
from ..sinks.base import LETTER
from ..sinks.iceberg import IcebergSink
from .backfill_derived import Backfiller
from .replay_dead_letters import Replayer
from .replay_refused_rows import RefusedRowReplayer


def replayer(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    report: Reporter,
    binds: Mapping[str, str] | None = None,
) -> Replayer | RefusedRowReplayer:
    """Make the replay of a query's dead letters; it touches neither source nor checkpoint.

    Parameters
    ----------
    binds
        Names and values of ``--bind``, for a query whose sink is not a lake table.

    Raises
    ------
    StartError
        No such query, or a table of dead letters that is missing or has another schema.
    """
    spark_settings.prepare(spark, job)
    have = {q.name: q for q in job.queries if not isinstance(q, DeriveSettings) or q.dead_letters is not None}
    if name not in have:
        raise StartError(
            f"--replay {name}: the job has no such query with dead letters; it has: {', '.join(have) or 'none'}"
        )
    query = have[name]
    if isinstance(query, DeriveSettings):
        return _refused(spark, job, query, binds or {}, report)
    decoder = routes.query_decoder(spark, query.routes)
    target = query.table if isinstance(query, LandSettings) else query.dead_letters
    table = Table.of(job.catalog, target)
    if not table.exists(spark):
        raise StartError(f"--replay {name}: there is no table {table}: nothing was landed")
    tables.check(spark, table, land.table_schema(decoder.schema))
    onward = None
    if not isinstance(query, LandSettings):
        onward = ReplayToSinks(direct_routes(spark, job, query, table, binds or {}, report))
    return Replayer(name, tuple(s.name for s in query.sources), table, decoder, report, onward)


def backfiller(spark: SparkSession, job: JobSettings, name: str, report: Reporter) -> Backfiller:
    """Make the backfill of a range of a landing table; it touches neither source nor checkpoint.

    Parameters
    ----------
    name
        Name of a derive query without state, into an Iceberg table.

    Raises
    ------
    StartError
        No such query, a query that cannot be split by time, or a sink with another schema.
    """
    spark_settings.prepare(spark, job)
    have = {q.name: q for q in job.queries if isinstance(q, DeriveSettings)}
    if name not in have:
        raise StartError(
            f"--backfill {name}: the job has no such derive query; it has: {', '.join(have) or 'none'}"
        )
    query = have[name]
    if query.state is not None:
        raise StartError(
            f"--backfill {name}: the query keeps state, so its results depend on records outside any time range; give "
            "the query another name and another table, and it processes all landed records again"
        )
    if query.latest_by:
        raise StartError(
            f"--backfill {name}: the query keeps the last record of each key (latest_by), which a time range does not "
            "contain; give the query another name and another table, and it processes all landed records again"
        )
    if query.sink.lake_table is None:
        raise StartError(
            f"--backfill {name}: its sink is {query.sink.kind}; only an iceberg sink can be backfilled"
        )
    landing = source_table(spark, job, name, query.source_table)
    compose = enrich_then_transform(spark, job, name, query, report)
    table = Table.of(job.catalog, query.sink.lake_table)
    tables.ensure(spark, table, compose.schema(spark, landing, query.route), report=report)
    return Backfiller(name, landing, compose, IcebergSink(table), report, query.route)


def _refused(
    spark: SparkSession, job: JobSettings, query: DeriveSettings, binds: Mapping[str, str], report: Reporter
) -> RefusedRowReplayer:
    """Make the replay of rows that a derive query's sink refused."""
    assert query.dead_letters is not None, f"{query.name}: no table of dead letters"
    if query.key:
        raise StartError(
            f"--replay {query.name}: its rows are results of many records, which later results replace, so an old row "
            "cannot be written again; fix the transform or the sink, and give the query a new checkpoint with "
            "`millrace checkpoint reset`, which computes all results again"
        )
    letters = Table.of(job.catalog, query.dead_letters)
    if not letters.exists(spark):
        raise StartError(
            f"--replay {query.name}: its sink has refused no row yet, so there is nothing to send again "
            f"(no table {letters})"
        )
    tables.check(spark, letters, LETTER)
    landing = source_table(spark, job, query.name, query.source_table)
    compose = enrich_then_transform(spark, job, query.name, query, report)
    rows = open_derived_stream(spark, job, query, compose, landing, None)
    compose, schema = batch_transform_and_schema(spark, query, compose, rows, landing)
    sink = prepare_sink(spark, job, query.sink, schema, binds, report)
    again = landing if query.state is None else None
    return RefusedRowReplayer(query.name, letters, again, compose, query.route, schema, sink, report)
