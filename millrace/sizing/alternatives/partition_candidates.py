"""Candidates for the partitions of a job's streams, and the cheapest of them by an estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from millrace.sizing.alternatives.job_planner import JobPlanner
from millrace.sizing.cost import CENT, HOURS
from millrace.sizing.jobs.shared_cores import LargestBatch, divide_into_tasks_or_none, fewest_shared_cores
from millrace.sizing.jobs.usage_costs import least_usage_usd
from millrace.sizing.jobs.worker_choices import least_workers_usd, worker_usd_hour
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.shards_and_partitions import StreamWithReaders

_PRICED = 12
"""Candidates of a job that are planned and priced exactly, the cheapest by an estimate first; more if pins allow none of them."""


_LOWERED = 3
"""Cheapest candidates, and cheapest ones that pins refuse, whose streams are looked through for partitions that one of them alone could spare."""

CONTESTED = 5
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


def candidates_for_shared_cores(
    planner: JobPlanner,
    job: str,
    demands: Sequence[QueryDemand],
    readings: Sequence[StreamWithReaders],
    chosen: Mapping[str, int],
) -> Iterator[PartitionCandidate]:
    """Yield the partitions of the streams of a job whose queries share cores, from its fewest cores on.

    Each stream gets what its traffic needs, or so many that no batch is shuffled.
    """
    settings, best, cheapest = planner.environment.jobs[job], math.inf, dict(chosen)
    for least in _wave_partition_choices(planner, demands, readings, chosen):
        batches = planner.largest_batches(demands, {**chosen, **least})
        free = tuple(demand.lands and set(demand.streams) <= set(least) for demand in demands)
        lowest = planner.streams_usd(least, chosen, least)
        most = fewest_shared_cores(batches)
        yield PartitionCandidate(most, lowest, least)
        for cores in range(fewest_shared_cores(batches, free=free), most + 1):
            workers = least_workers_usd(settings, cores, planner.prices)
            # More cores never cost less, unless the workers that hold the batches have them anyway.
            if lowest + workers > best + CENT:
                sized, _ = planner.plan_or_findings(job, cheapest)
                if sized is None or cores > sized.cores.value:
                    break
            for may in _choices_of_batches_to_divide(batches, cores, free):
                tasks = divide_into_tasks_or_none(batches, cores, free=may)
                if tasks is None:
                    continue
                number = dict(least)
                for demand, own, more in zip(demands, tasks, may, strict=True):
                    for name, part in demand.streams.items() if more else ():
                        number[name] = max(number[name], math.ceil(own.partitions * part - 1e-9))
                usd = planner.streams_usd(number, chosen, number)
                if usd + workers < best - CENT:
                    best, cheapest = usd + workers, {**chosen, **number}
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
    if len(members) <= CONTESTED:
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
            if may and own.partitions > batch.partitions
        ]
    )
    contested.sort(key=lambda place: batches[place].work)
    for gone in _subsets_or_first_ones(contested):
        yield tuple(may and place not in gone for place, may in enumerate(free))


def combined_candidates(
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


def cheapest_candidates(
    planner: JobPlanner, job: str, chosen: Mapping[str, int], candidates: Sequence[PartitionCandidate]
) -> list[PartitionCandidate]:
    """Return the candidates with which streams and job cost the least, the best first, then those that pins refuse."""
    settings = planner.environment.jobs[job]
    workers = {
        cores: least_workers_usd(settings, cores, planner.prices)
        for cores in {each.cores for each in candidates}
    }
    estimated = sorted((each.usd + workers[each.cores], place) for place, each in enumerate(candidates))
    # Continuous workers cost no less than the estimate.
    bounds = settings.run_every is None
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


def least_job_usd(planner: JobPlanner, job: str) -> float:
    """Return dollars a month below which no plan of a job is: cores that are never idle, the least memory, a file of each batch."""
    settings, demands, known = planner.environment.jobs[job], planner.demands[job], service_limits()
    busy = sum(each.work.rate * each.work.per_record for each in demands)
    if settings.run_every is None:
        workers = least_workers_usd(settings, math.floor(busy * (1 - 1e-9)) + 1, planner.prices)
    else:
        # Batches of a stage begin together, the second stage after the first, and what is billed is rounded to a tenth of a second.
        fixed = (
            max((each.work.overhead for each in demands if each.lands is lands), default=0.0)
            for lands in (True, False)
        )
        billed = known["bounded.billed_start_seconds"] + sum(fixed) - 0.05
        every, least = settings.run_every.total_seconds(), known["bounded.least_billed_seconds"]
        busy = every * sum(each.average * each.work.rate * each.work.per_record for each in demands)
        workers = min(
            (
                max(2 * least, _least_worker_seconds(billed, busy / each.tasks))
                / every
                * HOURS
                * worker_usd_hour(each.hourly_bill_items, planner.prices)
                for each in type(settings).possible_workers(settings, lambda *_: 0.0)
                if each.own
            ),
            default=0.0,
        )
    return workers + least_usage_usd(planner.environment, settings, demands, planner.prices)


def _least_worker_seconds(fixed: float, work: float) -> float:
    """Return the fewest seconds of a driver and executors together: of ``n`` executors each works ``work / n`` seconds after a fixed time."""
    return (math.sqrt(fixed) + math.sqrt(work)) ** 2 if work > fixed else 2 * (fixed + work)
