"""Remedies for an environment that cannot be planned: changes to the file, each tested by another plan."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import chain, groupby
from typing import Any

from millrace.config.document.problems import Finding, Path
from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, SourceQueryBase
from millrace.config.units import format_duration
from millrace.sizing.alternatives.choose_runs_and_stream_modes import connected_part_of_environment
from millrace.sizing.environment_with_plan_choices import environment_with_value
from millrace.sizing.jobs.worker_choices import own_worker_sizes
from millrace.sizing.queries.environment_demands import query_demands_and_findings

Replan = Callable[[Environment], Sequence[Finding]]
"""Function that plans an environment and returns the findings that prevent a plan."""

_WANTED = 3
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
_MORE = 256
"""Workers that are tried beyond twice as many as are pinned, and what is tried beyond any pinned number."""
_PINS = ("cores", "max_workers", "shards", "partitions")
"""Keys of numbers whose least accepted value is searched."""
_CLOSE = 1 + 1e-6
"""Factor above which the work of a job is certainly more than its cores do."""
_STEPS = (1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)


def findings_with_remedies(
    environment: Environment, problems: Sequence[Finding], replan: Replan
) -> list[Finding]:
    """Return the findings; each about a job has up to three changes that another plan has confirmed.

    Parameters
    ----------
    environment
        Environment that cannot be planned.
    problems
        Findings that prevent the plan.
    replan
        Plans a changed environment.
    """
    found: dict[tuple[str, str], Sequence[Finding]] = {}

    def findings_of_change(job: str, change: tuple[str, Environment]) -> Sequence[Finding]:
        # Findings of one job have the same changes.
        key = job, change[0]
        if key not in found:
            found[key] = replan(change[1])
        return found[key]

    known = {each.path for each in problems}
    problems = [_finding_with_least_accepted(environment, each, known, replan) for each in problems]
    return [_finding_with_remedies(environment, each, known, findings_of_change) for each in problems]


def _finding_with_least_accepted(
    environment: Environment, problem: Finding, known: Collection[Path], replan: Replan
) -> Finding:
    """Return a finding about a pinned number with the least one that is accepted: a search for it may lead to other partitions."""
    *_, key = problem.path
    if key not in _PINS or not problem.value.isdigit():
        return problem
    section, name = str(problem.path[0]), str(problem.path[1])
    part = connected_part_of_environment(environment, (section, name))

    @cache
    def is_accepted(number: int) -> bool:
        changed = environment_with_value(part, problem.path, number)
        return not (section == "jobs" and pins_leave_too_few_cores(changed, name)) and not any(
            each.path[:2] == problem.path[:2] or each.path not in known for each in replan(changed)
        )

    said, pinned = re.match(r"at least (\d+)", problem.allowed), int(problem.value)
    expected = [] if said is None else [int(said[1])]
    enough = next(filter(is_accepted, (*expected, pinned + _MORE)), None)
    if enough is None or enough <= pinned:
        return problem
    least = pinned + 1 + bisect_left(range(pinned + 1, enough), True, key=is_accepted)
    reason = problem.allowed.partition(": ")[2]
    if key == "max_workers" and expected != [least]:
        reason = "planned with fewer, their cores or their memory are too small"
    return replace(problem, allowed=f"at least {least}: {reason}")


def _finding_with_remedies(
    environment: Environment,
    problem: Finding,
    known: Collection[tuple[Any, ...]],
    findings_of_change: Callable[[str, tuple[str, Environment]], Sequence[Finding]],
) -> Finding:
    if problem.path[0] != "jobs" or problem.path[-1] == "result":
        return problem
    job = str(problem.path[1])

    def is_remedy(change: tuple[str, Environment]) -> bool:
        return not pins_leave_too_few_cores(change[1], job) and not any(
            each.path[:2] == problem.path[:2] or each.path not in known
            for each in findings_of_change(job, change)
        )

    part = connected_part_of_environment(environment, ("jobs", job))
    found: list[str] = []
    for _, group in groupby(
        chain(
            _described_environments_with_changed_job(part, job, str(problem.path[-1])),
            _described_environments_with_split_job(part, job),
        ),
        lambda change: change[0].split(":")[0],  # what is changed, before its new size
    ):
        steps = [*group]
        # A larger change does what a smaller one does, and each takes a plan.
        if is_remedy(steps[-1]):
            smallest = bisect_left(steps, True, key=is_remedy)
            found.append(steps[smallest][0])
            if len(found) == _WANTED:
                break
    if not found:
        return problem
    hint = f"any of these would do: {'; '.join(found)}"
    return replace(problem, hint=f"{problem.hint}; {hint}" if problem.hint else hint)


def pins_leave_too_few_cores(environment: Environment, name: str) -> bool:
    """Return whether pins allow fewer cores than the work of a job's queries keeps busy, so that no partitions and no search help."""
    job, most = environment.jobs[name], math.inf
    if job.max_workers is not None:
        most = (job.max_workers - 1) * max(own_worker_sizes(job))
    most = min(most, job.cores or math.inf)
    # With the spare cores to catch up, and without, as a refused job is planned. The partitions of several streams are rounded down.
    return most < math.inf and all(
        sum(
            demand.needed - (len(demand.streams) > 1)
            for demand in query_demands_and_findings(environment, as_asked)[0]
            if demand.job == name and not demand.stage
        )
        > most * _CLOSE
        for as_asked in ((), tuple(environment.jobs))
    )


def _described_environments_with_changed_job(
    environment: Environment, name: str, refused: str
) -> Iterator[tuple[str, Environment]]:
    for words, path, value in _described_job_changes(environment, name, refused):
        yield words, environment_with_value(environment, ("jobs", name, *path), value)


def _described_environments_with_split_job(
    environment: Environment, name: str
) -> Iterator[tuple[str, Environment]]:
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
        changed = environment
        for source in sources:
            path = ("streams", source, "traffic", "records_per_second")
            rate = environment.streams[source].traffic.records_per_second / jobs
            changed = environment_with_value(changed, path, rate)
        yield f"split: {jobs} such jobs, {how} of {', '.join(sources)}", changed


def _described_job_changes(
    environment: Environment, name: str, refused: str
) -> Iterator[tuple[str, Path, Any]]:
    """Yield changes, each with its key in the job and the value: the smallest of each kind first.

    Unpinning, time, fixed cost, speed, one query less. What is allowed for the refused key is told already.
    """
    job = environment.jobs[name]
    for key in ("worker", "max_workers", "cores", "min_executors", "initial_executors"):
        if key in job.model_fields_set:
            yield f"leave {key} to the plan: remove it", (key,), None
    if job.max_workers is not None and refused != "max_workers":
        for number in range(job.max_workers + 1, 2 * job.max_workers + _MORE):
            yield f"max_workers: {number}", ("max_workers",), number
    for name, query in job.queries.items():
        for key in ("trigger", "records_per_batch"):
            if getattr(query, key, None) is not None:
                yield f"leave {name}'s {key} to the plan: remove it", ("queries", name, key), None
    for step in _STEPS:
        latency = timedelta(seconds=_round_up_to_two_digits(job.latency.total_seconds() * step))
        yield f"latency: {format_duration(latency)}", ("latency",), latency
    if job.rate is not None and job.rate.records_per_second_per_core is not None:
        for step in _STEPS:
            overhead = timedelta(
                milliseconds=max(1, int(job.rate.batch_overhead.total_seconds() * 1000 / step))
            )
            words = f"rate.batch_overhead: {format_duration(overhead)}, if a benchmark says so"
            yield words, ("rate", "batch_overhead"), overhead
        for step in _STEPS:
            faster = float(_round_up_to_two_digits(job.rate.records_per_second_per_core * step))
            words = f"rate.records_per_second_per_core: {faster:g}, if a benchmark says so"
            yield words, ("rate", "records_per_second_per_core"), faster
    if job.goal == "latency":
        yield "goal: throughput, where records may be older than the SLA", ("goal",), "throughput"
    derived = {name for name, query in job.queries.items() if isinstance(query, DeriveQuery)}
    rest = {name: query for name, query in job.queries.items() if name not in derived}
    read = {each for query in rest.values() for each in query.source_stream_names}
    # A direct query reads a topic.
    if derived and read and all(environment.streams[each].cluster_name is not None for each in read):
        words = (
            f"one query less: {', '.join(sorted(derived))} as direct queries, where source and sink allow it"
        )
        yield words, ("queries",), rest


def _round_up_to_two_digits(value: float) -> int:
    """Return a number rounded up to two digits."""
    whole = max(1, math.ceil(value))
    scale = int(10 ** max(0, len(str(whole)) - 2))
    return -(-whole // scale) * scale
