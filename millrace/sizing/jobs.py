"""Cores, executors, workers, triggers and limits of one job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.config.engines import glue_tasks_per_worker
from millrace.config.model import GlueJob, Job
from millrace.config.problems import Finding
from millrace.config.queries import Query, SourceQuery, StreamQuery
from millrace.sizing.capacity import Spread, batch_range, fit, per_partition, spread, whole_cores
from millrace.sizing.cost import job_cost
from millrace.sizing.hops import Hop
from millrace.sizing.model import Figure, JobPlan, QueryPlan
from millrace.sizing.tables import PriceTable, limits
from millrace.sizing.words import count


@dataclass(frozen=True)
class Source:
    """The partitions that a reader finds, and whether they stay."""

    partitions: int
    steady: bool
    kinesis: bool


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
    name: str, job: Job, hops: Sequence[Hop], sources: Mapping[str, Source], prices: PriceTable
) -> tuple[JobPlan | None, list[Finding]]:
    """Size one job.

    Parameters
    ----------
    name
        In the environment.
    job
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
    spreads, problems = _spreads(name, job, hops, sources)
    if problems:
        return None, problems
    assumed = any(hop.assumed for hop in hops)
    needed = sum(each.cores for each in spreads)
    parts = ", ".join(f"{each.cores} for {hop.query}" for hop, each in zip(hops, spreads, strict=True))
    cores = (
        Figure(job.cores, "cores", f"pinned; the queries need {sum(h.needed for h in hops):.2f}", "pinned")
        if job.cores is not None
        else Figure(needed, "cores", f"{parts}: {_cores_why(hops)}", assumed=assumed)
    )
    each = executor_cores(job)
    executors = math.ceil(cores.value / each)
    if job.max_workers is not None:
        if job.max_workers - 1 < executors:
            allowed = f"at least {executors + 1}: {cores.value} cores take {count(executors, 'executor')}, and the driver"
            return None, [Finding(("jobs", name, "max_workers"), str(job.max_workers), allowed)]
        why = f"{job.max_workers} workers are pinned, one is the driver; {executors} would do"
        executor_figure = Figure(job.max_workers - 1, "executors", why, "pinned")
        workers = Figure(job.max_workers, "workers", "pinned", "pinned")
    else:
        why = f"{count(cores.value, 'core')}, {each} on each"
        executor_figure = Figure(executors, "executors", why, assumed=cores.assumed)
        why = f"{count(executors, 'executor')} of {each} cores, and the driver"
        workers = Figure(workers_for(cores.value, each), "workers", why, assumed=cores.assumed)
    problems += _executors(name, job, executor_figure.value)
    queries = {}
    for hop, spread_ in zip(hops, spreads, strict=True):
        query, wrong = _query(hop, job.queries[hop.query], spread_, _source(hop, sources))
        problems += wrong
        queries[hop.query] = query
    if problems:
        return None, problems
    plan = JobPlan(
        name=name,
        engine=job.engine,
        version=job.version,
        worker=job.worker if isinstance(job, GlueJob) else _emr_worker(job.worker.vcpu, job.worker.memory),
        cores=cores,
        executors=executor_figure,
        max_workers=workers,
        queries=queries,
        cost=job_cost(job, workers, prices),
    )
    return plan, []


def _executors(name: str, job: Job, most: int) -> list[Finding]:
    if isinstance(job, GlueJob):
        return []
    return [
        Finding(("jobs", name, key), str(value), f"at most {most}, the executors of the plan")
        for key, value in (
            ("min_executors", job.min_executors),
            ("initial_executors", job.initial_executors or 0),
        )
        if value > most
    ]


def _emr_worker(vcpu: int, memory: int) -> str:
    return f"{vcpu} vCPU {memory // 1024**3} GiB"


def _cores_why(hops: Sequence[Hop]) -> str:
    work = max(hops, key=lambda hop: hop.needed).work
    return (
        f"{work.rate:,.0f} records/s at peak, {1 / work.per_record:,.0f} a core, "
        f"{work.overhead:g} s fixed in batches of up to {work.longest_batch:g} s"
    )


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
        allowed = f"at least {fewest}: {_cores_why(hops)}"
        return [], [Finding(("jobs", name, "cores"), str(job.cores), allowed)]
    return found, []


def _spread(hop: Hop, source: Source, overhead: float) -> Spread:
    if not hop.lands:
        cores = whole_cores(hop.needed)
        return Spread(cores, float(cores), None)
    return spread(source.partitions, hop.needed, overhead, steady=source.steady)


def _query(hop: Hop, query: Query, spread_: Spread, source: Source) -> tuple[QueryPlan, list[Finding]]:
    span = batch_range(hop.work, spread_.effective)
    problems: list[Finding] = []
    if query.trigger is not None:
        trigger = Figure(span.trigger, "s", f"pinned; this hop has {hop.share}", "pinned")
    else:
        why = f"waiting and working share this hop's {hop.share}"
        trigger = Figure(span.trigger, "s", why, assumed=hop.assumed)
    batch = shard = None
    if isinstance(query, SourceQuery):
        batch, problems = _limit(hop, query, span.above, span.most)
        if source.kinesis:
            value = per_partition(batch.value, source.partitions, span.above)
            why = f"{batch.value:,} records over {count(source.partitions, 'shard')}"
            shard = Figure(value, "records", why, assumed=batch.assumed or hop.assumed)
    repartition = None
    if spread_.repartition is not None:
        why = f"the source has {count(source.partitions, 'partition')} for {spread_.cores} cores"
        if not source.steady:
            why = f"an on-demand stream changes its shards; {spread_.cores} cores stay busy"
        elif source.partitions >= spread_.cores:
            why += ", which would leave cores idle in the last wave"
        repartition = Figure(spread_.repartition, "partitions", why, assumed=hop.assumed)
    if isinstance(query, StreamQuery) and query.kafka is not None:
        pinned = query.kafka.min_partitions
        if pinned is not None:
            why = f"pinned; the source has {count(source.partitions, 'partition')}"
            repartition = Figure(pinned, "partitions", why, "pinned")
    latency = Figure(
        hop.latency, "s", f"from arrival to commit: {hop.share}" if hop.lands else "the job's SLA"
    )
    return QueryPlan(hop.query, trigger, latency, batch, shard, repartition), problems


def _least(hop: Hop, query: SourceQuery, most: Figure[int]) -> list[Finding]:
    """A batch that waits for more records than it may take would wait for ever, or for its longest delay."""
    reading = query.kafka if isinstance(query, StreamQuery) else None
    least = None if reading is None else reading.min_records_per_batch
    if least is None or least <= most.value:
        return []
    allowed = f"at most {most.value}, the most that the plan lets a batch take: {most.why}"
    return [Finding((*hop.path, "kafka", "min_records_per_batch"), str(least), allowed)]


def _limit(hop: Hop, query: SourceQuery, above: float, most: float) -> tuple[Figure[int], list[Finding]]:
    pinned = query.records_per_batch
    longest = f"{hop.work.longest_batch:g} s"
    if pinned is None:
        why = f"a batch of {longest} takes so many; at least {above:,.0f} keep up with the peak"
        figure = Figure(max(1, math.floor(most)), "records", why, assumed=hop.assumed)
        return figure, _least(hop, query, figure)
    figure = Figure(pinned, "records", f"pinned, between {above:,.0f} and {most:,.0f}", "pinned")
    if above < pinned <= most:
        return figure, []
    reason = (
        f"fewer and the backlog grows, as {above:,.0f} arrive in the time of a batch"
        if pinned <= above
        else f"more and a full batch takes longer than {longest} of this hop's {hop.share}"
    )
    allowed = f"{math.floor(above) + 1} to {math.floor(most)}: {reason}"
    return figure, [Finding((*hop.path, "records_per_batch"), str(pinned), allowed)]
