"""Set-up that queries and repairs share: landing table, enrichment with transform, sink, state."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic, sleep
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..formats.decoding.decoder_per_topic import rows_of_route
from ..launch.settings import DeriveSettings, DirectRouteSettings, DirectSettings, QuerySettings
from ..launch.sinks import SinkSettings
from ..metrics import arrival_times
from ..record import batch_accounts, envelope
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from ..record.tables import Table
from ..sinks.base import Sink, open_sink
from . import derive, required_spark_settings, transform
from .direct import DirectRoute
from .enrich import ReferenceTable
from .stateful import StatefulTransform
from .transform import EnrichThenTransform

LANDING_SECONDS = 600.0
"""Longest wait of a job's start for a table that another job lands: one deployment starts both."""

LOOK_SECONDS = 5.0

FoundQuery = TypeVar("FoundQuery", bound=QuerySettings)


def prepare_session_and_find_query(
    run: JobRun, command: str, name: str, kind: str, have: Iterable[FoundQuery]
) -> FoundQuery:
    """Find the query of a command, in a session that is prepared for it.

    Parameters
    ----------
    command, kind
        Command and kind of query, for messages.
    have
        Queries to which the command applies.

    Raises
    ------
    StartError
        None has this name.
    """
    required_spark_settings.prepare_or_refuse_session(run.spark, run.job)
    by_name = {query.name: query for query in have}
    if name not in by_name:
        raise StartError(
            f"{command}: the job has no {kind} of this name; it has: {', '.join(by_name) or 'none'}"
        )
    return by_name[name]


def await_landing_table(run: JobRun, query: str, name: str) -> None:
    """Wait for a landing table that another job has yet to create; return when it exists or after a time limit.

    Parameters
    ----------
    query, name
        As in :func:`existing_landing_table`, which reports a missing table.
    """
    landing, until = run.table(name), monotonic() + LANDING_SECONDS
    if not landing.exists(run.spark):
        run.report.emit("waiting_for_table", query=query, table=str(landing), most_seconds=LANDING_SECONDS)
    while not landing.exists(run.spark) and monotonic() < until:
        sleep(LOOK_SECONDS)


def existing_landing_table(run: JobRun, query: str, name: str) -> Table:
    """Find the landing table of a derive query.

    Parameters
    ----------
    query
        Name of the query, for messages.
    name
        ``database.table``.

    Raises
    ------
    StartError
        The table does not exist, or is no landing table.
    """
    landing = run.table(name)
    if not landing.exists(run.spark):
        raise StartError(f"query {query}: table {landing} does not exist; start the job that writes it first")
    there = run.spark.table(str(landing)).columns
    lacking = [c for c in envelope.CARRIED + transform.DEAD_LETTER if c not in there]
    if lacking:
        raise StartError(f"query {query}: {landing} is not a landing table: it lacks {', '.join(lacking)}")
    return landing


def make_enrich_then_transform(
    run: JobRun, name: str, written: DeriveSettings | DirectRouteSettings
) -> EnrichThenTransform:
    """Make the function from good records to rows of a sink.

    Parameters
    ----------
    written
        The query, or a route of a direct query.

    Raises
    ------
    StartError
        A reference table or transform does not exist.
    """

    def report_ambiguous_keys(table: Table, keys: int) -> None:
        run.report.emit(
            "ambiguous",
            query=name,
            table=str(table),
            keys=keys,
            at=batch_accounts.iso_text(batch_accounts.utc_now()),
        )

    references = tuple(ReferenceTable(e, run.table(e.table), report_ambiguous_keys) for e in written.enrich)
    for reference in references:
        reference.refuse_missing_columns(run.spark)
    latest_by: tuple[str, ...] = ()
    order, history = None, False
    if isinstance(written, DeriveSettings):
        latest_by, order, history = written.latest_by, written.latest_order, written.history
    by = transform.load_transform(written.transform)
    return EnrichThenTransform(
        references,
        by,
        written.transform or "(none)",
        latest_by=latest_by,
        latest_order=order,
        history=history,
    )


def prepare_sink(
    run: JobRun,
    settings: SinkSettings,
    schema: StructType,
    key: tuple[str, ...] = (),
    *,
    history: bool = False,
) -> Sink:
    """Make a sink and its target for rows of a schema; ``key`` and ``history`` as in :func:`etl.sinks.base.open_sink`.

    Raises
    ------
    StartError
        As in :func:`etl.sinks.base.open_sink` and :meth:`etl.sinks.base.Sink.prepare`.
    """
    sink = open_sink(settings, run, key, history=history)
    sink.prepare(run.spark, schema)
    return sink


def make_direct_routes(run: JobRun, query: DirectSettings, letters: Table) -> tuple[DirectRoute, ...]:
    """Make the routes of a direct query; ``letters`` is its existing table of dead letters.

    Raises
    ------
    StartError
        As in :func:`make_enrich_then_transform` and :func:`prepare_sink`.
    """
    made = []
    for route in query.routes:
        compose = make_enrich_then_transform(run, query.name, route)
        sink = prepare_sink(run, route.sink, compose.checked_sink_schema(run.spark, letters, route.name))
        made.append(DirectRoute(route.name, route.source.name, compose, sink))
    return tuple(made)


def open_derived_stream(
    run: JobRun, query: DeriveSettings, compose: EnrichThenTransform, landing: Table, most: int | None
) -> DataFrame:
    """Open a derive query's stream, with its state: state is built before the batch, enrichment inside it.

    Parameters
    ----------
    compose
        From :func:`make_enrich_then_transform`.
    landing
        Table that it derives from.
    most
        Most rows in a batch, by complete files; None for all.

    Raises
    ------
    StartError
        A table does not exist, or the transform does not fit.
    """
    read = derive.stream_landing_table(run.spark, landing, most, deletes=bool(query.latest_by))
    rows = rows_of_route(read, query.route, str(landing))
    if query.state is None:
        return rows
    # Each file is a task, thousands after a pause; the tasks of the state are as many as the job has cores.
    rows = rows.coalesce(int(run.spark.conf.get("spark.sql.shuffle.partitions") or 1))
    join, joined = query.state.join, None
    if join is not None:
        other = existing_landing_table(run, query.name, join.source_table)
        joined = rows_of_route(derive.stream_landing_table(run.spark, other, most), join.route, str(other))
    if query.state.key:
        # Results have no arrival time: the ages are those of the input records.
        rows = arrival_times.observe_arrivals(rows)
    build = StatefulTransform(query.state, compose.transform, compose.name)
    with transform.name_transform_in_errors(compose.name, rows):
        return build(rows, joined)


def batch_transform_and_schema(
    spark: SparkSession, query: DeriveSettings, compose: EnrichThenTransform, rows: DataFrame, landing: Table
) -> tuple[EnrichThenTransform, StructType]:
    """Return the transform of a derive query's batches, and the columns that its sink gets.

    Parameters
    ----------
    compose
        From :func:`make_enrich_then_transform`: with state, the transform runs before the batch, and only enrichment in it.
    rows
        From :func:`open_derived_stream`.
    landing
        Table that it derives from.

    Raises
    ------
    StartError
        A transform drops a column that every row must have.
    """
    if query.state is None:
        return compose, compose.checked_sink_schema(spark, landing, query.route)
    carries = ("_id",) if query.state.key else envelope.CARRIED
    after = EnrichThenTransform(compose.references, lambda out: out, compose.name, carries)
    return after, after(spark.createDataFrame([], rows.schema)).schema
