"""Inputs of a demand's figures, and the finding for one that no number of cores meets."""

from __future__ import annotations

import math

from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.model import Environment, Stream
from millrace.config.queries import Query
from millrace.config.units import format_duration
from millrace.sizing.plan_model import FigureInput, Inputs
from millrace.sizing.prices_and_limits import limit_input, service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.query_plan import outage_to_plan_for
from millrace.sizing.queries.sizing_formulas import InfeasibleError, QueryWork
from millrace.sizing.queries.trigger_interval_limits import WORTH, seconds_within_retention
from millrace.sizing.readable_numbers import rate_text

_SHORTEST_PERIOD = 300.0


def traffic_inputs(name: str, stream: Stream) -> Inputs:
    """Return the average and the peak of a stream as inputs of figures."""
    traffic, path = stream.traffic, ("streams", name, "traffic")
    average = f"{rate_text(traffic.records_per_second)} records/s, {traffic.basis}"
    return (
        FigureInput(f"{name} average", average, path=(*path, "records_per_second")),
        FigureInput(f"{name} peak", f"{traffic.peak_factor:g} times", path=(*path, "peak_factor")),
    )


def spare_inputs(spare: float) -> Inputs:
    """Return the spare share of partitions as an input of figures, if there is one."""
    return (
        (FigureInput("partition_buffer", f"{spare:.0%} more", path=("partition_buffer",)),) if spare else ()
    )


def extra_core_inputs(
    environment: Environment, name: str, catch_up_rate: float, work: QueryWork, streams: tuple[str, ...]
) -> Inputs:
    """Return what increases a query's cores above the need of its work alone."""
    job = environment.jobs[name]
    reads = f"{work.rate * work.hand_over * catch_up_rate:.2f}"
    why = "what arrives, over what one shard hands over to this reader: a core reads one at a time"
    read = (
        limit for each in streams for limit in environment.streams[each].limits if limit.of == "bytes out"
    )
    out = tuple(map(limit_input, dict.fromkeys(read)))
    found = {
        FigureInput("shards read at a time", reads, why, inputs=out): work.hand_over > 0,
        FigureInput(
            "catch_up", f"{catch_up_rate:.2f} times the peak", path=("jobs", name, "catch_up")
        ): catch_up_rate > 1,
        **dict.fromkeys(spare_inputs(environment.partition_buffer), job.cores is None),
        FigureInput("buffer", f"{job.buffer:.0%} more", path=("jobs", name, "buffer")): job.goal
        == "throughput",
    }
    return tuple(each for each, counts in found.items() if counts)


def expiring_records_finding(demand: QueryDemand, environment: Environment, query: Query) -> Finding | None:
    """Return the finding for a trigger, a period or an outage with which records expire unread."""
    if not demand.lands:
        return None
    job = environment.jobs[demand.job]
    streams = ((name, environment.streams[name]) for name in demand.streams)
    name, stream = min(streams, key=lambda each: each[1].retention)
    outage, pinned = outage_to_plan_for(job), job.run_every or query.trigger
    most = seconds_within_retention([stream], outage)
    least = WORTH * demand.work.overhead if job.run_every is None else _SHORTEST_PERIOD
    if most >= max(least, 0.0 if pinned is None else pinned.total_seconds()):
        return None
    needed, room = outage.total_seconds() + 2 * least, stream.retention.total_seconds() - 2 * least
    path: Path = ("streams", name, "retention")
    value, allowed = stream.retention, f"at least {needed:g}s"
    if pinned is not None and most >= least:
        path = (*demand.yaml_path, "trigger") if job.run_every is None else ("jobs", demand.job, "run_every")
        value, allowed = pinned, f"at most {most:g}s"
    elif job.catch_up is not None and room > 0:
        path, value, allowed = ("jobs", demand.job, "catch_up", "outage"), outage, f"at most {room:g}s"
    why = (
        f"streams.{name} keeps a record for {format_duration(stream.retention)}, in which it may wait for the trigger, for the end of "
        f"an outage of {format_duration(outage)}, and for a batch that takes as long as the trigger"
    )
    return Finding(path, format_duration(value), f"{allowed}: {why}")


def infeasible_finding(
    demand: QueryDemand, environment: Environment, query: Query, error: InfeasibleError
) -> Finding:
    """Return the finding for a demand that no number of cores meets."""
    if error.term == "scaling":
        return Finding(
            ("jobs", demand.job, "queries", demand.query), str(error), "less work for one job (term b)"
        )
    every = (job := environment.jobs[demand.job]).run_every
    if every is not None:
        sla, where = job.latency, ("jobs", demand.job)
        least = service_limits()["bounded.start_seconds"] + error.seconds / demand.sla_of.part
        most = sla.total_seconds() - least
        minutes = math.ceil(max(least, _SHORTEST_PERIOD) / 60), math.ceil(most / 60) - 1
        if minutes[0] <= minutes[1]:
            allowed = f"between {minutes[0]}m and {minutes[1]}m for {demand.query}: {error} (term T)"
            return Finding((*where, "run_every"), format_duration(every), allowed)
        allowed = (
            f"more than {least + max(least, _SHORTEST_PERIOD):g}s for {demand.query}, as a run starts each {_SHORTEST_PERIOD / 60:g} minutes at "
            f"most and takes its time to start; without {'`run: bounded`' if job.run == 'bounded' else '`run_every`'} the job runs all the time"
        )
        return Finding((*where, "latency"), format_duration(sla), allowed)
    if error.term == "trigger" and query.trigger is not None:
        room = demand.work.sla - error.seconds
        return Finding(
            (*demand.yaml_path, "trigger"),
            format_duration(query.trigger),
            f"less than {room:g}s: {error} (term T)",
        )
    job = environment.jobs[demand.sla_of.job]
    term = "b" if error.term == "record" else "a"
    allowed = f"more than {demand.sla_of.job_sla_for_query_seconds(2 * error.seconds):g}s for {demand.query}: {error} (term {term})"
    if job.goal == "throughput":
        return Finding(("jobs", demand.sla_of.job, "goal"), job.goal, f"latency, of {allowed}")
    default = "latency" not in job.model_fields_set
    return Finding(
        ("jobs", demand.sla_of.job, "latency"),
        f"{MISSING}, so {format_duration(job.latency)}" if default else format_duration(job.latency),
        allowed,
    )
