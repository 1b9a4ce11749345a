"""Simulation of a plan at its peak and after an outage, with the engine's scaling, to check what the plan promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial

import numpy as np

from millrace.config.model import Environment
from millrace.config.units import format_duration
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.plan_model import JobPlan, Plan
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.environment_demands import feasible_demands_of_job
from millrace.sizing.queries.query_plan import outage_to_plan_for
from millrace.sizing.readable_numbers import rate_text
from millrace.sizing.simulation.cumulative_arrivals import Arrivals, Floats
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.result import JobResult, QueryResult
from millrace.sizing.simulation.scenario_model import Outage, Scenario
from millrace.sizing.simulation.simulation_run import scenario_with_numbered_queries, simulate

PEAK_TRIGGERS = 40.0
"""Least simulated time of the peak in triggers of the slowest query. Commits in the first half do not count, because a job that
has just started is not at a steady peak.
"""

SCALING = 20 * 60.0
"""Least simulated seconds of a job whose executors come and go: several times what one takes to start and to be idle."""

DAY = 24 * 3600.0
"""Simulated seconds of the peak of a job that has not settled before, and seconds in which a backlog must be gone."""

GROWTH = 1.001
"""Factor of the largest backlog from one quarter of the peak to the next, above which the backlog grows."""

FEW = 100.0
"""Records of a batch below which they are simulated as they come by chance, where the limit of a batch is not far above them."""

WITHIN = 0.999
"""Share of records within the SLA from which a plan counts as met."""

LATER = 1.25
"""Factor of the planned catch-up time after which the backlog must be gone."""

PLAYED_CATCH_UP = 2 * 3600.0
"""Most planned seconds of a catch-up that is simulated: of one that takes longer, a shorter outage, as a backlog goes at a constant rate."""


@dataclass(frozen=True)
class SimulatedQuery:
    """A query of a plan in the simulator.

    Attributes
    ----------
    sla
        Seconds within which its records must be committed.
    of
        SLA that this is a share of, such as ``half of the 60 s SLA``; empty for the complete SLA.
    within
        Share of records within the SLA, at the steady peak.
    oldest
        Age in seconds of the oldest record at its commit, at the steady peak.
    growth
        Records by which its backlog grows each second at the steady peak; 0 if it does not.
    outage
        Outage that was also simulated.
    catch_up
        Planned seconds of catch-up after it; None for derive queries.
    waiting
        Records that still wait well after that time; 0 if there are none, or if it was not simulated.
    """

    job: str
    query: str
    sla: float
    within: float
    oldest: float
    growth: float
    outage: timedelta
    catch_up: float | None = None
    waiting: float = 0.0
    of: str = ""

    @property
    def sla_share_in_brackets(self) -> str:
        """:attr:`of` in brackets, to follow the seconds."""
        return f" ({self.of})" if self.of else ""

    @property
    def catch_up_takes_over_a_day(self) -> bool:
        """True if it takes more than a day to catch up, as planned."""
        return self.catch_up is not None and self.catch_up > DAY

    @property
    def meets_sla(self) -> bool:
        """True if its records are in time at the steady peak, and stay so because its backlog does not grow."""
        return self.within >= WITHIN and not self.growth

    def contradictions(self) -> Iterator[str]:
        """Yield a line for each promise of the plan that is broken."""
        key = f"jobs.{self.job}.queries.{self.query}"
        if self.growth:
            yield f"{key}: SLA missed in the simulation at the peak: its backlog grows by {self.growth:,.3g} records/s, with the engine's scaling"
        if self.within < WITHIN:
            yield (
                f"{key}: SLA missed in the simulation at the peak: only {self.within:.1%} of the records are within {self.sla:g} s"
                f"{self.sla_share_in_brackets} with the engine's scaling, and {WITHIN:.1%} must be"
            )
        if self.waiting and not self.catch_up_takes_over_a_day:
            yield (
                f"{key}: the plan catches up with {format_duration(self.outage)} of outage in {self.catch_up:,.0f} s; "
                f"in the simulation {rate_text(self.waiting)} records still wait then"
            )


def simulated_queries_of_plan(environment: Environment, plan: Plan) -> Iterator[SimulatedQuery]:
    """Yield each query of a plan, simulated at its steady peak, and after an outage."""
    environment = environment_as_planned(environment, plan)
    for job in plan.jobs.values():
        yield from simulated_queries_of_job(environment, plan, job)


def simulated_queries_of_job(environment: Environment, plan: Plan, job: JobPlan) -> Iterator[SimulatedQuery]:
    """Yield each query of one job of a plan in an environment as planned, simulated at its steady peak, and after an outage."""
    landed = {each.query: each for each in feasible_demands_of_job(environment, job.name) if each.lands}
    outage, seconds = outage_to_plan_for(environment.jobs[job.name]), _settling_seconds(job)
    at_peak = scenario_of_job(environment, plan, job.name, _peak_arrivals(environment, job.name, seconds))
    loads = [load.name for load in at_peak.queries]
    promises = [
        (loads.index(name), each.latency_seconds.value, again and again.value)
        for name, each in job.queries.items()
        for again in (each.catch_up_seconds,)
    ]
    question = _JobToSimulate(
        (scenario_with_numbered_queries(at_peak), outage, *promises),
        partial(_answers_of_job, environment, plan, job, at_peak),
    )
    for (name, query), answer in zip(job.queries.items(), _remembered_answers(question), strict=True):
        yield SimulatedQuery(
            job=job.name,
            query=name,
            sla=query.latency_seconds.value,
            outage=outage,
            catch_up=None if query.catch_up_seconds is None else query.catch_up_seconds.value,
            of=landed[name].sla_of.of if name in landed else "",
            **answer,
        )


@dataclass(frozen=True)
class _JobToSimulate:
    """A job whose queries are simulated, equal to all that differ from it in names."""

    key: tuple[object, ...]
    answers: Callable[[], list[dict[str, float]]] = field(compare=False)


@lru_cache(maxsize=2048)
def _remembered_answers(asked: _JobToSimulate) -> list[dict[str, float]]:
    # Jobs of a large environment are often alike, and each is asked about when its plan is made and when it is judged.
    return asked.answers()


def _answers_of_job(
    environment: Environment, plan: Plan, job: JobPlan, at_peak: Scenario
) -> list[dict[str, float]]:
    """Return what the simulation says of each query, by the attributes of :class:`SimulatedQuery`."""
    result, seconds = _result_and_seconds_until_settled(environment, plan, job, at_peak)
    # Starts of bounded runs are drawn: by so much time's records one run has more than another.
    spread = 0.0 if job.run is None else job.run.start_seconds.value
    waiting = dict(_backlogs_after_outage(environment, plan, job, result))
    judged, until = result, seconds
    if job.run is None and _has_small_batches(job, at_peak):
        until = DAY
        longest = max(query.trigger_seconds.value for query in job.queries.values())
        arrivals = _peak_arrivals(environment, job.name, until, few_within=longest)
        judged = simulate(scenario_of_job(environment, plan, job.name, arrivals))
    found = []
    for name, query in job.queries.items():
        own, settled = judged.queries[name], until / 2
        within = own.share_in_time(query.latency_seconds.value, until, since=settled)
        found.append(
            {
                "within": 1.0 if within is None else within,
                "oldest": own.ages_since(settled).oldest,
                "growth": backlog_growth_per_second(result.queries[name], seconds, spread),
                "waiting": waiting.get(name, 0.0),
            }
        )
    return found


def _result_and_seconds_until_settled(
    environment: Environment, plan: Plan, job: JobPlan, made: Scenario
) -> tuple[JobResult, float]:
    """Simulate the peak until the job has settled, or for a day, and return the result with its seconds."""
    seconds = _settling_seconds(job)

    def peak(seconds: float) -> Scenario:
        return scenario_of_job(environment, plan, job.name, _peak_arrivals(environment, job.name, seconds))

    if made.scaling.least < made.scaling.most and seconds < SCALING:
        seconds = SCALING
        made = peak(seconds)
    triggers = {query.name: query.trigger for query in made.queries}
    # Triggers of which none is a multiple of the other meet in patterns that are longer than both.
    beats = any(
        abs(math.remainder(each.trigger / triggers[each.source], 1)) > 1e-9
        for each in made.queries
        if isinstance(each.source, str)
    )
    if beats or not _is_settled(played := simulate(made)):
        seconds = max(seconds, DAY)
        played = simulate(peak(seconds))
    return played, seconds


def _is_settled(played: JobResult) -> bool:
    """Return whether all later quarters of a simulation would be like its last two."""
    half = played.seconds / 2
    if len(set(played.executors_at(np.append(half, played.times[played.times > half])))) > 1:
        return False
    for query in played.queries.values():
        for numbers in (query.backlog, query.oldest_age_by_batch):
            before, after = _largest_in_last_quarters(query, numbers, played.seconds)
            if not math.isclose(before, after, rel_tol=1e-6):
                return False
    return True


def _largest_in_last_quarters(
    query: QueryResult, numbers: Floats, seconds: float, most: Callable[[Floats], float] = np.max
) -> tuple[float, float]:
    """Return the largest number of a batch in the third and in the last quarter of a simulation."""
    third, last = np.searchsorted(query.starts, [seconds / 2, seconds * 3 / 4])
    quarters = numbers[third:last], numbers[last:]
    before, after = (float(most(each)) if len(each) else 0.0 for each in quarters)
    return before, after


def backlog_growth_per_second(query: QueryResult, seconds: float, spread: float = 0.0) -> float:
    """Return the records per second by which the backlog grows; 0 if it does not.

    Where executors come and go, or starts are drawn (by up to ``spread`` seconds), its largest differs from quarter to quarter; one
    that grows has a larger least, too.
    """
    rates = []
    for most in (np.max, np.min):
        before, after = _largest_in_last_quarters(query, query.backlog, seconds, most)
        allowed = GROWTH * before + 1 + query.arrived / seconds * spread
        rates.append((after - before) / (seconds / 4) if after > allowed else 0.0)
    return min(rates)


def _peak_arrivals(
    environment: Environment, job: str, seconds: float, few_within: float = 0.0
) -> dict[str, Arrivals]:
    """Return arrivals at the peak; by chance for streams that bring few records within so many seconds."""
    rates = {
        name: traffic.peak_records_per_second for name, traffic in traffic_by_stream(environment, job).items()
    }
    constant = {name: Arrivals.constant(rate, seconds) for name, rate in rates.items()}
    return {
        name: each.poisson(seed) if rates[name] * few_within < FEW and few_within else each
        for seed, (name, each) in enumerate(constant.items())
    }


def _has_small_batches(job: JobPlan, made: Scenario) -> bool:
    """Return whether a job takes few records at once, of which chance brings more than the limit of a batch."""
    for query in made.queries:
        limit = job.queries[query.name].records_per_batch
        if limit is not None and isinstance(query.source, Arrivals):
            records = query.source.records / query.source.seconds * query.trigger
            if records < FEW and limit.value < 4 * records + FEW / 5:
                return True
    return False


def _settling_seconds(job: JobPlan) -> float:
    return PEAK_TRIGGERS * max(query.trigger_seconds.value for query in job.queries.values())


def _backlogs_after_outage(
    environment: Environment, plan: Plan, job: JobPlan, at_peak: JobResult
) -> Iterator[tuple[str, float]]:
    """Yield queries that still have a backlog when they should have caught up, with its records: of a part of an outage, in proportion.

    The backlog is compared with that of the settled peak: before the outage, a job with batches longer than its triggers may not
    have settled.
    """
    planned = [
        query.catch_up_seconds.value for query in job.queries.values() if query.catch_up_seconds is not None
    ]
    if not planned:
        return
    outage = outage_to_plan_for(environment.jobs[job.name]).total_seconds()
    away = outage * min(1.0, PLAYED_CATCH_UP / max(1.0, min(max(planned), DAY)))
    begin = _settling_seconds(job) / 2
    start = service_limits()["scaling.worker_start_seconds"]
    # Records also wait while the driver starts, whose time is not part of a plan's outage.
    back, played_part = begin + away + start, (away + start) / (outage + start)
    due = {
        name: back
        + played_part * min(LATER * query.catch_up_seconds.value * (1 + start / outage), DAY)
        + query.trigger_seconds.value
        for name, query in job.queries.items()
        if query.catch_up_seconds is not None
    }
    longest_sla = max(query.latency_seconds.value for query in job.queries.values())
    seconds = max(due.values()) + max(_settling_seconds(job), 2 * longest_sla)
    arrivals = _peak_arrivals(environment, job.name, seconds)
    played = simulate(scenario_of_job(environment, plan, job.name, arrivals, outages=[Outage(begin, away)]))
    for name, latest in due.items():
        result, peak = played.queries[name], at_peak.queries[name]
        settled = result.backlog[result.starts < begin], peak.backlog[peak.starts > at_peak.seconds / 2]
        usual = np.concatenate(settled).max(initial=0.0)
        # However fast records are taken, they are gone only at the end of the batch that takes them.
        longest = (result.ends - result.starts)[result.starts >= begin].max(initial=0.0)
        more = max(0.0, longest - job.queries[name].trigger_seconds.value)
        late = result.backlog[(result.starts > latest + more) & (result.backlog > 1.1 * usual)]
        if len(late):
            yield name, float(max(late)) / played_part
