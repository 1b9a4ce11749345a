"""Into how many files a batch goes, so that none is small without need."""

from __future__ import annotations

import math

from millrace.config.model import Environment
from millrace.config.queries import DirectQuery, DirectRoute, Written
from millrace.sizing.hops import landed_streams, landings
from millrace.sizing.model import QueryPlan


def files_per_batch(environment: Environment, query: Written, plan: QueryPlan, file_bytes: int) -> int:
    """Return the files into which one batch of a file sink is written, at most.

    ``ceil(peak records per second · trigger · record size / file size)``, at least 1: what arrives at the
    peak between two triggers, by the size of file that is wanted. Parquet packs a record into less
    than its JSON, so files come out smaller than asked, never larger by much.

    Parameters
    ----------
    environment
        Whose streams say how much arrives.
    query
        That writes the files, or the route of one.
    plan
        Its trigger.
    file_bytes
        The size of file that is wanted.
    """
    streams = [environment.streams[name] for name in _streams(environment, query)]
    seconds = plan.trigger_seconds.value
    volume = sum(
        s.traffic.records_per_second * s.traffic.peak_factor * seconds * s.traffic.record_size
        for s in streams
    )
    return max(1, math.ceil(volume / file_bytes))


def _streams(environment: Environment, query: Written) -> tuple[str, ...]:
    if isinstance(query, DirectQuery | DirectRoute):
        return (query.source,)
    return landed_streams(landings(environment), query)
