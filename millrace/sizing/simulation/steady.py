"""Steady state of a simulated job: from when on each batch is like the one before, so that the rest follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.executor_pool import Pool
from millrace.sizing.simulation.job import QueryLoad, Scenario
from millrace.sizing.simulation.result import Batch, Repeats

_CLOSE = 1e-9
"""Share of a batch below which a difference is a rounding error."""


def first_check(scenario: Scenario) -> float:
    """Return the seconds from which a job may have a steady state; infinity if its batches depend on chance."""
    if scenario.sigma or scenario.runs is not None or any(load.overhead_sigma for load in scenario.queries):
        return math.inf
    changes = [0.0, *(change.at for _, change in scenario.reshards)]
    changes += [each.at + each.seconds + scenario.driver_start for each in scenario.outages]
    changes += [load.source.last_change for load in scenario.queries if isinstance(load.source, Arrivals)]
    return max(changes)


def steady_state(
    scenario: Scenario, pool: Pool, batches: Mapping[str, Sequence[Batch]]
) -> dict[str, Repeats] | None:
    """Return how each query's last batch repeats until the end, or ``None`` if one may still change.

    A batch depends on the backlog at its start, on the cores, on the time until its next trigger and its source's next
    commit, and on what other queries run meanwhile. If all these were the same at the starts of two batches, they remain
    the same. Queries that share cores are all in the same state again after the longest trigger, if the others divide it.
    """
    periods: dict[str, float] = {}
    found = {}
    arrivals: dict[str, Arrivals] = {}
    latest = max((each[-1].end for each in batches.values() if each), default=0.0)
    shared, longest = len(scenario.queries) > 1, max(load.trigger for load in scenario.queries)
    for load in scenario.queries:
        upstream = load.source if isinstance(load.source, str) else None
        source = arrivals[upstream] if upstream is not None else load.source
        assert isinstance(source, Arrivals)
        arrivals[load.name] = source
        pattern = round(longest / load.trigger) if shared and load.trigger > 0 else 1
        needed = max(pool.remembered_batches + pattern, (3 if shared else 1) * pattern)
        last = batches[load.name][-needed:]
        if len(last) < needed or last[0].start < pool.changed:
            return None
        if shared and last[-1].end < latest - longest:
            return None
        period = _period(load, source, last, scenario.seconds, pattern)
        if period is None or (upstream is not None and not _whole(period / periods[upstream])):
            return None
        if shared and abs(period - longest) > _CLOSE * longest:
            return None
        periods[load.name] = period
        # An event at the very end is not simulated.
        number = sum(
            max(0, math.ceil((scenario.seconds - each.end) / period - _CLOSE) - 1) for each in last[-pattern:]
        )
        found[load.name] = Repeats(period, period * source.last_rate, number, pattern)
    idle = [
        (last.tasks, periods[load.name] - (last.end - last.start) + load.overhead)
        for load in scenario.queries
        for last in batches[load.name][-1:]
    ]
    return found if pool.is_steady(idle) else None


def _period(
    load: QueryLoad, source: Arrivals, last: Sequence[Batch], seconds: float, pattern: int
) -> float | None:
    """Return the seconds after which batches are alike that read records of one rate, with the same backlog at each start.

    Parameters
    ----------
    pattern
        Number of batches from one to the next that is like it.
    """
    before, after = last[-1 - pattern], last[-1]
    period = after.start - before.start
    records = period * source.last_rate
    if (
        not records
        or source.seconds < seconds
        or min(first for _, first, _ in last[0].spans) < source.last_begin
    ):
        return None
    for one, other in zip(last, last[pattern:], strict=False):
        if len(one.spans) != len(other.spans) or one.tasks != other.tasks:
            return None
        times = (other.start - one.start - period, other.end - one.end - period)
        moved = [
            there - here - records
            for span, following in zip(one.spans, other.spans, strict=True)
            for here, there in zip(span[1:], following[1:], strict=True)
        ]
        if max(map(abs, times)) > _CLOSE * period or max(map(abs, moved)) > _CLOSE * records:
            return None
    back_to_back = abs(before.end - after.start) <= _CLOSE * period and period >= load.trigger
    if load.trigger > 0 and _whole(period / load.trigger):
        return period
    return period if back_to_back or (load.trigger == 0 and isinstance(load.source, str)) else None


def _whole(number: float) -> bool:
    return number > 0.5 and abs(number - round(number)) <= _CLOSE * number
