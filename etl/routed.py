"""A routed query: several topics and streams landed in one table, in one action per batch."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from etl import land
from etl.accounts import Reporter
from etl.formats import build as formats
from etl.route import Route, Router
from etl.settings import JobSettings, RoutedDirectSettings, RoutedSettings
from etl.sinks.iceberg import IcebergSink
from etl.sources.legs import Legs
from etl.sources.opening import landing_table, opened
from etl.supervise import Query
from etl.tables import Table


def router(spark: SparkSession, settings: RoutedSettings | RoutedDirectSettings) -> Router:
    """Make the decoder of a routed query.

    Parameters
    ----------
    spark
        The job's session.
    settings
        The query's.

    Raises
    ------
    StartError
        A schema that cannot be read, or routes that cannot be told apart.
    """
    return Router(
        tuple(
            Route(route.name, route.source.name, route.origin, formats.of_query(spark, route))
            for route in settings.routes
        )
    )


def query(
    spark: SparkSession,
    job: JobSettings,
    settings: RoutedSettings,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    """Make a routed query, its table with it.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    settings
        The query's.
    binds
        Names and values of ``--bind``.
    report
        Where batches are reported.

    Raises
    ------
    StartError
        Whatever does not fit.
    """
    table = Table.of(job.catalog, settings.table)
    read = opened(spark, job, settings.name, settings.sources, table, binds, settings.repartition)
    decoder = router(spark, settings)
    landing_table(spark, table, read, decoder, report)
    legs = Legs(read.topics, read.guards)
    handler = land.Lander(
        settings, decoder, IcebergSink(table), read.checkpoint, report, legs, read.splits_aggregates(job)
    )
    location = read.checkpoint.location
    return Query(settings.name, read.rows, handler, location, settings.trigger_seconds, read.reopen)
