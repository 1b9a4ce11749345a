"""Simulation run: each query is a process of discrete events (SimPy) over one pool of executors."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

import simpy

from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.executor_pool import Pool
from millrace.sizing.simulation.fair_scheduler import FairScheduler
from millrace.sizing.simulation.job import Outage, QueryLoad, Reshard, Scenario
from millrace.sizing.simulation.result import Batch, JobResult, Repeats, job_result, query_result
from millrace.sizing.simulation.steady import first_check, steady_state
from millrace.sizing.simulation.tasks import Tasks, makespan

_POLL = 0.01
"""Seconds between two polls for records without a trigger (``spark.sql.streaming.pollingDelay``)."""

_STEPS = 4
"""Triggers of the slowest query after which a simulation looks for a steady state."""

_NOTHING = 1e-9
"""Number of records below which the rest is a rounding error."""

Steps = Generator[simpy.Event, object, None]


@dataclass
class PartitionGroup:
    """Equal partitions and their read position, in records of the complete stream.

    A lane with a share of a quarter that is read to 100 has delivered 25 records.
    """

    share: float
    count: int
    begin: float
    read: float
    end: float = math.inf

    @property
    def weight(self) -> float:
        """Share of all its partitions together."""
        return self.share * self.count

    @property
    def drained(self) -> bool:
        """True if a reshard closed it and all its records were read."""
        return (self.end - self.read) * self.weight < _NOTHING


@dataclass
class _Taken:
    """Records of a batch: start and end for each lane, and the records of each partition."""

    spans: list[tuple[int, float, float]] = field(default_factory=list)
    taken: list[tuple[float, int]] = field(default_factory=list)
    records: float = 0.0


class _Reader:
    """A query over its source: backlog, next batch, commits."""

    def __init__(self, load: QueryLoad, upstream: _Reader | None) -> None:
        self.load, self._upstream = load, upstream
        self.arrivals: Arrivals = upstream.arrivals if upstream is not None else _arrivals(load)
        self.lanes: list[PartitionGroup] = []
        self._kept = 0.0
        if upstream is None:
            self.lanes = [PartitionGroup(part.share, part.count, 0.0, 0.0) for part in load.parts]
            self._kept = (load.limit_per_part or 0.0) * sum(part.count for part in load.parts)

    def reshard(self, change: Reshard, now: float) -> None:
        """Close the partitions and open others; a batch reads the new ones after the old ones are drained."""
        begin = self.arrivals.arrived_before(now)
        for lane in self.lanes:
            lane.end = min(lane.end, begin)
        self.lanes += [PartitionGroup(part.share, part.count, begin, begin) for part in change.parts]

    def batch(self, now: float) -> _Taken:
        """Return the records of a batch that begins now; empty if there is no backlog."""
        if self._upstream is not None:
            return self._snapshot(self._upstream)
        arrived = self.arrivals.arrived_before(now)
        closed = [n for n, lane in enumerate(self.lanes) if lane.end < math.inf and not lane.drained]
        numbers = closed or [n for n, lane in enumerate(self.lanes) if lane.end == math.inf]
        waiting = {n: max(0.0, min(arrived, self.lanes[n].end) - self.lanes[n].read) for n in numbers}
        if self._kept:
            each = self._kept / sum(self.lanes[n].count for n in numbers)
            waiting = {n: min(size, each / self.lanes[n].share) for n, size in waiting.items()}
        total = sum(size * self.lanes[n].weight for n, size in waiting.items())
        part = 1.0 if self.load.limit is None or total <= self.load.limit else self.load.limit / total
        found = _Taken()
        for number, size in waiting.items():
            lane = self.lanes[number]
            take = size * part
            found.spans.append((number, lane.read, lane.read + take))
            found.taken.append((take * lane.share, lane.count))
            found.records += take * lane.weight
        return found if found.records > _NOTHING else _Taken()

    def _snapshot(self, upstream: _Reader) -> _Taken:
        found = _Taken()
        for number, lane in enumerate(upstream.lanes):
            if number == len(self.lanes):
                self.lanes.append(PartitionGroup(lane.share, lane.count, lane.begin, lane.begin))
            own = self.lanes[number]
            if lane.read > own.read:
                found.spans.append((number, own.read, lane.read))
                found.taken.append(((lane.read - own.read) * lane.share, lane.count))
                found.records += (lane.read - own.read) * lane.weight
        return found if found.records > _NOTHING else _Taken()

    def next_record(self) -> float:
        """Return the time of the next record that no batch has read; infinity if there is none."""
        reads = [lane.read for lane in self.lanes if not lane.drained]
        return self.arrivals.next_after(min(reads)) if reads else math.inf

    def commit(self, batch: _Taken) -> None:
        """Mark a batch as done."""
        for number, _, last in batch.spans:
            self.lanes[number].read = last

    def repeat(self, last: Batch, repeats: Repeats) -> None:
        """Read on as batches do that are like the last one."""
        for number, _, _ in last.spans:
            self.lanes[number].read += repeats.number * repeats.records

    def waiting(self, now: float) -> float:
        """Return the backlog: records that arrived and are not committed, over all lanes."""
        arrived = self.arrivals.arrived_before(now)
        if self._upstream is None:
            return sum(max(0.0, min(arrived, lane.end) - lane.read) * lane.weight for lane in self.lanes)
        landed = sum(
            (lane.read - (self.lanes[n].read if n < len(self.lanes) else lane.begin)) * lane.weight
            for n, lane in enumerate(self._upstream.lanes)
        )
        return landed + self._upstream.waiting(now)


def _arrivals(load: QueryLoad) -> Arrivals:
    assert isinstance(load.source, Arrivals), f"{load.name} reads {load.source}, which comes after it"
    assert load.parts, f"{load.name} reads a source without partitions"
    return load.source


class _Query:
    """The driver's loop of one query."""

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: FairScheduler,
        scenario: Scenario,
        reader: _Reader,
        upstream: _Query | None,
    ) -> None:
        self._env, self._scheduler, self._scenario, self._upstream = env, scheduler, scenario, upstream
        self._pool, self._number = scheduler.pool, scheduler.add_query()
        self.reader, self.load = reader, reader.load
        assert self.load.overhead > 0 or self.load.trigger > 0, "a batch takes no time at all"
        self._random = random.Random(f"{scenario.seed} {self.load.name}")  # randomness in a model
        self.batches: list[Batch] = []
        self.committed = env.event()
        """Event for each commit."""
        self.resumes = 0.0
        self.process = env.process(self._live())

    def _live(self) -> Steps:
        while True:
            try:
                if self.resumes > self._env.now:
                    yield self._env.timeout(self.resumes - self._env.now)
                yield from self._loop()
            except simpy.Interrupt:
                continue  # stopped until it resumes, also if it was about to

    def _loop(self) -> Steps:
        env, trigger = self._env, self.load.trigger
        while True:
            start, runs = env.now, self._scenario.runs
            if runs is not None and trigger > 0:
                yield env.timeout(runs.first_batch(start, self._scenario.seed))
            end = env.now
            while (batch := self.reader.batch(end)).records:
                begun, waiting = env.now, self.reader.waiting(end)
                tasks = yield from self._work(batch)
                self.reader.commit(batch)
                done, self.committed = self.committed, env.event()
                done.succeed()
                self.batches.append(Batch(begun, env.now, batch.records, waiting, batch.spans, tasks))
                self._pool.report_batch(self.load.name, env.now - begun, trigger)
                # A bounded run has all batches up to its end.
                if runs is None or trigger == 0:
                    break
            if trigger > 0:
                # Spark's own rule: the next multiple after the start, or at once if that has passed.
                following = (math.floor(start / trigger + 1e-9) + 1) * trigger
                yield env.timeout(max(0.0, following - env.now))
            elif not batch.records:
                yield from self._wait()

    def _wait(self) -> Steps:
        """Without a trigger, sleep until there are records."""
        if self._upstream is not None:
            yield self._upstream.committed
            return
        at = self.reader.next_record()
        yield self._env.timeout(_POLL if at <= self._env.now else at - self._env.now + _POLL)

    def _work(self, batch: _Taken) -> Generator[simpy.Event, object, int]:
        """Run a batch and return the number of its tasks."""
        env, pool, load = self._env, self._pool, self.load
        begun = env.now
        yield env.timeout(load.overhead * self._chance(load.overhead_sigma))
        pool.expire(env.now)
        one_wave = sum(number for each, number in batch.taken if each > 0) <= pool.cores
        if load.alone and one_wave:
            begun = env.now
        tasks = load.batch_tasks(batch.taken, pool.cores)
        if self._scenario.sigma:
            sigma = self._scenario.sigma
            tasks = [Tasks(each.seconds * self._chance(sigma), each.count) for each in tasks]
        # A task waits for its partition, and holds its core, so tasks of other queries and on new executors wait, too.
        delivery, processing = (
            load.delivery_seconds(batch.taken, pool.cores) - (env.now - begun),
            makespan(tasks, pool.cores),
        )
        if delivery > processing > 0:
            tasks = [Tasks(each.seconds * delivery / processing, each.count) for each in tasks]
        count = sum(each.count for each in tasks)
        if len(self._scenario.queries) == 1 and (count <= pool.cores or not pool.scales_during_batch):
            used = pool.assign_tasks(count)
            yield env.timeout(makespan(tasks, pool.cores))
        else:
            used = []
            yield self._scheduler.run(self._number, tasks, used)
        # As in ``CoreSpread.seconds``: the fixed cost is added only if one wave reads all partitions and nobody else reads.
        rest = load.delivery_seconds(batch.taken, pool.cores) - (env.now - begun)
        if rest > 0:
            yield env.timeout(rest)
        pool.mark_idle(used)
        return count

    def repeat(self, repeats: Repeats) -> None:
        """Add batches that are like the last ones in turn."""
        for _ in range(repeats.number):
            like = self.batches[-repeats.pattern]
            spans = [
                (lane, first + repeats.records, last + repeats.records) for lane, first, last in like.spans
            ]
            shifted = like._replace(
                start=like.start + repeats.seconds, end=like.end + repeats.seconds, spans=spans
            )
            self.batches.append(shifted)
        for lane, _, last in self.batches[-1].spans:
            self.reader.lanes[lane].read = last

    def _chance(self, sigma: float) -> float:
        # The mean is 1, so that randomness makes batches neither cheaper nor more expensive on average.
        return 1.0 if sigma == 0 else self._random.lognormvariate(-sigma * sigma / 2, sigma)


def simulate(scenario: Scenario, *, each_batch: bool = False) -> JobResult:
    """Run a scenario from its beginning, with nothing waiting, to its end.

    Parameters
    ----------
    scenario
        The job and what happens to it.
    each_batch
        Simulate each batch to the end, also in a steady state, which gives the same result more slowly.

    Returns
    -------
    JobResult
        The same scenario always gives the same result, whatever the names of its queries.
    """
    names = {load.name: str(number) for number, load in enumerate(scenario.queries)}
    loads = [
        replace(
            load,
            name=names[load.name],
            source=names[load.source] if isinstance(load.source, str) else load.source,
        )
        for load in scenario.queries
    ]
    reshards = tuple((names[name], change) for name, change in scenario.reshards)
    result = _result(replace(scenario, queries=tuple(loads), reshards=reshards), each_batch)
    queries = {name: replace(result.queries[number], name=name) for name, number in names.items()}
    return replace(result, queries=MappingProxyType(queries))


@lru_cache(maxsize=2048)
def _result(scenario: Scenario, each_batch: bool) -> JobResult:
    # Jobs of a large environment are often alike.
    env = simpy.Environment()
    pool = Pool(env, scenario)
    scheduler = FairScheduler(env, pool)
    queries: dict[str, _Query] = {}
    for load in scenario.queries:
        upstream = queries[load.source] if isinstance(load.source, str) else None
        reader = _Reader(load, upstream.reader if upstream is not None else None)
        queries[load.name] = _Query(env, scheduler, scenario, reader, upstream)
    for name, change in scenario.reshards:
        env.process(_reshard(env, queries[name].reader, change))
    downs: list[tuple[float, float]] = []
    if scenario.outages:
        env.process(_outages(env, scheduler, list(queries.values()), scenario, downs))
    steady = None
    step = _STEPS * max(load.trigger + load.overhead for load in scenario.queries)
    until = math.inf if each_batch else first_check(scenario) + step
    while steady is None and until < scenario.seconds:
        env.run(until=until)
        steady = steady_state(scenario, pool, {name: query.batches for name, query in queries.items()})
        until += step
    if steady is None:
        env.run(until=scenario.seconds)
        steady = {}
    settled = bool(steady)
    for name, each in steady.items():
        if each.pattern == 1:
            queries[name].reader.repeat(queries[name].batches[-1], each)
        else:
            queries[name].repeat(each)
            steady[name] = Repeats()
    ups = _ups(0.0, downs, scenario.seconds)
    found = {
        query.load.name: query_result(
            query.load.name,
            query.reader.arrivals,
            query.batches,
            steady.get(query.load.name, Repeats()),
            [lane.weight for lane in query.reader.lanes],
            scenario.seconds,
            query.reader.waiting(scenario.seconds),
        )
        for query in queries.values()
    }
    lives = pool.close(scenario.seconds, steady=settled)
    if scenario.runs is not None:
        ups = scenario.runs.billed_spans(
            scenario.seconds, scenario.seed, [query.batches for query in queries.values()]
        )
        lives = ups * pool.executors
    return job_result(scenario, found, lives, ups)


def _reshard(env: simpy.Environment, reader: _Reader, change: Reshard) -> Steps:
    yield env.timeout(change.at)
    reader.reshard(change, env.now)


def _outages(
    env: simpy.Environment,
    scheduler: FairScheduler,
    queries: list[_Query],
    scenario: Scenario,
    downs: list[tuple[float, float]],
) -> Steps:
    for outage in _apart(scenario):
        yield env.timeout(max(0.0, outage.at - env.now))
        scheduler.lose_all()
        for query in queries:
            query.resumes = env.now + outage.seconds + scenario.driver_start
            query.process.interrupt()
        # The driver is billed while it starts, executors only after their start.
        downs.append((env.now, env.now + outage.seconds))
        yield env.timeout(outage.seconds + scenario.driver_start)
        scheduler.pool.restart()


def _apart(scenario: Scenario) -> list[Outage]:
    """Return the outages in order; one that begins before the job is back from another is merged with it."""
    found: list[Outage] = []
    for outage in sorted(scenario.outages, key=lambda each: each.at):
        last = found[-1] if found else None
        if last is None or outage.at > last.at + last.seconds + scenario.driver_start:
            found.append(outage)
        else:
            end = max(last.at + last.seconds, outage.at + outage.seconds)
            found[-1] = Outage(last.at, end - last.at)
    return found


def _ups(begin: float, downs: list[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Return the spans in which the driver ran."""
    found = []
    for down, up in downs:
        found.append((begin, down))
        begin = up
    if begin < end:
        found.append((begin, end))
    return found
