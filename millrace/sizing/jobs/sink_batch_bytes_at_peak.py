"""Largest batch of a sink in bytes, for the number of its files."""

from __future__ import annotations

from millrace.config.model import Environment
from millrace.config.queries import DirectQuery, DirectRoute, WritesSink
from millrace.sizing.plan_model import QueryPlan
from millrace.sizing.queries.environment_demands import streams_of_derive_query
from millrace.sizing.queries.latency_shares import landing_queries_by_table


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
    return streams_of_derive_query(landing_queries_by_table(environment), query)
