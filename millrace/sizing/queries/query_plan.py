"""Trigger, limits and repartition of one query."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta

from millrace.config.document.problems import Finding
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.model import Environment, Job
from millrace.config.queries import OneStreamQueryBase, SourceQueryBase
from millrace.config.units import format_duration
from millrace.sizing.plan_model import Figure, FigureInput, QueryPlan, pinned_figure
from millrace.sizing.queries.benchmark_figures import cores_with_contention
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.run_plan import run_period_figure
from millrace.sizing.queries.sizing_formulas import (
    CoreSpread,
    cores_needed,
    least_limit_to_keep_up,
    limit_per_partition,
)
from millrace.sizing.readable_numbers import count, rate_text

_OUTAGE = timedelta(minutes=10)
"""Outage for the plan's catch-up time if the file names none."""

_WITHIN = timedelta(hours=20)
"""Longest time to catch up for which a job is sized: a day, without what arrives while its driver starts."""


_HAND_OVER = "the time in which one shard hands a record to this reader; p shards are read at a time"


def batch_limit_and_findings(
    demand: QueryDemand, job: Job, spread_: CoreSpread, fits_in_memory: float
) -> tuple[Figure[int] | None, list[Finding]]:
    """Return the records of a query's largest batch, None without a limit, and a finding for each pinned number that breaks one.

    Parameters
    ----------
    spread_
        Distribution of its partitions over its cores.
    fits_in_memory
        Records of a batch that its tasks can hold.
    """
    query = job.queries[demand.query]
    if not isinstance(query, SourceQueryBase):
        return None, []
    # Chance brings more than what keeps up, however little memory there is.
    held = max(fits_in_memory, _most_records_by_chance(demand))
    batch, problems = _source_limit_and_findings(demand, query, spread_, held)
    if isinstance(query, OneStreamQueryBase) and query.kafka is not None:
        problems += _findings_of_wait_for_records(demand, query.kafka, batch)
    return batch, problems


def query_plan(
    demand: QueryDemand, job: Job, spread_: CoreSpread, source: SourcePartitions, batch: Figure[int] | None
) -> QueryPlan:
    """Return a query's numbers.

    Parameters
    ----------
    spread_
        Distribution of its partitions over its cores.
    source
        Partitions that it reads.
    batch
        Records of its largest batch.
    """
    query = job.queries[demand.query]
    trigger_seconds = demand.work.planned_trigger_seconds
    if job.run_every is not None:
        trigger = run_period_figure(
            demand.job, job, trigger_seconds, f"from one run to the next; {demand.share}"
        )
    elif query.trigger is not None:
        trigger = pinned_figure(
            trigger_seconds, "s", f"pinned; this query has {demand.share}", (*demand.yaml_path, "trigger")
        )
    else:
        why = f"waiting and working share this query's {demand.share}"
        if demand.work.most_trigger < demand.work.sla / 2:
            reason = (
                "a task's memory or the stream's retention holds no more"
                if demand.lands
                else "as often as its table gets records"
            )
            why = f"{reason}; this query has {demand.share}"
        if demand.work.trigger is not None:
            why = f"its shards answer all their readers so often; this query has {demand.share}"
        trigger = Figure(
            trigger_seconds,
            "s",
            why,
            assumed=demand.assumed,
            formula="min(S/2, what memory and retention hold, whole triggers of the table that is read), or what shards answer",
            inputs=demand.inputs,
        )
    shard = None
    read = [f"streams.{name}.expected_partitions" for name in demand.streams]
    if batch is not None and source.limits_parts:
        above = least_limit_to_keep_up(demand.work, spread_, demand.again)
        shard = Figure(
            limit_per_partition(batch.value, source.partitions, max(above, _most_records_by_chance(demand))),
            "records",
            f"{batch.value:,} records over {count(source.tasks, 'shard')}",
            assumed=batch.assumed or demand.assumed,
            formula="L / shards",
            inputs=lambda: (f"{demand.number_key_prefix}.records_per_batch", *read),
        )
    repartition = None
    if spread_.repartition is not None:
        why = f"the source has {count(source.tasks, 'partition')} for {spread_.cores} cores"
        if not source.steady:
            why = f"an on-demand stream changes its shards; {spread_.cores} cores stay busy"
        elif source.tasks >= spread_.cores:
            why += ", which would leave cores idle in the last wave"
        repartition = Figure(
            spread_.repartition,
            "partitions",
            why,
            assumed=demand.assumed,
            inputs=lambda: (f"{demand.number_key_prefix}.cores", *read),
        )
    if isinstance(query, OneStreamQueryBase) and query.kafka is not None:
        least, path = query.kafka.min_partitions, (*demand.yaml_path, "kafka", "min_partitions")
        if least is not None:
            why = f"pinned; the source has {count(source.tasks, 'partition')}"
            repartition = pinned_figure(least, "partitions", why, path)
    latency = Figure(
        demand.latency,
        "s",
        f"from arrival to commit: {demand.share}" if demand.lands else "the job's SLA",
        inputs=lambda: demand.inputs()[3:],
    )
    cores = Figure(
        spread_.cores,
        "cores",
        f"{demand.least_cores:.2f} are needed",
        "computed" if job.cores is None else "pinned",
        assumed=demand.assumed,
        formula="the fewest in whole waves, above λb·M/(M − a), M = min(S − T, S/2), and above the shards read at a time",
        inputs=lambda: (
            (*demand.inputs(), *demand.spares()) if job.cores is None else (f"jobs.{demand.job}.cores",)
        ),
    )
    work = demand.work
    taken = work.rate * work.most_arrival_seconds
    by_cores, seconds = spread_.seconds_by_cores(work, taken), spread_.batch_seconds(work, taken)
    why = f"{work.overhead:g} s and {rate_text(taken)} records on {count(float(f'{spread_.effective:.3g}'), 'core')}"
    if seconds > by_cores:
        why += f" take {by_cores:,.3f} s; to deliver them takes longer, {count(float(f'{spread_.read_at_once:.3g}'), 'shard')} at a time"
    took = Figure(
        round(seconds, 3),
        "s",
        why,
        assumed=demand.assumed,
        formula="max(a + λT·b/c, fixed cost without reading + λT·h/p)" if work.hand_over else "a + λT·b/c",
        inputs=lambda: (
            *demand.inputs(),
            *(
                (FigureInput("h", f"{work.hand_over * 1e6:,.1f} µs a record", _HAND_OVER, inputs=(*read,)),)
                if work.hand_over
                else ()
            ),
            f"{demand.number_key_prefix}.trigger_seconds",
            f"{demand.number_key_prefix}.cores",
        ),
    )
    again = None
    if batch is not None:
        # What the partitions' limits are together may be less, as each is a whole number.
        limit, key = (
            (batch.value, "records_per_batch")
            if shard is None
            else (shard.value * source.partitions, "records_per_partition")
        )
        again = _catch_up_figure(demand, job, trigger.value, limit, spread_, key)
    return QueryPlan(demand.query, trigger, latency, batch, shard, repartition, cores, took, again)


def outage_to_plan_for(job: Job) -> timedelta:
    """Return the outage for the plan's catch-up time."""
    return job.catch_up.outage if job.catch_up is not None else _OUTAGE


def peak_multiple_to_catch_up(job: Job, *, asked: bool = False) -> float:
    """Return the rate that a job is sized for, as a multiple of the peak: ``1 + R/C`` to catch up with R within C.

    Parameters
    ----------
    asked
        Whether only `catch_up` of the file counts; otherwise C is less than a day in any case.
    """
    within = math.inf if job.catch_up is None else job.catch_up.within.total_seconds()
    return 1 + outage_to_plan_for(job).total_seconds() / (
        within if asked else min(within, _WITHIN.total_seconds())
    )


def cores_needed_by_query(environment: Environment, job: Job, demand: QueryDemand) -> float:
    """Return the cores, as a real number, that a query needs.

    Raises
    ------
    InfeasibleError
        No number of cores meets its SLA.
    """
    # Spare partitions come with their cores: one without a core would need a second wave.
    spare = environment.partition_buffer if job.cores is None else 0.0
    more = (1 + spare) * (1 + job.buffer * (job.goal == "throughput"))
    # What is spare also catches up, but not with an outage that the file names.
    again = max(demand.again, demand.burst, peak_multiple_to_catch_up(job, asked=True) * more)
    needed = cores_needed(demand.work) * again
    return cores_with_contention(needed, demand.speed.scaling)


def _catch_up_figure(
    demand: QueryDemand, job: Job, trigger: float, limit: int, spread_: CoreSpread, limit_key: str
) -> Figure[float]:
    """Return λR / (μ − λ), with the capacity μ(L) = L / max(T, D(L)) of full batches."""
    outage = outage_to_plan_for(job)
    work = demand.work
    full = spread_.batch_seconds(work, limit)
    by_cores = spread_.seconds_by_cores(work, limit)
    bound = ", as much as its shards hand over," if full > max(by_cores, trigger * (1 - 1 / limit)) else ""
    capacity = limit / max(trigger, full)
    waiting = demand.work.rate * outage.total_seconds()
    rate = capacity - demand.work.rate
    why = (
        f"after {format_duration(outage)} at the peak: {rate_text(waiting)} records wait, "
        f"{rate_text(capacity)} records/s{bound} are taken while {rate_text(demand.work.rate)} arrive"
    )
    seconds = waiting / rate if rate > 0 else math.inf
    return Figure(
        round(seconds, 1),
        "s",
        why,
        assumed=demand.assumed,
        formula="λR / (μ − λ), μ = L / max(T, D(L))",
        inputs=lambda: (
            *demand.inputs(),
            *(f"{demand.number_key_prefix}.{each}" for each in ("trigger_seconds", limit_key, "cores")),
        ),
    )


def _findings_of_wait_for_records(
    demand: QueryDemand, reading: KafkaReading, most: Figure[int]
) -> Iterator[Finding]:
    """Yield findings for a minimum that no batch reaches, and for a wait after which the batch is late.

    Spark compares the wait at each trigger, so it ends at the first one after `max_delay`. A wait of the longest batch or less is
    within the SLA: the cores process what arrives meanwhile in one batch.
    """
    least, delay = reading.min_records_per_batch, reading.max_delay
    trigger, batch = demand.work.planned_trigger_seconds, demand.work.longest_batch_seconds
    longest = max(trigger, round(math.floor(batch / trigger + 1e-9) * trigger, 6))
    if least is not None and least > most.value:
        allowed = f"at most {most.value}, the most that the plan lets a batch take: {most.why}"
        yield Finding((*demand.yaml_path, "kafka", "min_records_per_batch"), str(least), allowed)
    if delay is not None and delay.total_seconds() >= longest:
        allowed = (
            f"below {longest:g}s: a batch starts at the first trigger after it, each {trigger:g} s, and may take {batch:g} s of "
            f"this query's {demand.share}"
        )
        yield Finding((*demand.yaml_path, "kafka", "max_delay"), format_duration(delay), allowed)


def _most_records_by_chance(demand: QueryDemand) -> float:
    return demand.work.rate * demand.work.most_arrival_seconds * demand.burst


def _source_limit_and_findings(
    demand: QueryDemand, query: SourceQueryBase, spread_: CoreSpread, fits_in_memory: float
) -> tuple[Figure[int], list[Finding]]:
    """Return the limit of a batch: that of memory is never below the one that keeps up, or that catches up if ``catch_up`` is given."""
    # Full batches process new records and the backlog at the required rate.
    above = least_limit_to_keep_up(demand.work, spread_, demand.again)
    most = spread_.records_of_largest_batch(demand.work, demand.work.longest_batch_seconds)
    held = fits_in_memory < most
    most = round(min(most, max(fits_in_memory, above)), 6)
    given, path = query.records_per_batch, (*demand.yaml_path, "records_per_batch")
    longest = f"{demand.work.longest_batch_seconds:g} s"
    # Where memory holds just what keeps up, one record more keeps up, too.
    least = math.floor(above) + 1
    most_whole = max(least, math.floor(most))
    if given is None:
        why = (
            f"as many as a batch of {longest} can process; more than {rate_text(above)} keep up with the peak"
        )
        if held:
            why = f"as many of one shard as a task's memory holds; more than {rate_text(above)} keep up with the peak"
        figure = Figure(
            most_whole,
            "records",
            why,
            assumed=demand.assumed,
            formula="L ≤ (M − a)·c/b, above λ·max(T, a/(1 − ρ))",
            inputs=lambda: (
                *demand.inputs(),
                f"{demand.number_key_prefix}.trigger_seconds",
                f"{demand.number_key_prefix}.cores",
            ),
        )
        return figure, []
    figure = pinned_figure(
        given, "records", f"pinned, between {rate_text(above)} and {rate_text(most)}", path
    )
    if above < given <= most_whole:
        return figure, []
    if given > above:
        reason = (
            "more and a task's memory or the stream's retention does not hold them"
            if held or demand.work.most_trigger < demand.work.sla / 2
            else f"more and a full batch takes longer than {longest} of this query's {demand.share}"
        )
    elif demand.again == 1:
        reason = f"fewer and the backlog grows, as {rate_text(above)} arrive in the time of a batch"
    else:
        reason = f"fewer and it does not catch up: full batches must take {demand.again:.2f} times the peak"
    allowed = f"{least} to {most_whole}: {reason}"
    return figure, [Finding(path, str(given), allowed)]
