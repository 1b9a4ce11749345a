"""Commands that run once instead of a job: a replay of dead letters, a backfill of a derived table."""

from __future__ import annotations

from functools import partial

from ..formats.decoding import decoder_per_topic
from ..launch.settings import DeriveSettings, LandSettings
from ..queries import land
from ..queries.direct import write_replayed_to_sinks
from ..queries.query_and_repair_setup import (
    batch_transform_and_schema,
    existing_landing_table,
    make_direct_routes,
    make_enrich_then_transform,
    open_derived_stream,
    prepare_session_and_find_query,
    prepare_sink,
)
from ..record import tables
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from ..sinks.base import LETTER
from ..sinks.iceberg import IcebergSink
from .backfill_derived import DerivedTableBackfiller
from .replay_dead_letters import DeadLetterReplayer
from .replay_refused_rows import RefusedRowReplayer


def make_replayer(run: JobRun, name: str) -> DeadLetterReplayer | RefusedRowReplayer:
    """Make the replay of a query's dead letters; it touches neither source nor checkpoint.

    Raises
    ------
    StartError
        No such query, or a table of dead letters that is missing or has another schema.
    """
    have = [q for q in run.job.queries if not isinstance(q, DeriveSettings) or q.dead_letters is not None]
    query = prepare_session_and_find_query(run, f"--replay {name}", name, "query with dead letters", have)
    if isinstance(query, DeriveSettings):
        return _make_refused_row_replayer(run, query)
    decoder = decoder_per_topic.query_decoder(run.spark, query.routes)
    target = query.table if isinstance(query, LandSettings) else query.dead_letters
    table = run.table(target)
    if not table.exists(run.spark):
        raise StartError(f"--replay {name}: table {table} does not exist, because nothing was landed yet")
    tables.refuse_table_with_other_columns(run.spark, table, land.landing_table_schema(decoder.schema))
    onward = None
    if not isinstance(query, LandSettings):
        onward = partial(write_replayed_to_sinks, make_direct_routes(run, query, table))
    return DeadLetterReplayer(name, table, run.report, tuple(s.name for s in query.sources), decoder, onward)


def make_backfiller(run: JobRun, name: str) -> DerivedTableBackfiller:
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
    derived = [q for q in run.job.queries if isinstance(q, DeriveSettings)]
    query = prepare_session_and_find_query(run, f"--backfill {name}", name, "derive query", derived)
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
    landing = existing_landing_table(run, name, query.source_table)
    compose = make_enrich_then_transform(run, name, query)
    table = run.table(query.sink.lake_table)
    tables.create_or_evolve_table(
        run.spark, table, compose.checked_sink_schema(run.spark, landing, query.route), report=run.report
    )
    return DerivedTableBackfiller(name, landing, compose, IcebergSink(table), run.report, query.route)


def _make_refused_row_replayer(run: JobRun, query: DeriveSettings) -> RefusedRowReplayer:
    """Make the replay of rows that a derive query's sink refused."""
    assert query.dead_letters is not None, f"{query.name}: no table of dead letters"
    if query.key:
        raise StartError(
            f"--replay {query.name}: each of its rows is a result of many records, which a later result "
            "replaces, so an old row cannot be written again. Fix the transform or the sink, and give the "
            "query a new checkpoint with `millrace checkpoint reset`, which computes all results again"
        )
    letters = run.table(query.dead_letters)
    if not letters.exists(run.spark):
        raise StartError(
            f"--replay {query.name}: its sink has refused no row yet, so there is nothing to send again "
            f"(no table {letters})"
        )
    tables.refuse_table_with_other_columns(run.spark, letters, LETTER)
    landing = existing_landing_table(run, query.name, query.source_table)
    compose = make_enrich_then_transform(run, query.name, query)
    rows = open_derived_stream(run, query, compose, landing, None)
    compose, schema = batch_transform_and_schema(run.spark, query, compose, rows, landing)
    sink = prepare_sink(run, query.sink, schema)
    again = landing if query.state is None else None
    return RefusedRowReplayer(query.name, letters, run.report, again, compose, query.route, schema, sink)
