"""What a job's workers cost under the stated traffic, beside the most that they can cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from millrace.config.model import Environment
from millrace.sizing.cost import HOURS, SECONDS
from millrace.sizing.model import Figure, JobPlan, Plan
from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.plan_scenario import scenario, streams_of
from millrace.sizing.simulation.run import simulate

PLAYED = 2 * 3600.0
"""Seconds of the average rate, at least; the first quarter, in which a job gives back what it began with, is left out."""

TRIGGERS = 80.0
"""Of the slowest query, for which the average is played at least."""

RISE = 40.0
"""Triggers of the slowest query for which the average is played, and then the peak."""

IN_TIME = 0.999
"""Share of records within the SLA from which it is kept."""

ALIKE = 0.99
"""Share of the most from which there is nothing to tell."""


def largest_monthly_cost(job: JobPlan) -> float:
    """Return USD a month with all workers running, requests and storage aside."""
    return job.worker_usd_hour * job.max_workers.value * HOURS


def expected_usd(environment: Environment, plan: Plan, job: JobPlan) -> Figure[float]:
    """Return USD a month of a job's workers at the average rate, as its engine lets them come and go.

    The rate is `records_per_second` of each stream all the time: of a day's course a file says its average and its peak only.

    Parameters
    ----------
    environment, plan, job
        A job of a plan.
    """
    longest = max(query.trigger_seconds.value for query in job.queries.values())
    seconds = max(PLAYED, TRIGGERS * longest)
    arrivals = {
        name: Arrivals.constant(environment.streams[name].traffic.records_per_second, seconds)
        for name in streams_of(environment, job.name)
    }
    played = simulate(scenario(environment, plan, job.name, arrivals))
    begin, end = played.dollars_spent_until(np.asarray([seconds / 4, seconds]))
    usd = float(end - begin) / (seconds * 3 / 4) * SECONDS
    executors = usd / (job.worker_usd_hour * HOURS) - 1
    why = f"played at the average rate: {executors:.1f} of {job.executors.value} executors, and the driver"
    return Figure(usd, "USD/month", why, assumed=True)


def with_expected(environment: Environment, plan: Plan) -> Plan:
    """Return a plan whose jobs say what their workers will cost, and what holding all of them does.

    Parameters
    ----------
    environment, plan
        An environment and its plan.
    """
    jobs = {name: _told(environment, plan, job) for name, job in plan.jobs.items()}
    return replace(plan, jobs=MappingProxyType(jobs))


def _told(environment: Environment, plan: Plan, job: JobPlan) -> JobPlan:
    figure, most = expected_usd(environment, plan, job), largest_monthly_cost(job)
    told = replace(job, expected_usd=figure)
    if figure.value > ALIKE * most:
        return told
    line = f"workers cost about ${figure.value:,.2f} a month at the average rate, ${most:,.2f} at most ({figure.why}); "
    if late := dict(_late_at_a_rise(environment, plan, job)):
        told = replace(told, late_at_rise=MappingProxyType(late))
        shares = " and ".join(f"{share:.0%} of {name}'s records" for name, share in late.items())
        line += f"when the traffic then rises to its peak, {shares} are in time: `scaling: fixed` holds all workers, for the most"
    else:
        line += "`scaling: fixed` holds all of them"
    return replace(told, advice=(line, *job.advice))


def _late_at_a_rise(environment: Environment, plan: Plan, job: JobPlan) -> Iterator[tuple[str, float]]:
    """Yield queries that are late when a peak finds the workers of the average, and not with all of them, with their share in time."""
    seconds = RISE * max(query.trigger_seconds.value for query in job.queries.values())
    arrivals = {}
    for name in streams_of(environment, job.name):
        traffic = environment.streams[name].traffic
        rate = traffic.records_per_second
        arrivals[name] = Arrivals.spikes(rate, rate * traffic.peak_factor, seconds, 2 * seconds)
    moving = simulate(scenario(environment, plan, job.name, arrivals))
    late = {
        name: share
        for name, query in job.queries.items()
        if (share := moving.queries[name].in_time(query.latency_seconds.value, moving.seconds)) < IN_TIME
    }
    if not late:
        return
    held = simulate(scenario(environment, plan, job.name, arrivals, fixed=True))
    for name, share in late.items():
        if held.queries[name].in_time(job.queries[name].latency_seconds.value, held.seconds) >= IN_TIME:
            yield name, share
