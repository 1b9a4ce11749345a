"""How much a batch brings at most, out of which the number of its files comes."""

from __future__ import annotations

from millrace.config.model import Environment
from millrace.config.queries import DirectQuery, DirectRoute, Written
from millrace.sizing.demand import landed_streams, landings
from millrace.sizing.model import QueryPlan


def batch_bytes(environment: Environment, query: Written, plan: QueryPlan) -> float:
    """Return the bytes that arrive at the peak between two triggers: peak records per second · trigger · record size.

    Parameters
    ----------
    environment
        Whose streams say how much arrives.
    query
        That writes a sink, or the route of one.
    """
    streams = [environment.streams[name] for name in _streams(environment, query)]
    seconds = plan.trigger_seconds.value
    return sum(
        s.traffic.records_per_second * s.traffic.peak_factor * seconds * s.traffic.record_size
        for s in streams
    )


def _streams(environment: Environment, query: Written) -> tuple[str, ...]:
    if isinstance(query, DirectQuery | DirectRoute):
        return (query.source,)
    return landed_streams(landings(environment), query)
