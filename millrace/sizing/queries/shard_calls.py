"""Pace of queries that read one Kinesis stream together: each batch calls each shard, which answers so many calls a second."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.sizing.plan_model import Plan
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand, demands_by_stream

WORKING = 0.02
"""Least share of what a record may wait in which a batch works, where shards answer no shorter trigger."""


class Pace(NamedTuple):
    """Seconds between the batches of a reader: those that it has alone, and the most that it may have."""

    alone: float
    longest: float


def calls_per_second(paces: Iterable[Pace], at_least: float = 0.0) -> float:
    """Return the calls that a shard gets each second if no reader that may wait has batches more often than so many seconds."""
    return sum(1 / max(alone, min(longest, at_least)) for alone, longest in paces)


def triggers_that_shards_answer(
    paces_by_stream: Mapping[str, Mapping[tuple[str, str], Pace]],
) -> dict[tuple[str, str], float]:
    """Return longer triggers of readers, by job and query, so that shards answer the calls of all; of streams where that is possible."""
    found: dict[tuple[str, str], float] = {}
    for paces in paces_by_stream.values():
        least = _least_common_seconds(paces.values())
        for reader, pace in paces.items():
            if pace.alone < (seconds := min(pace.longest, least)):
                found[reader] = max(seconds, found.get(reader, 0.0))
    return found


def _least_common_seconds(paces: Iterable[Pace]) -> float:
    """Return the fewest seconds that all readers may wait so that a shard answers their calls; 0 if none are enough."""
    paces, most = [*paces], service_limits()["kinesis.shard.calls_per_second"]
    slowest = range(1 + int(1000 * max((each.longest for each in paces), default=0.0)))
    least = bisect_left(slowest, True, key=lambda ms: calls_per_second(paces, ms / 1000) <= most)
    return least / 1000 if least < len(slowest) else 0.0


def paces_as_planned(
    fanning_out: Iterable[str], demands: list[QueryDemand], plan: Plan
) -> dict[str, dict[tuple[str, str], Pace]]:
    """Return the paces of a plan's readers without fan-out, by stream, each with what it would have if shards refused calls of all alike."""
    found: dict[str, dict[tuple[str, str], Pace]] = {}
    by_stream, most = demands_by_stream(demands), service_limits()["kinesis.shard.calls_per_second"]
    for stream in fanning_out:
        readers = [each for each in by_stream.get(stream, ()) if not each.fan_out]
        found[stream] = {}
        for each in readers:
            query = plan.jobs[each.job].queries[each.query]
            alone = max(query.trigger_seconds.value, query.batch_seconds.value)
            found[stream][each.job, each.query] = Pace(alone, max(alone, 0.001 + len(readers) / most))
    return found
