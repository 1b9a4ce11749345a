"""Changes of the file with which shards answer all calls of their readers, each planned and simulated like the file itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache

from millrace.config.document.problems import ConfigurationError
from millrace.config.model import Environment
from millrace.config.queries import LandQuery
from millrace.config.units import format_duration
from millrace.sizing.environment_with_plan_choices import environment_with_value
from millrace.sizing.planning import plan, total_cost
from millrace.sizing.readable_numbers import dollars, join_names
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan

_STEPS = (1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32)

Change = tuple[str, Environment]


def remedies_of_throttled_reads(
    environment: Environment, stream: str, readers: Sequence[tuple[str, str]], usd: float
) -> Iterator[str]:
    """Yield the smallest change of each kind that keeps every SLA, with the dollars a month that it takes.

    Parameters
    ----------
    readers
        Jobs and queries that read the stream without fan-out.
    usd
        Dollars a month of the plan of the environment.
    """
    for changes in (
        [*_without_triggers(environment, readers)],
        [*_with_fan_out(environment, stream, readers)],
        [*_with_looser_slas(environment, readers)],
    ):
        if (found := _smallest_kept_and_usd(changes)) is not None:
            words, then = found
            much = f"{dollars(abs(then - usd))} {'more' if then > usd else 'less'} a month"
            yield f"{words} would keep every SLA, for {much}"


def _smallest_kept_and_usd(changes: Sequence[Change]) -> tuple[str, float] | None:
    usd_if_kept = cache(lambda number: _usd_if_kept(changes[number][1]))
    # A larger change does what a smaller one does, and each takes a plan.
    if not changes or usd_if_kept(len(changes) - 1) is None:
        return None
    smallest = bisect_left(range(len(changes)), True, key=lambda number: usd_if_kept(number) is not None)
    usd = usd_if_kept(smallest)
    return None if usd is None else (changes[smallest][0], usd)


def _usd_if_kept(environment: Environment) -> float | None:
    """Return the dollars a month of an environment whose plan keeps every SLA in the simulation; None for any other."""
    try:
        found = plan(environment)
    except ConfigurationError:
        return None
    kept = all(each.meets_sla for each in simulated_queries_of_plan(environment, found))
    return total_cost(found).value if kept else None


def _without_triggers(environment: Environment, readers: Sequence[tuple[str, str]]) -> Iterator[Change]:
    pinned = [each for each in readers if environment.jobs[each[0]].queries[each[1]].trigger is not None]
    for job, query in pinned:
        environment = environment_with_value(environment, ("jobs", job, "queries", query, "trigger"), None)
    if pinned:
        yield f"no `trigger` of {join_names([query for _, query in pinned])}", environment


def _with_fan_out(
    environment: Environment, stream: str, readers: Sequence[tuple[str, str]]
) -> Iterator[Change]:
    source, jobs = environment.streams[stream], environment.jobs
    able: list[str] = []
    asked = [query for _, _, query in environment.queries if isinstance(query, LandQuery)]
    registered = [query for query in asked if query.fan_out and query.source == stream]
    room = source.most_consumers(advantage=environment.governance.on_demand_advantage)
    room -= len(registered) + len(source.consumers_of_other_programs)
    # The most frequent readers first: each takes the most calls away.
    for job, query in sorted(readers, key=lambda each: jobs[each[0]].latency):
        if (
            isinstance(jobs[job].queries[query], LandQuery)
            and not source.belongs_to_others
            and len(able) < room
        ):
            able.append(query)
            path = ("jobs", job, "queries", query, "fan_out")
            environment = environment_with_value(environment, path, True)
            yield f"`fan_out: true` of {join_names(able)}", environment


def _with_looser_slas(environment: Environment, readers: Sequence[tuple[str, str]]) -> Iterator[Change]:
    jobs = [*dict.fromkeys(job for job, _ in readers)]
    for step in _STEPS:
        changed, words = environment, []
        for job in jobs:
            seconds = environment.jobs[job].latency.total_seconds() * step
            latency = timedelta(milliseconds=round(1000 * seconds))
            changed = environment_with_value(changed, ("jobs", job, "latency"), latency)
            words.append(format_duration(latency))
        same = words[0] if len(set(words)) == 1 else join_names(words)
        yield f"`latency: {same}` of {join_names(jobs)}", changed
