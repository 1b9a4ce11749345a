"""Search for the partitions of streams that are the cheapest together with the cores and workers that read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from millrace.config.document.problems import Finding
from millrace.config.model import Environment
from millrace.sizing.cost import HOURS, stream_cost
from millrace.sizing.jobs.core_spreads import shared_batches
from millrace.sizing.jobs.job import plan_job
from millrace.sizing.jobs.sharing import Batch, divide, fewest_shared_cores
from millrace.sizing.jobs.worker_choices import worker_usd_hour
from millrace.sizing.model import Figure, JobPlan
from millrace.sizing.prices_and_limits import PriceTable, limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.driver import by_driver
from millrace.sizing.queries.query import Source
from millrace.sizing.streams import StreamWithReaders

_PRICED = 12
"""Candidates of a job that are planned and priced exactly, the cheapest by an estimate first; more if pins allow none of them."""


_CONTESTED = 5
"""Streams of a job of which every choice between more partitions and a shuffle is tried."""

_CENT = 0.01
"""Dollars by which equal costs may differ, as sums depend on their order."""


@dataclass(frozen=True)
class Candidate:
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


Planned = tuple[JobPlan | None, list[Finding]]


class JobPlanner:
    """Planning of jobs for given partitions; each case once.

    Parameters
    ----------
    demands
        Demands of all queries.
    """

    def __init__(self, environment: Environment, demands: Iterable[QueryDemand], prices: PriceTable) -> None:
        self.environment, self.prices = environment, prices
        self.demands: dict[str, list[QueryDemand]] = {name: [] for name in environment.jobs}
        for demand in demands:
            self.demands[demand.job].append(demand)
        self.by_driver: dict[str, dict[int, list[QueryDemand]]] = {}
        """Demands of each job by the cores of its driver."""
        self.problems: list[Finding] = []
        """Findings for jobs whose driver is too busy, whatever its size."""
        for name, own in self.demands.items():
            self.by_driver[name], wrong = by_driver(environment, name, own)
            self.problems += wrong
        self.least: Mapping[str, float] = {}
        """Partitions that the traffic needs, as real numbers, by stream."""
        self._planned: dict[tuple[str, tuple[int, ...]], Planned] = {}

    def sources(self, demands: Iterable[QueryDemand], partitions: Mapping[str, int]) -> dict[str, Source]:
        """Return the streams of queries as these find them, by stream."""
        found = {}
        for name in dict.fromkeys(name for demand in demands for name in demand.streams):
            stream, number, least = self.environment.streams[name], partitions[name], self.least[name]
            evenly = least if number - 1 <= least <= number else float(number)
            steady = stream.elastic_limits is None
            found[name] = Source(number, steady=steady, limits_parts=stream.limits_parts, evenly=evenly)
        return found

    def plan(self, job: str, partitions: Mapping[str, int]) -> Planned:
        """Plan a job that finds these partitions, with the driver that costs the least; of equal ones the smallest."""
        sources = self.sources(self.demands[job], partitions)
        key = (job, tuple(each.partitions for each in sources.values()))
        if key not in self._planned:
            planned = [
                plan_job(self.environment, job, demands, sources, self.prices, cores)
                for cores, demands in self.by_driver[job].items()
            ]
            possible = [each for each in planned if each[0] is not None]
            self._planned[key] = min(possible, key=_job_usd) if possible else planned[-1]
        return self._planned[key]


def _job_usd(planned: Planned) -> float:
    assert planned[0] is not None
    return round(sum(line.usd for line in planned[0].cost), 6)


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
    options = {name: each.options() for name, each in readings.items() if each.is_free}
    # Where nothing else decides, the fewest cores.
    chosen = {**given, **{name: each[min(each)] for name, each in options.items() if each}}
    chosen |= {name: readings[name].fewest(one_wave=True) for name, each in options.items() if not each}
    by_job: dict[str, dict[str, dict[int, int]]] = {}
    for name, each in options.items():
        job = readings[name].main.job
        if len(each) > 1 or len(planner.demands[job]) > 1:
            by_job.setdefault(job, {})[name] = each
    for job, own in by_job.items():
        if len(planner.demands[job]) > 1:
            free = [readings[name] for name in own]
            drivers = planner.by_driver[job].values()
            shared = [
                one for demands in drivers for one in _shared_candidates(planner, job, demands, free, chosen)
            ]
            # The same partitions are planned once, and judged by their fewest cores.
            shared.sort(key=lambda one: -one.cores)
            different = {tuple(one.partitions.values()): one for one in shared}
            chosen |= _cheapest(planner, job, chosen, [*different.values()])
            continue
        usd = {
            (name, number): _usd(planner, readings[name], number)
            for name, each in own.items()
            for number in each.values()
        }
        chosen |= _cheapest(planner, job, chosen, _candidates(own, usd))
    return chosen


def _usd(planner: JobPlanner, reading: StreamWithReaders, number: int) -> float:
    """Return the dollars a month of a stream with so many partitions."""
    stream, prices = reading.stream, planner.prices
    shared = sum(not demand.fan_out for demand in reading.readers)
    consumers = len(reading.readers) - shared + len(stream.consumers)
    advantage = planner.environment.governance.on_demand_advantage
    figure = Figure(number, stream.parts, "")
    lines = stream_cost(reading.name, stream, figure, shared, consumers, prices, advantage=advantage)
    usd = sum(line.usd for line in lines)
    if stream.has_shard_metrics:
        usd += number * limits()["kinesis.shard_metrics"] * prices.usd("cloudwatch.metric_month")
    return usd


def _shared_candidates(
    planner: JobPlanner,
    job: str,
    demands: Sequence[QueryDemand],
    readings: Sequence[StreamWithReaders],
    chosen: Mapping[str, int],
) -> Iterator[Candidate]:
    """Yield the partitions of the streams of a job whose queries share cores, from its fewest cores on.

    Each stream gets what its traffic needs, or so many that no batch is shuffled.
    """
    streams = {each.name: each for each in readings}
    least = {each.name: each.fewest(one_wave=True) for each in readings}
    batches = shared_batches(demands, planner.sources(demands, {**chosen, **least}))
    free = [demand.lands and set(demand.streams) <= set(least) for demand in demands]
    lowest = sum(_usd(planner, streams[name], number) for name, number in least.items())
    most = fewest_shared_cores(batches)
    yield Candidate(most, lowest, least)
    best = math.inf
    for cores in range(fewest_shared_cores(batches, free=free), most + 1):
        workers = _workers_usd(planner, job, cores)
        if lowest + workers > best + _CENT:  # more cores never cost less
            break
        for may in _choices(batches, cores, free):
            tasks = divide(batches, cores, free=may)
            if tasks is None:
                continue
            number = dict(least)
            for demand, own, more in zip(demands, tasks, may, strict=True):
                for name, part in demand.streams.items() if more else ():
                    number[name] = max(number[name], math.ceil(own.number * part - 1e-9))
            usd = sum(_usd(planner, streams[name], each) for name, each in number.items())
            best = min(best, usd + workers)
            yield Candidate(cores, usd, number)


def _choices(batches: Sequence[Batch], cores: int, free: Sequence[bool]) -> Iterator[list[bool]]:
    """Yield which batches may get more partitions: each choice among those that would take some, or, of many, the largest ones."""
    tasks = divide(batches, cores, free=free)
    assert tasks is not None
    contested = [
        place
        for place, (batch, own, may) in enumerate(zip(batches, tasks, free, strict=True))
        if may and own.number > batch.partitions
    ]
    contested.sort(key=lambda place: batches[place].work)
    if len(contested) <= _CONTESTED:
        kept: Iterable[Iterable[int]] = (
            each for size in range(len(contested) + 1) for each in combinations(contested, size)
        )
    else:
        kept = (contested[:size] for size in range(len(contested) + 1))
    for least in kept:
        gone = set(least)
        yield [may and place not in gone for place, may in enumerate(free)]


def _candidates(
    options: Mapping[str, Mapping[int, int]], usd: Mapping[tuple[str, int], float]
) -> list[Candidate]:
    """Return the cheapest partitions of several streams for each number of cores of all together."""
    found = {0: Candidate()}
    for name, each in options.items():
        more: dict[int, Candidate] = {}
        for before in found.values():
            for cores, number in each.items():
                total, cost = before.cores + cores, before.usd + usd[name, number]
                if total not in more or cost < more[total].usd:
                    more[total] = Candidate(total, cost, {**before.partitions, name: number})
        found = more
    return [*found.values()]


def _cheapest(
    planner: JobPlanner, job: str, chosen: Mapping[str, int], candidates: Sequence[Candidate]
) -> Mapping[str, int]:
    """Return the partitions with which streams and job cost the least; of equal ones those of the fewest cores."""
    estimated = sorted(candidates, key=lambda each: each.usd + _workers_usd(planner, job, each.cores))
    found: list[tuple[float, int, int, Candidate]] = []
    for place, each in enumerate(estimated):
        if place >= _PRICED and found:
            break
        sized, _ = planner.plan(job, {**chosen, **each.partitions})
        if sized is not None:
            usd = each.usd + sum(line.usd for line in sized.cost)
            found.append((round(usd, 6), sized.cores.value, len(found), each))
    return min(found)[-1].partitions if found else candidates[0].partitions


def _workers_usd(planner: JobPlanner, job: str, cores: int) -> float:
    """Return the least dollars of a job's workers, whatever memory they need."""
    settings = planner.environment.jobs[job]
    if settings.max_workers is not None:
        return 0.0
    return min(
        (math.ceil(cores / each.tasks) + 1) * HOURS * worker_usd_hour(each.bills, planner.prices)
        for each in type(settings).possible_workers(settings, lambda _: 0.0)
        if each.own
    )
