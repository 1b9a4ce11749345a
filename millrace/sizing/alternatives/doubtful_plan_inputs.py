"""Doubtful inputs of a plan: figures that look like a mistake, and values close to their limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from millrace.config.base import grouped
from millrace.config.document.problems import dotted_path
from millrace.config.kafka.clusters import MskCluster
from millrace.config.model import Environment, Stream
from millrace.config.queries import DirectRoute
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.config.units import format_duration
from millrace.sizing.plan_model import JobPlan, StreamPlan
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.driver import driver_cores_kept_busy
from millrace.sizing.queries.query_plan import outage_to_plan_for
from millrace.sizing.readable_numbers import count, format_number
from millrace.sizing.shards_and_partitions import partition_demands_at_peak

SLOW = 3.0
"""Catch-up time, as a multiple of the outage, from which a risk is reported; capacity is then a third above the peak."""

FULL = 0.9
"""Share of a shard's limits at the peak above which there is no room for a hot key or a busier day."""

BUSY = 0.5
"""Share of the driver's time above which fixed costs of batches are a risk; ``spark.sharing.share`` is the most."""

MANY, FEW = 1_000_000.0, 1 / 60
"""Range of plausible records per second; outside it a unit is probably wrong: a million a second, one a minute."""


def doubtful_input_lines(
    environment: Environment,
    demands: list[QueryDemand],
    streams: Mapping[str, StreamPlan],
    jobs: Mapping[str, JobPlan],
) -> Iterator[str]:
    """Yield a line for each figure of the file that looks like a mistake or is near a limit.

    Parameters
    ----------
    environment, demands
        The environment and the demands of its queries.
    """
    for name, stream in environment.streams.items():
        traffic = stream.traffic
        where = f"streams.{name}.traffic"
        if "peak_factor" not in traffic.model_fields_set:
            yield f"{where}: no peak_factor, so the peak is the average; the busiest minute of a day is rarely that calm"
        rate = traffic.records_per_second
        if rate * traffic.peak_factor > MANY:
            yield f"{where}: {rate * traffic.peak_factor:,.0f} records/s at peak; is the rate one a second?"
        elif rate < FEW:
            yield f"{where}: {rate:g} records/s is one in {_rounded_duration(1 / rate)}; is the rate one a second?"
        cluster = environment.kafka.get(stream.cluster_name or "")
        if isinstance(cluster, MskCluster) and cluster.existing is not None and not stream.belongs_to_others:
            yield (
                f"streams.{name}: the topic is made on the existing cluster {stream.cluster_name}; `existing: true` reads "
                "one that is there"
            )
        yield from _new_on_demand_stream_lines(environment, name, stream)
        if (share := share_of_limits_at_peak(stream, streams[name])) > FULL:
            shards = streams[name].expected_partitions.value
            yield (
                f"streams.{name}: {count(shards, stream.parts.removesuffix('s'))} {share:.0%} full at peak, if no key is hot; "
                "`partition_buffer` adds spare ones"
            )
    yield from _serverless_partition_lines(environment, streams)
    yield from _undersized_sink_stream_lines(environment, demands)
    for demand in demands:
        again = jobs[demand.job].queries[demand.query].catch_up_seconds
        outage = outage_to_plan_for(environment.jobs[demand.job])
        if again is None or again.value <= SLOW * outage.total_seconds():
            continue
        took = "never" if math.isinf(again.value) else f"{_rounded_duration(again.value)} later"
        asked = environment.jobs[demand.job].catch_up is not None
        remedy = (
            ""
            if asked
            else f"; `catch_up: {{outage: {format_duration(outage)}, within: TIME}}` of the job plans cores for it"
        )
        yield f"jobs.{demand.job}.queries.{demand.query}: {format_duration(outage)} of outage is caught up {took}{remedy}"
    for name, share in driver_load_shares(demands, jobs).items():
        if share > BUSY:
            number = sum(demand.job == name for demand in demands)
            yield (
                f"jobs.{name}: the fixed costs of {count(number, 'batches')} take {share:.0%} of the driver's time; longer triggers, or "
                "another job for a part of the queries, take less"
            )


def _new_on_demand_stream_lines(environment: Environment, name: str, stream: Stream) -> Iterator[str]:
    """Yield a line if a new on-demand stream refuses a part of the peak until AWS has opened more shards (Kinesis developer guide)."""
    if (
        stream.elastic_limit_names is None
        or stream.belongs_to_others
        or environment.deployed_sizes.modes.get(name) == "on-demand"
    ):
        return
    first = service_limits()[stream.elastic_limit_names[0]]
    needed = max(partition_demands_at_peak(stream, 0), key=lambda each: each.partitions)
    if needed.partitions > first:
        yield (
            f"streams.{name}: a new on-demand stream takes the writes of {first:g} shards and refuses more until AWS has opened others ({needed.why}); "
            "create it with `mode: provisioned` and change the mode later, as its shards stay; or, with On-demand Advantage, "
            f"`aws kinesis update-stream-warm-throughput --stream-name NAME --warm-throughput-mi-bps {math.ceil(needed.partitions)}` before producers "
            "start"
        )


def _serverless_partition_lines(environment: Environment, streams: Mapping[str, StreamPlan]) -> Iterator[str]:
    """Yield a line for each serverless cluster whose topics have more partitions than AWS makes."""
    most = service_limits()["msk.serverless.partitions"]
    for name, cluster in environment.kafka.items():
        number = sum(
            streams[topic].expected_partitions.value
            for topic, each in environment.streams.items()
            if each.cluster_name == name
        )
        if isinstance(cluster, MskCluster) and cluster.tier == "serverless" and number > most:
            yield (
                f"kafka.{name}: {number:,} partitions; a serverless cluster has {most:,g} at most until AWS raises the quota, and "
                "refuses topics beyond it"
            )


def _undersized_sink_stream_lines(environment: Environment, demands: list[QueryDemand]) -> Iterator[str]:
    """Yield a line for each stream whose traffic in the file is less than what a query without a transform or state writes to it."""
    for demand in demands:
        for place, end in environment.jobs[demand.job].queries[demand.query].sinks_by_place.items():
            if not isinstance(end.sink, StreamSink) or end.transform or getattr(end, "state", None):
                continue
            # A query of a route is sized for its share of the table's records.
            written = demand.work.rate * min(1.0, demand.work.per_record / demand.speed.per_record)
            if isinstance(end, DirectRoute):
                written = environment.streams[end.source].traffic.peak_records_per_second * end.share
            name = end.sink.stream_name
            stated = environment.streams[name].traffic.peak_records_per_second
            # Dead letters are not written.
            if stated < FULL * written:
                yield (
                    f"streams.{name}.traffic: {format_number(stated)} records/s at peak, but {dotted_path((*demand.yaml_path, *place))} "
                    f"writes {format_number(written)}, one for each record that it reads"
                )


def driver_load_shares(demands: list[QueryDemand], jobs: Mapping[str, JobPlan]) -> dict[str, float]:
    """Return the share of their drivers' time that the batches of jobs with several queries take, by job."""
    own = grouped((demand.job, demand) for demand in demands)
    return {
        name: driver_cores_kept_busy(own[name]) / job.vcpu
        for name, job in jobs.items()
        if len(own.get(name, ())) > 1
    }


def share_of_limits_at_peak(stream: Stream, sized: StreamPlan) -> float:
    """Return the share of its partitions' limits at the peak; 0 if they refuse no records, or if AWS adds partitions."""
    if not stream.refuses_fewer or stream.elastic_limit_names is not None:
        return 0.0
    return (
        max(demand.partitions for demand in partition_demands_at_peak(stream, 1))
        / sized.expected_partitions.value
    )


def _rounded_duration(seconds: float) -> str:
    """Return a duration, rounded, in the unit that a person would use; :func:`format_duration` is exact."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"
