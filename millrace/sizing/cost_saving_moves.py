"""Moves: changes of one key of the file that cost less, each planned and simulated like the file itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from typing import Any

from pydantic import ByteSize, ValidationError

from millrace.config.aws import kafka_versions
from millrace.config.base import grouped
from millrace.config.checks.run_environment_checks import run_checks
from millrace.config.document.problems import ConfigurationError, Path, dotted_path
from millrace.config.document.yaml_tree import Tree
from millrace.config.engines import KINDS, Job
from millrace.config.engines.emr import EmrJob, EmrWorker
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.job_networks import (
    reason_job_requires_vpc,
    reason_job_runs_in_vpc,
    reasons_for_vpc_by_part,
)
from millrace.config.model import Environment, KinesisStream, MskCluster
from millrace.config.queries import LandQuery
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.config.units import format_duration
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.environment_with_plan_choices import environment_with_value
from millrace.sizing.kafka_cluster_load import cluster_load
from millrace.sizing.msk_clusters import needed_volume_gib
from millrace.sizing.plan_model import Plan
from millrace.sizing.planning import plan, total_cost
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import demands_by_stream
from millrace.sizing.queries.environment_demands import query_demands_and_findings

MOST = 5
"""Moves that are shown."""

_WORTH = 1.0
"""Dollars a month below which a move is not shown."""

_TRIED = 60
"""Plans of one job that looking for moves may take; larger environments try fewer changes, of the most expensive members."""

_AGGREGATE = ByteSize(24 * 1024)
"""Bytes of an aggregate within a PUT payload unit."""

_DAY = timedelta(days=1)
_IN_TURNS = timedelta(minutes=10)
"""Shortest SLA for bounded runs."""

_PRIVATE = "the private network: the job reaches AWS by public endpoints, with TLS and IAM"


@dataclass(frozen=True)
class CostSavingMove:
    """A change of the file that costs less and keeps every SLA.

    Attributes
    ----------
    key, old, new
        Dotted path in the file, its value now and the new one; None if the key is left out.
    usd
        Dollars a month with it alone.
    saved
        Dollars a month less than now.
    gives_up
        What is lost, in words.
    with_it
        Other changes that belong to it, each a key with its old and its new value.
    """

    key: str
    old: Any
    new: Any
    usd: float
    saved: float
    gives_up: str
    with_it: tuple[tuple[str, Any, Any], ...] = ()


@dataclass(frozen=True)
class _Change:
    """A change that is not planned yet: the value as the file has it and as the model does; None removes the key.

    With ``jobs``, these jobs leave the file, and their queries go to the job of the path. The keys of ``also`` get the same value.
    """

    path: Path
    new: Any
    gives_up: str
    parsed: Any = None
    jobs: tuple[str, ...] = ()
    also: tuple[Path, ...] = ()

    @property
    def model_value(self) -> Any:
        return self.new if self.parsed is None else self.parsed


Keeps = Callable[[Environment, Plan], bool]
"""Function that simulates a plan and returns whether it keeps every SLA."""


def find_moves(
    environment: Environment, now: Plan, keeps: Keeps, made: PlansMade | None = None
) -> tuple[CostSavingMove, ...]:
    """Return the moves that save the most.

    Parameters
    ----------
    environment, now
        An environment from a file, and its plan.
    keeps
        Simulates the plan of a move.
    made
        Plans of jobs from which ``now`` was made: a move leaves most of them as they are.
    """
    tree = environment.value_locations.tree
    if tree is None:
        return ()
    before = total_cost(now).value
    costs = {key: sum(line.usd for line in lines) for key, lines in now.cost_items_by_key.items()}
    changes = sorted(
        _possible_changes(environment, now),
        key=lambda each: -costs.get(".".join(map(str, each.path[:2])).replace("kafka.", "clusters."), before),
    )
    engines = [
        (f"jobs.{name}.engine", None, environment.jobs[name].engine)
        for name in _jobs_without_engine(environment)
    ]
    found, made = [], made or PlansMade()
    for change in changes[: _TRIED // len(environment.jobs)]:
        changed, node = _changed_environment_or_none(environment, change), tree.at(change.path)
        with_it = tuple(_key_changes_of_merged_jobs(change, tree))
        with_it += tuple((dotted_path(path), _value_in_file(tree, path), change.new) for path in change.also)
        elsewhere = change.new is None and any(
            each is not None and each.file != tree.file
            for each in (node, *(tree.at(("jobs", name)) for name in change.jobs))
        )
        if changed is None or elsewhere or not _passes_project_checks(changed):
            continue
        try:
            after = plan(changed, made, simulated=False)
        except ConfigurationError:
            continue
        usd = total_cost(after).value
        leaves = any(
            each.network.value == "none" != now.jobs[name].network.value for name, each in after.jobs.items()
        )
        gives_up = change.gives_up + f"; {_PRIVATE}" * (leaves and change.path[-1] != "network")
        key, old, new = dotted_path(change.path), _value_in_file(tree, change.path), change.new
        if change.jobs:
            (key, old, new), *rest = with_it
            with_it = tuple(rest)
        # Without them the plan would choose engines again.
        written = {key, *(each for each, *_ in with_it)}
        with_it += tuple(each for each in engines if not {each[0], each[0].removesuffix(".engine")} & written)
        move = CostSavingMove(key, old, new, usd, before - usd, gives_up, with_it)
        if move.saved >= _WORTH:
            found.append((move, changed, after))
    found.sort(key=lambda each: -each[0].saved)
    from millrace.sizing.simulation.expected_cost import plan_with_fixed_workers_where_late

    # Simulated one after the other until there are enough.
    moves: Iterator[CostSavingMove] = (
        move
        for move, changed, after in found
        if keeps(changed, plan_with_fixed_workers_where_late(changed, after))
    )
    if engines:
        lost = "nothing if the rate was measured there; every other command needs the key"
        moves = chain([CostSavingMove(*engines[0], before, 0.0, lost, tuple(engines[1:]))], moves)
    return tuple(islice(moves, MOST))


def _value_in_file(tree: Tree, path: Path) -> Any:
    node = tree.at(path)
    return None if node is None else node.to_json()


def _key_changes_of_merged_jobs(change: _Change, tree: Tree) -> Iterator[tuple[str, Any, Any]]:
    """Yield keys with old and new values for jobs that are merged: queries that come, and jobs that go."""
    jobs = tree.to_json()["jobs"]
    for name in change.jobs:
        for query, asked in jobs[name]["queries"].items():
            yield dotted_path((*change.path, query)), None, asked
    for name in change.jobs:
        yield f"jobs.{name}", jobs[name], None


def _merges_of_small_jobs(environment: Environment, now: Plan) -> Iterator[_Change]:
    """Yield jobs of one executor whose keys are alike, as queries of the first of them."""
    groups = grouped(
        (repr(sorted((key, getattr(job, key)) for key in job.model_fields_set - {"queries"})), name)
        for name, job in environment.jobs.items()
        if "max_workers" not in job.model_fields_set and now.jobs[name].executors.value == 1
    )
    for first, *others in groups.values():
        names = [query for each in (first, *others) for query in environment.jobs[each].queries]
        if others and len(set(names)) == len(names):
            lost = f"separate starts and stops of {', '.join((first, *others))}; a query that ran before leaves its checkpoint behind"
            yield _Change(("jobs", first, "queries"), None, lost, jobs=tuple(others))


def _fan_outs(environment: Environment, now: Plan) -> Iterator[_Change]:
    """Yield the queries of several readers of a stream, which then share no shard; one alone gains little."""
    readers = grouped(
        (query.source, ("jobs", job, "queries", name, "fan_out"))
        for job, name, query in environment.queries
        if isinstance(query, LandQuery) and environment.streams[query.source].fans_out and not query.fan_out
    )
    for stream, keys in readers.items():
        lost = f"one of the consumers that AWS allows {stream}, for each query; queries that run are drained and start again"
        first, *others = sorted(keys, key=lambda key: -sum(c.usd for c in now.jobs[str(key[1])].cost))
        if others:
            yield _Change(first, True, lost, also=tuple(others))


def _possible_changes(environment: Environment, now: Plan) -> Iterator[_Change]:
    yield from _merges_of_small_jobs(environment, now)
    yield from _fan_outs(environment, now)
    if environment.partition_buffer:
        yield _Change(("partition_buffer",), None, "spare shards and partitions for a hot key")
    # Neither DMS nor Debezium fills aggregates, nor do our sinks (a check of the file).
    of_changes = {
        reading.source
        for _, _, query in environment.queries
        for reading in query.stream_readings_by_place.values()
        if isinstance(reading.format, ChangeFormat)
    }
    for name, stream in environment.streams.items():
        yield from _changes_of_stream(environment, name, stream, of_changes=name in of_changes)
    for name, cluster in environment.created_clusters.items():
        yield from _changes_of_cluster(environment, now, name, cluster)
    for name, job in environment.jobs.items():
        yield from _changes_of_job(name, job)
        if (
            reason_job_requires_vpc(environment, job) is None
            and reason_job_runs_in_vpc(environment, name) is not None
        ):
            yield _Change(("jobs", name, "network"), "none", _PRIVATE)
    network = environment.network
    if (
        network.vpc is None
        and environment.deployed_sizes.zones is None
        and reasons_for_vpc_by_part(environment)
    ):
        if environment.zone_count == 3 and not network.zone_ids:
            zone = "the third Availability Zone"
            # A serverless cluster has its copies whatever our network is.
            if any(each.tier != "serverless" for each in now.clusters.values()):
                zone += ", and the third copy of what Kafka holds"
            zone += "; a network that is deployed keeps its zones"
            yield _Change(("network", "availability_zones"), 2, zone)
        if network.egress != "cheapest":
            lost = (
                "a network without a route to the internet"
                if network.egress == "endpoints"
                else "NAT gateways as pinned"
            )
            yield _Change(("network", "egress"), "cheapest", lost)


def _changes_of_stream(
    environment: Environment, name: str, stream: Any, *, of_changes: bool
) -> Iterator[_Change]:
    path = ("streams", name)
    if stream.belongs_to_others:
        return
    if isinstance(stream, KinesisStream) and stream.mode == "on-demand":
        lost = (
            "shards that Kinesis adds by itself when traffic is above the stated peak; a deployed stream keeps those that are open "
            "until `millrace deploy` has halved or doubled them step by step, and takes two changes of mode in 24 hours"
        )
        yield _Change((*path, "mode"), "provisioned", lost)
    elif isinstance(stream, KinesisStream) and stream.shards is None:
        lost = "a fixed number of shards: a new stream takes 4 MiB/s, and later twice its highest peak"
        yield _Change((*path, "mode"), "on-demand", lost)
    if stream.given_partitions is not None and name not in environment.deployed_sizes.partitions:
        key = "shards" if isinstance(stream, KinesisStream) else "partitions"
        yield _Change((*path, key), None, f"{stream.given_partitions} {key} as pinned")
    if stream.retention > _DAY:
        lost = f"a replay of records that are older than a day; {format_duration(stream.retention)} now"
        yield _Change((*path, "retention"), "24h", lost, _DAY)
    if isinstance(stream, KinesisStream) and stream.aggregate is None and not of_changes:
        lost = (
            "records put one by one: every producer has to fill aggregates with the Kinesis Producer Library, which wait for each other, "
            "and every other reader has to split them; two of a key in an aggregate have no order"
        )
        yield _Change((*path, "aggregate"), "24KiB", lost, _AGGREGATE)
    if getattr(stream, "shard_level_metrics", False):
        yield _Change((*path, "shard_level_metrics"), None, "metrics of each shard, which show a hot key")


def _changes_of_cluster(
    environment: Environment, now: Plan, name: str, cluster: MskCluster
) -> Iterator[_Change]:
    path = ("kafka", name)
    new = name not in environment.deployed_sizes.clusters
    pins = ("broker_type", "brokers", "storage")
    for key in pins:
        if getattr(cluster, key) is not None and new:
            yield _Change((*path, key), None, f"{key} as pinned")
    volume, brokers = now.clusters[name].storage_gib_per_broker, now.clusters[name].brokers
    if new and cluster.storage is None and volume is not None and brokers is not None:
        counts = {each: stream.expected_partitions.value for each, stream in now.streams.items()}
        readers = demands_by_stream(query_demands_and_findings(environment)[0])
        needed = needed_volume_gib(brokers.value, cluster_load(environment, name, counts, readers))
        lost = f"room to grow: volumes of {volume.value} GiB, which a plan seldom changes; traffic that grows needs larger ones at once"
        yield _Change((*path, "storage"), f"{needed}GiB", lost, ByteSize(needed * 1024**3))
    other = "express" if cluster.tier == "standard" else "standard"
    if cluster.tier == "serverless" or not new or not cluster.tier_is_given:
        return
    if cluster.version in kafka_versions.supported_or_unconfirmed_versions(other):
        lost = {
            "express": "most settings of brokers, tiered storage; a deployed cluster would be replaced",
            "standard": "volumes without a size, faster scaling; a deployed cluster would be replaced",
        }[other]
        yield _Change((*path, "tier"), other, lost)


def _changes_of_job(name: str, job: Job) -> Iterator[_Change]:
    path = ("jobs", name)
    for key in ("worker", "cores", "max_workers"):
        if key in job.model_fields_set and getattr(job, key) is not None:
            yield _Change((*path, key), None, f"{key} as pinned")
    if isinstance(job, EmrJob) and not job.worker_is_given:
        lost = "a driver with two cores, on which fixed costs of batches were measured"
        small = {"vcpu": 1, "memory": "4GiB"}
        yield _Change((*path, "worker"), small, lost, EmrWorker.model_validate(small))
    measured = (
        f"the rate's validity: it is that of {job.display_version}, and `millrace bench` measures the other"
    )
    versions = list(job.spark_version_by_engine_version)
    for version in versions[versions.index(job.nearest_listed_version(job.version)) + 1 :]:
        yield _Change((*path, "version"), version, measured)
    if getattr(job, "architecture", None) == "x86_64":
        lost = "the rate's validity: it is that of x86_64, and images and libraries of your own must be for arm64"
        yield _Change((*path, "architecture"), "arm64", lost)
    for engine in KINDS.keys() - {job.engine}:
        yield _Change((*path, "engine"), engine, measured)
    # A run writes all that waited at once: far more than the peak for which such a stream is sized.
    writes_stream = any(isinstance(sink, StreamSink) for sink in job.sinks)
    in_turns = job.run not in (None, "continuous") or job.has_bounded_runs
    if not in_turns and not writes_stream and job.latency >= _IN_TURNS:
        lost = (
            f"records at once: runs start in turns, take up to {service_limits()['bounded.start_seconds'] / 60:g} min to start (assumed), and "
            "are taken to be billed by the second"
        )
        yield _Change((*path, "run"), "bounded", lost)
    latency = 2 * job.latency
    if job.goal == "latency":
        lost = f"freshness: records may be {format_duration(latency)} old"
        yield _Change((*path, "latency"), format_duration(latency), lost, latency)


def _changed_environment_or_none(environment: Environment, change: _Change) -> Environment | None:
    """Return the environment with one value changed; None if the key does not fit the others."""
    path, value = change.path, change.model_value
    if path[-1] == "engine":
        return environment_on_engine_or_none(environment, [str(path[1])], value)
    if change.jobs:
        kept = {name: job for name, job in environment.jobs.items() if name not in change.jobs}
        queries = {
            query: asked
            for name in (str(path[1]), *change.jobs)
            for query, asked in environment.jobs[name].queries.items()
        }
        path, value = ("jobs",), environment_with_value(kept, path[1:], queries)
    changed: Environment = environment_with_value(environment, path, value)
    for each in change.also:
        changed = environment_with_value(changed, each, value)
    return changed


def environment_on_engine_or_none(
    environment: Environment, names: Iterable[str], engine: str, **keys: str
) -> Environment | None:
    """Return the environment with jobs on an engine, and with other keys; None if a key does not fit it."""
    jobs: dict[str, Any] = dict(environment.jobs)
    for name in names:
        given = {each: getattr(jobs[name], each) for each in jobs[name].model_fields_set}
        jobs[name] = {**given, **keys, "engine": engine}
    try:
        # A schema of the engine alone would take as long to build as a small plan takes in all.
        read = Environment.model_validate({**dict(environment), "jobs": jobs})
    except ValidationError:
        return None
    return environment.model_copy(update={"jobs": read.jobs})


def environment_with_cheapest_engines(environment: Environment, keeps: Keeps) -> Environment:
    """Return the environment with the engines that cost the least and keep every SLA, for jobs whose file gives none.

    Parameters
    ----------
    environment
        An environment that was loaded with open engines.
    keeps
        Simulates a plan.
    """
    names, made = _jobs_without_engine(environment), PlansMade()
    # Jobs on one engine may share a network, so all of them change together first.
    for group in (names, *([each] for each in names)) if names else ():
        others = (environment_on_engine_or_none(environment, group, engine) for engine in KINDS)
        possible = [
            environment,
            *(each for each in others if each is not None and _passes_project_checks(each)),
        ]
        environment = min(possible, key=lambda each: _sort_key_of_engines(each, names, keeps, made))
    return environment


def _jobs_without_engine(environment: Environment) -> list[str]:
    """Return the jobs whose file gives no engine."""
    tree = environment.value_locations.tree
    return [name for name in environment.jobs if tree and tree.at(("jobs", name, "engine")) is None]


def _sort_key_of_engines(
    environment: Environment, names: Iterable[str], keeps: Keeps, made: PlansMade
) -> tuple[bool, bool, float]:
    """Return whether a plan breaks an SLA, whether the bill of jobs is unproven, and the dollars a month; the least is best."""
    try:
        sized = plan(environment, made)
    except ConfigurationError:
        return True, True, math.inf
    unproven = any(
        sized.jobs[name].run is not None and environment.jobs[name].bounded_bill_is_unproven for name in names
    )
    return not keeps(environment, sized), unproven, total_cost(sized).value


def _passes_project_checks(environment: Environment) -> bool:
    root = environment.value_locations.root
    return not any(run_checks(environment, environment.streams.keys(), environment.kafka.keys(), root))
