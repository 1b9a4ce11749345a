"""Search for the partitions of streams that are the cheapest together with the cores and workers that read them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from millrace.config.job_networks import reason_job_runs_in_vpc
from millrace.sizing.alternatives.job_planner import JobPlanner, job_without_names
from millrace.sizing.alternatives.partition_candidates import (
    CONTESTED,
    candidates_for_shared_cores,
    cheapest_candidates,
    combined_candidates,
)
from millrace.sizing.cost import CENT, HOURS
from millrace.sizing.jobs.shared_cores import fewest_shared_cores
from millrace.sizing.jobs.worker_choices import least_workers_usd
from millrace.sizing.plan_model import JobPlan
from millrace.sizing.queries.sizing_formulas import cores_needed, whole_cores
from millrace.sizing.shards_and_partitions import StreamWithReaders

_STEPS = (-1, 1, 2, 3)
"""Partitions more that are tried; with a pinned limit of a batch, one more may shorten nothing."""

_PARTS = (0.25, 0.5, 0.75, *(half * 2**power for power in range(10) for half in (1.5, 2)))
"""Shares and multiples of partitions that are tried."""

_WAVES = (1, 2, 3)
"""Waves of tasks for which partitions are tried."""

_EACH = 33
"""Partitions of a stream below which each number is tried for bounded runs, by the estimate."""

_PLANNED = 8
"""Partitions for bounded runs that are planned and priced exactly, the cheapest by an estimate."""


class _Search(NamedTuple):
    """A search for the partitions of a job's streams.

    Attributes
    ----------
    cluster_usd
        Dollars a month of each cluster with so many partitions more than at the begin, for each number that was tried.
    partitions
        Those that were chosen, in the order of the streams.
    """

    cluster_usd: Mapping[tuple[str, int], float]
    partitions: Sequence[int]


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
    readings = {name: each.on_large_workers for name, each in readings.items()}
    options = {
        # Of choices that cost the same the first by name, whatever the order in the file.
        name: readings[name].fewest_partitions_by_cores
        for name in sorted(readings)
        if readings[name].is_left_to_plan
    }
    # Where nothing else decides, the fewest cores.
    chosen = {**given, **{name: each[min(each)] for name, each in options.items() if each}}
    chosen |= {
        name: readings[name].fewest_with_spare(one_wave=True) for name, each in options.items() if not each
    }
    by_job: dict[str, dict[str, Mapping[int, int]]] = {}
    for name, numbers in options.items():
        job = readings[name].main_reader.job
        if numbers or len(planner.demands[job]) > 1:
            by_job.setdefault(job, {})[name] = numbers
    for job, own in by_job.items():
        # A new object for each job, by which the planner knows that topics must be added up again.
        chosen = {
            **chosen,
            **_made_or_new_partitions_of_job(planner, readings, job, own, chosen, fitting),
        }
    return chosen


def _made_or_new_partitions_of_job(
    planner: JobPlanner,
    readings: Mapping[str, StreamWithReaders],
    job: str,
    own: Mapping[str, Mapping[int, int]],
    chosen: dict[str, int],
    fitting: Mapping[str, int],
) -> dict[str, int]:
    """Return the partitions of the streams of a job that cost the least together with it.

    Found before where all but names is the same, and the clusters cost the same with each number of partitions that was tried.
    """
    environment, jobs = planner.environment, _jobs_that_read(job, readings, own)
    demands = [demand for each in jobs for demand in planner.demands[each]]
    numbered = dict.fromkeys(name for demand in demands for name in demand.streams)
    streams = {name: number for number, name in enumerate(numbered)}
    clusters = {name: 0 for each in own if (name := environment.streams[each].cluster_name) is not None}
    key = (
        *((streams[name], *each.items(), fitting[name], readings[name].spare) for name, each in own.items()),
        *((chosen[name], planner.least[name]) for name in streams),
        *(demand.needed for demand in demands),
    )
    members = [
        *(job_without_names(environment.jobs[each]) for each in jobs),
        *map(environment.streams.__getitem__, streams),
        *map(environment.kafka.__getitem__, clusters),
    ]
    values = (
        [planner.demands_without_names(each, streams) for each in jobs],
        [reason_job_runs_in_vpc(environment, each) is None for each in jobs],
        # Of queries of several jobs that are alike otherwise, the first one decides.
        [[(jobs.index(each.job), each.query) for each in readings[name].readers] for name in own]
        if len(jobs) > 1
        else None,
        environment.zone_count,
    )
    searches: list[_Search] = planner.made.result(key, members, values, list)
    begin = {name: planner.load_and_partitions_of_cluster(name, chosen)[1] for name in clusters}
    for search in searches:
        tried = search.cluster_usd.items()
        if all(planner.usd_of_cluster(name, chosen, more) == usd for (name, more), usd in tried):
            return dict(zip(own, search.partitions, strict=True))
    planner.asked_cluster_usd.clear()
    found = _cheapest_partitions_of_job(planner, readings, job, own, chosen, fitting)
    asked = planner.asked_cluster_usd.items()
    searches.append(
        _Search({(name, number - begin[name]): usd for (name, number), usd in asked}, [*found.values()])
    )
    return found


def _cheapest_partitions_of_job(
    planner: JobPlanner,
    readings: Mapping[str, StreamWithReaders],
    job: str,
    own: Mapping[str, Mapping[int, int]],
    chosen: dict[str, int],
    fitting: Mapping[str, int],
) -> dict[str, int]:
    """Return the partitions of the streams of a job that cost the least together with it.

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
        found = cheapest_candidates(planner, job, chosen, [*different.values()])
    else:
        costs = {
            (name, number): planner.streams_usd([name], chosen, {name: number})
            for name, numbers in own.items()
            for number in numbers.values()
        }
        combined = [
            replace(each, usd=planner.streams_usd(own, chosen, each.partitions))
            for each in combined_candidates(own, costs)
        ]
        found = cheapest_candidates(planner, job, chosen, combined)
    starts = [{**chosen, **candidate.partitions} for candidate in found]
    cost = partial(planner.monthly_usd, _jobs_that_read(job, readings, own), own)
    # Of those that pins refuse or that cost the same, the ones for usual workers.
    usual = [{**each, **{name: max(each[name], fitting[name]) for name in own}} for each in starts]
    starts = [*usual, *(each for each in starts if each not in usual)]
    # From the cheapest, and from one that pins refuse: a pin may be of those to which the search leads.
    refused = [each for each in starts if cost(each) == math.inf]
    climbed = [
        _cheaper_partitions(planner, job, readings, own, each)
        for each in (min(starts, key=cost), *refused[:1])
    ]
    best = min(climbed, key=cost)
    return {name: best[name] for name in own}


def _jobs_that_read(
    job: str, readings: Mapping[str, StreamWithReaders], streams: Collection[str]
) -> list[str]:
    """Return a job, and the others that read some of its streams: what one of them alone does not save, all may."""
    return [*dict.fromkeys([job, *(demand.job for name in streams for demand in readings[name].readers)])]


def _cheaper_partitions(
    planner: JobPlanner,
    job: str,
    readings: Mapping[str, StreamWithReaders],
    own: Collection[str],
    chosen: dict[str, int],
) -> dict[str, int]:
    """Return partitions of which no other numbers that are tried, of one stream or of several, cost less.

    The candidates count cores, and a bounded run costs its duration too, which is that of its slowest stream. Where memory takes more
    workers or larger ones than the cores, tasks that fetch less may do with fewer or smaller ones.
    """
    jobs = _jobs_that_read(job, readings, own)

    def cost(partitions: dict[str, int], streams: Collection[str] = own) -> float:
        return planner.monthly_usd(jobs, streams, partitions)

    least = {name: readings[name].fewest_with_spare(one_wave=False) for name in own}
    while True:
        sized, _ = planner.plan_or_findings(job, chosen)
        now, saved = planner.streams_usd(own, chosen), _most_to_save(planner, job, chosen, sized)
        others = [
            each
            for each in _other_partitions(planner, job, least, chosen)
            # More partitions cost less only where brokers that are more have volumes of a smaller step, which is chance.
            if (now if sum(number - chosen[name] for name, number in each.items()) > 0 else 0) - CENT
            <= planner.streams_usd(own, chosen, each)
            < now + saved - CENT
        ]
        steps = [{**chosen, **each} for each in others]
        fewest: Mapping[str, int] = least
        if sized is not None and sized.run is not None:
            fewest = chosen
            estimates = [
                planner.streams_usd(own, chosen, other) + planner.estimated_runs_usd(sized, step)
                for other, step in zip(others, steps, strict=True)
            ]
            order = sorted(range(len(steps)), key=estimates.__getitem__)
            steps = [steps[place] for place in order[:_PLANNED]]
        elif planner.environment.jobs[job].run_every is None:
            # One stream may have been enough for smaller workers, or a part of the step.
            smaller = [each for each in reversed(steps) if cost(each, ()) < cost(chosen, ()) - CENT]
            different = {cost(each, ()): each for each in smaller}
            steps += [_fewest_between(least, each, own, cost) for each in different.values()]
        best = min(steps, key=cost, default=chosen)
        if cost(best) >= cost(chosen) - CENT:
            return chosen
        chosen = _fewest_between(fewest, best, own, cost)


def _other_partitions(
    planner: JobPlanner, job: str, least: Mapping[str, int], chosen: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return other partitions of the streams: a few more or fewer for some, shares and multiples, and as many as cores.

    Tasks may have to fetch much less before they fit on a smaller worker. Full waves of tasks on the cores of about as many executors
    save a shuffle; more of them would start, fetch and write a file each for a few records ("Level of Parallelism", Spark's tuning guide:
    2 to 3 tasks a core).
    """
    sized, _ = planner.plan_or_findings(job, chosen)
    near = () if sized is None else (sized.executors.value + more for more in (-1, 0, 1))
    full = [] if sized is None else [sized.vcpu * number * waves for number in near for waves in _WAVES]
    ways = [
        way
        for names in _streams_to_change(planner, job, least, chosen)
        for way in (
            *({name: chosen[name] + more for name in names} for more in _STEPS),
            *({name: math.ceil(chosen[name] * part) for name in names} for part in _PARTS),
            *(dict.fromkeys(names, number) for number in full),
        )
    ]
    if sized is not None and sized.run is not None and len(least) <= CONTESTED:
        # Of some number the tasks of all queries happen to end together, on an executor fewer. Of many streams this takes too long.
        ways += [{name: number} for name in least for number in range(least[name], _EACH)]
    # Runs may wait for all streams that have few partitions beside one with many.
    ways += [{name: max(chosen[name], 2**power) for name in least} for power in range(1, 10)]
    now, most = {name: chosen[name] for name in least}, max(full, default=math.inf)
    different = dict.fromkeys(
        tuple(
            max(least[name], min(way[name], max(most, number))) if name in way else number
            for name, number in now.items()
        )
        for way in ways
    )
    return [dict(zip(now, numbers, strict=True)) for numbers in different if numbers != tuple(now.values())]


def _fewest_between(
    few: Mapping[str, int],
    many: dict[str, int],
    own: Collection[str],
    cost: Callable[[dict[str, int]], float],
) -> dict[str, int]:
    """Return the fewest partitions of one stream after the other that cost no more than many."""
    for name in own:
        numbers, most = range(min(few[name], many[name]), many[name] + 1), cost(many)
        place = bisect_left(numbers, True, key=lambda number: cost({**many, name: number}) <= most)
        many = {**many, name: numbers[place]}
    return many


def _most_to_save(planner: JobPlanner, job: str, chosen: Mapping[str, int], sized: JobPlan | None) -> float:
    """Return the most dollars a month by which a job may get cheaper: all of a bounded one, or what its workers cost beyond its cores.

    A query of several streams has all beyond its work, and queries that share cores have all those of executors that are there for their
    memory: the plan's number is more than they need.

    Infinity if pins refuse these partitions.
    """
    if sized is None:
        return math.inf
    if sized.run is not None:
        return sum(line.usd for line in sized.cost)
    paid = sized.max_workers.value * sized.worker_usd_hour * HOURS
    cores, demands = sized.cores.value, planner.demands[job]
    if len(demands) == 1 < len(demands[0].streams):
        # One partition more of one of its streams may fill the waves of half of the cores.
        cores = whole_cores(cores_needed(demands[0].work))
    elif len(demands) > 1:
        needed = (planner.largest_batches(each, chosen) for each in planner.by_driver[job].values())
        cores = min(cores, *map(fewest_shared_cores, needed))
    return paid - least_workers_usd(planner.environment.jobs[job], cores, planner.prices)


def _streams_to_change(
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
