"""What queries of several kinds are made of: landing tables that are there, enrichment with transform."""

from __future__ import annotations

from pyspark.sql import SparkSession

from etl import accounts, derive, envelope
from etl.accounts import Reporter
from etl.derive import Composition
from etl.enrich import ReferenceTable
from etl.errors import StartError
from etl.settings import DeriveSettings, DirectRouteSettings, DirectSettings, JobSettings
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
    return Composition(references, derive.load_transform(written.transform), written.transform or "(none)")
