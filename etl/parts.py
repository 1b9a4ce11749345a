"""What queries and what is done once for them are made of: tables, enrichment with transform, state."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from etl import accounts, derive, envelope
from etl.accounts import Reporter
from etl.derive import Composition
from etl.enrich import ReferenceTable
from etl.errors import StartError
from etl.metrics import ages
from etl.route import along
from etl.settings import DeriveSettings, DirectRouteSettings, DirectSettings, JobSettings
from etl.state import Stateful
from etl.tables import Table


def source_table(spark: SparkSession, job: JobSettings, query: str, name: str) -> Table:
    """Find a landing table that a query derives from.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
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
        raise StartError(f"query {query}: {landing} is no landing table: it lacks {', '.join(lacking)}")
    return landing


def composition(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    written: DeriveSettings | DirectSettings | DirectRouteSettings,
    report: Reporter,
) -> Composition:
    """Make what takes good records to rows of a sink.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    name
        Of the query.
    written
        The query, or one of its routes.
    report
        Where is told what is ambiguous in a reference table.

    Raises
    ------
    StartError
        A reference table or a transform that is not there.
    """

    def ambiguous(table: Table, keys: int) -> None:
        report.emit("ambiguous", query=name, table=str(table), keys=keys, at=accounts.text(accounts.now()))

    references = tuple(ReferenceTable(e, Table.of(job.catalog, e.table), ambiguous) for e in written.enrich)
    for reference in references:
        reference.check(spark)
    latest_by = written.latest_by if isinstance(written, DeriveSettings) else ()
    transform = derive.load_transform(written.transform)
    return Composition(references, transform, written.transform or "(none)", latest_by=latest_by)


def derived(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    compose: Composition,
    landing: Table,
    most: int | None,
) -> DataFrame:
    """Open a derive query's stream, with what keeps state: that stands before the batch, enrichment in it.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    query
        The query's.
    compose
        Of :func:`composition`.
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
    rows = along(derive.read(spark, landing, most, deletes=deletes), query.route, str(landing))
    if query.state is None:
        return rows
    join, joined = query.state.join, None
    if join is not None:
        other = source_table(spark, job, query.name, join.source_table)
        joined = along(derive.read(spark, other, most), join.route, str(other))
    if query.state.key:
        # Results have no time of arrival: the ages are those of the records that came in.
        rows = ages.observed(rows)
    build = Stateful(query.state, compose.transform, compose.name)
    return build(rows, joined)


def written(
    spark: SparkSession, query: DeriveSettings, compose: Composition, rows: DataFrame, landing: Table
) -> tuple[Composition, StructType]:
    """What is done with a derive query's batches, and the columns that its sink then gets.

    Parameters
    ----------
    spark
        The job's session.
    query
        The query's.
    compose
        Of :func:`composition`: what keeps state has the transform before the batch, and only enrichment in it.
    rows
        Of :func:`derived`.
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
    after = Composition(compose.references, lambda out: out, compose.name, carries)
    return after, after(spark.createDataFrame([], rows.schema)).schema
