"""Search for the cores on which bounded runs cost the least: more of them end sooner, and each is billed for the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.run_plan import billed_run_seconds, run_stage_seconds
from millrace.sizing.queries.sizing_formulas import CoreSpread

_SIZED = 3
"""Numbers of cores of a bounded run for which workers are chosen: those of the fewest seconds of workers of one size."""


def cores_of_cheapest_runs(
    first: int,
    each: int,
    spreads_on: Callable[[int], list[CoreSpread]],
    demands: Sequence[QueryDemand],
    sources: Sequence[SourcePartitions],
) -> list[int]:
    """Return the few numbers of cores whose runs may cost the least.

    A run on more cores takes as long or less, so those between two numbers cost no less than the duration on the larger one.

    Parameters
    ----------
    first, each
        Fewest cores, and those of a worker, in whose steps others are tried.
    spreads_on
        Distribution of the queries over a number of cores.
    """

    def seconds(cores: int) -> float:
        return billed_run_seconds(run_stage_seconds(demands, spreads_on(cores), sources))

    def worker_seconds(cores: int, seconds: float) -> float:
        return (cores / each + 1) * max(service_limits()["bounded.least_billed_seconds"], seconds)

    found, step = {first: seconds(first)}, each
    cheapest, last = worker_seconds(first, found[first]), first
    while worker_seconds(last + each, _least_run_seconds(demands, sources, last + each)) <= cheapest:
        last, step = last + step, 2 * step
        found[last] = seconds(last)
        cheapest = min(cheapest, worker_seconds(last, found[last]))
    between = [*pairwise(found)]
    while between:
        low, high = between.pop()
        if high - low > each and worker_seconds(low + each, found[high]) <= cheapest:
            middle = low + (high - low) // (2 * each) * each
            found[middle] = seconds(middle)
            cheapest = min(cheapest, worker_seconds(middle, found[middle]))
            between += [(middle, high), (low, middle)]
    return sorted(found, key=lambda cores: worker_seconds(cores, found[cores]))[:_SIZED]


def _least_run_seconds(
    demands: Sequence[QueryDemand], sources: Sequence[SourcePartitions], cores: int
) -> float:
    """Return the billed seconds below which no run ends on so many cores."""
    # Bills are those of the average rate.
    records = [each.average * each.work.planned_trigger_seconds * each.work.rate for each in demands]
    each_stage = [
        [(each.work, number) for each, number in zip(demands, records, strict=True) if each.lands is lands]
        for lands in (True, False)
    ]
    to_land, to_derive = (
        max((work.overhead for work, _ in stage), default=0.0)
        + sum(number * work.per_record for work, number in stage) / cores
        for stage in each_stage
    )
    # No number of cores gets records sooner than shards hand them over.
    read = max(
        number * each.work.hand_over / source.all_at_once
        for each, number, source in zip(demands, records, sources, strict=True)
    )
    return service_limits()["bounded.billed_start_seconds"] + max(to_land, read) + to_derive
