"""Repeated batches of a simulated job, which are like those before: the simulation skips them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.executor_pool import ExecutorPool
from millrace.sizing.simulation.result import CommittedBatch, RepeatedBatches
from millrace.sizing.simulation.scaling_policies import DynamicAllocation, FixedExecutors
from millrace.sizing.simulation.scenario_model import QueryLoad, Scenario

_CLOSE = 1e-9
"""Share of a batch below which a difference is a rounding error."""


def scenario_with_lasting_executors(scenario: Scenario) -> Scenario:
    """Return the scenario with a constant number of executors if none is ever idle for too long: each batch of a query uses all."""
    policy, longest = scenario.scaling, math.inf
    if not isinstance(policy, DynamicAllocation) or scenario.reshards or policy.initial < policy.most:
        return scenario
    for load in scenario.queries:
        if (
            isinstance(load.source, Arrivals)
            and load.trigger > 0
            and not load.overhead_sigma
            and load.source.never_rests
        ):
            tasks = load.repartition or sum(part.count for part in load.parts)
            if tasks >= policy.most:
                longest = min(longest, load.trigger + load.overhead)
    lasts = longest < min(policy.idle_timeout, policy.shuffle_timeout)
    return replace(scenario, scaling=FixedExecutors(policy.most)) if lasts else scenario


def quiet_spans(scenario: Scenario, longest: float) -> Iterator[tuple[float, float]]:
    """Yield begin and end of each time, longer than ``longest`` seconds, in which nothing changes from outside.

    There is none if batches depend on chance, and none while the job is down.
    """
    if scenario.sigma or scenario.runs is not None or any(load.overhead_sigma for load in scenario.queries):
        return
    down = {each.at for each in scenario.outages}
    changes = {
        0.0,
        scenario.seconds,
        *(change.at for _, change in scenario.reshards),
        *down,
        *(each.at + each.seconds + scenario.driver_start for each in scenario.outages),
        *(
            at
            for load in scenario.queries
            if isinstance(load.source, Arrivals)
            for at in load.source.times.tolist()
        ),
    }
    inside = sorted(each for each in changes if each <= scenario.seconds)
    yield from (
        (begin, end) for begin, end in pairwise(inside) if end - begin > longest and begin not in down
    )


def find_repetition(
    scenario: Scenario,
    pool: ExecutorPool,
    batches: Mapping[str, Sequence[CommittedBatch | RepeatedBatches]],
    now: float,
    quiet: tuple[float, float],
) -> dict[str, RepeatedBatches] | None:
    """Return how each query's last batches repeat from now on, for the same time; ``None`` if one may change.

    A batch depends on the backlog at its start, on the cores, on the time until its next trigger and its source's next
    commit, and on what other queries run meanwhile. If all these were the same at the starts of two batches, they remain
    the same; where a limit cuts batches, as long as the backlog is above it. Queries that share cores are all in the same
    state again after the longest trigger, if the others divide it.

    Parameters
    ----------
    quiet
        Begin and end of the time in which nothing changes from outside.
    """
    found: dict[str, RepeatedBatches] = {}
    arrivals: dict[str, Arrivals] = {}
    shared, longest = len(scenario.queries) > 1, max(load.trigger for load in scenario.queries)
    idle, most = [], math.inf
    resharded = max((change.at for _, change in scenario.reshards if change.at <= now), default=0.0)
    for load in scenario.queries:
        upstream = load.source if isinstance(load.source, str) else None
        source = arrivals[upstream] if upstream is not None else load.source
        assert isinstance(source, Arrivals)
        arrivals[load.name] = source
        pattern = round(longest / load.trigger) if shared and load.trigger > 0 else 1
        needed = max(pool.remembered_batches + pattern, (3 if shared else 1) * pattern)
        last = [each for each in batches[load.name][-needed:] if isinstance(each, CommittedBatch)]
        if len(last) < needed or last[0].start < max(pool.changed, quiet[0]):
            return None
        each = _find_repeats_or_none(load, last, pattern)
        if each is None or (shared and abs(each.seconds - longest) > _CLOSE * longest):
            return None
        if upstream is None:
            most = min(most, *(_repeats_until_below_limit(source, batch, each) for batch in last[-pattern:]))
            if min(first for _, first, _ in last[0].spans) < source.arrived_before(resharded):
                return None
        elif not _reads_what_is_landed(each, found[upstream]):
            return None
        found[load.name] = each
        pause = each.seconds - (last[-1].end - last[-1].start) + load.overhead
        idle.append((last[-1].tasks, pause))
    period = max(each.seconds for each in found.values())
    until = math.floor((quiet[1] - now) / period - _CLOSE)
    number = math.floor(min(most, until))
    if number > 0:
        number = pool.possible_repetitions(
            number, period, idle, ends=number == until and quiet[1] >= scenario.seconds
        )
    return {name: each._replace(number=number) for name, each in found.items()} if number > 0 else None


def _reads_what_is_landed(repeats: RepeatedBatches, upstream: RepeatedBatches) -> bool:
    """Return whether a query reads as much as is landed."""
    return repeats.lanes.keys() == upstream.lanes.keys() and all(
        math.isclose(records, upstream.lanes[lane], rel_tol=_CLOSE) for lane, records in repeats.lanes.items()
    )


def _repeats_until_below_limit(source: Arrivals, batch: CommittedBatch, repeats: RepeatedBatches) -> float:
    """Return how often a batch repeats until its backlog is not above its limit any more."""
    arrived = source.arrived_before(batch.start)
    arriving = arrived - source.arrived_before(batch.start - repeats.seconds)
    most = math.inf
    for lane, _, last in batch.spans:
        drained = repeats.lanes[lane] - arriving
        if drained > _CLOSE * arriving:
            # One batch may be running, and one may be rounded.
            most = min(most, (arrived - last) / drained - 2)
    return most


def _find_repeats_or_none(
    load: QueryLoad, last: Sequence[CommittedBatch], pattern: int
) -> RepeatedBatches | None:
    """Return how batches repeat that read the same number of records, each after the same time."""
    before, after = last[-1 - pattern], last[-1]
    period = after.start - before.start
    lanes = {
        lane: there - here for (lane, here, _), (_, there, _) in zip(before.spans, after.spans, strict=False)
    }
    backlog = after.backlog - before.backlog
    for one, other in zip(last, last[pattern:], strict=False):
        times = (other.start - one.start - period, other.end - one.end - period)
        if max(map(abs, times)) > _CLOSE * period or one.tasks != other.tasks:
            return None
        own, following = ([each[0] for each in batch.spans] for batch in (one, other))
        if not own == following == [*lanes]:
            return None
        for (lane, begin, end), (_, first, last_read) in zip(one.spans, other.spans, strict=True):
            records = lanes[lane]
            if max(abs(first - begin - records), abs(last_read - end - records)) > _CLOSE * records:
                return None
    back_to_back = abs(before.end - after.start) <= _CLOSE * period and period >= load.trigger
    by_trigger = load.trigger > 0 and _is_whole_number(period / load.trigger)
    if by_trigger or back_to_back or (load.trigger == 0 and isinstance(load.source, str)):
        return RepeatedBatches(period, backlog, lanes, 0, pattern)
    return None


def _is_whole_number(number: float) -> bool:
    return number > 0.5 and abs(number - round(number)) <= _CLOSE * number
