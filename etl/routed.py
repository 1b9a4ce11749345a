"""A routed query: several topics and streams landed in one table, in one action per batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from etl import engines, land, tables
from etl.accounts import Reporter
from etl.checkpoint import Checkpoint
from etl.formats import build as formats
from etl.route import Route, Router
from etl.settings import JobSettings, KinesisSource, RoutedSettings
from etl.sinks.iceberg import IcebergSink
from etl.sources.kinesis_guard import KinesisGuard
from etl.sources.legs import Legs, Topics, in_order, read_topics, union
from etl.sources.opening import connected, open_stream
from etl.supervise import Query
from etl.tables import Table


def router(spark: SparkSession, settings: RoutedSettings) -> Router:
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
    location = f"{job.checkpoints}/{settings.name}"
    table = Table.of(job.catalog, settings.table)
    topics: list[Topics] = []
    guards: list[KinesisGuard] = []
    openers: list[Callable[[], DataFrame]] = []
    for place, leg in enumerate(in_order(settings.sources)):
        checkpoint = Checkpoint(location, place)
        if isinstance(leg, KinesisSource):
            guard, opened = open_stream(spark, job, leg, checkpoint, table, binds.get("kinesis.endpoint"))
            guards.append(guard)
            openers.append(opened)
        else:
            rows = read_topics(
                spark, leg, connected(job, settings.name, leg[0], binds), partitions=settings.repartition
            )
            topics.append(Topics(leg, checkpoint))
            openers.append(lambda rows=rows: rows)  # type: ignore[misc]  # the rows of this turn, not of the last

    def reopen() -> DataFrame:
        return union([opened() for opened in openers])

    rows = reopen()
    decoder = router(spark, settings)
    tables.ensure(spark, table, land.table_schema(rows.schema["_headers"], decoder.schema), report=report)
    handler = land.Lander(
        settings,
        decoder,
        IcebergSink(table),
        Checkpoint(location),
        report,
        Legs(tuple(topics), tuple(guards)),
        bool(guards) and engines.module(job.engine).SPLITS_AGGREGATES,
    )
    return Query(settings.name, rows, handler, location, settings.trigger_seconds, reopen)
