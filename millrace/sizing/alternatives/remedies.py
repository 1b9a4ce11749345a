"""Remedies for an environment that cannot be planned: changes to the file, each tested by another plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any

from millrace.config.document.problems import Finding
from millrace.config.model import Environment, Job
from millrace.config.queries import DeriveQuery, SourceQueryBase
from millrace.config.units import format_duration

Replan = Callable[[Environment], Sequence[Finding]]
"""Function that plans an environment and returns the findings that prevent a plan."""

_WANTED = 3
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
_STEPS = (1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)


def with_remedies(environment: Environment, problems: Sequence[Finding], replan: Replan) -> list[Finding]:
    """Add to each finding about a job up to three changes that another plan has confirmed.

    Parameters
    ----------
    environment
        Environment that cannot be planned.
    problems
        Findings that prevent the plan.
    replan
        Plans a changed environment.
    """
    return [_with_remedy(environment, each, replan) for each in problems]


def _with_remedy(environment: Environment, problem: Finding, replan: Replan) -> Finding:
    if problem.path[0] != "jobs" or problem.path[-1] == "result":
        return problem
    job = str(problem.path[1])

    def is_remedy(changed: Environment) -> bool:
        return not any(each.path[:2] == problem.path[:2] for each in replan(changed))

    found: list[str] = []
    for words, changed in chain(_changes_of_job(environment, job), _splits_of_job(environment, job)):
        kind = words.split(":")[0]
        if any(each.startswith(f"{kind}:") for each in found) or not is_remedy(changed):
            continue
        found.append(words)
        if len(found) == _WANTED:
            break
    if not found:
        return problem
    hint = f"any of these would do: {'; '.join(found)}"
    return replace(problem, hint=f"{problem.hint}; {hint}" if problem.hint else hint)


def _changes_of_job(environment: Environment, name: str) -> Iterator[tuple[str, Environment]]:
    for words, changed in _possible_changes(environment.jobs[name]):
        yield words, environment.model_copy(update={"jobs": {**environment.jobs, name: changed}})


def _splits_of_job(environment: Environment, name: str) -> Iterator[tuple[str, Environment]]:
    """Yield splits into several jobs, each with its part of the traffic; one of them is planned."""
    queries = environment.jobs[name].queries.values()
    sources = sorted(
        {
            each
            for query in queries
            if isinstance(query, SourceQueryBase)
            for each in query.source_stream_names
        }
    )
    if not sources:
        return
    topic = len(sources) == 1 and environment.streams[sources[0]].splits
    how = "partitions shared out by `millrace split`" if topic else "streams of their own"
    for jobs in _SPLITS:
        streams = dict(environment.streams)
        for source in sources:
            stream = streams[source]
            part = {"records_per_second": stream.traffic.records_per_second / jobs}
            traffic = stream.traffic.model_copy(update=part)
            streams[source] = stream.model_copy(update={"traffic": traffic})
        yield (
            f"split: {jobs} such jobs, {how} of {', '.join(sources)}",
            environment.model_copy(update={"streams": streams}),
        )


def _possible_changes(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield changes, the smallest of each kind first: unpinning, time, fixed cost, speed, one query less."""
    for key in ("worker", "max_workers", "cores", "min_executors", "initial_executors"):
        if key in job.model_fields_set:
            default: Any = type(job).model_fields[key].get_default()
            changed = job.model_copy(update={key: default})
            changed.model_fields_set.discard(key)
            yield f"leave {key} to the plan: remove it", changed
    for name, query in job.queries.items():
        for key in ("trigger", "records_per_batch"):
            if getattr(query, key, None) is not None:
                changed = job.model_copy(
                    update={"queries": {**job.queries, name: query.model_copy(update={key: None})}}
                )
                yield f"leave {name}'s {key} to the plan: remove it", changed
    for step in _STEPS:
        latency = timedelta(seconds=_round_up(job.latency.total_seconds() * step))
        yield f"latency: {format_duration(latency)}", job.model_copy(update={"latency": latency})
    if job.rate is not None and job.rate.records_per_second_per_core is not None:
        for step in _STEPS:
            overhead = timedelta(
                milliseconds=max(1, int(job.rate.batch_overhead.total_seconds() * 1000 / step))
            )
            rate = job.rate.model_copy(update={"batch_overhead": overhead})
            yield (
                f"rate.batch_overhead: {format_duration(overhead)}, if a benchmark says so",
                job.model_copy(update={"rate": rate}),
            )
        for step in _STEPS:
            faster = float(_round_up(job.rate.records_per_second_per_core * step))
            rate = job.rate.model_copy(update={"records_per_second_per_core": faster})
            yield (
                f"rate.records_per_second_per_core: {faster:g}, if a benchmark says so",
                job.model_copy(update={"rate": rate}),
            )
    if job.goal == "latency":
        changed = job.model_copy(update={"goal": "throughput"})
        yield "goal: throughput, where records may be older than the SLA", changed
    derived = {name for name, query in job.queries.items() if isinstance(query, DeriveQuery)}
    if derived and any(isinstance(query, SourceQueryBase) for query in job.queries.values()):
        rest = {name: query for name, query in job.queries.items() if name not in derived}
        yield (
            f"one query less: {', '.join(sorted(derived))} as direct queries, where source and sink allow it",
            job.model_copy(update={"queries": rest}),
        )


def _round_up(value: float) -> int:
    """Round up to two digits."""
    whole = max(1, math.ceil(value))
    scale = int(10 ** max(0, len(str(whole)) - 2))
    return -(-whole // scale) * scale
