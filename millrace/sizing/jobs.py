"""Cores, executors, workers, triggers and limits of one job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from millrace.config.engines import GLUE_DISK_GIB, glue_tasks_per_worker
from millrace.config.model import Environment, GlueJob, Job
from millrace.config.problems import Finding
from millrace.config.units import format_duration
from millrace.sizing.advice import job_advice
from millrace.sizing.capacity import Spread, fit, spread, whole_cores
from millrace.sizing.choice import choices, pinned, resolved, worker_hour
from millrace.sizing.cost import job_cost
from millrace.sizing.hops import Hop
from millrace.sizing.memory import Memory, of_job, records_held
from millrace.sizing.model import Choice, Figure, JobPlan, QueryPlan, ScalingPlan
from millrace.sizing.query import Source, plan_query
from millrace.sizing.tables import PriceTable, limits
from millrace.sizing.usage import usage_cost
from millrace.sizing.words import count


def _source(hop: Hop, sources: Mapping[str, Source]) -> Source:
    """What a query finds on all its streams together."""
    each = [sources[name] for name in hop.streams]
    return Source(
        sum(source.partitions for source in each) if hop.partitions is None else hop.partitions,
        steady=all(source.steady for source in each),
        kinesis=any(source.kinesis for source in each),
    )


def shares(cores: int, hops: Sequence[Hop]) -> list[int] | None:
    """Divide pinned cores among a job's queries, by need; ``None`` where they are too few."""
    fewest = [whole_cores(hop.needed) for hop in hops]
    rest = cores - sum(fewest)
    if rest < 0:
        return None
    total = sum(hop.needed for hop in hops)
    exact = [rest * hop.needed / total for hop in hops]
    given = [math.floor(part) for part in exact]
    largest = sorted(range(len(hops)), key=lambda i: exact[i] - given[i], reverse=True)
    for i in largest[: rest - sum(given)]:
        given[i] += 1
    return [few + more for few, more in zip(fewest, given, strict=True)]


def executor_cores(job: Job) -> int:
    """Return the tasks that run at once on one worker of the job."""
    return glue_tasks_per_worker(job.version, job.worker) if isinstance(job, GlueJob) else job.worker.vcpu


def workers_for(cores: int, tasks_per_worker: int) -> int:
    """Return the workers for so many cores: the executors and one driver.

    Examples
    --------
    >>> workers_for(32, 4), workers_for(64, 4), workers_for(8, 4)
    (9, 17, 3)
    """
    return math.ceil(cores / tasks_per_worker) + 1


def plan_job(
    environment: Environment,
    name: str,
    hops: Sequence[Hop],
    sources: Mapping[str, Source],
    prices: PriceTable,
) -> tuple[JobPlan | None, list[Finding]]:
    """Size one job.

    Parameters
    ----------
    environment, name
        The job.
    hops
        Its queries' demand, in their order.
    sources
        By stream.
    prices
        Of the environment's region.

    Returns
    -------
    tuple
        The plan, or ``None`` with the findings that forbid one.
    """
    job = environment.jobs[name]
    spreads, problems = _spreads(name, job, hops, sources)
    if problems:
        return None, problems
    cores = _cores(job, hops, spreads)
    queries = {}
    for hop, spread_ in zip(hops, spreads, strict=True):
        query, wrong = plan_query(
            hop,
            job,
            spread_,
            _source(hop, sources),
            records_held(environment, hop, _source(hop, sources).partitions),
        )
        problems += wrong
        queries[hop.query] = query
    memory = _memory(environment, job, hops, spreads, sources, queries)
    ways = choices(job, cores.value, memory, prices)
    problems += _too_small(name, job, ways[0], memory)
    sized = resolved(job, ways[0])
    executors, workers, wrong = _workers(name, sized, cores)
    problems += wrong
    scaling, wrong = _scaling(name, job, hops, executors, executor_cores(sized))
    problems += wrong
    if problems:
        return None, problems
    cost = (*job_cost(sized, workers, prices), *usage_cost(environment, job, hops, queries, spreads, prices))
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
        disk_gib=_disk_gib(sized),
        memory=Figure(
            round(ways[0].memory_needed_gib, 2),
            "GiB",
            f"an executor holds {memory.why}, and its own",
            assumed=True,
        ),
        scaling=scaling,
        worker_usd_hour=worker_hour(sized.engine, ways[0].worker, sized, prices),
        choices=ways,
    )
    return replace(plan, advice=tuple(job_advice(environment, plan, hops, sources))), []


def _cores(job: Job, hops: Sequence[Hop], spreads: Sequence[Spread]) -> Figure[int]:
    if job.cores is not None:
        why = f"pinned; the queries need {sum(h.needed for h in hops):.2f}"
        return Figure(job.cores, "cores", why, "pinned")
    parts = ", ".join(f"{each.cores} for {hop.query}" for hop, each in zip(hops, spreads, strict=True))
    assumed = any(hop.assumed for hop in hops)
    return Figure(
        sum(each.cores for each in spreads), "cores", f"{parts}: {_cores_why(job, hops)}", assumed=assumed
    )


def _workers(name: str, job: Job, cores: Figure[int]) -> tuple[Figure[int], Figure[int], list[Finding]]:
    """Return executors and workers of a job whose worker is settled."""
    each = executor_cores(job)
    executors = math.ceil(cores.value / each)
    if job.max_workers is None:
        why = f"{count(cores.value, 'core')}, {each} on each"
        workers_why = f"{count(executors, 'executor')} of {each} cores, and the driver"
        return (
            Figure(executors, "executors", why, assumed=cores.assumed),
            Figure(workers_for(cores.value, each), "workers", workers_why, assumed=cores.assumed),
            [],
        )
    problems = []
    if job.max_workers - 1 < executors:
        allowed = f"at least {executors + 1}: {cores.value} cores take {count(executors, 'executor')}, and the driver"
        problems = [Finding(("jobs", name, "max_workers"), str(job.max_workers), allowed)]
    why = f"{job.max_workers} workers are pinned, one is the driver; {executors} would do"
    return (
        Figure(job.max_workers - 1, "executors", why, "pinned"),
        Figure(job.max_workers, "workers", "pinned", "pinned"),
        problems,
    )


def _memory(
    environment: Environment,
    job: Job,
    hops: Sequence[Hop],
    spreads: Sequence[Spread],
    sources: Mapping[str, Source],
    queries: Mapping[str, QueryPlan],
) -> Memory:
    batches = {}
    for hop, spread_ in zip(hops, spreads, strict=True):
        limit = queries[hop.query].records_per_batch
        records = (
            float(limit.value)
            if limit is not None
            else hop.work.rate * queries[hop.query].trigger_seconds.value
        )
        # A task reads one partition of the source, before anything is repartitioned.
        batches[hop.query] = (
            records,
            max(1, _source(hop, sources).partitions if hop.lands else spread_.cores),
        )
    return of_job(environment, job, list(hops), batches)


def _too_small(name: str, job: Job, choice: Choice, memory: Memory) -> list[Finding]:
    if choice.refused is None:
        return []
    path: tuple[str, ...] = ("jobs", name, "worker")
    allowed = f"a larger one: {choice.refused}; it holds {memory.why}"
    return [Finding(path, choice.worker if pinned(job) else "left to the plan", allowed)]


def _disk_gib(job: Job) -> int:
    if isinstance(job, GlueJob):
        return GLUE_DISK_GIB[job.worker]
    return job.worker.disk // 1024**3


def _scaling(
    name: str, job: Job, hops: Sequence[Hop], executors: Figure[int], each: int
) -> tuple[ScalingPlan, list[Finding]]:
    """Return the range of executors, and what breaks it."""
    known = limits()
    assumed = any(hop.assumed for hop in hops)
    if isinstance(job, GlueJob):
        why = "Glue starts and shrinks as it likes; one executor always stays"
        return ScalingPlan(
            Figure(1, "executors", why),
            Figure(executors.value, "executors", "a start finds a backlog"),
            None,
            None,
            None,
        ), []
    average = sum(whole_cores(hop.needed * hop.average) for hop in hops)
    least = min(executors.value, math.ceil(average / each))
    minimum = (
        Figure(least, "executors", f"{count(average, 'core')} carry the average", assumed=assumed)
        if job.min_executors is None
        else Figure(job.min_executors, "executors", "pinned", "pinned")
    )
    initial = (
        Figure(executors.value, "executors", "all: a start finds the backlog of its stop", assumed=assumed)
        if job.initial_executors is None
        else Figure(job.initial_executors, "executors", "pinned", "pinned")
    )
    ratio = known["scaling.emr.allocation_ratio"]
    idle, shuffle = known["scaling.emr.idle_timeout_seconds"], known["scaling.emr.shuffle_timeout_seconds"]
    plan = ScalingPlan(
        minimum,
        initial,
        Figure(ratio, "share", "fewer executors than tasks would fill: AWS' advice for streaming"),
        Figure(int(idle), "s", "an executor that ran nothing for so long goes"),
        Figure(int(shuffle), "s", "one that holds shuffled data stays so long"),
    )
    return plan, _executors(name, job, executors.value)


def _executors(name: str, job: Job, most: int) -> list[Finding]:
    if isinstance(job, GlueJob):
        return []
    return [
        Finding(("jobs", name, key), str(value), f"at most {most}, the executors of the plan")
        for key, value in (
            ("min_executors", job.min_executors or 0),
            ("initial_executors", job.initial_executors or 0),
        )
        if value > most
    ]


def _cores_why(job: Job, hops: Sequence[Hop]) -> str:
    work = max(hops, key=lambda hop: hop.needed).work
    why = (
        f"{work.rate:,.0f} records/s at peak, {1 / work.per_record:,.0f} a core, "
        f"{work.overhead:g} s fixed in batches of up to {work.longest_batch:g} s"
    )
    if job.catch_up is not None:
        outage, within = job.catch_up.outage, job.catch_up.within
        why += f", {1 + outage / within:.2f} times to catch up {format_duration(outage)} in {format_duration(within)}"
    if job.goal == "throughput":
        why += f", {job.buffer:.0%} to spare"
    return why


def _spreads(
    name: str, job: Job, hops: Sequence[Hop], sources: Mapping[str, Source]
) -> tuple[list[Spread], list[Finding]]:
    overhead = limits()["spark.repartition.overhead"]
    if job.cores is None:
        return [_spread(hop, _source(hop, sources), overhead) for hop in hops], []
    fewest = sum(_spread(hop, _source(hop, sources), overhead).cores for hop in hops)
    given = shares(job.cores, hops)
    found = []
    for hop, cores in zip(hops, given or [], strict=False):
        partitions = _source(hop, sources).partitions if hop.lands else cores
        spread_ = fit(partitions, cores, hop.needed, overhead)
        if spread_ is not None:
            found.append(spread_)
    if given is None or len(found) < len(hops):
        allowed = f"at least {fewest}: {_cores_why(job, hops)}"
        return [], [Finding(("jobs", name, "cores"), str(job.cores), allowed)]
    return found, []


def _spread(hop: Hop, source: Source, overhead: float) -> Spread:
    if not hop.lands:
        cores = whole_cores(hop.needed)
        return Spread(cores, float(cores), None)
    return spread(source.partitions, hop.needed, overhead, steady=source.steady)
