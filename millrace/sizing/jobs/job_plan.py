"""Cores, executors, workers, triggers and limits of one job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from millrace.config.document.problems import Finding
from millrace.config.job_networks import reason_job_runs_in_vpc
from millrace.config.model import Environment, Job
from millrace.config.units import format_duration
from millrace.sizing.cost import CENT, job_cost_items
from millrace.sizing.jobs.bounded_run_cores import cores_of_cheapest_runs
from millrace.sizing.jobs.memory import GIB, MIB, ExecutorMemory, kinesis_records_that_fit, memory_of_job
from millrace.sizing.jobs.queries_on_cores import (
    job_spreads_cores_and_findings,
    joined_source_partitions,
    reason_for_cores,
)
from millrace.sizing.jobs.scaling import allocation_ratio, scaling_plan_and_findings
from millrace.sizing.jobs.split_and_schedule_advice import job_advice
from millrace.sizing.jobs.usage_costs import usage_cost_items
from millrace.sizing.jobs.worker_choices import (
    WorkerOffer,
    least_workers_usd,
    own_worker_sizes,
    worker_offer_and_all_choices,
    worker_usd_hour,
)
from millrace.sizing.plan_model import (
    Figure,
    FigureInput,
    JobPlan,
    RunPlan,
    WorkerChoice,
    pinned_figure,
)
from millrace.sizing.prices_and_limits import PriceTable, service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.query_plan import batch_limit_and_findings, query_plan
from millrace.sizing.queries.run_plan import billed_run_seconds, run_plan_or_none, run_stage_seconds
from millrace.sizing.queries.sizing_formulas import CoreSpread
from millrace.sizing.readable_numbers import count


def job_plan_and_findings(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, SourcePartitions],
    prices: PriceTable,
    driver_cores: int = 1,
) -> tuple[JobPlan | None, list[Finding]]:
    """Size one job.

    Parameters
    ----------
    demands
        Demands of its queries, in their order.
    sources
        Partitions by stream.
    driver_cores
        Fewest cores of its driver with which the queries have these demands.

    Returns
    -------
    tuple
        The plan, or ``None`` with the findings that prevent one.
    """
    job, read = environment.jobs[name], [joined_source_partitions(demand, sources) for demand in demands]
    spreads, number, problems = job_spreads_cores_and_findings(environment, name, demands, read)
    if problems:
        return None, problems
    made = _size_queries_and_workers(environment, name, demands, read, prices, spreads, number, driver_cores)
    each, paid = made.way.worker.tasks, (job.max_workers or 0) - 1
    paid = each * (made.way.executors if job.max_workers is None else paid)
    bounded = made.run is not None and job.cores is None
    if made.run is None and len(demands) == 1 and spreads[0].waves > 1 and paid >= read[0].read_in_waves:
        # Its executors have a core for each shard, and all are read at once.
        spreads, _, wrong = job_spreads_cores_and_findings(environment, name, demands, read, paid)
        made = _size_queries_and_workers(
            environment, name, demands, read, prices, spreads, number, driver_cores
        )
        made.problems.extend(wrong)
    if (made.run is not None and paid >= number) or (len(demands) > 1 and paid > number):

        @cache
        def spreads_on(paid: int) -> list[CoreSpread]:
            return job_spreads_cores_and_findings(environment, name, demands, read, paid)[0]

        def sized_on(paid: int) -> _QueriesAndWorkers:
            asked = paid if bounded or job.max_workers is None else number
            return _size_queries_and_workers(
                environment, name, demands, read, prices, spreads_on(paid), asked, driver_cores
            )

        def may_be_chosen(paid: int, best: _QueriesAndWorkers) -> bool:
            # Whatever memory they need, so many cores may cost more than what is known to be possible.
            if made.problems or best.problems or job.max_workers or job.cores:
                return True
            share = 1.0
            if made.run is not None:
                stages = run_stage_seconds(demands, spreads_on(paid), read)
                share = min(1.0, billed_run_seconds(stages) / made.run.every_seconds.value)
            least = share * least_workers_usd(job, paid, prices)
            return least <= max(made.way.usd, best.way.usd) + CENT

        # Cores of an executor that is paid for anyway serve larger batches, so a backlog goes sooner and a bounded run ends sooner.
        tried = {paid: sized_on(paid)}
        if bounded:
            # More executors share the driver's cost, but each is billed for the start. As many as are pinned may be of any size.
            found = (
                cores_of_cheapest_runs(paid, each, spreads_on, demands, read)
                if job.max_workers is None
                else {tasks * (job.max_workers - 1) for tasks in own_worker_sizes(job)}
            )
            tried |= {
                cores: sized_on(cores)
                for cores in sorted(found)
                if cores != paid and cores >= number and may_be_chosen(cores, tried[paid])
            }
        if not job.max_workers and not job.cores:
            most = paid if made.run is None else math.inf
            _try_workers_beside_the_cheapest(tried, number, most, sized_on, may_be_chosen)
        for paid, larger in sorted(tried.items()):
            # A bounded run pays for no core that it does not ask for, so it may take them on workers of another size.
            same = made.run is not None or larger.way.worker.name == made.way.worker.name
            cheaper = same and larger.way.usd <= made.way.usd
            if (cheaper and (made.problems or not larger.problems)) or (
                made.problems and not larger.problems
            ):
                made, number = larger, paid
    cores = _core_figure(name, job, demands, number)
    problems, limits, memory, run, offer, choices, spreads = made
    way, sized = offer.as_choice(), job if job.worker_is_given else job.with_worker(offer.worker)

    def worker_input() -> FigureInput:
        value = f"{way.worker}: {count(way.vcpu, 'core')}, {int(way.memory_gib)} GiB"
        why = "the cheapest that holds what it must, at the known rate"
        return (
            FigureInput("worker", value, path=("jobs", name, "worker"))
            if job.worker_is_given
            else FigureInput("worker", value, why, f"worker types of {job.title}")
        )

    executors, workers, wrong = _executors_workers_and_findings(
        name, sized, cores, way.executors, worker_input
    )
    problems += [*wrong, *_findings_of_short_timeout(name, job, demands, run)]
    ratio = allocation_ratio(demands, spreads, read, cores.value)
    scaling, wrong = scaling_plan_and_findings(
        name, job, demands, executors, sized.tasks_per_worker, ratio, worker_input
    )
    problems += wrong
    if problems:
        return None, problems
    cost = (
        *job_cost_items(name, sized, workers, prices, run),
        *usage_cost_items(environment, job, demands, spreads, read, prices, run),
    )
    plan = JobPlan(
        name=name,
        engine=job.engine,
        version=job.version,
        worker=way.worker,
        cores=cores,
        executors=executors,
        max_workers=workers,
        queries={
            demand.query: query_plan(demand, job, spread_, source, limit)
            for demand, spread_, source, limit in zip(demands, spreads, read, limits, strict=True)
        },
        cost=cost,
        architecture=way.architecture,
        vcpu=way.vcpu,
        memory_gib=int(way.memory_gib),
        disk_gib=sized.disk_gib,
        memory=Figure(
            round(way.memory_needed_gib, 2),
            "GiB",
            f"an executor holds {memory.why}, and its own",
            assumed=True,
            formula="(base + tasks · (fetched + file) + tables + (state + held) / executors) / heap's share",
            inputs=lambda: (
                *(f"{demand.number_key_prefix}.cores" for demand in demands),
                worker_input(),
                *service_limits().as_inputs_with_prefix("memory."),
            ),
        ),
        scaling=scaling,
        network=_network_figure(environment, name),
        worker_usd_hour=worker_usd_hour(sized.hourly_bill_items, prices),
        choices=choices,
        run=run,
    )
    if job.scaling == "fixed":
        plan = job_plan_with_workers_always_on(plan, "scaling: fixed holds all of them")
    state, fewest = replace(memory, together=float(job.memory.state or 0)), plan.scaling.min_executors.value
    heap = service_limits()[job.heap_share]
    if state.worker_bytes_needed(sized.tasks_per_worker, fewest, heap) > way.memory_gib * GIB:
        plan = job_plan_with_workers_always_on(plan, "fewer do not hold the state, whatever arrives")
    return replace(plan, advice=tuple(job_advice(environment, plan, demands, sources))), []


def _try_workers_beside_the_cheapest(
    tried: dict[int, _QueriesAndWorkers],
    fewest: int,
    most: float,
    sized_on: Callable[[int], _QueriesAndWorkers],
    may_be_chosen: Callable[[int, _QueriesAndWorkers], bool],
) -> None:
    """Add to what was tried all cores of the cheapest workers, and of one more or less, as long as that costs less.

    They may be of another size than those of the first try, and on fewer of them smaller batches may keep up, which take less memory.
    """
    new = dict(tried)
    while new:
        paid = min(new, key=lambda cores: (bool(new[cores].problems), new[cores].way.usd))
        best = new[paid]
        size = best.way.worker.tasks
        near = {size * (best.way.executors + more) for more in (-1, 0, 1)} | {paid - size, paid + size}
        new = {
            cores: sized_on(cores)
            for cores in sorted(near - tried.keys())
            if fewest <= cores <= most and may_be_chosen(cores, best)
        }
        tried |= new
        new = {
            cores: made
            for cores, made in new.items()
            if not made.problems and (best.problems or made.way.usd < best.way.usd)
        }


class _QueriesAndWorkers(NamedTuple):
    """Queries of a job and the workers that hold their batches."""

    problems: list[Finding]
    limits: list[Figure[int] | None]
    memory: ExecutorMemory
    run: RunPlan | None
    way: WorkerOffer
    choices: Callable[[], tuple[WorkerChoice, ...]]
    spreads: list[CoreSpread]


def _size_queries_and_workers(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Sequence[SourcePartitions],
    prices: PriceTable,
    spreads: list[CoreSpread],
    cores: int,
    driver_cores: int,
    *,
    least_limits: bool = False,
) -> _QueriesAndWorkers:
    """Size queries and workers; with the least limits that keep up, if more of a batch would take dearer workers."""
    job, problems = environment.jobs[name], list[Finding]()
    limits: list[Figure[int] | None] = []
    for demand, spread_, source in zip(demands, spreads, sources, strict=True):
        held = 0.0 if least_limits else kinesis_records_that_fit(environment, demand, source.evenly)
        limit, wrong = batch_limit_and_findings(demand, job, spread_, held)
        problems += wrong
        limits.append(limit)
    memory = memory_of_job(environment, job, demands, spreads, sources, limits)
    run = run_plan_or_none(name, job, demands, spreads, sources)
    share = 1.0 if run is None else run.billed_share
    way, choices = worker_offer_and_all_choices(job, cores, memory, prices, share, driver_cores)
    problems += _findings_of_too_small_worker(name, job, way, memory)
    made = _QueriesAndWorkers(problems, limits, memory, run, way, choices, spreads)
    # Without pins, no worker costs less than for the least memory.
    pinned = job.cores or job.max_workers
    if least_limits or (not pinned and share * least_workers_usd(job, cores, prices) > way.usd - CENT):
        return made
    fetching_none = replace(memory, per_task=service_limits()["memory.writer_mib_per_task"] * MIB)
    lightest, _ = worker_offer_and_all_choices(job, cores, fetching_none, prices, share, driver_cores)
    if lightest.usd > way.usd - CENT:
        return made
    smaller = _size_queries_and_workers(
        environment, name, demands, sources, prices, spreads, cores, driver_cores, least_limits=True
    )
    return smaller if smaller.way.usd < way.usd - CENT and not smaller.problems else made


def _network_figure(environment: Environment, name: str) -> Figure[str]:
    why = reason_job_runs_in_vpc(environment, name)
    given = getattr(environment.jobs[name], "network", None)
    if given is not None:
        return pinned_figure(given, "network", why or "pinned", ("jobs", name, "network"))
    public = "it reaches AWS by public endpoints, with TLS and IAM; nothing it reads or writes needs a VPC"
    return Figure("vpc" if why else "none", "network", why or public)


def job_plan_with_workers_always_on(plan: JobPlan, why: str) -> JobPlan:
    """Return the plan of a job with all executors all the time."""
    every = replace(plan.executors, why=why, origin="computed")
    return replace(
        plan, scaling=replace(plan.scaling, min_executors=every, initial_executors=every, fixed=True)
    )


def _core_figure(name: str, job: Job, demands: Sequence[QueryDemand], number: int) -> Figure[int]:
    needed = sum(demand.least_cores for demand in demands)
    if job.cores is not None:
        why = f"pinned; the queries need {needed:.2f}"
        return pinned_figure(job.cores, "cores", why, ("jobs", name, "cores"))
    whose = f"{number} for {demands[0].query}"
    if len(demands) > 1:
        whose = f"shared by {len(demands)} queries that need {needed:.2f}"
    return Figure(
        number,
        "cores",
        f"{whose}: {reason_for_cores(job, demands)}",
        assumed=any(demand.assumed for demand in demands),
        formula="fewest on which the batches of all queries end in time when they fire together, and the rest of their executors'"
        + (", or so many that runs cost the least" if job.run_every is not None else ""),
        inputs=lambda: tuple(f"{demand.number_key_prefix}.cores" for demand in demands),
    )


def _executors_workers_and_findings(
    name: str, job: Job, cores: Figure[int], executors: int, worker: Callable[[], FigureInput]
) -> tuple[Figure[int], Figure[int], list[Finding]]:
    """Return executors and workers of a job whose worker is chosen, with the executors for its cores and memory."""
    each = job.tasks_per_worker
    if job.max_workers is None:
        why = f"{count(cores.value, 'core')}, {each} on each"
        if executors > math.ceil(cores.value / each):
            why += "; fewer do not hold state and batches"
        workers_why = f"{count(executors, 'executor')} of {count(each, 'core')}, and the driver"
        return (
            Figure(
                executors,
                "executors",
                why,
                assumed=cores.assumed,
                formula="ceil(cores / cores of one executor), or more for their memory",
                inputs=lambda: (f"jobs.{name}.cores", worker()),
            ),
            Figure(
                executors + 1,
                "workers",
                workers_why,
                assumed=cores.assumed,
                formula="executors + 1 driver",
                inputs=lambda: (f"jobs.{name}.executors",),
            ),
            [],
        )
    problems, path = [], ("jobs", name, "max_workers")
    if job.max_workers - 1 < executors:
        allowed = f"at least {executors + 1}: {cores.value} cores take {count(executors, 'executor')}, and the driver"
        if executors > math.ceil(cores.value / each):
            # On other workers the batches have another size, so no number follows from this plan.
            allowed = f"more: with {cores.value} cores, fewer than {executors} executors do not hold state and batches"
        problems = [Finding(path, str(job.max_workers), allowed)]
    why = f"{job.max_workers} workers are pinned, one is the driver; {executors} would do"
    return (
        replace(pinned_figure(job.max_workers, "executors", why, path), value=job.max_workers - 1),
        pinned_figure(job.max_workers, "workers", "pinned", path),
        problems,
    )


def _findings_of_short_timeout(
    name: str, job: Job, demands: Sequence[QueryDemand], run: RunPlan | None
) -> list[Finding]:
    """Return the finding for a time limit that ends runs before their work, or more often than the job may start."""
    timeout = getattr(job, "timeout", None)
    batches = (each.work.planned_trigger_seconds + each.work.longest_batch_seconds for each in demands)
    least = max(3600 / job.restarts_per_hour, *batches) if run is None else run.longest_seconds.value
    if timeout is None or timeout.total_seconds() >= least:
        return []
    why = (
        f"as a run at the peak takes {least:g} s"
        if run is not None
        else f"for a trigger and a batch of each query, and for at most {job.restarts_per_hour} starts an hour (restarts_per_hour)"
    )
    allowed = f"at least {format_duration(timedelta(minutes=math.ceil(least / 60)))}, {why}"
    return [Finding(("jobs", name, "timeout"), format_duration(timeout), allowed)]


def _findings_of_too_small_worker(
    name: str, job: Job, choice: WorkerOffer, memory: ExecutorMemory
) -> list[Finding]:
    if choice.refused is None:
        return []
    allowed = f"a larger one: {choice.refused}; it holds {memory.why}"
    return [
        Finding(
            ("jobs", name, "worker"),
            choice.worker.name if job.worker_is_given else "left to the plan",
            allowed,
        )
    ]
