"""The driver's part in the batches of a job: fixed costs of batches that begin together share its cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from millrace.config.base import grouped
from millrace.config.document.problems import Finding
from millrace.config.engines import KINDS
from millrace.config.model import Environment, Job
from millrace.config.queries import LandQuery
from millrace.sizing.plan_model import FigureInput, Inputs
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.demand_inputs import infeasible_finding
from millrace.sizing.queries.query_plan import cores_needed_by_query
from millrace.sizing.queries.sizing_formulas import InfeasibleError


def batches_driver_serves_at_once(cores: int) -> float:
    """Return the number of batches whose fixed costs a driver serves at full speed; more of them share it in equal parts."""
    return cores / service_limits()["spark.driver.cores_per_batch"]


def fixed_cost_factor(batches: int, at_once: float) -> float:
    """Return the factor of the fixed costs of batches that begin together, at most; it is exact if they are equal."""
    return max(1.0, batches / at_once)


def fixed_seconds_of_batches(job: Job, demands: Sequence[QueryDemand], cores: int) -> list[float]:
    """Return the seconds before the first task of each query's batch at most, if all begin together on a driver with so many cores."""
    # In a run, queries that derive begin when those that land have ended.
    together = [each.lands or job.run_every is None for each in demands]
    return [
        each.work.overhead * fixed_cost_factor(together.count(own), batches_driver_serves_at_once(cores))
        for each, own in zip(demands, together, strict=True)
    ]


def driver_cores_kept_busy(demands: Sequence[QueryDemand]) -> float:
    """Return the cores of a driver that the fixed costs of a job's batches keep busy: Σ a/T, times the cores for each."""
    times = (
        each.work.overhead / max(each.work.planned_trigger_seconds, each.work.longest_batch_seconds)
        for each in demands
    )
    return service_limits()["spark.driver.cores_per_batch"] * sum(times)


def route_advice_or_none(job: Job) -> str | None:
    """Return the advice to land streams of the same schema together, if there are any."""
    alike = grouped(
        ((each.schema_, each.format), name)
        for name, each in job.queries.items()
        if isinstance(each, LandQuery)
    )
    first, *others = max(alike.values(), key=len, default=[""])
    if not others:
        return None
    names = f"{first} and {others[0]}" if len(others) == 1 else f"{first} and {len(others)} others"
    return f"{names} decode one schema: one `route` query lands their streams in a single batch"


def possible_driver_cores(job: Job) -> list[int]:
    """Return the numbers of cores that a job's driver, which is one of its workers, can have."""
    possible = KINDS[job.engine].possible_workers(job, lambda *_: 0.0)
    return sorted({each.vcpu for each in possible if each.own})


def demands_by_driver_cores_and_findings(
    environment: Environment, name: str, demands: Sequence[QueryDemand]
) -> tuple[dict[int, list[QueryDemand]], list[Finding]]:
    """Return the demands of a job's queries by the cores of its driver, up to those that slow no batch.

    Parameters
    ----------
    demands
        Demands with a driver that slows no batch.

    Returns
    -------
    tuple
        Demands by size, without sizes that keep no SLA; if all do, the findings of the largest.
    """
    found: dict[int, list[QueryDemand]] = {}
    problems: list[Finding] = []
    for cores in possible_driver_cores(environment.jobs[name]):
        if len(demands) <= batches_driver_serves_at_once(cores):
            return {**found, cores: [*demands]}, []
        changed, wrong = _demands_sharing_driver_or_finding(environment, demands, cores)
        if wrong is None:
            found[cores] = changed
        else:
            problems = [wrong]
    return found, [] if found else problems


def _demands_sharing_driver_or_finding(
    environment: Environment, demands: Sequence[QueryDemand], cores: int
) -> tuple[list[QueryDemand], Finding | None]:
    """Return demands with the fixed costs of batches that begin together on a driver, or the finding that prevents it."""
    job = environment.jobs[demands[0].job]
    share, load = service_limits()["spark.sharing.share"], driver_cores_kept_busy(demands)
    found = []
    for demand, end in zip(demands, fixed_seconds_of_batches(job, demands, cores), strict=True):
        work, inputs = replace(demand.work, overhead=end), partial(_inputs_with_driver, demand, end, cores)
        changed = replace(demand, work=work, inputs=inputs)
        try:
            if load > share * cores:
                busy = (
                    f"the fixed costs of all take {load / cores:.0%} of its time, and {share:.0%} is the most"
                )
                raise InfeasibleError(
                    "overhead", busy, demand.work.longest_batch_seconds * load / (share * cores)
                )
            found.append(replace(changed, needed=cores_needed_by_query(environment, job, changed)))
        except InfeasibleError as error:
            together = f"{len(demands)} batches begin together on a driver of {cores} cores: {error}"
            cause = InfeasibleError(error.term, together, error.seconds)
            wrong = infeasible_finding(changed, environment, job.queries[demand.query], cause)
            return [], replace(wrong, hint=wrong.hint or route_advice_or_none(job))
    return found, None


def _inputs_with_driver(demand: QueryDemand, end: float, cores: int) -> Inputs:
    rate, record, fixed, *rest = demand.inputs()
    why = f"the job's batches begin together on a driver of {cores} cores"
    known = service_limits().as_input("spark.driver.cores_per_batch")
    return (rate, record, FigureInput("a", f"{end:.3g} s a batch", why, inputs=(fixed, known)), *rest)
