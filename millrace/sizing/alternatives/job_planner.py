"""Plans of jobs for given partitions of their streams, and the dollars of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from millrace.config.base import Model, grouped
from millrace.config.document.problems import Finding
from millrace.config.job_networks import reason_job_runs_in_vpc
from millrace.config.model import Environment, Job, MskCluster
from millrace.config.queries import DeriveQuery, LandQuery, Query
from millrace.sizing.cost import CENT, SECONDS, stream_cost_items
from millrace.sizing.jobs.job_plan import job_plan_and_findings
from millrace.sizing.jobs.queries_on_cores import (
    job_spreads_cores_and_findings,
    joined_source_partitions,
    largest_batches_on_shared_cores,
)
from millrace.sizing.jobs.shared_cores import LargestBatch
from millrace.sizing.jobs.usage_costs import files_of_batch
from millrace.sizing.kafka_cluster_load import ClusterLoad, cluster_load
from millrace.sizing.msk_clusters import cluster_plan_and_findings
from millrace.sizing.plan_model import Figure, JobPlan
from millrace.sizing.prices_and_limits import PriceTable, service_limits
from millrace.sizing.queries.demand import QueryDemand, demands_by_stream
from millrace.sizing.queries.driver import demands_by_driver_cores_and_findings
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.run_plan import billed_run_seconds, run_stage_seconds

Planned = tuple[JobPlan | None, list[Finding]]

V = TypeVar("V")


class PlansMade:
    """Plans and partitions of jobs that variants of one environment have in common."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], list[tuple[Sequence[Model], object, Any]]] = {}

    def result(
        self, key: tuple[object, ...], members: Sequence[Model], values: object, new: Callable[[], V]
    ) -> V:
        """Return what was made for the same key, members of the environment and other values, or a new one."""
        made = self._made.setdefault(key, [])
        for before, same, found in made:
            if same == values and all(map(_say_the_same, before, members)):
                result: V = found
                return result
        result = new()
        made.append((members, values, result))
        return result


class JobPlanner:
    """Planning of jobs for given partitions; each case once.

    Parameters
    ----------
    demands
        Demands of all queries.
    made
        Plans that variants of the environment have made, to which this one adds its own: most choices leave most jobs as they are.
    """

    def __init__(
        self,
        environment: Environment,
        demands: Iterable[QueryDemand],
        prices: PriceTable,
        made: PlansMade,
    ) -> None:
        self.environment, self.prices, self.made = environment, prices, made
        self.demands: dict[str, list[QueryDemand]] = {name: [] for name in environment.jobs}
        for demand in demands:
            self.demands[demand.job].append(demand)
        self.by_driver: dict[str, dict[int, list[QueryDemand]]] = {}
        """Demands of each job by the cores of its driver."""
        self.problems: list[Finding] = []
        """Findings for jobs whose driver is too busy, whatever its size."""
        for name, own in self.demands.items():
            self.by_driver[name], wrong = demands_by_driver_cores_and_findings(environment, name, own)
            self.problems += wrong
        self.least: Mapping[str, float] = {}
        """Partitions that the traffic needs, as real numbers, by stream."""
        self._planned: dict[tuple[str, tuple[int, ...]], Planned] = {}
        self._readers = demands_by_stream([each for own in self.demands.values() for each in own])
        self._cluster_usd: dict[tuple[str, int], float] = {}
        self.asked_cluster_usd: dict[tuple[str, int], float] = {}
        """Dollars a month of clusters, by their partitions, that somebody asked for since this was cleared."""
        self._stream_usd: dict[tuple[str, int], float] = {}
        self._added_up: tuple[Mapping[str, int], dict[str, int]] = ({}, {})
        """Partitions of all streams, and the sum of those of each cluster's topics."""
        self._loads: dict[str, ClusterLoad] = {}
        self._clusters = {name: stream.cluster_name for name, stream in environment.streams.items()}
        self._topics = grouped(
            (cluster, name) for name, cluster in self._clusters.items() if cluster is not None
        )

    def demands_without_names(self, job: str, streams: Mapping[str, int]) -> list[tuple[object, ...]]:
        """Return the demands of a job by its driver's cores, with the numbers of streams, as a search for sizes reads them."""
        return [
            (cores, [each.numbers_by_stream(streams) for each in demands])
            for cores, demands in self.by_driver[job].items()
        ]

    def source_partitions(
        self, demands: Iterable[QueryDemand], partitions: Mapping[str, int]
    ) -> dict[str, SourcePartitions]:
        """Return the streams of queries as these find them, by stream."""
        found = {}
        for name in dict.fromkeys(name for demand in demands for name in demand.streams):
            stream, number, least = self.environment.streams[name], partitions[name], self.least[name]
            evenly = least if number - 1 < least <= number else float(number)
            steady = stream.elastic_limit_names is None
            found[name] = SourcePartitions(number, evenly, steady=steady, limits_parts=stream.limits_parts)
        return found

    def largest_batches(
        self, demands: Sequence[QueryDemand], partitions: Mapping[str, int]
    ) -> tuple[LargestBatch, ...]:
        """Return the largest batches of queries that find these partitions."""
        sources = self.source_partitions(demands, partitions)
        return largest_batches_on_shared_cores(
            demands, [joined_source_partitions(demand, sources) for demand in demands]
        )

    def plan_or_findings(self, job: str, partitions: Mapping[str, int]) -> Planned:
        """Return the plan of a job that finds these partitions, or its findings; with the driver that costs the least; of equal ones the smallest."""
        sources = self.source_partitions(self.demands[job], partitions)
        key = (job, tuple(each.partitions for each in sources.values()))
        if key not in self._planned:
            planned = [
                each
                for cores, demands in self.by_driver[job].items()
                for each in self._plans_by_ways_to_write(job, demands, sources, cores)
            ]
            possible = [each for each in planned if each[0] is not None]
            self._planned[key] = min(possible, key=_monthly_usd_of_planned_job) if possible else planned[-1]
        return self._planned[key]

    def _plans_by_ways_to_write(
        self, job: str, demands: list[QueryDemand], sources: Mapping[str, SourcePartitions], cores: int
    ) -> Iterator[Planned]:
        """Yield the plan of a job, and one that shuffles the batches of topics where this saves files of a cent a month or more."""
        planned = self._made_or_new_plan(job, demands, sources, cores)
        many = {
            name
            for demand in demands
            if self._may_save_files(planned[0], demand, sources)
            for name in demand.streams
        }
        if many:
            shuffled = {name: each._replace(shuffled=name in many) for name, each in sources.items()}
            other = self._made_or_new_plan(job, demands, shuffled, cores)
            # A pinned limit may be that of the shuffle.
            yield from [each for each in (planned, other) if each[0] is not None] or [planned]
        else:
            yield planned

    def _may_save_files(
        self, sized: JobPlan | None, demand: QueryDemand, sources: Mapping[str, SourcePartitions]
    ) -> bool:
        """Return whether a shuffle over its cores would save a query more than a cent a month for files, or may where pins decide the plan."""
        own = [sources[name] for name in demand.streams]
        if not demand.lands or any(each.limits_parts for each in own):
            return False
        query = self.environment.jobs[demand.job].queries[demand.query]
        # The limit of a shuffled batch may be kept by waves on more cores only, which are shuffled there too.
        if sized is None or getattr(query, "records_per_batch", None) is not None:
            return any(each.tasks > 1 for each in own)
        planned = sized.queries[demand.query]
        fewer = sum(each.tasks for each in own) - planned.cores.value
        puts = fewer * SECONDS / planned.trigger_seconds.value
        return planned.repartition is None and puts / 1000 * self.prices.usd("s3.thousand_puts") > CENT

    def _made_or_new_plan(
        self, job: str, demands: list[QueryDemand], sources: Mapping[str, SourcePartitions], cores: int
    ) -> Planned:
        decides = (self.environment.jobs[job], *(self.environment.streams[name] for name in sources))
        network = reason_job_runs_in_vpc(self.environment, job)
        return self.made.result(
            (job, cores, network, *sources.items()),
            decides,
            demands,
            lambda: job_plan_and_findings(self.environment, job, demands, sources, self.prices, cores),
        )

    def estimated_runs_usd(self, sized: JobPlan, partitions: Mapping[str, int]) -> float:
        """Return about the dollars a month of a job's bounded runs with other partitions: on its workers, one fewer, twice as many, and a core for each."""
        assert sized.run is not None
        job = self.environment.jobs[sized.name]
        demands = next(iter(self.by_driver[sized.name].values()))
        sources = self.source_partitions(demands, partitions)
        read = [joined_source_partitions(demand, sources) for demand in demands]
        found, now = math.inf, sized.executors.value
        executors = {now}
        if job.cores is None and job.max_workers is None:
            executors |= {
                max(1, now - 1),
                2 * now,
                math.ceil(max(each.read_in_waves for each in read) / sized.vcpu),
            }
        for cores in (sized.vcpu * number for number in executors):
            spreads, fewest, problems = job_spreads_cores_and_findings(
                self.environment, sized.name, demands, read, cores
            )
            if not problems:
                seconds = billed_run_seconds(run_stage_seconds(demands, spreads, read))
                paid = (
                    (math.ceil(max(cores, fewest) / sized.vcpu) + 1) * seconds / 3600 * sized.worker_usd_hour
                )
                files = sum(
                    files_of_batch(
                        demand,
                        spread,
                        source,
                        demand.work.rate * demand.average * demand.work.planned_trigger_seconds,
                    )
                    for demand, spread, source in zip(demands, spreads, read, strict=True)
                )
                found = min(found, paid + files / 1000 * self.prices.usd("s3.thousand_puts"))
        return found * SECONDS / sized.run.every_seconds.value

    def monthly_usd(
        self, jobs: Iterable[str], streams: Collection[str], partitions: Mapping[str, int]
    ) -> float:
        """Return the dollars a month of jobs, streams and their clusters, without what rounding leaves; infinity if pins do not allow it."""
        planned = [self.plan_or_findings(job, partitions)[0] for job in jobs]
        usd = sum(math.inf if sized is None else sum(line.usd for line in sized.cost) for sized in planned)
        return round(self.streams_usd(streams, partitions) + usd, 6)

    def streams_usd(
        self,
        streams: Collection[str],
        partitions: Mapping[str, int],
        others: Mapping[str, int] = MappingProxyType({}),
    ) -> float:
        """Return the dollars a month of streams, and of the clusters that have their topics; infinity if pins do not allow it.

        Parameters
        ----------
        partitions
            Of all streams. One object must keep its numbers: the topics of a large cluster are not added up for each choice.
        others
            Partitions of some streams in place of those.
        """
        usd, clusters = 0.0, dict[str, None]()
        for name in streams:
            # Topics are paid for with their cluster.
            if (cluster := self._clusters[name]) is not None:
                clusters[cluster] = None
            else:
                usd += self._usd_of_stream(name, others.get(name, partitions[name]))
        more = dict.fromkeys(clusters, 0)
        for name, number in others.items():
            if (cluster := self._clusters[name]) in more:
                more[cluster] += number - partitions[name]
        return usd + sum(self.usd_of_cluster(each, partitions, number) for each, number in more.items())

    def _usd_of_stream(self, name: str, number: int) -> float:
        if (name, number) not in self._stream_usd:
            stream, prices, readers = self.environment.streams[name], self.prices, self._readers.get(name, ())
            shared = sum(not demand.fan_out for demand in readers)
            consumers = len(readers) - shared + len(stream.consumers_of_other_programs)
            advantage = self.environment.governance.on_demand_advantage
            figure = Figure(number, stream.parts, "")
            lines = stream_cost_items(name, stream, figure, shared, consumers, prices, advantage=advantage)
            usd = sum(line.usd for line in lines)
            if stream.has_shard_metrics:
                metrics = number * service_limits()["kinesis.shard_metrics"]
                usd += metrics * prices.usd("cloudwatch.metric_month")
            self._stream_usd[name, number] = usd
        return self._stream_usd[name, number]

    def usd_of_cluster(self, name: str, partitions: Mapping[str, int], more: int) -> float:
        """Return the dollars a month of a cluster with so many partitions more than all streams have; infinity if pins do not allow it."""
        cluster = self.environment.kafka[name]
        if not isinstance(cluster, MskCluster) or cluster.existing is not None:
            return 0.0
        base, together = self.load_and_partitions_of_cluster(name, partitions)
        key = name, together + more
        if key not in self._cluster_usd:
            load = replace(base, partitions=key[1])
            sized, _ = cluster_plan_and_findings(self.environment, name, cluster, load, self.prices)
            self._cluster_usd[key] = math.inf if sized is None else sum(line.usd for line in sized.cost)
        self.asked_cluster_usd[key] = self._cluster_usd[key]
        return self._cluster_usd[key]

    def load_and_partitions_of_cluster(
        self, name: str, partitions: Mapping[str, int]
    ) -> tuple[ClusterLoad, int]:
        """Return the load of a cluster, whatever its partitions, and the partitions of its topics together."""
        if self._added_up[0] is not partitions:
            self._added_up = (partitions, {})
        sums = self._added_up[1]
        if name not in sums:
            sums[name] = sum(map(partitions.__getitem__, self._topics[name]))
        if name not in self._loads:
            self._loads[name] = cluster_load(self.environment, name, partitions, self._readers)
        return self._loads[name], sums[name]


def job_without_names(job: Job) -> Job:
    """Return a job with numbers for the names of queries and of tables that these land, without those of a land query's stream and of other tables."""
    queries: dict[str, Query] = {}
    tables = [getattr(query, "table", None) for query in job.queries.values()]
    for number, query in enumerate(job.queries.values()):
        changed: dict[str, object] = {}
        if isinstance(query, LandQuery):
            changed = {"source": "", "table": ""}
        elif isinstance(query, DeriveQuery) and query.sink.in_catalog:
            sink = query.sink.model_copy(update={query.sink.named_by: ""})
            source = tables.index(query.source) if query.source in tables else query.source
            changed = {"source": source, "sink": sink}
        queries[f"{number}"] = query.model_copy(update=changed)
    return job.model_copy(update={"queries": queries})


def _say_the_same(one: Model, other: Model) -> bool:
    """Return whether two jobs or streams have the same keys with the same values; also copies, which other remedies lead to."""
    return one is other or (
        one.model_fields_set == other.model_fields_set
        and one == other
        and _keys_of_queries(one) == _keys_of_queries(other)
    )


def _keys_of_queries(member: Model) -> list[set[str]]:
    return [each.model_fields_set for each in getattr(member, "queries", {}).values()]


def _monthly_usd_of_planned_job(planned: Planned) -> float:
    assert planned[0] is not None
    return round(sum(line.usd for line in planned[0].cost), 6)
