"""Search for the periods of bounded runs, of jobs that leave them to the plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from millrace.config.job_runs import refused_runs
from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, Landing
from millrace.sizing.planned_environment import with_choice
from millrace.sizing.prices_and_limits import limits

_PERIODS = tuple(
    timedelta(minutes=each) for each in (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
)
"""Periods that are tried. A looser SLA only adds to them, so it never costs more."""

_CENT = 0.01
"""Dollars by which equal costs may differ, as sums depend on their order."""

Cost = Callable[[Environment], float | None]
"""Function that sizes an environment and returns its dollars a month; None if it cannot be planned."""

Keeps = Callable[[Environment], bool]
"""Function that simulates the plan of an environment and returns whether it keeps every SLA."""


def with_periods(environment: Environment, cost: Cost, keeps: Keeps) -> Environment:
    """Return the environment with a period for each job that leaves it to the plan and has bounded runs.

    With ``run: auto`` a job has them where they keep its SLA and cost less, or where it is deployed so.
    """
    for name, job in environment.jobs.items():
        bounded = True if job.run == "bounded" else environment.deployed.in_turns.get(name)
        if job.run_every is not None or job.run not in ("bounded", "auto") or bounded is False:
            continue
        period = _cheapest(_connected(environment, name), name, cost, keeps, bounded=bounded is True)
        if period is not None:
            environment = with_choice(environment, "jobs", name, "run_every", period)
    return environment


def _cheapest(part: Environment, name: str, cost: Cost, keeps: Keeps, *, bounded: bool) -> timedelta | None:
    """Return the cheapest period that keeps the SLA; None if a job that runs all the time costs no more."""
    start = timedelta(seconds=limits()["bounded.start_seconds"])
    usd: dict[timedelta, float] = {}
    for period in _PERIODS:
        changed = with_choice(part, "jobs", name, "run_every", period)
        if start < period < part.jobs[name].latency - start and not any(refused_runs(changed)):
            found = cost(changed)
            usd |= {} if found is None else {period: found}
    always = None if bounded or not usd else cost(part)
    # Of equal ones the shortest, whose records are younger.
    for period in sorted(usd, key=lambda each: (round(usd[each], 2), each)):
        if always is not None and always <= usd[period] + _CENT:
            return None
        if keeps(with_choice(part, "jobs", name, "run_every", period)):
            return period
    # Its plan says why no period is possible.
    return _PERIODS[0] if bounded else None


def _connected(environment: Environment, name: str) -> Environment:
    """Return the part of an environment that a job shares streams or tables with."""
    touched = {
        each: {
            *(("stream", stream) for query in job.queries.values() for stream in query.streams),
            *(("table", query.table) for query in job.queries.values() if isinstance(query, Landing)),
            *(
                ("table", table)
                for query in job.queries.values()
                if isinstance(query, DeriveQuery)
                for table, _ in query.reads
            ),
        }
        for each, job in environment.jobs.items()
    }
    found, more = {name}, True
    while more:
        own = set().union(*(touched[each] for each in found))
        more = {each for each in environment.jobs if own & touched[each]} - found
        found |= more
    streams = {stream for each in found for kind, stream in touched[each] if kind == "stream"}
    return environment.model_copy(
        update={
            "jobs": {each: job for each, job in environment.jobs.items() if each in found},
            "streams": {each: stream for each, stream in environment.streams.items() if each in streams},
        }
    )
