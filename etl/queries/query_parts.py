"""Builds what queries and repairs have in common: landing table, enrichment with transform, sink, state."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..formats.decoding.routes import rows_of_route
from ..launch.settings import DeriveSettings, DirectRouteSettings, DirectSettings, JobSettings
from ..launch.sink_kinds import JobContext, SinkSettings
from ..metrics import ages
from ..record import batch_accounts, envelope
from ..record.batch_accounts import Reporter
from ..record.errors import StartError
from ..record.tables import Table
from ..sinks.base import Sink
from . import derive
from .derive import EnrichThenTransform
from .direct import DirectRoute
from .enrich import ReferenceTable
from .stateful import Stateful

LANDING_SECONDS = 600.0
"""How long a job's start waits for a table that another job lands: one deployment starts both."""

LOOK_SECONDS = 5.0


def await_landing(spark: SparkSession, job: JobSettings, query: str, name: str, report: Reporter) -> None:
    """Wait for a landing table that its own job has yet to make; return when it is there, or not in time.

    Parameters
    ----------
    query, name
        As for :func:`source_table`, which says what is wrong.
    report
        Where is told, once, what is waited for.
    """
    landing, until = Table.of(job.catalog, name), monotonic() + LANDING_SECONDS
    if not landing.exists(spark):
        report.emit("waiting_for_table", query=query, table=str(landing), most_seconds=LANDING_SECONDS)
    while not landing.exists(spark) and monotonic() < until:
        sleep(LOOK_SECONDS)


def source_table(spark: SparkSession, job: JobSettings, query: str, name: str) -> Table:
    """Find a landing table that a query derives from.

    Parameters
    ----------
    query
        Name of the query, for messages.
    name
        ``database.table``.

    Raises
    ------
    StartError
        It is not there, or is no landing table.
    """
    landing = Table.of(job.catalog, name)
    if not landing.exists(spark):
        raise StartError(f"query {query}: there is no table {landing}; start the job that lands it first")
    lacking = [c for c in envelope.CARRIED + derive.DEAD_LETTER if c not in spark.table(str(landing)).columns]
    if lacking:
        raise StartError(f"query {query}: {landing} is not a landing table: it lacks {', '.join(lacking)}")
    return landing


def enrich_then_transform(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    written: DeriveSettings | DirectRouteSettings,
    report: Reporter,
) -> EnrichThenTransform:
    """Make what takes good records to rows of a sink.

    Parameters
    ----------
    written
        The query, or one of the routes of a direct one.
    report
        Where is told what is ambiguous in a reference table.

    Raises
    ------
    StartError
        A reference table or a transform that is not there.
    """

    def ambiguous(table: Table, keys: int) -> None:
        report.emit(
            "ambiguous",
            query=name,
            table=str(table),
            keys=keys,
            at=batch_accounts.iso_text(batch_accounts.now()),
        )

    references = tuple(ReferenceTable(e, Table.of(job.catalog, e.table), ambiguous) for e in written.enrich)
    for reference in references:
        reference.check(spark)
    latest_by = written.latest_by if isinstance(written, DeriveSettings) else ()
    transform = derive.load_transform(written.transform)
    return EnrichThenTransform(references, transform, written.transform or "(none)", latest_by=latest_by)


def prepare_sink(
    spark: SparkSession,
    job: JobSettings,
    settings: SinkSettings,
    schema: StructType,
    binds: Mapping[str, str],
    report: Reporter,
    key: tuple[str, ...] = (),
) -> Sink:
    """Make a sink, and what it writes to, for rows of a schema; ``key`` as of :class:`etl.launch.sink_kinds.JobContext`.

    Raises
    ------
    StartError
        As of :meth:`etl.launch.sink_kinds.SinkSettings.open` and :meth:`etl.sinks.base.Sink.prepare`.
    """
    sink = settings.open(JobContext(job.connections, binds, job.catalog, key, report))
    sink.prepare(spark, schema)
    return sink


def direct_routes(
    spark: SparkSession,
    job: JobSettings,
    query: DirectSettings,
    letters: Table,
    binds: Mapping[str, str],
    report: Reporter,
) -> tuple[DirectRoute, ...]:
    """Make the lanes of a direct query; ``letters`` is its table of dead letters, which exists.

    Raises
    ------
    StartError
        As of :func:`enrich_then_transform` and :func:`prepare_sink`.
    """
    made = []
    for route in query.routes:
        compose = enrich_then_transform(spark, job, query.name, route, report)
        schema = compose.schema(spark, letters, route.name)
        sink = prepare_sink(spark, job, route.sink, schema, binds, report)
        made.append(DirectRoute(route.name, route.source.name, compose, sink))
    return tuple(made)


def open_derived_stream(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    compose: EnrichThenTransform,
    landing: Table,
    most: int | None,
) -> DataFrame:
    """Open a derive query's stream, with what keeps state: that stands before the batch, enrichment in it.

    Parameters
    ----------
    compose
        Of :func:`enrich_then_transform`.
    landing
        The table that it derives from.
    most
        Rows in a batch, by whole files; None for all that there are.

    Raises
    ------
    StartError
        A table that is not there, or a transform that does not fit.
    """
    deletes = bool(query.latest_by)
    rows = rows_of_route(derive.read(spark, landing, most, deletes=deletes), query.route, str(landing))
    if query.state is None:
        return rows
    join, joined = query.state.join, None
    if join is not None:
        other = source_table(spark, job, query.name, join.source_table)
        joined = rows_of_route(derive.read(spark, other, most), join.route, str(other))
    if query.state.key:
        # Results have no time of arrival: the ages are those of the records that came in.
        rows = ages.observe_arrivals(rows)
    build = Stateful(query.state, compose.transform, compose.name)
    with derive.naming_failed_transform(compose.name, rows):
        return build(rows, joined)


def batch_transform_and_schema(
    spark: SparkSession, query: DeriveSettings, compose: EnrichThenTransform, rows: DataFrame, landing: Table
) -> tuple[EnrichThenTransform, StructType]:
    """What is done with a derive query's batches, and the columns that its sink then gets.

    Parameters
    ----------
    compose
        Of :func:`enrich_then_transform`: what keeps state has the transform before the batch, and only enrichment in it.
    rows
        Of :func:`open_derived_stream`.
    landing
        The table that it derives from.

    Raises
    ------
    StartError
        A transform that loses what every row must carry.
    """
    if query.state is None:
        return compose, compose.schema(spark, landing, query.route)
    carries = ("_id",) if query.state.key else envelope.CARRIED
    after = EnrichThenTransform(compose.references, lambda out: out, compose.name, carries)
    return after, after(spark.createDataFrame([], rows.schema)).schema
