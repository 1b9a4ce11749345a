"""Derivation of a plan's numbers: formula, inputs, and the origin of each input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from millrace.config.explain import nearest
from millrace.config.model import Environment
from millrace.config.problems import ConfigurationError, Path, Problem, dotted_path
from millrace.config.queries import SourceQuery
from millrace.config.sources.base import PartitionLimit
from millrace.sizing.benchmark_figures import rate_key
from millrace.sizing.demand import QueryDemand, query_demands
from millrace.sizing.model import CostItem, Figure, JobPlan, Plan
from millrace.sizing.planning import total
from millrace.sizing.prices_and_limits import a_second, limits, prices


@dataclass(frozen=True)
class Node:
    """One step of a derivation.

    Attributes
    ----------
    name
        Name of the figure or input.
    value
        With its unit.
    how
        The formula, in words and symbols; empty for an input.
    origin
        Origin of an input: file and line, a benchmark, the price table, the limits.
    inputs
        Steps that it depends on.
    """

    name: str
    value: str
    how: str = ""
    origin: str = ""
    inputs: tuple[Node, ...] = field(default=())


def number_keys(plan: Plan) -> tuple[str, ...]:
    """Return the keys of all numbers of a plan, such as ``jobs.flights.max_workers``."""
    return (*_figures(plan), "total")


def explain(environment: Environment, plan: Plan, key: str) -> Node:
    """Return the derivation of a number.

    Parameters
    ----------
    environment, plan
        An environment and its plan.
    key
        One of :func:`number_keys`.

    Raises
    ------
    ConfigurationError
        There is no such number; the message names the nearest keys.
    """
    figures = _figures(plan)
    if key == "total":
        return _total(plan)
    if key not in figures:
        known = number_keys(plan)
        last = key.split(".")[-1]
        like = [each for each in known if each.endswith(f".{last}")] or [
            each for each in known if each.startswith(key.rsplit(".", 1)[0])
        ]
        allowed = f"one of the plan's {len(known)} numbers, such as {', '.join(like[:5] or known[:5])}"
        raise ConfigurationError([Problem("command line", 0, "--explain", key, allowed, nearest(key, known))])
    figure = figures[key]
    if isinstance(figure, CostItem):
        return Node(key, f"${figure.usd:,.2f}", figure.why, inputs=tuple(_of_cost(environment, plan, key)))
    parts = key.split(".")
    inputs: tuple[Node, ...] = ()
    if figure.origin == "pinned":
        inputs = (_pin(environment, parts),)
    elif parts[0] == "jobs":
        inputs = tuple(_of_job(environment, plan, parts))
    elif parts[0] == "streams":
        inputs = tuple(_of_stream(environment, plan, parts[1]))
    elif parts[0] == "clusters":
        inputs = tuple(_of_cluster(environment, plan, parts[1]))
    how = _FORMULAS.get(parts[-1], "")
    return Node(key, _shown(figure), f"{how}: {figure.why}" if how else figure.why, inputs=inputs)


_FORMULAS = {
    "cores": "sum over queries of the fewest in whole waves, above λb·M/(M − a), M = min(S − T, S/2), and above the shards read at a time",
    "executors": "ceil(cores / cores of one executor)",
    "max_workers": "executors + 1 driver",
    "trigger_seconds": "min(S/2, what memory holds, whole triggers of the table that is read)",
    "records_per_batch": "L ≤ (M − a)·c/b, above λ·max(T, a/(1 − ρ))",
    "records_per_partition": "L / shards",
    "batch_seconds": "a + λT·b/c",
    "catch_up_seconds": "λR / (μ − λ), μ = L / max(T, D(L))",
    "expected_partitions": "the cheapest with the cores that read them, at least what the traffic needs",
    "partitions": "the cheapest with the cores that read them, at least what the traffic needs",
    "memory": "(base + tasks · (fetched + file) + tables + (state + held) / executors) / heap's share",
}


def _shown(figure: Figure[Any]) -> str:
    value = f"{figure.value:,}" if isinstance(figure.value, int) else str(figure.value)
    marks = ", rests on what nobody measured" if figure.assumed else ""
    return f"{value} {figure.unit}{marks}"


def _figures(plan: Plan) -> dict[str, Figure[Any] | CostItem]:
    return dict(_walk(plan, ()))


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Figure[Any] | CostItem]]:
    if isinstance(value, Figure | CostItem):
        yield ".".join(path), value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _walk(each, (*path, str(name)))
    elif isinstance(value, tuple) and value and isinstance(value[0], CostItem):
        for each in value:
            yield from _walk(each, (*path, each.name.replace(" ", "_")))
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _walk(getattr(value, each.name), (*path, each.name))


def _from_file(environment: Environment, path: Path, name: str, value: str) -> Node:
    file, line = environment.places.of(path)
    place = f"{file}:{line}" if line else file
    tree = environment.places.tree
    written = tree is not None and tree.at(path) is not None
    origin = f"{place} {dotted_path(path)}" if written else f"default of {dotted_path(path)}"
    return Node(name, value, origin=origin)


_PINS = {
    "expected_partitions": ("shards", "partitions"),
    "partitions": ("shards", "partitions"),
    "executors": ("max_workers",),
    "trigger_seconds": ("trigger",),
    "broker_type": ("broker_type",),
    "repartition": ("kafka", "repartition"),
}


def _pin(environment: Environment, parts: list[str]) -> Node:
    section = {"clusters": "kafka"}.get(parts[0], parts[0])
    holder: tuple[str, ...] = (section, *parts[1:-1])
    if parts[-2] == "scaling":
        holder = (section, *parts[1:-2])
    if parts[-1] == "cores" and "queries" in parts:
        holder = (section, parts[1])
    tree = environment.places.tree
    for key in (*_PINS.get(parts[-1], ()), parts[-1]):
        if tree is not None and tree.at((*holder, key)) is not None:
            return _from_file(environment, (*holder, key), key, "pinned")
    return _from_file(environment, holder, parts[-1], "pinned")


def _of_job(environment: Environment, plan: Plan, parts: list[str]) -> Iterator[Node]:
    job = plan.jobs[parts[1]]
    own = [demand for demand in query_demands(environment)[0] if demand.job == job.name]
    if len(parts) > 4 and parts[2] == "queries":
        (demand,) = [each for each in own if each.query == parts[3]]
        yield from _of_query(environment, plan, job, demand, parts[4])
        return
    key = parts[-1]
    if key in ("executors", "max_workers", "initial_executors"):
        if key != "executors":
            yield explain(environment, plan, f"jobs.{job.name}.executors")
            return
        yield explain(environment, plan, f"jobs.{job.name}.cores")
        yield _worker(environment, job)
        return
    for demand in own:
        yield explain(environment, plan, f"jobs.{job.name}.queries.{demand.query}.cores")
    if key in ("memory", "min_executors"):
        yield _worker(environment, job)
    if key == "memory":
        for name, limit in limits().limits.items():
            if name.startswith("memory."):
                yield _limit(name, limit.value)


def _worker(environment: Environment, job: JobPlan) -> Node:
    path = ("jobs", job.name, "worker")
    value = f"{job.worker}: {job.vcpu} cores, {job.memory_gib} GiB"
    if "worker" in environment.jobs[job.name].model_fields_set:
        return _from_file(environment, path, "worker", value)
    why = "the cheapest that holds what it must, at the known rate"
    return Node("worker", value, why, origin=f"worker types of {environment.jobs[job.name].title}")


def _of_query(
    environment: Environment, plan: Plan, job: JobPlan, demand: QueryDemand, key: str
) -> Iterator[Node]:
    prefix = f"jobs.{job.name}.queries.{demand.query}"
    yield from _traffic(environment, demand)
    yield Node(
        "b",
        f"{demand.work.per_record * 1e6:,.1f} core-µs a record",
        origin=_rate(environment, job.name, demand),
    )
    yield Node("a", f"{demand.work.overhead:g} s a batch", origin=_rate(environment, job.name, demand))
    whose = demand.sla_of.job
    latency = environment.jobs[whose].latency.total_seconds()
    yield Node(
        "S",
        f"{demand.work.sla:g} s",
        demand.share,
        inputs=(_from_file(environment, ("jobs", whose, "latency"), "latency", f"{latency:g} s"),),
    )
    if key == "cores":
        yield from _spares(environment, demand)
    if key in ("records_per_batch", "batch_seconds", "catch_up_seconds", "records_per_partition"):
        yield explain(environment, plan, f"{prefix}.trigger_seconds")
    if key in ("catch_up_seconds", "records_per_partition"):
        yield explain(environment, plan, f"{prefix}.records_per_batch")
    if key in ("records_per_partition", "repartition"):
        for name in demand.streams:
            yield explain(environment, plan, f"streams.{name}.expected_partitions")


def _spares(environment: Environment, demand: QueryDemand) -> Iterator[Node]:
    """Yield the inputs that increase cores above the need of the work alone."""
    job = environment.jobs[demand.job]
    if demand.read_at_once:
        why = "what arrives, over what one shard hands over to this reader: a core reads one at a time"
        read = [environment.streams[name] for name in demand.streams]
        out = dict.fromkeys(each for stream in read for each in stream.limits if each.of == "bytes out")
        inputs = tuple(map(_part_limit, out))
        yield Node("shards read at a time", f"{demand.read_at_once:.2f}", why, inputs=inputs)
    if job.catch_up is not None:
        path = ("jobs", demand.job, "catch_up")
        yield _from_file(environment, path, "catch_up", f"{demand.again:.2f} times the peak")
    if environment.partition_buffer and job.cores is None:
        yield _from_file(
            environment, ("partition_buffer",), "partition_buffer", f"{environment.partition_buffer:.0%} more"
        )
    if job.goal == "throughput":
        yield _from_file(environment, ("jobs", demand.job, "buffer"), "buffer", f"{job.buffer:.0%} more")


def _rate(environment: Environment, job: str, demand: QueryDemand) -> str:
    path: Path = rate_key(environment, job, demand.query)
    file, line = environment.places.of(path)
    return f"{demand.speed.origin} ({file}:{line})" if line else demand.speed.origin


def _traffic(environment: Environment, demand: QueryDemand) -> Iterator[Node]:
    inputs = []
    for name in demand.streams:
        traffic = environment.streams[name].traffic
        path: Path = ("streams", name, "traffic")
        inputs += [
            _from_file(
                environment,
                (*path, "records_per_second"),
                f"{name} average",
                f"{traffic.records_per_second:,.0f} records/s, {traffic.basis}",
            ),
            _from_file(environment, (*path, "peak_factor"), f"{name} peak", f"{traffic.peak_factor:g} times"),
        ]
    yield Node("λ", f"{demand.work.rate:,.0f} records/s", "average · peak factor", inputs=tuple(inputs))


def _of_stream(environment: Environment, plan: Plan, name: str) -> Iterator[Node]:
    traffic = environment.streams[name].traffic
    path: Path = ("streams", name, "traffic")
    yield _from_file(
        environment, (*path, "records_per_second"), "average", f"{traffic.records_per_second:,.0f} records/s"
    )
    yield _from_file(environment, (*path, "peak_factor"), "peak", f"{traffic.peak_factor:g} times")
    yield _from_file(environment, (*path, "record_size"), "record size", f"{int(traffic.record_size):,} B")
    if environment.partition_buffer:
        yield _from_file(
            environment, ("partition_buffer",), "partition_buffer", f"{environment.partition_buffer:.0%} more"
        )
    for limit in environment.streams[name].limits:
        yield _part_limit(limit)
    for job, query, asked in environment.queries:
        if isinstance(asked, SourceQuery) and name in asked.streams:
            cores = plan.jobs[job].queries[query].cores
            yield Node(f"{query}'s cores", f"{cores.value}", cores.why)


def _of_cluster(environment: Environment, plan: Plan, name: str) -> Iterator[Node]:
    for stream, settings in environment.streams.items():
        if settings.cluster_name == name:
            yield explain(environment, plan, f"streams.{stream}.expected_partitions")
    cluster = plan.clusters[name]
    if cluster.broker_type is not None:
        broker = limits().brokers[cluster.broker_type.value]
        unconfirmed = "" if broker.confirmed else ", unconfirmed"
        yield Node(
            cluster.broker_type.value,
            f"{broker.mib_in:g} MiB/s in, {broker.partitions:,} partitions",
            origin=f"limits.yaml: {broker.source}{unconfirmed}",
        )
    for key, limit in limits().limits.items():
        if key.startswith("msk."):
            yield _limit(key, limit.value)


def _part_limit(limit: PartitionLimit) -> Node:
    number = a_second(limit)
    return _limit(limit.limit, number) if isinstance(limit.limit, str) else Node(limit.of, f"{number:,g}")


def _limit(name: str, value: float) -> Node:
    row = limits().limits[name]
    unconfirmed = "" if row.confirmed else ", unconfirmed"
    return Node(name, f"{value:,g}", origin=f"limits.yaml: {row.source}{unconfirmed}")


def _of_cost(environment: Environment, plan: Plan, key: str) -> Iterator[Node]:
    table = prices(plan.region, environment.places.root)
    yield Node("prices", plan.prices.isoformat(), origin=f"prices/{table.region}.yaml: {table.source}")
    parts = key.split(".")
    counted = {"jobs": "max_workers", "streams": "expected_partitions", "clusters": "brokers"}
    if parts[0] in counted and (found := f"{parts[0]}.{parts[1]}.{counted[parts[0]]}") in _figures(plan):
        yield explain(environment, plan, found)


def _total(plan: Plan) -> Node:
    sums = {name: sum(line.usd for line in items) for name, items in plan.costs.items() if items}
    figure = total(plan)
    return Node(
        "total",
        f"${figure.value:,.2f} a month",
        figure.why,
        inputs=tuple(Node(name, f"${usd:,.2f}", "its items' sum") for name, usd in sums.items()),
    )
