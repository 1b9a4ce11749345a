"""Distribution of the queries of a job over its cores, or the findings that prevent one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from millrace.config.document.problems import Finding
from millrace.config.model import Environment, Job
from millrace.config.units import format_duration
from millrace.sizing.jobs.shared_cores import (
    LargestBatch,
    divide_into_tasks_or_none,
    fewest_shared_cores,
    largest_batch,
    load_headroom_factors,
    run_tasks_with_headrooms,
    shared_spreads,
)
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import EqualPartitions, SourcePartitions
from millrace.sizing.queries.run_plan import run_stage_seconds
from millrace.sizing.queries.sizing_formulas import (
    CoreSpread,
    choose_core_spread,
    fastest_spread,
    spread_over_cores_or_none,
    whole_cores,
)
from millrace.sizing.readable_numbers import rate_text


def joined_source_partitions(
    demand: QueryDemand, sources: Mapping[str, SourcePartitions]
) -> SourcePartitions:
    """Return the partitions of all of a query's streams together."""
    each = {name: sources[name] for name in demand.streams}
    steady = all(source.steady for source in each.values())
    limited = any(source.limits_parts for source in each.values())
    if demand.partitions is not None:
        return SourcePartitions(demand.partitions, float(demand.partitions), steady, limited)
    parts = tuple(
        EqualPartitions(demand.streams[name] / source.partitions, source.partitions)
        for name, source in each.items()
    )
    number, like_the_fullest = sum(each.count for each in parts), 1 / max(each.share for each in parts)
    equal = like_the_fullest >= number * (1 - 1e-9)
    return SourcePartitions(
        number if equal else math.floor(like_the_fullest + 1e-9),
        min(source.evenly / demand.streams[name] for name, source in each.items()),
        steady,
        limited,
        # Those of an on-demand stream are an estimate, and never read in planned waves.
        () if equal or not steady else parts,
        not limited and any(source.shuffled for source in each.values()),
    )


def largest_batches_on_shared_cores(
    demands: Sequence[QueryDemand], sources: Sequence[SourcePartitions]
) -> tuple[LargestBatch, ...]:
    """Return the largest batches of queries that share cores."""
    return tuple(largest_batch(demand, source) for demand, source in zip(demands, sources, strict=True))


def job_spreads_cores_and_findings(
    environment: Environment,
    name: str,
    demands: Sequence[QueryDemand],
    sources: Sequence[SourcePartitions],
    paid: int = 0,
) -> tuple[list[CoreSpread], int, list[Finding]]:
    """Return the queries' distributions over the job's cores, and these.

    Parameters
    ----------
    sources
        Partitions of each query.
    paid
        Cores of all its executors, which may be more than the queries need.
    """
    job = environment.jobs[name]
    short = [
        _finding_of_too_few_shards(environment, demand)
        for demand, source in zip(demands, sources, strict=True)
        if demand.partitions_to_read_at_a_time >= source.all_at_once
    ]
    if short:
        return [], 0, short
    if len(demands) == 1:
        return _own_spread_cores_and_findings(environment, name, demands[0], sources[0], paid)
    batches = largest_batches_on_shared_cores(demands, sources)
    short = [
        _finding_of_too_few_shards(environment, demand)
        for demand, batch in zip(demands, batches, strict=True)
        if batch.reading and batch.source and batch.reading / batch.source.evenly >= batch.room
    ]
    if short:
        return [], 0, short
    fewest = fewest_shared_cores(batches)
    cores = job.cores or fewest
    # A run's tasks are those of the fewest cores, unless others end sooner: each writes a file.
    tasks = divide_into_tasks_or_none(batches, cores if job.run_every is None else min(cores, fewest))
    if tasks is None:
        return [], cores, [_finding_of_too_few_cores(job, demands, fewest)]
    paid = max(cores, paid)
    if job.run_every is None:
        tasks = divide_into_tasks_or_none(batches, paid) or tasks
        headrooms = load_headroom_factors(batches, tasks, paid)
        return shared_spreads(demands, batches, tasks, paid, headrooms), cores, []
    # As long as runs end in time, the shortest costs the least.
    spreads = [
        shared_spreads(demands, batches, each, paid, headrooms)
        for each, headrooms in run_tasks_with_headrooms(batches, tasks, paid)
    ]
    found = min(spreads, key=lambda each: sum(run_stage_seconds(demands, each, sources)))
    return found, cores, []


def _own_spread_cores_and_findings(
    environment: Environment, name: str, demand: QueryDemand, source: SourcePartitions, paid: int = 0
) -> tuple[list[CoreSpread], int, list[Finding]]:
    """Return the distribution of a query that has all cores of its job."""
    job, found = environment.jobs[name], spread_over_own_fewest_cores(demand, source)
    if job.cores is not None:
        more = spread_over_cores_or_none(
            source if demand.lands else SourcePartitions.of_equal(max(found.cores, job.cores)),
            max(found.cores, job.cores),
            demand.needed,
            service_limits()["spark.repartition.overhead"],
            read_at_once=demand.read_at_once,
        )
        if job.cores < found.cores or more is None:
            return [], job.cores, [_finding_of_too_few_cores(job, [demand], found.cores)]
        found = more
    if job.run_every is not None and paid:
        overhead = service_limits()["spark.repartition.overhead"]
        more = CoreSpread(paid, float(paid), None)
        if demand.lands:
            more = fastest_spread(source, paid, overhead)
        if more.effective >= found.effective and more.read_at_once >= found.read_at_once:
            return [more], found.cores, []
    # All cores of its executors read: in one wave, shards may not deliver the records in the rest of the batch.
    if paid >= source.read_in_waves:
        found = found._replace(read_at_once=source.all_at_once, waves=1)
    late = found.waves == 1 and demand.partitions_to_read_in_one_wave >= source.all_at_once
    return [found], found.cores, [_finding_of_too_few_shards(environment, demand)] if late else []


def _finding_of_too_few_cores(job: Job, demands: Sequence[QueryDemand], fewest: int) -> Finding:
    return Finding(
        ("jobs", demands[0].job, "cores"),
        str(job.cores),
        f"at least {fewest}: {reason_for_cores(job, demands)}",
    )


def spread_over_own_fewest_cores(demand: QueryDemand, source: SourcePartitions) -> CoreSpread:
    """Return the spread of a query over the fewest cores, of which it has all; its shards may be too few, which is found later."""
    overhead = service_limits()["spark.repartition.overhead"]
    fewest = whole_cores(demand.least_cores)
    if not demand.lands or demand.partitions_to_read_at_a_time >= source.all_at_once:
        return CoreSpread(fewest, float(fewest), None)
    return choose_core_spread(
        source,
        demand.needed,
        overhead,
        read_at_once=demand.partitions_to_read_at_a_time,
    )


def _finding_of_too_few_shards(environment: Environment, demand: QueryDemand) -> Finding:
    """Return the finding for a query whose shards together deliver less than arrives."""
    stream = max(demand.streams, key=lambda name: demand.streams[name])
    asked = environment.streams[stream]
    shards, part = asked.given_partitions, asked.parts.removesuffix("s")
    more = f", {demand.again:.2f} times to catch up" if demand.again > 1 else ""
    least = math.floor(max(demand.partitions_to_read_at_a_time, demand.partitions_to_read_in_one_wave)) + 1
    why = f"{rate_text(demand.work.rate)} records/s at peak{more}, and a {part} hands {rate_text(1 / demand.work.hand_over)} a second to {demand.query}"
    hint = (
        f"`fan_out: true` gives a query a {part}'s whole way out"
        if asked.fans_out and not demand.work.alone
        else None
    )
    if asked.elastic_limit_names is not None:
        runs = (
            "" if environment.jobs[demand.job].run_every is None else ", or a longer `run_every` of its job"
        )
        allowed = f"provisioned with at least {least} {part}s{runs}: {why}; AWS opens those of an {asked.topic_or_capacity_mode} stream for what is written"
        return Finding(("streams", stream, "mode"), asked.topic_or_capacity_mode, allowed, hint)
    value = "left to the plan" if shards is None else str(shards)
    return Finding(("streams", stream, asked.parts), value, f"at least {least}: {why}", hint)


def reason_for_cores(job: Job, demands: Sequence[QueryDemand]) -> str:
    """Return the reason for the number of cores: the work of the query that needs the most."""
    work = max(demands, key=lambda demand: demand.needed).work
    why = (
        f"{rate_text(work.rate)} records/s at peak, {rate_text(1 / work.per_record)} a core, "
        f"{work.overhead:g} s fixed in batches of up to {work.longest_batch_seconds:g} s"
    )
    if job.catch_up is not None:
        outage, within = job.catch_up.outage, job.catch_up.within
        why += f", {1 + outage / within:.2f} times to catch up {format_duration(outage)} in {format_duration(within)}"
    if job.goal == "throughput":
        why += f", {job.buffer:.0%} to spare"
    read = max(demands, key=lambda demand: demand.read_at_once)
    if whole_cores(read.read_at_once) > whole_cores(read.needed):
        why += f"; {read.query} reads {rate_text(1 / read.work.hand_over)} records/s of a shard, a core one shard at a time"
    return why
