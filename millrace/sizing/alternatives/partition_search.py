"""Search for the partitions of streams that are the cheapest together with the cores and workers that read them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import TypeVar

from millrace.sizing.alternatives.job_planner import JobPlanner
from millrace.sizing.cost import CENT, HOURS
from millrace.sizing.jobs.shared_cores import LargestBatch, divide_into_tasks_or_none, fewest_shared_cores
from millrace.sizing.jobs.worker_choices import worker_usd_hour
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.shards_and_partitions import StreamWithReaders

_PRICED = 12
"""Candidates of a job that are planned and priced exactly, the cheapest by an estimate first; more if pins allow none of them."""


_LOWERED = 3
"""Cheapest candidates, and cheapest ones that pins refuse, whose streams are looked through for partitions that one of them alone could spare."""

_STEPS = (1, 2, 3)
"""Partitions more that are tried next: with a pinned limit of a batch those in between may shorten nothing."""

_DOUBLINGS = 10
"""How often partitions are doubled at most."""

_CONTESTED = 5
"""Streams of a job of which every choice is tried: between more partitions and a shuffle, fewer waves, or shorter runs."""


@dataclass(frozen=True)
class PartitionCandidate:
    """Partitions of the streams of a job.

    Attributes
    ----------
    cores
        Cores of the queries that read them.
    usd
        Dollars a month of the streams.
    partitions
        By stream.
    """

    cores: int = 0
    usd: float = 0.0
    partitions: Mapping[str, int] = field(default_factory=dict)


V = TypeVar("V")


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
        chosen = _cheapest_partitions_of_job(planner, readings, job, own, chosen)
    return chosen


def _cheapest_partitions_of_job(
    planner: JobPlanner,
    readings: Mapping[str, StreamWithReaders],
    job: str,
    own: Mapping[str, Mapping[int, int]],
    chosen: dict[str, int],
) -> dict[str, int]:
    """Return partitions of all streams, of which those of one job cost the least together with it.

    Parameters
    ----------
    own
        Partitions of its streams by cores.
    """
    if len(planner.demands[job]) > 1:
        streams = [readings[name] for name in own]
        shared = [
            one
            for demands in planner.by_driver[job].values()
            for one in _candidates_for_shared_cores(planner, job, demands, streams, chosen)
        ]
        # The same partitions are planned once, and judged by their fewest cores.
        shared.sort(key=lambda one: -one.cores)
        different = {tuple(one.partitions.values()): one for one in shared}
        starts = []
        for candidate in _cheapest_candidates(planner, job, chosen, [*different.values()]):
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
            for each in _combined_candidates(own, costs)
        ]
        found = _cheapest_candidates(planner, job, chosen, combined)
        starts = [{**chosen, **candidate.partitions} for candidate in found]
    jobs = _jobs_that_read(job, readings, own)

    def cost(partitions: dict[str, int]) -> float:
        return round(planner.monthly_usd(jobs, readings, own, partitions), 6)

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
        return round(planner.monthly_usd(jobs, readings, streams, partitions), 6)

    bounded = planner.environment.jobs[job].run_every is not None
    while (most := _most_that_more_partitions_save(planner, job, chosen)) > CENT:
        now = planner.streams_usd(readings, own, chosen)

        def may_cost_less(partitions: dict[str, int], limit: float = now + most - CENT) -> bool:
            return planner.streams_usd(readings, own, partitions) < limit

        raised = _streams_to_raise(planner, job, own, chosen)
        steps = [
            {**chosen, **{name: chosen[name] + more for name in names}} for more in _STEPS for names in raised
        ]
        if bounded:
            steps += _as_many_as_cores(planner, job, own, chosen)
        else:
            # One stream may have been enough for smaller workers, or a part of the step.
            doubled = (_doubled_while(may_cost_less, chosen, names) for names in raised)
            steps = [each for each in chain(steps, *doubled) if cost(each, ()) < cost(chosen, ()) - CENT]
            least = {cost(each, ()): each for each in reversed(steps)}
            steps = [_fewest_between(chosen, each, own, cost) for each in least.values()]
        best = min(filter(may_cost_less, steps), key=cost, default=chosen)
        if cost(best) >= cost(chosen) - CENT:
            break
        chosen = _fewest_between(chosen, best, own, cost) if bounded else best
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
    planner: JobPlanner, job: str, own: Collection[str], chosen: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return more partitions of some streams, as many as the cores of about as many executors: full waves of tasks save a shuffle."""
    sized, _ = planner.plan_or_findings(job, chosen)
    if sized is None:
        return []
    numbers = [sized.vcpu * (sized.executors.value + more) for more in (-1, 0, 1)]
    return [
        {**chosen, **dict.fromkeys(names, number)}
        for names in _streams_to_raise(planner, job, own, chosen)
        for number in numbers
        if number > max(chosen[name] for name in names)
    ]


def _fewest_between(
    few: Mapping[str, int],
    many: dict[str, int],
    own: Collection[str],
    cost: Callable[[dict[str, int]], float],
) -> dict[str, int]:
    """Return the fewest partitions of one stream after the other that cost no more than many."""
    for name in own:
        ways = [{**many, name: number} for number in range(few[name], many[name] + 1)]
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
    return paid - _least_workers_usd(planner, job, sized.cores.value)


def _streams_to_raise(
    planner: JobPlanner, job: str, own: Collection[str], chosen: Mapping[str, int]
) -> list[Collection[str]]:
    """Return each stream and all, as of two alike one alone shortens nothing; of many the slowest 1, 2, 4 … with those as slow."""
    if len(own) <= _CONTESTED:
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


def _candidates_for_shared_cores(
    planner: JobPlanner,
    job: str,
    demands: Sequence[QueryDemand],
    readings: Sequence[StreamWithReaders],
    chosen: Mapping[str, int],
) -> Iterator[PartitionCandidate]:
    """Yield the partitions of the streams of a job whose queries share cores, from its fewest cores on.

    Each stream gets what its traffic needs, or so many that no batch is shuffled.
    """
    streams = {each.name: each for each in readings}
    best, paid = math.inf, 0
    for least in _wave_partition_choices(planner, demands, readings, chosen):
        batches = planner.largest_batches(demands, {**chosen, **least})
        free = tuple(demand.lands and set(demand.streams) <= set(least) for demand in demands)
        lowest = planner.streams_usd(streams, least, {**chosen, **least})
        most = fewest_shared_cores(batches)
        yield PartitionCandidate(most, lowest, least)
        for cores in range(fewest_shared_cores(batches, free=free), most + 1):
            workers = _least_workers_usd(planner, job, cores)
            # More cores never cost less, unless the workers that hold the batches have them anyway.
            if lowest + workers > best + CENT and cores > paid:
                break
            for may in _choices_of_batches_to_divide(batches, cores, free):
                tasks = divide_into_tasks_or_none(batches, cores, free=may)
                if tasks is None:
                    continue
                number = dict(least)
                for demand, own, more in zip(demands, tasks, may, strict=True):
                    for name, part in demand.streams.items() if more else ():
                        number[name] = max(number[name], math.ceil(own.number * part - 1e-9))
                usd = planner.streams_usd(streams, number, {**chosen, **number})
                if usd + workers < best - CENT:
                    best, sized = usd + workers, planner.plan_or_findings(job, {**chosen, **number})[0]
                    paid = sized.cores.value if sized else 0
                yield PartitionCandidate(cores, usd, number)


def _wave_partition_choices(
    planner: JobPlanner,
    demands: Sequence[QueryDemand],
    readings: Sequence[StreamWithReaders],
    chosen: Mapping[str, int],
) -> Iterator[dict[str, int]]:
    """Yield partitions for each stream: those that its traffic needs, then so many more that fewer cores read them in waves."""
    least = {each.name: each.fewest_with_spare(one_wave=True) for each in readings}
    batches = planner.largest_batches(demands, {**chosen, **least})
    yield least
    # In one wave less, fewer partitions may do, on a few cores more.
    for fewer in (0, 1):
        raised = []
        for demand, batch in zip(demands, batches, strict=True):
            each_wave = batch.reading / batch.room
            waves = math.ceil(batch.partitions / max(1.0, each_wave)) - fewer
            if each_wave >= 1 and waves > 1 and set(demand.streams) <= set(least):
                number = max(batch.partitions, math.floor(waves * each_wave)) + 1
                raised.append(
                    {name: math.ceil(number * part - 1e-9) for name, part in demand.streams.items()}
                )
        for more in _subsets_or_first_ones(raised):
            if more:
                yield {
                    name: max(number, *(each.get(name, 0) for each in more)) for name, number in least.items()
                }


def _subsets_or_first_ones(members: Sequence[V]) -> Iterator[Sequence[V]]:
    """Yield each subset of some members, or, of many, the first ones."""
    if len(members) <= _CONTESTED:
        yield from (each for size in range(len(members) + 1) for each in combinations(members, size))
    else:
        yield from (members[:size] for size in range(len(members) + 1))


def _choices_of_batches_to_divide(
    batches: tuple[LargestBatch, ...], cores: int, free: tuple[bool, ...]
) -> Iterator[tuple[bool, ...]]:
    """Yield which batches may get more partitions: each choice among those that would take some, or, of many, the largest ones."""
    tasks = divide_into_tasks_or_none(batches, cores, free=free)
    contested = (
        []
        if tasks is None
        else [
            place
            for place, (batch, own, may) in enumerate(zip(batches, tasks, free, strict=True))
            if may and own.number > batch.partitions
        ]
    )
    contested.sort(key=lambda place: batches[place].work)
    for gone in _subsets_or_first_ones(contested):
        yield tuple(may and place not in gone for place, may in enumerate(free))


def _combined_candidates(
    options: Mapping[str, Mapping[int, int]], usd: Mapping[tuple[str, int], float]
) -> list[PartitionCandidate]:
    """Return the cheapest partitions of several streams for each number of cores of all together."""
    found = {0: PartitionCandidate()}
    for name, each in options.items():
        more: dict[int, PartitionCandidate] = {}
        for before in found.values():
            for cores, number in each.items():
                total, cost = before.cores + cores, before.usd + usd[name, number]
                if total not in more or cost < more[total].usd:
                    more[total] = PartitionCandidate(total, cost, {**before.partitions, name: number})
        found = more
    return [*found.values()]


def _cheapest_candidates(
    planner: JobPlanner, job: str, chosen: Mapping[str, int], candidates: Sequence[PartitionCandidate]
) -> list[PartitionCandidate]:
    """Return the candidates with which streams and job cost the least, the best first, then those that pins refuse."""
    workers = {
        cores: _least_workers_usd(planner, job, cores) for cores in {each.cores for each in candidates}
    }
    estimated = sorted((each.usd + workers[each.cores], place) for place, each in enumerate(candidates))
    # Continuous workers cost no less than the estimate.
    bounds = planner.environment.jobs[job].run_every is None
    found: list[tuple[float, int, int, PartitionCandidate]] = []
    refused = []
    for tried, (least, place) in enumerate(estimated):
        if found and (tried >= _PRICED or (bounds and least > min(found)[0] + CENT)):
            break
        each = candidates[place]
        sized, _ = planner.plan_or_findings(job, {**chosen, **each.partitions})
        if sized is not None:
            usd = each.usd + sum(line.usd for line in sized.cost)
            found.append((round(usd, 6), sized.cores.value, len(found), each))
        else:
            refused.append(each)
    cheapest = [each for *_, each in sorted(found)] or [candidates[0]]
    return [*cheapest[:_LOWERED], *refused[:_LOWERED]]


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


def _least_workers_usd(planner: JobPlanner, job: str, cores: int) -> float:
    """Return the least dollars of a job's workers, whatever memory they need; infinity where its pins do not allow the cores."""
    settings = planner.environment.jobs[job]
    if cores > (settings.cores or math.inf):
        return math.inf
    costs = [math.inf]
    for each in type(settings).possible_workers(settings, lambda *_: 0.0):
        workers = math.ceil((settings.cores or cores) / each.tasks) + 1
        if each.own and workers <= (settings.max_workers or math.inf):
            paid = settings.max_workers or workers
            costs.append(paid * HOURS * worker_usd_hour(each.hourly_bill_items, planner.prices))
    return min(costs)
