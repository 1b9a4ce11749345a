"""Scenario for the simulation of a plan's job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from millrace.config.model import Environment, Traffic
from millrace.config.queries import DeriveQuery, LandingQueryBase, SourceQueryBase
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.plan_model import JobPlan, Plan, QueryPlan
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.driver import fixed_seconds_of_batches
from millrace.sizing.queries.environment_demands import feasible_demands_of_job, query_demands_and_findings
from millrace.sizing.queries.partition_tasks import EqualPartitions, divide_stream
from millrace.sizing.queries.shard_calls import paces_as_planned, triggers_that_shards_answer
from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.scaling_policies import (
    DynamicAllocation,
    FixedExecutors,
    GlueAutoScaling,
    Scaling,
)
from millrace.sizing.simulation.scenario_model import BoundedRuns, Outage, QueryLoad, Reshard, Scenario


def streams_of_job(environment: Environment, job: str) -> tuple[str, ...]:
    """Return the streams whose records a job handles, in the order of its queries."""
    found = [name for demand in feasible_demands_of_job(environment, job) for name in demand.streams]
    return tuple(dict.fromkeys(found))


def traffic_by_stream(environment: Environment, job: str) -> dict[str, Traffic]:
    """Return the traffic of the streams whose records a job handles, by stream."""
    return {name: environment.streams[name].traffic for name in streams_of_job(environment, job)}


@lru_cache(maxsize=4)
def _slower_triggers(environment: Environment, plan: Plan) -> dict[tuple[str, str], float]:
    """Return the seconds between batches of queries whose shards do not answer the triggers of all their readers, by job and query."""
    fanning_out = (name for name, stream in environment.streams.items() if stream.fans_out)
    demands = query_demands_and_findings(environment)[0]
    return triggers_that_shards_answer(paces_as_planned(fanning_out, demands, plan))


def scaling_policy_of_job(environment: Environment, job: JobPlan, *, fixed: bool = False) -> Scaling:
    """Return the scaling policy of a deployed job."""
    known = service_limits()
    if fixed or job.scaling.fixed or job.run is not None:
        return FixedExecutors(job.executors.value)
    scaling = job.scaling
    start = known["scaling.worker_start_seconds"]
    if environment.jobs[job.name].scales_itself:
        return GlueAutoScaling(
            least=scaling.min_executors.value,
            most=job.executors.value,
            initial=scaling.initial_executors.value,
            batches=int(known["scaling.glue.batches"]),
            shrink_below=known["scaling.glue.shrink_below"],
            worker_start=start,
        )
    assert scaling.allocation_ratio is not None
    assert scaling.idle_timeout_seconds is not None
    assert scaling.shuffle_timeout_seconds is not None
    backlog = known["scaling.emr.backlog_timeout_seconds"]
    return DynamicAllocation(
        least=scaling.min_executors.value,
        most=job.executors.value,
        initial=scaling.initial_executors.value,
        ratio=scaling.allocation_ratio.value,
        backlog_timeout=backlog,
        sustained_timeout=backlog,
        idle_timeout=float(scaling.idle_timeout_seconds.value),
        shuffle_timeout=float(scaling.shuffle_timeout_seconds.value),
        worker_start=start,
    )


def scenario_of_job(
    environment: Environment,
    plan: Plan,
    job: str,
    arrivals: Mapping[str, Arrivals],
    *,
    skew: float = 1.0,
    fixed: bool = False,
    outages: Sequence[Outage] = (),
    reshards: Sequence[tuple[float, int]] = (),
    sigma: float | None = None,
    seed: int = 1,
) -> Scenario:
    """Return the scenario of a plan's job under some traffic.

    Parameters
    ----------
    arrivals
        By stream, for all of :func:`streams_of_job`.
    skew
        σ of every stream; limited to its number of partitions.
    fixed
        All executors all the time, instead of the engine's scaling.
    reshards
        Seconds, and the partitions that each of its streams has from then on.
    sigma
        Unevenness of tasks; left out, the benchmark's result.
    seed
        Seed of all random numbers.
    """
    environment, sized = environment_as_planned(environment, plan), plan.jobs[job]
    own = feasible_demands_of_job(environment, job)
    fixed_cost = dict(
        zip(
            (each.query for each in own),
            fixed_seconds_of_batches(environment.jobs[job], own, sized.vcpu),
            strict=True,
        )
    )
    landing = {
        query.table: name
        for name, query in environment.jobs[job].queries.items()
        if isinstance(query, LandingQueryBase)
    }
    rates = {demand.query: demand.work.rate for demand in own}
    slower = _slower_triggers(environment, plan)
    loads, changed = [], []
    # A query that reads another's commits comes after it.
    for demand in sorted(own, key=lambda each: not each.lands):
        query = environment.jobs[job].queries[demand.query]
        numbers = sized.queries[demand.query]
        source: Arrivals | str = _scaled_sum_of_arrivals(arrivals, demand.streams, demand.part)
        divided: tuple[EqualPartitions, ...] = ()
        read = 1.0
        if isinstance(query, SourceQueryBase):
            each = {name: plan.streams[name].expected_partitions.value for name in demand.streams}
            count = demand.partitions or sum(each.values())
            divided = divide_stream(count, min(skew, count))
            if skew == 1.0 and demand.partitions is None:
                divided = tuple(
                    EqualPartitions(demand.streams[name] / number, number) for name, number in each.items()
                )
            changed += [
                (demand.query, Reshard(at, divide_stream(after, min(skew, after)))) for at, after in reshards
            ]
        elif (
            isinstance(query, DeriveQuery)
            and len(query.source_tables_and_routes) == 1
            and query.source in landing
        ):
            source = landing[query.source]
            # All that lands is counted, and what other routes bring costs it nothing.
            read = min(1.0, demand.work.rate / rates[source])
        else:  # landed by another job, or by two queries: its records arrive as in the streams
            divided = divide_stream(max(1, numbers.cores.value))
        loads.append(
            QueryLoad(
                name=demand.query,
                overhead=fixed_cost[demand.query] - demand.speed.wave,
                per_record=demand.work.per_record * read,
                stage=demand.stage,
                # In a bounded run a query that derives starts when all is landed.
                trigger=0.0
                if isinstance(source, str) and sized.run
                else slower.get((job, demand.query), numbers.trigger_seconds.value),
                source=source,
                parts=divided,
                tasks=numbers.cores.value,
                limit=_limit_over_all_partitions(numbers),
                limit_per_part=(
                    None
                    if numbers.records_per_partition is None
                    else float(numbers.records_per_partition.value)
                ),
                wave=demand.speed.wave,
                repartition=None if numbers.repartition is None else numbers.repartition.value,
                repartition_overhead=service_limits()["spark.repartition.overhead"],
                hand_over=demand.work.hand_over,
                alone=demand.work.alone,
            )
        )
    seconds = max(each.seconds for each in arrivals.values())
    return Scenario(
        seconds=seconds,
        queries=tuple(loads),
        executor_cores=sized.vcpu,
        scaling=scaling_policy_of_job(environment, sized, fixed=fixed),
        usd_per_worker_hour=sized.worker_usd_hour,
        reshards=tuple(changed),
        outages=tuple(outages),
        driver_start=service_limits()["scaling.worker_start_seconds"],
        sigma=own[0].speed.unevenness if sigma is None else sigma,
        seed=seed,
        runs=_runs_of_job(sized),
    )


def _runs_of_job(job: JobPlan) -> BoundedRuns | None:
    if job.run is None:
        return None
    known = service_limits()
    return BoundedRuns(
        every=float(job.run.every_seconds.value),
        fast=known["bounded.start_fast_seconds"],
        slow=job.run.start_seconds.value,
        billed=known["bounded.billed_start_seconds"],
        least=known["bounded.least_billed_seconds"],
    )


def _limit_over_all_partitions(numbers: QueryPlan) -> float | None:
    # Kinesis has a limit for each shard; the limit of the batch would apply a second time.
    if numbers.records_per_batch is None or numbers.records_per_partition is not None:
        return None
    return float(numbers.records_per_batch.value)


def _scaled_sum_of_arrivals(
    arrivals: Mapping[str, Arrivals], streams: Mapping[str, float], part: float
) -> Arrivals:
    first, *rest = [arrivals[name] for name in streams]
    for each in rest:
        first = first.plus(each)
    return first if part == 1.0 else first.scaled(part)
