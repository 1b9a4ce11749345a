"""Cores, executors, workers, triggers and limits of one job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from millrace.config.document.problems import Finding
from millrace.config.job_networks import vpc_reason
from millrace.config.model import Environment, Job
from millrace.config.units import format_duration
from millrace.sizing.cost import job_cost
from millrace.sizing.jobs.advice import job_advice
from millrace.sizing.jobs.memory import Memory, of_job, records_held
from millrace.sizing.jobs.scaling import allocation_ratio, scaling_range
from millrace.sizing.jobs.sharing import Batch, divide, fewest_shared_cores, largest_batch, shared_spreads
from millrace.sizing.jobs.usage_costs import usage_cost
from millrace.sizing.jobs.worker_choices import choices, worker_usd_hour
from millrace.sizing.model import Figure, Input, JobPlan, QueryPlan, RunPlan, WorkerChoice, pinned
from millrace.sizing.prices_and_limits import PriceTable, limits
from millrace.sizing.queries.capacity import CoreSpread, choose_cores, spread_over_cores, whole_cores
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.query import Source, plan_query, plan_run
from millrace.sizing.text_format import count


def source_of(demand: QueryDemand, sources: Mapping[str, Source]) -> Source:
    """Return the partitions of all of a query's streams together."""
    each = [sources[name] for name in demand.streams]
    return Source(
        sum(source.partitions for source in each) if demand.partitions is None else demand.partitions,
        steady=all(source.steady for source in each),
        limits_parts=any(source.limits_parts for source in each),
        evenly=sum(source.evenly for source in each) if demand.partitions is None else demand.partitions,
    )


def shared_batches(demands: Sequence[QueryDemand], sources: Mapping[str, Source]) -> list[Batch]:
    """Return the largest batches of queries that share cores."""
    return [
        largest_batch(demand, source.partitions, source.evenly)
        for demand in demands
        for source in (source_of(demand, sources),)
    ]


def workers_for(cores: int, tasks_per_worker: int) -> int:
    """Return the workers for a number of cores: the executors and one driver.

    Examples
    --------
    >>> workers_for(32, 4), workers_for(64, 4), workers_for(8, 4)
    (9, 17, 3)
    """
    return math.ceil(cores / tasks_per_worker) + 1


def plan_job(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, Source],
    prices: PriceTable,
) -> tuple[JobPlan | None, list[Finding]]:
    """Size one job.

    Parameters
    ----------
    demands
        Demands of its queries, in their order.
    sources
        Partitions by stream.

    Returns
    -------
    tuple
        The plan, or ``None`` with the findings that prevent one.
    """
    job = environment.jobs[name]
    spreads, number, problems = _spreads(environment, name, demands, sources)
    if problems:
        return None, problems
    cores = _cores(name, job, demands, number)
    made = _with_workers(environment, name, demands, sources, prices, spreads, number)
    if len(demands) > 1 or job.run_every is not None:
        # Cores of an executor that is paid for anyway serve larger batches, so a backlog goes sooner, and a run ends earlier.
        paid = made.sized.tasks_per_worker * (
            math.ceil(number / made.sized.tasks_per_worker)
            if job.max_workers is None
            else job.max_workers - 1
        )
        if paid > number:
            more = _spreads(environment, name, demands, sources, paid)[0]
            larger = _with_workers(environment, name, demands, sources, prices, more, number)
            fits = larger.ways[0].worker == made.ways[0].worker
            if fits and (made.problems or not larger.problems):
                spreads, made = more, larger
    problems, queries, memory, run, ways, sized = made

    def worker() -> Input:
        value = f"{ways[0].worker}: {ways[0].vcpu} cores, {int(ways[0].memory_gib)} GiB"
        why = "the cheapest that holds what it must, at the known rate"
        return (
            Input("worker", value, path=("jobs", name, "worker"))
            if job.worker_is_given
            else Input("worker", value, why, f"worker types of {job.title}")
        )

    executors, workers, wrong = _workers(name, sized, cores, worker)
    problems += wrong
    ratio = allocation_ratio(
        demands, spreads, [source_of(each, sources).partitions for each in demands], cores.value
    )
    scaling, wrong = scaling_range(name, job, demands, executors, sized.tasks_per_worker, ratio, worker)
    problems += wrong
    if problems:
        return None, problems
    cost = (
        *job_cost(name, sized, workers, prices, run),
        *usage_cost(environment, job, demands, queries, spreads, prices),
    )
    plan = JobPlan(
        name=name,
        engine=job.engine,
        version=job.version,
        worker=ways[0].worker,
        cores=cores,
        executors=executors,
        max_workers=workers,
        queries=queries,
        cost=cost,
        architecture=ways[0].architecture,
        vcpu=ways[0].vcpu,
        memory_gib=int(ways[0].memory_gib),
        disk_gib=sized.disk_gib,
        memory=Figure(
            round(ways[0].memory_needed_gib, 2),
            "GiB",
            f"an executor holds {memory.why}, and its own",
            assumed=True,
            formula="(base + tasks · (fetched + file) + tables + (state + held) / executors) / heap's share",
            inputs=lambda: (
                *(f"{demand.key}.cores" for demand in demands),
                worker(),
                *limits().as_inputs("memory."),
            ),
        ),
        scaling=scaling,
        network=_network(environment, name),
        worker_usd_hour=worker_usd_hour(sized.bills, prices),
        choices=ways,
        run=run,
    )
    if job.scaling == "fixed":
        plan = hold(plan, "scaling: fixed holds all of them")
    return replace(plan, advice=tuple(job_advice(environment, plan, demands, sources))), []


class _WithWorkers(NamedTuple):
    """Queries of a job and the workers that hold their batches."""

    problems: list[Finding]
    queries: dict[str, QueryPlan]
    memory: Memory
    run: RunPlan | None
    ways: tuple[WorkerChoice, ...]
    sized: Job


def _with_workers(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, Source],
    prices: PriceTable,
    spreads: Sequence[CoreSpread],
    cores: int,
) -> _WithWorkers:
    job, queries, problems = environment.jobs[name], {}, []
    for demand, spread_ in zip(demands, spreads, strict=True):
        source = source_of(demand, sources)
        held = records_held(environment, demand, source.partitions)
        query, wrong = plan_query(demand, job, spread_, source, held)
        problems += wrong
        queries[demand.query] = query
    memory = _memory(environment, job, demands, spreads, sources, queries)
    partitions = [source_of(demand, sources).partitions for demand in demands]
    run = plan_run(name, job, demands, spreads, partitions)
    ways, sized = choices(job, cores, memory, prices, 1.0 if run is None else run.share)
    problems += _too_small(name, job, ways[0], memory)
    return _WithWorkers(problems, queries, memory, run, ways, sized)


def _network(environment: Environment, name: str) -> Figure[str]:
    why = vpc_reason(environment, name)
    given = getattr(environment.jobs[name], "network", None)
    if given is not None:
        return pinned(given, "network", why or "pinned", ("jobs", name, "network"))
    public = "it reaches AWS by public endpoints, with TLS and IAM; nothing it reads or writes needs a VPC"
    return Figure("vpc" if why else "none", "network", why or public)


def hold(plan: JobPlan, why: str) -> JobPlan:
    """Return the plan of a job with all executors all the time."""
    every = replace(plan.executors, why=why, origin="computed")
    return replace(
        plan, scaling=replace(plan.scaling, min_executors=every, initial_executors=every, held=True)
    )


def _cores(name: str, job: Job, demands: Sequence[QueryDemand], number: int) -> Figure[int]:
    needed = sum(demand.least_cores for demand in demands)
    if job.cores is not None:
        why = f"pinned; the queries need {needed:.2f}"
        return pinned(job.cores, "cores", why, ("jobs", name, "cores"))
    whose = f"{number} for {demands[0].query}"
    if len(demands) > 1:
        whose = f"shared by {len(demands)} queries that need {needed:.2f}"
    return Figure(
        number,
        "cores",
        f"{whose}: {_cores_why(job, demands)}",
        assumed=any(demand.assumed for demand in demands),
        formula="fewest on which the batches of all queries end in time when they fire together",
        inputs=lambda: tuple(f"{demand.key}.cores" for demand in demands),
    )


def _workers(
    name: str, job: Job, cores: Figure[int], worker: Callable[[], Input]
) -> tuple[Figure[int], Figure[int], list[Finding]]:
    """Return executors and workers of a job whose worker is chosen."""
    each = job.tasks_per_worker
    executors = math.ceil(cores.value / each)
    if job.max_workers is None:
        why = f"{count(cores.value, 'core')}, {each} on each"
        workers_why = f"{count(executors, 'executor')} of {each} cores, and the driver"
        return (
            Figure(
                executors,
                "executors",
                why,
                assumed=cores.assumed,
                formula="ceil(cores / cores of one executor)",
                inputs=lambda: (f"jobs.{name}.cores", worker()),
            ),
            Figure(
                workers_for(cores.value, each),
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
        problems = [Finding(path, str(job.max_workers), allowed)]
    why = f"{job.max_workers} workers are pinned, one is the driver; {executors} would do"
    return (
        replace(pinned(job.max_workers, "executors", why, path), value=job.max_workers - 1),
        pinned(job.max_workers, "workers", "pinned", path),
        problems,
    )


def _memory(
    environment: Environment,
    job: Job,
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Mapping[str, Source],
    queries: Mapping[str, QueryPlan],
) -> Memory:
    batches = {}
    for demand, spread_ in zip(demands, spreads, strict=True):
        limit = queries[demand.query].records_per_batch
        records = (
            float(limit.value)
            if limit is not None
            else demand.work.rate * queries[demand.query].trigger_seconds.value
        )
        # A task reads one partition of the source, before any repartition.
        batches[demand.query] = (
            records,
            max(1, source_of(demand, sources).partitions if demand.lands else spread_.cores),
        )
    return of_job(environment, job, list(demands), batches)


def _too_small(name: str, job: Job, choice: WorkerChoice, memory: Memory) -> list[Finding]:
    if choice.refused is None:
        return []
    path: tuple[str, ...] = ("jobs", name, "worker")
    allowed = f"a larger one: {choice.refused}; it holds {memory.why}"
    return [Finding(path, choice.worker if job.worker_is_given else "left to the plan", allowed)]


def _cores_why(job: Job, demands: Sequence[QueryDemand]) -> str:
    work = max(demands, key=lambda demand: demand.needed).work
    why = (
        f"{work.rate:,.0f} records/s at peak, {1 / work.per_record:,.0f} a core, "
        f"{work.overhead:g} s fixed in batches of up to {work.longest_batch:g} s"
    )
    if job.catch_up is not None:
        outage, within = job.catch_up.outage, job.catch_up.within
        why += f", {1 + outage / within:.2f} times to catch up {format_duration(outage)} in {format_duration(within)}"
    if job.goal == "throughput":
        why += f", {job.buffer:.0%} to spare"
    read = max(demands, key=lambda demand: demand.read_at_once)
    if whole_cores(read.read_at_once) > whole_cores(read.needed):
        why += f"; {read.query} reads {1 / read.work.hand_over:,.0f} records/s of a shard, a core one shard at a time"
    return why


def _spreads(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, Source],
    paid: int = 0,
) -> tuple[list[CoreSpread], int, list[Finding]]:
    """Return the queries' distributions over the job's cores, and these.

    Parameters
    ----------
    paid
        Cores of all its executors, which may be more than the queries need.
    """
    job = environment.jobs[name]
    short = [
        _too_few_shards(environment, demand)
        for demand in demands
        if demand.read_in_waves >= source_of(demand, sources).partitions
    ]
    if short:
        return [], 0, short
    if len(demands) == 1:
        return _alone(environment, name, demands[0], source_of(demands[0], sources), paid)
    batches = shared_batches(demands, sources)
    short = [
        _too_few_shards(environment, demand)
        for demand, batch in zip(demands, batches, strict=True)
        if batch.reading and batch.reading / batch.evenly - batch.unread >= batch.room
    ]
    if short:
        return [], 0, short
    fewest = fewest_shared_cores(batches)
    cores = job.cores or fewest
    tasks = divide(batches, cores)
    if tasks is None:
        return [], cores, [_too_few_cores(job, demands, fewest)]
    return shared_spreads(demands, batches, tasks, max(cores, paid)), cores, []


def _alone(
    environment: Environment, name: str, demand: QueryDemand, source: Source, paid: int
) -> tuple[list[CoreSpread], int, list[Finding]]:
    """Return the distribution of a query that has all cores of its job."""
    job, found = environment.jobs[name], own_spread(demand, source)
    if asked := paid or job.cores:
        more = spread_over_cores(
            source.partitions if demand.lands else max(found.cores, asked),
            max(found.cores, asked),
            demand.needed,
            limits()["spark.repartition.overhead"],
            read_at_once=demand.read_at_once,
        )
        if job.cores is not None and not paid and (job.cores < found.cores or more is None):
            return [], job.cores, [_too_few_cores(job, [demand], found.cores)]
        if more is not None and (not paid or more.effective > found.effective):
            found = more
    # One that reads all shards in one wave may find that they cannot deliver the records in the rest of the batch.
    late = found.waves == 1 and demand.read_in_one_wave >= source.partitions
    return [found], found.cores, [_too_few_shards(environment, demand)] if late else []


def _too_few_cores(job: Job, demands: Sequence[QueryDemand], fewest: int) -> Finding:
    allowed = f"at least {fewest}: {_cores_why(job, demands)}"
    return Finding(("jobs", demands[0].job, "cores"), str(job.cores), allowed)


def own_spread(demand: QueryDemand, source: Source) -> CoreSpread:
    """Return the spread of a query over the fewest cores, of which it has all; its shards may be too few, which is found later."""
    overhead = limits()["spark.repartition.overhead"]
    fewest = whole_cores(demand.least_cores)
    if not demand.lands or demand.read_in_waves >= source.partitions:
        return CoreSpread(fewest, float(fewest), None)
    return choose_cores(
        source.partitions,
        demand.needed,
        overhead,
        steady=source.steady,
        read_at_once=demand.read_in_waves,
    )


def _too_few_shards(environment: Environment, demand: QueryDemand) -> Finding:
    """Return the finding for a query whose shards together deliver less than arrives."""
    stream = max(demand.streams, key=lambda name: demand.streams[name])
    asked = environment.streams[stream]
    shards, part = asked.given_partitions, asked.parts.removesuffix("s")
    more = f", {demand.again:.2f} times to catch up" if demand.again > 1 else ""
    return Finding(
        ("streams", stream, asked.parts),
        "left to the plan" if shards is None else str(shards),
        f"at least {math.floor(demand.read_in_one_wave) + 1}: {demand.work.rate:,.0f} records/s at peak{more}, and a {part} hands "
        f"{1 / demand.work.hand_over:,.0f} a second to {demand.query}",
        f"`fan_out: true` gives a query a {part}'s whole way out" if asked.fans_out else None,
    )
