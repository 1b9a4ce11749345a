"""Advice on alternatives: split jobs, scheduled runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from millrace.config.model import Environment
from millrace.sizing.cost import HOURS
from millrace.sizing.jobs.demand import QueryDemand
from millrace.sizing.jobs.query import Source
from millrace.sizing.model import JobPlan
from millrace.sizing.prices_and_limits import limits
from millrace.sizing.text_format import count

_SCHEDULED = timedelta(minutes=30)
"""Shortest SLA for which scheduled runs can replace a job that runs all the time."""


def job_advice(
    environment: Environment, plan: JobPlan, demands: Sequence[QueryDemand], sources: Mapping[str, Source]
) -> Iterator[str]:
    """Yield one line for each recommendation."""
    yield from _unmeasured(environment, plan, demands)
    most = int(limits()["spark.driver.most_cores"])
    if plan.cores.value > most:
        jobs = math.ceil(plan.cores.value / most)
        topics = all(environment.streams[name].splits for demand in demands for name in demand.streams)
        way = (
            f"share the partitions out over {jobs} jobs (millrace split)"
            if topics
            else f"send the records to {jobs} streams by their producers' key, each with a job"
        )
        yield f"{plan.cores.value} cores are more than the {most} that one driver is trusted with: {way}"
    yield from _foreign(environment, plan, demands, sources)
    yield from _scheduled_runs(environment, plan, demands)


def _unmeasured(environment: Environment, plan: JobPlan, demands: Sequence[QueryDemand]) -> Iterator[str]:
    job = environment.jobs[plan.name]
    for demand in demands:
        if job.rate is None and job.queries[demand.query].rate is None:
            yield f"{demand.query} has no rate: {demand.speed.origin}"
    others = [demand for demand in demands if demand.speed.other_line]
    for told in dict.fromkeys(demand.speed.other_line for demand in others):
        queries = ", ".join(demand.query for demand in others if demand.speed.other_line == told)
        yield f"the rate of {queries} was measured {told}: `millrace bench` measures it with that"


def _foreign(
    environment: Environment, plan: JobPlan, demands: Sequence[QueryDemand], sources: Mapping[str, Source]
) -> Iterator[str]:
    for demand in demands:
        query = plan.queries[demand.query]
        for name in demand.streams:
            stream = environment.streams[name]
            if demand.lands and stream.belongs_to_others and query.repartition is not None:
                yield (
                    f"streams.{name} is not ours and has {count(sources[name].partitions, 'partition')} for "
                    f"{query.cores.value} cores: {demand.query} pays {limits()['spark.repartition.overhead']:.0%} "
                    "to spread each batch; with as many partitions as cores it need not"
                )


def _scheduled_runs(environment: Environment, plan: JobPlan, demands: Sequence[QueryDemand]) -> Iterator[str]:
    job = environment.jobs[plan.name]
    seconds = job.latency.total_seconds()
    if job.latency >= _SCHEDULED:
        usd, each = _scheduled(plan, demands, seconds)
        always = plan.worker_usd_hour * plan.max_workers.value * HOURS
        if usd < always / 2:
            yield (
                f"an SLA of {seconds / 60:g} min lets a run that starts every {each / 60:g} min do: "
                f"about ${usd:,.2f} a month for workers in place of ${always:,.2f}"
            )


def _scheduled(plan: JobPlan, demands: Sequence[QueryDemand], sla: float) -> tuple[float, float]:
    """Return USD a month of runs that each read the records since the last one, and the seconds between two runs."""
    each = sla / 2
    start = limits()["scaling.worker_start_seconds"]
    busy = sum(
        demand.work.overhead + demand.work.rate * demand.average * each * demand.work.per_record
        for demand in demands
    )
    run = max(60.0, start + busy / plan.cores.value + sum(demand.work.overhead for demand in demands))
    return plan.worker_usd_hour * plan.max_workers.value * HOURS * min(1.0, run / each), each
