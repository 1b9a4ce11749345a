"""Advice on alternatives: split jobs, scheduled runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from millrace.config.model import Environment
from millrace.sizing.plan_model import JobPlan
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.driver import route_advice_or_none
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.readable_numbers import count


def job_advice(
    environment: Environment,
    plan: JobPlan,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, SourcePartitions],
) -> Iterator[str]:
    """Yield one line for each recommendation."""
    yield from _advice_to_measure_rates(environment, plan, demands)
    if (hint := route_advice_or_none(environment.jobs[plan.name])) is not None:
        yield hint
    most = int(service_limits()["spark.driver.most_cores"])
    if plan.cores.value > most:
        jobs = math.ceil(plan.cores.value / most)
        topics = all(environment.streams[name].splits for demand in demands for name in demand.streams)
        way = (
            f"share the partitions out over {jobs} jobs (millrace split)"
            if topics
            else f"send the records to {jobs} streams by their producers' key, each with a job"
        )
        yield f"{plan.cores.value} cores are more than the {most} that one driver is trusted with: {way}"
    yield from _advice_on_foreign_partitions(environment, plan, demands, sources)


def _advice_to_measure_rates(
    environment: Environment, plan: JobPlan, demands: Sequence[QueryDemand]
) -> Iterator[str]:
    job = environment.jobs[plan.name]
    for demand in demands:
        if job.rate is None and job.queries[demand.query].rate is None:
            yield f"{demand.query} has no rate: {demand.speed.origin}"
    others = [demand for demand in demands if demand.speed.other_line]
    for told in dict.fromkeys(demand.speed.other_line for demand in others):
        queries = ", ".join(demand.query for demand in others if demand.speed.other_line == told)
        yield f"the rate of {queries} was measured {told}: `millrace bench` measures it with that"


def _advice_on_foreign_partitions(
    environment: Environment,
    plan: JobPlan,
    demands: Sequence[QueryDemand],
    sources: Mapping[str, SourcePartitions],
) -> Iterator[str]:
    for demand in demands:
        query = plan.queries[demand.query]
        for name in demand.streams:
            stream = environment.streams[name]
            if demand.lands and stream.belongs_to_others and query.repartition is not None:
                yield (
                    f"streams.{name} is not ours and has {count(sources[name].partitions, 'partition')} for "
                    f"{query.cores.value} cores: {demand.query} pays {service_limits()['spark.repartition.overhead']:.0%} "
                    "to spread each batch; with as many partitions as cores it need not"
                )
