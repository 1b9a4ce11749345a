"""Expected cost of a job's workers under the stated traffic, in addition to their highest cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from millrace.config.model import Environment, Job
from millrace.sizing.cost import HOURS, SECONDS
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.jobs.job_plan import job_plan_with_workers_always_on
from millrace.sizing.plan_model import Figure, JobPlan, Plan
from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.plan_simulation_check import (
    WITHIN,
    backlog_growth_per_second,
    simulated_queries_of_job,
)
from millrace.sizing.simulation.result import JobResult
from millrace.sizing.simulation.scenario_model import Scenario
from millrace.sizing.simulation.simulation_run import simulate
from millrace.sizing.simulation.skip_repeated_batches import scenario_with_lasting_executors

PLAYED = 2 * 3600.0
"""Least simulated seconds at the average rate; the first quarter, in which a job removes initial executors, is left out."""

TRIGGERS = 80.0
"""Least simulated time at the average rate, in triggers of the slowest query."""

RISE = 40.0
"""Simulated time at the average rate and then at the peak, each in triggers of the slowest query."""

ALIKE = 0.99
"""Share of the highest cost above which no advice is given."""


def largest_monthly_cost(job: JobPlan) -> float:
    """Return USD a month with all workers running, without requests and storage."""
    share = 1.0 if job.run is None else job.run.billed_share
    return job.worker_usd_hour * job.max_workers.value * HOURS * share


def expected_usd_figure(environment: Environment, plan: Plan, job: JobPlan) -> Figure[float]:
    """Return USD a month of a job's workers at the average rate, with the engine's scaling.

    Executors that do not come and go are not simulated. The rate is a constant `records_per_second` of each stream: of the course
    of a day, a file has only its average and peak.
    """
    longest = max(query.trigger_seconds.value for query in job.queries.values())
    seconds = max(PLAYED, TRIGGERS * longest)
    arrivals = {
        name: Arrivals.constant(traffic.records_per_second, seconds)
        for name, traffic in traffic_by_stream(environment, job.name).items()
    }
    made, usd = (
        scenario_of_job(environment, plan, job.name, arrivals),
        job.worker_usd_hour * HOURS * (job.executors.value + 1),
    )
    if job.run is not None or _can_scale(made):
        played = simulate(made)
        begin, end = played.dollars_spent_until(np.asarray([seconds / 4, seconds]))
        usd = float(end - begin) / (seconds * 3 / 4) * SECONDS
    executors = usd / (job.worker_usd_hour * HOURS) - 1
    if job.run is not None:
        minutes = (
            usd / (job.worker_usd_hour * HOURS * job.max_workers.value) * job.run.every_seconds.value / 60
        )
        why = f"simulated at the average rate: runs of {minutes:.1f} minutes, all {job.max_workers.value} workers"
        return Figure(usd, "USD/month", why, assumed=True, inputs=lambda: (f"jobs.{job.name}.run.seconds",))
    why = f"simulated at the average rate: {executors:.1f} of {job.executors.value} executors, and the driver"
    return Figure(usd, "USD/month", why, assumed=True, inputs=lambda: (f"jobs.{job.name}.max_workers",))


def _can_scale(made: Scenario) -> bool:
    """Return whether executors of a scenario may end and start."""
    policy = scenario_with_lasting_executors(made).scaling
    return policy.least < policy.most


def plan_with_fixed_workers_where_late(environment: Environment, plan: Plan) -> Plan:
    """Return a plan that holds the workers of each job that would break a promise if they came and went.

    The bill counts all workers in any case. A job whose scaling is pinned keeps it.
    """
    environment = environment_as_planned(environment, plan)
    jobs = {
        name: job
        if keys_that_pin_scaling(environment.jobs[name])
        or job.run is not None
        or job.scaling.min_executors.value == job.executors.value
        else _job_plan_with_fixed_workers_if_late(environment, plan, job)
        for name, job in plan.jobs.items()
    }
    return replace(plan, jobs=MappingProxyType(jobs))


def _job_plan_with_fixed_workers_if_late(environment: Environment, plan: Plan, job: JobPlan) -> JobPlan:
    if dict(_queries_late_at_rise(environment, plan, job)):
        why = "new ones would come too late when traffic rises to its peak"
        return job_plan_with_workers_always_on(job, why)
    if not _promises_are_broken(environment, plan, job):
        return job
    held = job_plan_with_workers_always_on(job, "fewer would leave a backlog at the peak, or after an outage")
    with_it = replace(plan, jobs=MappingProxyType({**plan.jobs, job.name: held}))
    return job if _promises_are_broken(environment, with_it, held) else held


def _promises_are_broken(environment: Environment, plan: Plan, job: JobPlan) -> bool:
    return any(any(each.contradictions()) for each in simulated_queries_of_job(environment, plan, job))


def keys_that_pin_scaling(job: Job) -> tuple[str, ...]:
    """Return the keys of a job that pin its scaling."""
    keys = ("scaling", "min_executors", "initial_executors")
    return tuple(key for key in keys if key in job.model_fields_set and getattr(job, key) is not None)


def keys_that_bound_catch_up(environment: Environment, job: str, query: str) -> tuple[str, ...]:
    """Return the keys that bound how fast a query catches up, those of its job and of its streams."""
    settings = environment.jobs[job]
    asked = settings.queries[query]
    keys = [f"jobs.{job}.{key}" for key in ("cores", "max_workers") if getattr(settings, key) is not None]
    keys += [f"jobs.{job}.{key}" for key in keys_that_pin_scaling(settings)]
    keys += [
        f"jobs.{job}.queries.{query}.{key}" for key in ("records_per_batch",) if getattr(asked, key, None)
    ]
    streams = {name: environment.streams[name] for name in asked.source_stream_names}
    keys += [f"streams.{name}.{each.parts}" for name, each in streams.items() if each.given_partitions]
    return tuple(keys)


def plan_with_expected_cost(environment: Environment, plan: Plan) -> Plan:
    """Return a plan whose jobs have the expected cost of their workers, and advice on ``scaling: fixed``."""
    jobs = {name: _job_plan_with_expected_cost(environment, plan, job) for name, job in plan.jobs.items()}
    return replace(plan, jobs=MappingProxyType(jobs))


def _job_plan_with_expected_cost(environment: Environment, plan: Plan, job: JobPlan) -> JobPlan:
    figure, most = expected_usd_figure(environment, plan, job), largest_monthly_cost(job)
    result = replace(job, expected_usd=figure)
    if figure.value > ALIKE * most or job.run is not None:
        return result
    line = f"workers cost about ${figure.value:,.2f} a month at the average rate, ${most:,.2f} at most ({figure.why}); "
    if late := dict(_queries_late_at_rise(environment, plan, job)):
        result = replace(result, late_at_rise=MappingProxyType(late))
        shares = " and ".join(f"{share:.0%} of {name}'s records" for name, share in late.items())
        line += f"when the traffic then rises to its peak, {shares} are in time: `scaling: fixed` keeps all workers, at the highest cost"
    else:
        line += "`scaling: fixed` keeps all of them"
    return replace(result, advice=(line, *job.advice))


def _queries_late_at_rise(environment: Environment, plan: Plan, job: JobPlan) -> Iterator[tuple[str, float]]:
    """Yield queries that only all workers keep in time when traffic rises to its peak, with the share in time without them."""
    seconds = RISE * max(query.trigger_seconds.value for query in job.queries.values())
    arrivals = {
        name: Arrivals.spikes(
            traffic.records_per_second,
            traffic.peak_records_per_second,
            seconds,
            2 * seconds,
        )
        for name, traffic in traffic_by_stream(environment, job.name).items()
    }
    made = scenario_of_job(environment, plan, job.name, arrivals)
    if not _can_scale(made):
        return
    moving = simulate(made)
    late = {name: share for name, share, kept in _queries_with_share_in_time(job, moving) if not kept}
    if not late:
        return
    held = simulate(scenario_of_job(environment, plan, job.name, arrivals, fixed=True))
    for name, _, kept in _queries_with_share_in_time(job, held):
        if kept and name in late:
            yield name, late[name]


def _queries_with_share_in_time(job: JobPlan, played: JobResult) -> Iterator[tuple[str, float, bool]]:
    """Yield each query's share of records in time, and whether it keeps its SLA and goes on to do so."""
    for name, query in job.queries.items():
        result = played.queries[name]
        share = result.share_in_time(query.latency_seconds.value, played.seconds)
        share = 1.0 if share is None else share
        yield name, share, share >= WITHIN and not backlog_growth_per_second(result, played.seconds)
