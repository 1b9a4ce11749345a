"""Verdict of a simulation: cost of workers, SLA, backlog."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from millrace.cli.shared.verdict import (
    Risk,
    Severity,
    SlaState,
    Verdict,
    also_concerned_text,
    risks_largest_first,
)
from millrace.config import Environment
from millrace.sizing import Plan
from millrace.sizing.cost import HOURS
from millrace.sizing.plan_model import JobPlan
from millrace.sizing.readable_numbers import dollars, duration_text, format_number, join_names, percent
from millrace.sizing.simulation import JobResult
from millrace.sizing.simulation.plan_simulation_check import WITHIN
from millrace.sizing.simulation.result import LEAST_BILLED, QueryResult

MONTH = HOURS * 3600.0
"""Seconds of the plan's month."""

AT_MOST = 0.5
"""Share of the time with all executors above which there is little reserve."""


def simulation_verdict(
    environment: Environment,
    plan: Plan,
    results: Mapping[str, JobResult],
    *,
    env: str,
    repeat_command: str,
    fixed: bool,
) -> Verdict:
    """Return the verdict of a simulation.

    Parameters
    ----------
    results
        Results by job.
    env
        The environment as the command line named it.
    repeat_command
        The command that repeats the simulation.
    fixed
        Whether all executors ran all the time.
    """
    usd = sum(monthly_usd(result) for result in results.values())
    scaling = [name for name in results if not fixed and _job_scales(plan.jobs[name])]
    risks = risks_largest_first(
        (
            *_late_query_risks(plan, results),
            *_waiting_record_risks(plan, results),
            *_all_executors_busy_risks(plan, results, scaling),
            *_assumed_rate_risks(plan, results),
        )
    )
    sla = _sla_state_of_simulation(plan, results)
    played = {
        duration_text(seconds): [name for name, result in results.items() if result.seconds == seconds]
        for seconds in sorted({result.seconds for result in results.values()}, reverse=True)
    }
    assumed = any(plan.jobs[name].max_workers.assumed for name in results)
    named = f"--env {shlex.quote(env)}"
    command, why = f"millrace plan {named}", "shows what these jobs cost with all that is around them"
    if sla.state == "unknown":
        command, why = f"millrace simulate {named}", "plays a day at the peak rate"
    if sla.state == "missed":
        job = next(each.split(".")[1] for risk in risks for each in risk.concerns)
        command = f"millrace plan {named} --explain jobs.{job}.cores"
        why = "shows what its cores rest on"
        late = {each.split(".")[1] for risk in risks if risk.severity == "breach" for each in risk.concerns}
        if late.intersection(scaling):
            command, why = f"{repeat_command} --fixed", "plays the same with all executors held"
    subject = "; ".join(f"{duration} simulated of {join_names(names)}" for duration, names in played.items())
    return Verdict(
        subject=f"{environment.project}-{environment.name}  {subject}",
        cost=f"{dollars(usd, assumed=assumed)} a month",
        cost_words="for workers, if a month were like this",
        usd_month=usd,
        assumed=assumed,
        sla=sla,
        risks=risks,
        command=command,
        why=why,
    )


def _job_scales(job: JobPlan) -> bool:
    """Return whether the number of a job's executors varies with its traffic."""
    held = job.scaling.fixed or job.run is not None
    return not held and job.scaling.min_executors.value < job.executors.value


def monthly_usd(result: JobResult) -> float:
    """Return the USD of a month that is like the simulated time."""
    return result.usd / max(result.seconds, LEAST_BILLED) * MONTH


def _query_results_with_sla_share_and_age(
    plan: Plan, results: Mapping[str, JobResult]
) -> Iterator[tuple[str, QueryResult, float, float | None, float]]:
    """Yield each query with its job, SLA, share in time, and age of the oldest waiting record at the end.

    Waiting records that are older than the SLA count as late.
    """
    for job, result in results.items():
        for name, query in result.queries.items():
            sla = plan.jobs[job].queries[name].latency_seconds.value
            yield (
                job,
                query,
                sla,
                query.share_in_time(sla, result.seconds),
                age_of_oldest_waiting_record(query, result.seconds),
            )


def age_of_oldest_waiting_record(query: QueryResult, end: float) -> float:
    """Return how many seconds the oldest record has waited at the end; 0 if none waits."""
    if query.waiting < 1:
        return 0.0
    return end - query.arrivals.arrival_time(query.arrived - query.waiting + 1)


def _sla_state_of_simulation(plan: Plan, results: Mapping[str, JobResult]) -> SlaState:
    def order(judged: tuple[str, QueryResult, float, float | None, float]) -> float:
        _, query, _, share, _ = judged
        return share if share is not None else WITHIN if query.arrived else float("inf")

    _, query, sla, share, _ = min(_query_results_with_sla_share_and_age(plan, results), key=order)
    if share is None:
        happened = f"was committed, and none waited for {duration_text(sla)}" if query.arrived else "arrived"
        return SlaState("unknown", f"no record of {query.name} {happened}")
    words = f"{percent(share)} of {query.name}'s records within {duration_text(sla)}"
    if len(query.ends):
        words += f", the oldest {duration_text(query.ages.oldest)}"
    return SlaState("kept" if share >= WITHIN else "missed", words, share)


def _late_query_risks(plan: Plan, results: Mapping[str, JobResult]) -> Iterator[Risk]:
    late = [
        (share, job, query, sla)
        for job, query, sla, share, _ in _query_results_with_sla_share_and_age(plan, results)
        if share is not None and share < WITHIN
    ]
    if late:
        _, _, query, sla = min(late, key=lambda each: each[0])
        spell, begin = longest_late_length_and_start(query, sla)
        description = (
            f"longest for {duration_text(spell)} from {duration_text(begin)} on, by {query.name}"
            if spell
            else query.name
        )
        yield _risk_of_parts(
            results,
            "late",
            "breach",
            f"records are late: {description}{also_concerned_text([each[2].name for each in late])}",
            [f"{each[1]}.queries.{each[2].name}" for each in sorted(late, key=lambda each: each[0])],
        )


def longest_late_length_and_start(query: QueryResult, sla: float) -> tuple[float, float]:
    """Return length and start of the longest time, in seconds, in which every batch committed a late record."""
    spell, begin, since = 0.0, 0.0, None
    for start, end, oldest in zip(
        query.starts.tolist(), query.ends.tolist(), query.oldest_age_by_batch.tolist(), strict=True
    ):
        if oldest <= sla:
            since = None
            continue
        since = start if since is None else since
        if end - since > spell:
            spell, begin = end - since, since
    return spell, begin


def _waiting_record_risks(plan: Plan, results: Mapping[str, JobResult]) -> Iterator[Risk]:
    old = [
        (age, job, query)
        for job, query, sla, _, age in _query_results_with_sla_share_and_age(plan, results)
        if age > sla
    ]
    if old:
        age, _, query = max(old, key=lambda each: each[0])
        yield _risk_of_parts(
            results,
            "silent-backlog",
            "breach",
            f"{format_number(query.waiting)} records of {query.name} wait at the end, the oldest for {duration_text(age)}: no age of a "
            f"committed record shows it{also_concerned_text([each[2].name for each in old])}",
            [f"{job}.queries.{each.name}" for _, job, each in old],
        )


def _all_executors_busy_risks(
    plan: Plan, results: Mapping[str, JobResult], scaling: Sequence[str]
) -> Iterator[Risk]:
    """Yield a risk for those jobs among ``scaling`` that run all their executors for much of the time."""
    shares = {}
    for name in scaling:
        result = results[name]
        lasts = np.diff(np.append(result.times, result.seconds))
        most = plan.jobs[name].executors.value
        shares[name] = float(lasts[result.executors >= most].sum() / result.seconds)
    used = [name for name, share in shares.items() if share > AT_MOST]
    if used:
        first = max(used, key=lambda name: shares[name])
        yield _risk_of_parts(
            results,
            "all-executors",
            "warning",
            f"{first} runs all of its executors for {percent(shares[first])} of the time: a larger peak finds no more"
            f"{also_concerned_text(used)}",
            used,
        )


def _assumed_rate_risks(plan: Plan, results: Mapping[str, JobResult]) -> Iterator[Risk]:
    guessed = [name for name in results if plan.jobs[name].cores.assumed]
    if guessed:
        yield _risk_of_parts(
            results,
            "assumed-rates",
            "warning",
            f"rates that nobody measured decide how fast {join_names(guessed)} {'is' if len(guessed) == 1 else 'are'}",
            guessed,
        )


def _risk_of_parts(
    results: Mapping[str, JobResult], kind: str, severity: Severity, words: str, parts: Sequence[str]
) -> Risk:
    """Return a risk of jobs, or of their queries as ``JOB.queries.QUERY``, with the monthly cost of the jobs."""
    usd = sum(monthly_usd(results[job]) for job in dict.fromkeys(each.split(".")[0] for each in parts))
    return Risk(kind, severity, words, tuple(f"jobs.{each}" for each in parts), usd)
