"""Choice of what the file leaves to the plan and other parts read by key: runs of jobs, and modes of streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import TypeVar

from millrace.config.model import Environment, KinesisStream
from millrace.config.periodic_bounded_run_checks import bounded_run_findings
from millrace.config.queries import DeriveQuery, LandingQueryBase
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.sizing.cost import CENT, stream_cost_items
from millrace.sizing.environment_with_plan_choices import environment_with_choices
from millrace.sizing.plan_model import Figure
from millrace.sizing.prices_and_limits import PriceTable, service_limits
from millrace.sizing.shards_and_partitions import StreamWithReaders

V = TypeVar("V", timedelta, str)

_PERIODS = tuple(
    timedelta(minutes=each) for each in (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
)
"""Periods that are tried. A looser SLA only adds to them, so it never costs more."""

Cost = Callable[[Environment], float | None]
"""Function that sizes an environment and returns its dollars a month; None if it cannot be planned."""

Least = Callable[[Environment], float]
"""Function that returns dollars a month below which no plan of an environment is, without a search."""

Keeps = Callable[[Environment], bool]
"""Function that simulates the plan of an environment and returns whether it keeps every SLA."""


def environment_with_cheapest_choices(
    environment: Environment, prices: PriceTable, cost: Cost, least: Least, keeps: Keeps
) -> Environment:
    """Return the environment with the cheapest value of what the file leaves to the plan.

    A job with ``run: auto`` has bounded runs where they keep its SLA and cost less; what is deployed keeps its way. A new stream of
    Kinesis is on demand where it takes its peak from the first hour on and costs less.
    """
    start = timedelta(seconds=service_limits()["bounded.start_seconds"])
    for name, job in environment.jobs.items():
        bounded = True if job.run == "bounded" else environment.deployed_sizes.in_turns.get(name)
        if job.run_every is None and job.run in ("bounded", "auto") and bounded is not False:
            able = [each for each in _PERIODS if start < each < job.latency - start]
            path = ("jobs", "run_every", name)
            found = _cheapest_value_or_none(environment, path, able, cost, least, keeps, always=not bounded)
            # The shortest period's plan says why none is possible.
            if period := found or (_PERIODS[0] if bounded else None):
                environment = environment_with_choices(environment, "jobs", "run_every", {name: period})
    read = {name for _, _, query in environment.queries for name in query.source_stream_names}
    for name, stream in environment.streams.items():
        if isinstance(stream, KinesisStream) and name in read and stream.is_mode_chosen_by_plan:
            mode = environment.deployed_sizes.modes.get(name)
            if mode is None and _is_on_demand_cheaper_and_enough(environment, name, stream, prices):
                mode = _cheapest_value_or_none(
                    environment, ("streams", "mode", name), ("on-demand",), cost, least, keeps
                )
            if mode is not None:
                environment = environment_with_choices(environment, "streams", "mode", {name: mode})
    return environment


def _cheapest_value_or_none(
    environment: Environment,
    path: tuple[str, str, str],
    values: Iterable[V],
    cost: Cost,
    least: Least,
    keeps: Keeps,
    *,
    always: bool = True,
) -> V | None:
    """Return the value that keeps the SLA at the least cost; None if, with ``always``, the key's default costs no more.

    Values are planned in the order of the least that they may cost, until the cheapest planned one costs no more than that of the rest.
    """
    section, key, name = path
    part = connected_part_of_environment(environment, (section, name))
    changed = [
        (value, other)
        for value in values
        for other in (environment_with_choices(part, section, key, {name: value}),)
        if not any(bounded_run_findings(other))
    ]
    default = cost(part) if always and changed else None
    # Of equal ones the first: the shortest period, whose records are the youngest.
    waiting = [(round(least(other), 2), number, False) for number, (_, other) in enumerate(changed)]
    heapify(waiting)
    while waiting:
        usd, number, planned = heappop(waiting)
        value, other = changed[number]
        if default is not None and default <= usd + CENT:
            return None
        if not planned:
            if (found := cost(other)) is not None:
                heappush(waiting, (round(found, 2), number, True))
        elif keeps(other):
            return value
    return None


def _is_on_demand_cheaper_and_enough(
    environment: Environment, name: str, stream: KinesisStream, prices: PriceTable
) -> bool:
    """Return whether a new on-demand stream takes the peak, and costs less by itself."""
    needed, first = (
        StreamWithReaders(name, stream, [], 0.0).partitions_for_traffic,
        service_limits()["kinesis.on_demand.first_shards"],
    )
    shards, advantage = Figure(math.ceil(needed), "shards", ""), environment.governance.on_demand_advantage
    elastic = stream.model_copy(update={"mode": "on-demand"})
    now, then = (
        sum(line.usd for line in stream_cost_items(name, each, shards, 1, 0, prices, advantage=advantage))
        for each in (stream, elastic)
    )
    return needed <= first and then < now


def connected_part_of_environment(environment: Environment, member: tuple[str, str]) -> Environment:
    """Return the part of an environment that a job or a stream is connected with by streams that it reads or writes, and tables."""
    touched = {
        each: {
            ("jobs", each),
            *(("streams", stream) for query in job.queries.values() for stream in query.source_stream_names),
            *(("streams", sink.stream_name) for sink in job.sinks if isinstance(sink, StreamSink)),
            *(
                ("table", query.table)
                for query in job.queries.values()
                if isinstance(query, LandingQueryBase)
            ),
            *(
                ("table", table)
                for query in job.queries.values()
                if isinstance(query, DeriveQuery)
                for table, _ in query.source_tables_and_routes
            ),
        }
        for each, job in environment.jobs.items()
    }
    own, found = {member}, set[str]()
    while more := {each for each in environment.jobs if own & touched[each]} - found:
        found |= more
        own = own.union(*(touched[each] for each in more))
    streams = {each: stream for each, stream in environment.streams.items() if ("streams", each) in own}
    clusters = {stream.cluster_name for stream in streams.values()}
    return environment.model_copy(
        update={
            "jobs": {each: job for each, job in environment.jobs.items() if each in found},
            "streams": streams,
            "kafka": {each: cluster for each, cluster in environment.kafka.items() if each in clusters},
        }
    )
