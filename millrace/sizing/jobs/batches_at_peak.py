"""Batches at the peak: bytes of a sink's, for the number of its files, and rows of a derive query's, for their limit."""

from __future__ import annotations

from math import ceil

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, DirectQuery, DirectRoute, WritesSink
from millrace.sizing.plan_model import QueryPlan
from millrace.sizing.queries.environment_demands import streams_of_derive_query

_LEAST_ROWS, _PEAK_BATCHES = 1_000_000, 4
"""Rows that the limit of a derive query's batch always allows, and batches at the peak: as many as catch up in one."""


def rows_per_batch_of_derive_query(environment: Environment, query: DeriveQuery, seconds: float) -> int:
    """Return the limit of a derive query's batch: rows of its tables that land at the peak in four triggers.

    A batch of one trigger's rows ends within the trigger, so one of four takes less than four, and a backlog shrinks. Rows of
    all routes of a table count, as Iceberg counts those of files.

    Parameters
    ----------
    environment
        Its streams have the traffic; a table that it does not land counts nothing.
    seconds
        The query's trigger.
    """
    landed = environment.landing_queries
    tables = {table for table, _ in query.source_tables_and_routes}
    names = {name for table in tables if table in landed for name in landed[table][0][2].source_stream_names}
    rate = sum(environment.streams[name].traffic.peak_records_per_second for name in names)
    return max(_LEAST_ROWS, ceil(_PEAK_BATCHES * rate * seconds))


def batch_bytes_at_peak(environment: Environment, query: WritesSink, plan: QueryPlan) -> float:
    """Return the bytes that arrive at the peak between two triggers: peak records per second · trigger · record size.

    Parameters
    ----------
    environment
        Its streams have the traffic.
    query
        Query or route that writes a sink.
    """
    streams = [environment.streams[name] for name in _streams_of_query(environment, query)]
    seconds = plan.trigger_seconds.value
    return sum(s.traffic.peak_records_per_second * seconds * s.traffic.record_size for s in streams)


def _streams_of_query(environment: Environment, query: WritesSink) -> tuple[str, ...]:
    if isinstance(query, DirectQuery | DirectRoute):
        return (query.source,)
    return streams_of_derive_query(environment.landing_queries, query)
