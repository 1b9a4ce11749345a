"""Simulation run: each query is a process of discrete events (SimPy) over one pool of executors."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from types import MappingProxyType

import simpy

from millrace.sizing.queries.partition_tasks import EqualTasks, schedule_seconds
from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.executor_pool import Clock, ExecutorPool
from millrace.sizing.simulation.fair_scheduler import FairScheduler
from millrace.sizing.simulation.result import (
    CommittedBatch,
    JobResult,
    RepeatedBatches,
    job_result,
    query_result,
)
from millrace.sizing.simulation.scenario_model import QueryLoad, Reshard, Scenario
from millrace.sizing.simulation.skip_repeated_batches import (
    find_repetition,
    quiet_spans,
    scenario_with_lasting_executors,
)

_POLL = 0.01
"""Seconds between two polls for records without a trigger (``spark.sql.streaming.pollingDelay``)."""

_STEPS = 4
"""Triggers of the slowest query after which a simulation looks for repetition for the first time."""

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
    total_share: float = field(init=False)
    """Share of all its partitions together."""

    def __post_init__(self) -> None:
        self.total_share = self.share * self.count

    @property
    def is_drained(self) -> bool:
        """True if a reshard closed it and all its records were read."""
        return (self.end - self.read) * self.total_share < _NOTHING


@dataclass
class _BatchRecords:
    """Records of a batch: start and end for each lane, and the records of each partition.

    With the seconds of its start and of the first record's read, and the backlog at its start.
    """

    spans: list[tuple[int, float, float]] = field(default_factory=list)
    taken: list[tuple[float, int]] = field(default_factory=list)
    records: float = 0.0
    begun: float = 0.0
    reads: float = 0.0
    waiting: float = 0.0


class _SourceReader:
    """A query over its source: backlog, next batch, commits."""

    def __init__(self, load: QueryLoad, upstream: _SourceReader | None) -> None:
        self.load, self._upstream = load, upstream
        self.arrivals: Arrivals = upstream.arrivals if upstream is not None else _arrivals_of_load(load)
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

    def next_batch_records(self, now: float) -> _BatchRecords:
        """Return the records of a batch that begins now; empty if there is no backlog."""
        if self._upstream is not None:
            return self._next_batch_of_landed_records(self._upstream)
        arrived = self.arrivals.arrived_before(now)
        closed = [n for n, lane in enumerate(self.lanes) if lane.end < math.inf and not lane.is_drained]
        numbers = closed or [n for n, lane in enumerate(self.lanes) if lane.end == math.inf]
        waiting = {n: max(0.0, min(arrived, self.lanes[n].end) - self.lanes[n].read) for n in numbers}
        if self._kept:
            each = self._kept / sum(self.lanes[n].count for n in numbers)
            waiting = {n: min(size, each / self.lanes[n].share) for n, size in waiting.items()}
        total = sum(size * self.lanes[n].total_share for n, size in waiting.items())
        part = 1.0 if self.load.limit is None or total <= self.load.limit else self.load.limit / total
        found = _BatchRecords()
        for number, size in waiting.items():
            lane = self.lanes[number]
            take = size * part
            found.spans.append((number, lane.read, lane.read + take))
            found.taken.append((take * lane.share, lane.count))
            found.records += take * lane.total_share
        return found if found.records > _NOTHING else _BatchRecords()

    def _next_batch_of_landed_records(self, upstream: _SourceReader) -> _BatchRecords:
        found = _BatchRecords()
        for number, lane in enumerate(upstream.lanes):
            if number == len(self.lanes):
                self.lanes.append(PartitionGroup(lane.share, lane.count, lane.begin, lane.begin))
            own = self.lanes[number]
            if lane.read > own.read:
                found.spans.append((number, own.read, lane.read))
                found.taken.append(((lane.read - own.read) * lane.share, lane.count))
                found.records += (lane.read - own.read) * lane.total_share
        return found if found.records > _NOTHING else _BatchRecords()

    def next_record_time(self) -> float:
        """Return the time of the next record that no batch has read; infinity if there is none."""
        reads = [lane.read for lane in self.lanes if not lane.is_drained]
        return self.arrivals.next_arrival_time(min(reads)) if reads else math.inf

    def commit(self, batch: _BatchRecords) -> None:
        """Mark a batch as done."""
        for number, _, last in batch.spans:
            self.lanes[number].read = last

    def backlog_at(self, now: float) -> float:
        """Return the backlog: records that arrived and are not committed, over all lanes."""
        arrived = self.arrivals.arrived_before(now)
        if self._upstream is None:
            return sum(max(0.0, min(arrived, lane.end) - lane.read) * lane.total_share for lane in self.lanes)
        landed = sum(
            (lane.read - (self.lanes[n].read if n < len(self.lanes) else lane.begin)) * lane.total_share
            for n, lane in enumerate(self._upstream.lanes)
        )
        return landed + self._upstream.backlog_at(now)


def _arrivals_of_load(load: QueryLoad) -> Arrivals:
    assert isinstance(load.source, Arrivals), f"{load.name} reads {load.source}, which comes after it"
    assert load.parts, f"{load.name} reads a source without partitions"
    return load.source


class _QueryProcess:
    """The driver's loop of one query."""

    def __init__(
        self,
        env: Clock,
        scheduler: FairScheduler,
        scenario: Scenario,
        reader: _SourceReader,
        upstream: _QueryProcess | None,
        before: Sequence[_QueryProcess],
    ) -> None:
        self._env, self._scheduler, self._scenario, self._upstream = env, scheduler, scenario, upstream
        self._before = before
        self._pool, self._number = scheduler.pool, scheduler.add_query_pool()
        self.reader, self.load = reader, reader.load
        assert self.load.overhead > 0 or self.load.trigger > 0, "a batch takes no time at all"
        self._random = random.Random(f"{scenario.seed} {self.load.name}")  # randomness in a model
        self.batches: list[CommittedBatch | RepeatedBatches] = []
        self._start = 0.0
        self._batch = _BatchRecords()
        self.committed = env.event()
        """Event for each commit."""
        self.lands, self.landed = False, env.event()
        """Whether the query has its part of a bounded run before it, and an event for the end of each."""
        self.process = env.process(self._run_with_outages())

    def _run_with_outages(self) -> Steps:
        while True:
            try:
                yield from self._run_batches()
            except simpy.Interrupt as stopped:
                back = stopped.cause
                assert isinstance(back, simpy.Event)
                yield back

    def _run_batches(self) -> Steps:
        env, trigger = self._env, self.load.trigger
        while True:
            self._start, runs = env.seconds, self._scenario.runs
            self.lands = runs is not None and not self.load.stage
            if runs is not None and trigger > 0:
                yield env.event_after(runs.seconds_to_first_batch(self._start, self._scenario.seed))
            end = env.seconds
            for query in self._before:
                while query.lands:
                    yield query.landed
            while (batch := self.reader.next_batch_records(end)).records:
                self._batch = batch
                batch.begun, batch.waiting = env.seconds, self.reader.backlog_at(end)
                tasks = yield from self._run_batch(batch)
                self.reader.commit(batch)
                if self.committed.callbacks:
                    done, self.committed = self.committed, env.event()
                    done.succeed()
                self.batches.append(
                    CommittedBatch(batch.begun, env.seconds, batch.records, batch.waiting, batch.spans, tasks)
                )
                self._batch = _BatchRecords()
                self._pool.report_batch(self.load.name, env.seconds - batch.begun, trigger)
                # A bounded run has all batches up to its end.
                if runs is None or trigger == 0:
                    break
            else:
                if runs is None:
                    self._pool.report_batch(self.load.name, 0.0, trigger)  # executors without work end, too
            self.lands = False
            if self.landed.callbacks:
                done, self.landed = self.landed, env.event()
                done.succeed()
            if trigger > 0:
                # Spark's own rule: the next multiple after the start, or at once if that has passed.
                following = (math.floor(self._start / trigger + 1e-9) + 1) * trigger
                yield env.event_after(max(0.0, following - env.seconds))
            elif not batch.records:
                yield from self._wait_for_records()

    def _wait_for_records(self) -> Steps:
        """Without a trigger, sleep until there are records."""
        if self._upstream is not None:
            yield self._upstream.committed
            return
        at = self.reader.next_record_time()
        yield self._env.event_after(_POLL if at <= self._env.seconds else at - self._env.seconds + _POLL)

    def _run_batch(self, batch: _BatchRecords) -> Generator[simpy.Event, object, int]:
        """Run a batch and return the number of its tasks."""
        env, pool, load = self._env, self._pool, self.load
        batch.reads = env.seconds
        yield env.event_after(load.overhead * self._random_factor(load.overhead_sigma))
        pool.remove_idle_executors(env.seconds)
        if load.alone and sum(number for each, number in batch.taken if each > 0) <= pool.cores:
            batch.reads = env.seconds
        tasks = load.batch_tasks(batch.taken, pool.cores)
        if self._scenario.sigma:
            sigma = self._scenario.sigma
            tasks = [EqualTasks(each.seconds * self._random_factor(sigma), each.count) for each in tasks]
        # A task waits for its partition, and holds its core, so tasks of other queries and on new executors wait, too.
        delivery = load.delivery_seconds(batch.taken, pool.cores) - (env.seconds - batch.reads)
        if delivery > 0 and delivery > (processing := schedule_seconds(tasks, pool.cores)) > 0:
            tasks = [EqualTasks(each.seconds * delivery / processing, each.count) for each in tasks]
        count = sum(each.count for each in tasks)
        if len(self._scenario.queries) == 1 and (count <= pool.cores or not pool.scales_during_batch):
            pool.assign_tasks(self._number, count)
            yield env.event_after(schedule_seconds(tasks, pool.cores))
        else:
            yield self._scheduler.run(self._number, tasks)
        # As in ``CoreSpread.seconds``: the fixed cost is added only if one wave reads all partitions and nobody else reads.
        if (rest := load.delivery_seconds(batch.taken, pool.cores) - (env.seconds - batch.reads)) > 0:
            yield env.event_after(rest)
        pool.mark_idle(self._number)
        return count

    def skip_repeated_batches(self, repeats: RepeatedBatches) -> None:
        """Skip batches that are like the last ones; one that runs becomes the one after them."""
        self.batches.append(repeats)
        records = {lane: repeats.number * each for lane, each in repeats.lanes.items()}
        for lane, each in records.items():
            self.reader.lanes[lane].read += each
        seconds, batch = repeats.number * repeats.seconds, self._batch
        self._start += seconds
        batch.begun += seconds
        batch.reads += seconds
        batch.waiting += repeats.number * repeats.backlog
        batch.spans = [
            (lane, first + records[lane], last + records[lane]) for lane, first, last in batch.spans
        ]

    def _random_factor(self, sigma: float) -> float:
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
    if not each_batch:
        scenario = scenario_with_lasting_executors(scenario)
    result = _simulate_scenario(scenario_with_numbered_queries(scenario), each_batch)
    queries = {
        load.name: replace(result.queries[f"{number}"], name=load.name)
        for number, load in enumerate(scenario.queries)
    }
    return replace(result, queries=MappingProxyType(queries))


def scenario_with_numbered_queries(scenario: Scenario) -> Scenario:
    """Return a scenario with the numbers of its queries as their names: jobs of a large environment are often alike otherwise."""
    names = {load.name: f"{number}" for number, load in enumerate(scenario.queries)}
    loads = (
        replace(
            load,
            name=names[load.name],
            source=names[load.source] if isinstance(load.source, str) else load.source,
        )
        for load in scenario.queries
    )
    reshards = tuple((names[name], change) for name, change in scenario.reshards)
    return replace(scenario, queries=tuple(loads), reshards=reshards)


@lru_cache(maxsize=2048)
def _simulate_scenario(scenario: Scenario, each_batch: bool) -> JobResult:
    env = Clock()
    pool = ExecutorPool(env, scenario)
    scheduler = FairScheduler(env, pool)
    queries: dict[str, _QueryProcess] = {}
    for load in scenario.queries:
        upstream = queries[load.source] if isinstance(load.source, str) else None
        reader = _SourceReader(load, upstream.reader if upstream is not None else None)
        before = [each for each in queries.values() if each.load.stage < load.stage]
        queries[load.name] = _QueryProcess(env, scheduler, scenario, reader, upstream, before)
    events: list[tuple[float, Callable[[], object]]] = [
        (change.at, partial(queries[name].reader.reshard, change, change.at))
        for name, change in scenario.reshards
    ]
    downs: list[tuple[float, float]] = []
    for outage in scenario.separate_outages:
        if outage.at >= scenario.seconds:
            break
        back = env.event()
        # The driver is billed while it starts, executors only after their start.
        downs.append((outage.at, outage.at + outage.seconds))
        events.append((outage.at, partial(_stop_driver, scheduler, queries.values(), back)))
        events.append((downs[-1][1] + scenario.driver_start, partial(_restart_driver, pool, back)))
    events = [each for each in events if each[0] < scenario.seconds]
    events.append((scenario.seconds, lambda: None))
    env.run_until(_POLL / 1000)  # each query begins, and waits for its first records
    longest = max(load.trigger + load.overhead for load in scenario.queries)
    quiet = deque([] if each_batch else quiet_spans(scenario, (_STEPS + 1) * longest))
    for at, happen in sorted(events, key=itemgetter(0)):
        while quiet and quiet[0][1] <= at:
            _skip_repetition(env, scenario, pool, queries, quiet.popleft(), longest)
        env.run_until(at)
        happen()
    ups = _driver_spans(0.0, downs, scenario.seconds)
    found = {
        query.load.name: query_result(
            query.load.name,
            query.reader.arrivals,
            query.batches,
            [lane.total_share for lane in query.reader.lanes],
            scenario.seconds,
            query.reader.backlog_at(scenario.seconds),
        )
        for query in queries.values()
    }
    lives = pool.end_and_list_lifetimes(scenario.seconds)
    if scenario.runs is not None:
        batches = chain.from_iterable(zip(each.starts, each.ends, strict=True) for each in found.values())
        ups = scenario.runs.billed_spans(scenario.seconds, scenario.seed, batches)
        lives = ups * pool.executor_count
    return job_result(scenario, found, lives, ups)


def _skip_repetition(
    env: Clock,
    scenario: Scenario,
    pool: ExecutorPool,
    queries: Mapping[str, _QueryProcess],
    quiet: tuple[float, float],
    step: float,
) -> None:
    """Skip what repeats in a time in which nothing changes from outside."""
    trigger = max(query.load.trigger for query in queries.values())
    at = quiet[0] + _STEPS * step
    while (at := _end_of_trigger_period(at, trigger)) < quiet[1]:
        env.run_until(at)
        found = find_repetition(
            scenario, pool, {name: query.batches for name, query in queries.items()}, env.seconds, quiet
        )
        if found is not None:
            longest = max(found.values(), key=lambda each: each.seconds)
            env.skip(longest.number * longest.seconds)
            for name, repeats in found.items():
                queries[name].skip_repeated_batches(repeats)
        at = env.seconds + (trigger / 2 or step)


def _end_of_trigger_period(time: float, trigger: float) -> float:
    """Return the time of the next trigger, before which most often no batch runs."""
    return math.ceil(time / trigger) * trigger if trigger > 0 else time


def _stop_driver(scheduler: FairScheduler, queries: Iterable[_QueryProcess], back: simpy.Event) -> None:
    scheduler.lose_all_executors()
    for query in queries:
        query.process.interrupt(back)


def _restart_driver(pool: ExecutorPool, back: simpy.Event) -> None:
    pool.restart_with_initial_executors()
    back.succeed()


def _driver_spans(begin: float, downs: list[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Return the spans in which the driver ran."""
    found = []
    for down, up in downs:
        found.append((begin, down))
        begin = up
    if begin < end:
        found.append((begin, end))
    return found
