"""Shards and partitions of all streams, chosen together with the jobs that read them, with pins and without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from millrace.config.base import grouped
from millrace.config.document.problems import Finding
from millrace.config.model import Environment
from millrace.config.queries import SourceQueryBase
from millrace.sizing.alternatives.job_planner import JobPlanner
from millrace.sizing.alternatives.partition_search import cheapest_partitions
from millrace.sizing.cost import CENT, stream_cost_items
from millrace.sizing.environment_with_plan_choices import environment_with_choices
from millrace.sizing.jobs.queries_on_cores import joined_source_partitions, spread_over_own_fewest_cores
from millrace.sizing.plan_model import StreamPlan
from millrace.sizing.queries.demand import QueryDemand, demands_by_stream
from millrace.sizing.queries.environment_demands import query_demands_and_findings
from millrace.sizing.shards_and_partitions import (
    StreamWithReaders,
    partitions_figure_and_finding,
    partitions_never_below_existing,
)


def stream_plans_and_findings(
    planner: JobPlanner, demands: list[QueryDemand]
) -> tuple[dict[str, StreamPlan], list[Finding]]:
    """Return the plan of each stream with the partitions that cost the least together with all jobs, and what prevents it."""
    found, problems = {}, []
    environment, readings = planner.environment, _streams_with_readers(planner, demands)
    planner.least = {name: each.partitions_for_traffic for name, each in readings.items()}
    given = {
        name: partitions_figure_and_finding(each, None)[0].value
        for name, each in readings.items()
        if not each.is_left_to_plan
    }
    chosen, readings = _partitions_with_and_without_pins(planner, readings, given)
    cores = _pinned_cores_by_stream(planner, readings, chosen)
    for name, stream in environment.streams.items():
        reading = readings[name]
        expected, wrong = partitions_figure_and_finding(reading, cores.get(name), chosen[name])
        if wrong is not None:
            problems.append(wrong)
        expected = partitions_never_below_existing(environment, name, expected)
        if wrong is None and (refused := stream.finding_if_resize_refused(name, expected.value)) is not None:
            problems.append(refused)
        shared = sum(not demand.fan_out for demand in reading.readers)
        consumers = len(reading.readers) - shared + len(stream.consumers_of_other_programs)
        found[name] = StreamPlan(
            name=name,
            kind=stream.kind,
            mode=stream.topic_or_capacity_mode,
            partitions=expected if stream.elastic_limit_names is None else None,
            expected_partitions=expected,
            cost=stream_cost_items(
                name,
                stream,
                expected,
                shared,
                consumers,
                planner.prices,
                advantage=environment.governance.on_demand_advantage,
            ),
        )
    return found, problems


def least_streams_usd(planner: JobPlanner, demands: list[QueryDemand]) -> float:
    """Return the dollars a month of all streams and clusters with the fewest partitions that their traffic allows."""
    readings = _streams_with_readers(planner, demands)
    fewest = {
        name: each.on_large_workers.fewest_with_spare(one_wave=False)
        if each.is_left_to_plan
        else partitions_figure_and_finding(each, None)[0].value
        for name, each in readings.items()
    }
    return planner.streams_usd(readings, fewest)


def _streams_with_readers(planner: JobPlanner, demands: list[QueryDemand]) -> dict[str, StreamWithReaders]:
    environment, by_stream = planner.environment, demands_by_stream(demands)
    readings = {}
    for name, stream in environment.streams.items():
        readers = by_stream.get(name, [])
        pinned = (
            bool(readers)
            and environment.jobs[StreamWithReaders(name, stream, readers).main_reader.job].cores is not None
        )
        readings[name] = StreamWithReaders(
            name, stream, readers, 0.0 if pinned else environment.partition_buffer
        )
    return readings


def _partitions_with_and_without_pins(
    planner: JobPlanner, readings: dict[str, StreamWithReaders], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, StreamWithReaders]]:
    """Return the partitions of all streams, and the streams with the readers that decided.

    Pins may refuse what leads the search to the best design, so what it finds without them is a design, too: the one that is taken
    where pins change no job's dollars.
    """
    environment = planner.environment
    free = _environment_without_pinned_sizes(environment)
    found: dict[str, int] = {}
    if free is not environment:
        unpinned, refused = query_demands_and_findings(free)
        other = JobPlanner(free, unpinned, planner.prices, planner.made)
        plans = {} if refused or other.problems else stream_plans_and_findings(other, unpinned)[0]
        found = {name: each.expected_partitions.value for name, each in plans.items()}
        tried = {**found, **given}
        if found and _refused_jobs_and_usd(planner, readings, tried) == _refused_jobs_and_usd(
            other, readings, tried
        ):
            return tried, readings
    chosen, readings = _cheapest_partitions_and_readings(planner, readings, given)
    decided = _streams_by_deciding_job(readings)
    for job in environment.jobs if found else ():
        tried = {**chosen, **{name: found[name] for name in decided.get(job, ())}, **given}
        if tried != chosen:
            jobs, usd = _refused_jobs_and_usd(planner, readings, chosen)
            if _refused_jobs_and_usd(planner, readings, tried) < (jobs, usd - CENT):
                chosen = tried
    return chosen, readings


def _cheapest_partitions_and_readings(
    planner: JobPlanner, readings: dict[str, StreamWithReaders], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, StreamWithReaders]]:
    """Return the partitions of all streams, and the streams with the readers that decided: of jobs that share one, those of each are tried."""
    readers = [{demand.job for demand in each.readers} for each in readings.values() if each.is_left_to_plan]
    tried = []
    for main in set().union(*(jobs for jobs in readers if len(jobs) > 1)) or {""}:
        each = {
            name: replace(reading, main_job=main)
            if any(demand.job == main for demand in reading.readers)
            else reading
            for name, reading in readings.items()
        }
        chosen = cheapest_partitions(planner, each, given)
        cost = _refused_jobs_and_usd(planner, each, chosen)
        tried.append((cost, sum(chosen.values()), main, chosen, each))
    return min(tried)[3:]


def _refused_jobs_and_usd(
    planner: JobPlanner, readings: Mapping[str, StreamWithReaders], partitions: Mapping[str, int]
) -> tuple[int, float]:
    """Return how many jobs pins do not allow, and the dollars a month of the others with the streams that they decide on."""
    jobs, decided = [*planner.environment.jobs], _streams_by_deciding_job(readings)
    able = [job for job in jobs if planner.monthly_usd([job], (), partitions) < math.inf]
    streams = [name for job in able for name in decided.get(job, ())]
    return len(jobs) - len(able), planner.monthly_usd(able, streams, partitions)


def _streams_by_deciding_job(readings: Mapping[str, StreamWithReaders]) -> Mapping[str, list[str]]:
    """Return the streams whose partitions are chosen together with a job's cores, by job."""
    return grouped((each.main_reader.job, name) for name, each in readings.items() if each.readers)


def _environment_without_pinned_sizes(environment: Environment) -> Environment:
    """Return the environment without the sizes that are pinned for jobs, and for the streams that they read."""
    for key in ("cores", "max_workers"):
        environment = environment_with_choices(environment, "jobs", key, dict.fromkeys(environment.jobs))
    queries = {
        name: {
            query: settings.model_copy(update={"records_per_batch": None})
            if isinstance(settings, SourceQueryBase) and settings.records_per_batch is not None
            else settings
            for query, settings in job.queries.items()
        }
        for name, job in environment.jobs.items()
    }
    environment = environment_with_choices(environment, "jobs", "queries", queries)
    for name in {
        each
        for job in environment.jobs.values()
        for query in job.queries.values()
        for each in query.source_stream_names
    }:
        stream = environment.streams[name]
        if not stream.belongs_to_others and name not in environment.deployed_sizes.partitions:
            environment = environment_with_choices(environment, "streams", stream.parts, {name: None})
    return environment


def _pinned_cores_by_stream(
    planner: JobPlanner, readings: Mapping[str, StreamWithReaders], chosen: Mapping[str, int]
) -> dict[str, int]:
    """Return the pinned cores of a query that has its job alone, by stream, where they are more than it needs.

    Any other stream keeps the number of partitions that is chosen, also where runs of a job take more cores than they need to end sooner.
    """
    found: dict[str, int] = {}
    for name, reading in readings.items():
        job = planner.environment.jobs[reading.main_reader.job] if reading.readers else None
        cores = None if job is None or job.run_every is not None else job.cores
        own = planner.demands[reading.main_reader.job] if cores is not None else []
        if cores is not None and len(own) == 1:
            fewest = spread_over_own_fewest_cores(
                own[0], joined_source_partitions(own[0], planner.source_partitions(own, chosen))
            ).cores
            part = cores * reading.main_reader.least_cores / own[0].least_cores - 1e-9
            # Fewer cores than the cheapest partitions take may do with more partitions.
            if cores > fewest or (
                cores < fewest and part > min(reading.fewest_partitions_by_cores, default=math.inf)
            ):
                found[name] = max(1, math.ceil(part))
    return found
