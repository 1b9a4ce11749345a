"""A plan held against the simulator: the stated peak, and an outage, with workers that come and go as the engine lets them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from millrace.config.model import Environment
from millrace.config.units import format_duration
from millrace.sizing.model import JobPlan, Plan
from millrace.sizing.query import outage_of
from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.job import Outage
from millrace.sizing.simulation.planned import scenario, streams_of
from millrace.sizing.simulation.run import simulate

PEAK_TRIGGERS = 40.0
"""Of the slowest query, for which the peak is played."""

WITHIN = 0.999
"""Share of records within the SLA from which a plan is kept."""

LATER = 1.25
"""Times the planned time of catching up after which what waits must be gone."""

LONGEST = 6 * 3600.0
"""Seconds of catching up beyond which it is not played: the plan has said by itself that it takes so long."""


def contradictions(environment: Environment, plan: Plan) -> Iterator[str]:
    """Yield a line for each promise of a plan that its own simulator does not see kept.

    Parameters
    ----------
    environment, plan
        An environment and its plan.
    """
    for job in plan.jobs.values():
        yield from _at_peak(environment, plan, job)
        yield from _after_an_outage(environment, plan, job)


def _peak(environment: Environment, job: str, seconds: float) -> dict[str, Arrivals]:
    found = {}
    for name in streams_of(environment, job):
        traffic = environment.streams[name].traffic
        found[name] = Arrivals.constant(traffic.records_per_second * traffic.peak_factor, seconds)
    return found


def _settling(job: JobPlan) -> float:
    return PEAK_TRIGGERS * max(query.trigger_seconds.value for query in job.queries.values())


def _at_peak(environment: Environment, plan: Plan, job: JobPlan) -> Iterator[str]:
    arrivals = _peak(environment, job.name, _settling(job))
    played = simulate(scenario(environment, plan, job.name, arrivals))
    for name, query in job.queries.items():
        result, sla = played.queries[name], query.latency_seconds.value
        share = result.ages.within(sla)
        if math.isnan(share) or share < WITHIN:
            kept = (
                "no record is committed"
                if math.isnan(share)
                else f"{share:.1%} of the records are within {sla:g} s"
            )
            yield (
                f"jobs.{job.name}.queries.{name}: played at the peak with the engine's scaling, {kept} "
                f"(`millrace simulate --job {job.name}`)"
            )


def _after_an_outage(environment: Environment, plan: Plan, job: JobPlan) -> Iterator[str]:
    planned = [
        query.catch_up_seconds.value for query in job.queries.values() if query.catch_up_seconds is not None
    ]
    longest = max(planned, default=math.inf)
    if longest > LONGEST:
        return
    away, begin = outage_of(environment.jobs[job.name]).total_seconds(), _settling(job) / 2
    seconds = begin + away + LATER * longest + _settling(job)
    arrivals = _peak(environment, job.name, seconds)
    sized = scenario(environment, plan, job.name, arrivals, outages=[Outage(begin, away)])
    played = simulate(sized)
    for name, query in job.queries.items():
        if query.catch_up_seconds is None:
            continue
        result = played.queries[name]
        usual = max(result.backlog[result.starts < begin], default=0.0)
        back = begin + away + sized.driver_start
        # While the driver starts, records wait as well.
        whole = query.catch_up_seconds.value * (away + sized.driver_start) / away
        due = back + LATER * whole + query.trigger_seconds.value
        late = result.backlog[(result.starts > due) & (result.backlog > 1.1 * usual)]
        if len(late):
            yield (
                f"jobs.{job.name}.queries.{name}: {format_duration(outage_of(environment.jobs[job.name]))} away is planned to be "
                f"caught up in {query.catch_up_seconds.value:,.0f} s; played, {max(late):,.0f} records still wait then"
            )
