"""Search for the partitions of streams that are the cheapest together with the cores and workers that read them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from millrace.sizing.alternatives.job_planner import JobPlanner
from millrace.sizing.alternatives.partition_candidates import (
    CONTESTED,
    candidates_for_shared_cores,
    cheapest_candidates,
    combined_candidates,
    least_workers_usd,
)
from millrace.sizing.cost import CENT, HOURS
from millrace.sizing.jobs.shared_cores import divide_into_tasks_or_none
from millrace.sizing.shards_and_partitions import StreamWithReaders

_STEPS = (1, 2, 3)
"""Partitions more that are tried next: with a pinned limit of a batch those in between may shorten nothing."""

_DOUBLINGS = 10
"""How often partitions are doubled at most."""


def cheapest_partitions(
    planner: JobPlanner, readings: Mapping[str, StreamWithReaders], given: Mapping[str, int]
) -> dict[str, int]:
    """Return the partitions of all streams, those that are free so that streams and jobs cost the least together.

    Parameters
    ----------
    readings
        By stream.
    given
        Partitions of the streams that are not free.
    """
    fitting = {
        name: each.fewest_with_spare(one_wave=False)
        for name, each in readings.items()
        if each.is_left_to_plan
    }
    readings = {name: replace(each, large_workers=True) for name, each in readings.items()}
    options = {
        # Of choices that cost the same the first by name, whatever the order in the file.
        name: readings[name].fewest_partitions_by_cores()
        for name in sorted(readings)
        if readings[name].is_left_to_plan
    }
    # Where nothing else decides, the fewest cores.
    chosen = {**given, **{name: each[min(each)] for name, each in options.items() if each}}
    chosen |= {
        name: readings[name].fewest_with_spare(one_wave=True) for name, each in options.items() if not each
    }
    by_job: dict[str, dict[str, dict[int, int]]] = {}
    for name, numbers in options.items():
        job = readings[name].main_reader.job
        if numbers or len(planner.demands[job]) > 1:
            by_job.setdefault(job, {})[name] = numbers
    for job, own in by_job.items():
        chosen = _cheapest_partitions_of_job(planner, readings, job, own, chosen, fitting)
    return chosen


def _cheapest_partitions_of_job(
    planner: JobPlanner,
    readings: Mapping[str, StreamWithReaders],
    job: str,
    own: Mapping[str, Mapping[int, int]],
    chosen: dict[str, int],
    fitting: Mapping[str, int],
) -> dict[str, int]:
    """Return partitions of all streams, of which those of one job cost the least together with it.

    Parameters
    ----------
    own
        Partitions of its streams by cores.
    fitting
        Partitions whose tasks hold a batch on usual workers.
    """
    if len(planner.demands[job]) > 1:
        streams = [readings[name] for name in own]
        shared = [
            one
            for demands in planner.by_driver[job].values()
            for one in candidates_for_shared_cores(planner, job, demands, streams, chosen)
        ]
        # The same partitions are planned once, and judged by their fewest cores.
        shared.sort(key=lambda one: -one.cores)
        different = {tuple(one.partitions.values()): one for one in shared}
        starts = []
        for candidate in cheapest_candidates(planner, job, chosen, [*different.values()]):
            fewer = {**chosen, **candidate.partitions}
            for stream in streams:
                fewer[stream.name] = _fewest_partitions_that_cost_less(
                    planner, job, stream, fewer, candidate.cores
                )
            starts.append(fewer)
    else:
        costs = {
            (name, number): planner.streams_usd(readings, [name], {**chosen, name: number})
            for name, numbers in own.items()
            for number in numbers.values()
        }
        combined = [
            replace(each, usd=planner.streams_usd(readings, own, {**chosen, **each.partitions}))
            for each in combined_candidates(own, costs)
        ]
        found = cheapest_candidates(planner, job, chosen, combined)
        starts = [{**chosen, **candidate.partitions} for candidate in found]
    cost = partial(planner.monthly_usd, _jobs_that_read(job, readings, own), readings, own)
    # Of those that pins refuse or that cost the same, the ones for usual workers.
    usual = [{**each, **{name: max(each[name], fitting[name]) for name in own}} for each in starts]
    starts = [*usual, *(each for each in starts if each not in usual)]
    # From the cheapest, and from one that pins refuse: a pin may be of those to which the search leads.
    refused = [each for each in starts if cost(each) == math.inf]
    climbed = [
        _more_partitions_that_cost_less(planner, job, readings, own, each)
        for each in (min(starts, key=cost), *refused[:1])
    ]
    return min(climbed, key=cost)


def _jobs_that_read(
    job: str, readings: Mapping[str, StreamWithReaders], streams: Collection[str]
) -> list[str]:
    """Return a job, and the others that read some of its streams: what one of them alone does not save, all may."""
    return [*dict.fromkeys([job, *(demand.job for name in streams for demand in readings[name].readers)])]


def _more_partitions_that_cost_less(
    planner: JobPlanner,
    job: str,
    readings: Mapping[str, StreamWithReaders],
    own: Collection[str],
    chosen: dict[str, int],
) -> dict[str, int]:
    """Return partitions with more of some streams, as long as they save more than they cost.

    The search counts cores, and a bounded run costs its duration too, which is that of its slowest stream. Where memory takes more
    workers or larger ones than the cores, tasks that fetch less may do with fewer or smaller ones.
    """
    jobs = _jobs_that_read(job, readings, own)

    def cost(partitions: dict[str, int], streams: Collection[str] = own) -> float:
        return planner.monthly_usd(jobs, readings, streams, partitions)

    bounded = planner.environment.jobs[job].run_every is not None
    least = {name: readings[name].fewest_with_spare(one_wave=False) for name in own}
    reach = 0
    while (most := _most_that_more_partitions_save(planner, job, chosen)) > CENT:
        now = planner.streams_usd(readings, own, chosen)

        def may_cost_less(partitions: dict[str, int], limit: float = now + most - CENT) -> bool:
            return planner.streams_usd(readings, own, partitions) < limit

        raised = _streams_to_raise(planner, job, own, chosen)
        steps = [
            {**chosen, **{name: chosen[name] + more for name in names}}
            # Of one that goes too far, fewer that cost no more are taken.
            for more in (*_STEPS, *([2 * max(reach, *_STEPS)] if bounded else []))
            for names in raised
        ]
        if bounded:
            steps += _as_many_as_cores(planner, job, least, chosen)
            # What one stream has gained may be too much for another.
            steps += [{**chosen, name: chosen[name] - 1} for name in own if chosen[name] > least[name]]
        else:
            # One stream may have been enough for smaller workers, or a part of the step.
            doubled = (_doubled_while(may_cost_less, chosen, names) for names in raised)
            steps = [each for each in chain(steps, *doubled) if cost(each, ()) < cost(chosen, ()) - CENT]
            different = {cost(each, ()): each for each in reversed(steps)}
            steps = [_fewest_between(chosen, each, own, cost) for each in different.values()]
        best = min(filter(may_cost_less, steps), key=cost, default=chosen)
        if cost(best) >= cost(chosen) - CENT:
            break
        before, chosen = chosen, _fewest_between(chosen, best, own, cost) if bounded else best
        reach = max(chosen[name] - before[name] for name in own)
    return chosen


def _doubled_while(
    affordable: Callable[[dict[str, int]], bool], chosen: Mapping[str, int], names: Collection[str]
) -> Iterator[dict[str, int]]:
    """Yield twice as many partitions of some streams, four times …, as long as they are affordable.

    Tasks may have to fetch much less before they fit on a smaller worker.
    """
    for power in range(1, _DOUBLINGS):
        more = {**chosen, **{name: chosen[name] << power for name in names}}
        if not affordable(more):
            return
        yield more


def _as_many_as_cores(
    planner: JobPlanner, job: str, least: Mapping[str, int], chosen: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return other partitions of some streams, as many as the cores of about as many executors: full waves of tasks save a shuffle."""
    sized, _ = planner.plan_or_findings(job, chosen)
    if sized is None:
        return []
    numbers = [sized.vcpu * (sized.executors.value + more) for more in (-1, 0, 1)]
    return [
        {**chosen, **dict.fromkeys(names, number)}
        for names in _streams_to_raise(planner, job, least, chosen)
        for number in numbers
        if number >= max(least[name] for name in names)
    ]


def _fewest_between(
    few: Mapping[str, int],
    many: dict[str, int],
    own: Collection[str],
    cost: Callable[[dict[str, int]], float],
) -> dict[str, int]:
    """Return the fewest partitions of one stream after the other that cost no more than many."""
    for name in own:
        ways = [{**many, name: number} for number in range(min(few[name], many[name]), many[name] + 1)]
        most = cost(many)
        many = ways[bisect_left(ways, True, key=lambda each: cost(each) <= most)]
    return many


def _most_that_more_partitions_save(planner: JobPlanner, job: str, chosen: Mapping[str, int]) -> float:
    """Return the most dollars a month by which a job may get cheaper: all of a bounded one, or what its workers cost beyond its cores.

    Infinity if pins refuse these partitions.
    """
    sized, _ = planner.plan_or_findings(job, chosen)
    if sized is None:
        return math.inf
    if sized.run is not None:
        return sum(line.usd for line in sized.cost)
    paid = sized.max_workers.value * sized.worker_usd_hour * HOURS
    return paid - least_workers_usd(planner, job, sized.cores.value)


def _streams_to_raise(
    planner: JobPlanner, job: str, own: Collection[str], chosen: Mapping[str, int]
) -> list[Collection[str]]:
    """Return each stream and all, as of two alike one alone shortens nothing; of many the slowest 1, 2, 4 … with those as slow."""
    if len(own) <= CONTESTED:
        return [*([name] for name in own), own]
    sized, _ = planner.plan_or_findings(job, chosen)
    seconds = dict.fromkeys(own, 0.0)
    for demand in planner.demands[job]:
        for name in seconds.keys() & demand.streams.keys():
            batch = 0.0 if sized is None else sized.queries[demand.query].batch_seconds.value
            seconds[name] = max(seconds[name], batch)
    slowest = sorted(seconds.values(), reverse=True)
    places = (2**size - 1 for size in range(len(slowest).bit_length()))
    limits = dict.fromkeys([*(slowest[place] for place in places), slowest[-1]])
    return [[name for name in own if seconds[name] >= limit] for limit in limits]


def _fewest_partitions_that_cost_less(
    planner: JobPlanner, job: str, reading: StreamWithReaders, chosen: Mapping[str, int], cores: int
) -> int:
    """Return the fewest partitions of a stream with which it and the job cost less, while other streams keep theirs.

    The search divides the batches of all streams together, which gives some of them more than they need beside the others.
    """
    least, most = reading.fewest_with_spare(one_wave=False), chosen[reading.name]

    def cost(number: int, jobs: Sequence[str] = (job,)) -> float:
        return planner.monthly_usd(
            jobs, {reading.name: reading}, [reading.name], {**chosen, reading.name: number}
        )

    if cost(least, ()) == cost(most, ()):
        return most
    now, _ = planner.plan_or_findings(job, chosen)
    usd = cost(most)
    if now is not None:
        cores = now.executors.value * now.vcpu
    paid, demands = planner.environment.jobs[job].cores or cores, planner.demands[job]
    for number in range(least, most):
        batches = planner.largest_batches(demands, {**chosen, reading.name: number})
        if divide_into_tasks_or_none(batches, paid) is not None and cost(number) < usd - CENT:
            return number
    return most
