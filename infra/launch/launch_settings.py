"""A job's settings for its launch document, in the classes of :mod:`millrace.etl.launch.settings`."""

from __future__ import annotations

import math
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.config.checks.columns import ENVELOPE
from millrace.config.kafka.login import IamLogin, NoLogin
from millrace.config.model import Environment, ExternalCluster, Job, Stream
from millrace.config.queries import (
    DeriveQuery,
    DirectQuery,
    DirectRouteQuery,
    Query,
    Reading,
    Route,
    Rule,
    SourceQueryBase,
    State,
    Watermark,
)
from millrace.config.sinks.base import SinkContext
from millrace.config.sources.base import StreamReadingContext
from millrace.etl.launch import settings as launch
from millrace.etl.launch.sources import Source
from millrace.sizing.jobs.batches_at_peak import batch_bytes_at_peak, rows_per_batch_of_derive_query
from millrace.sizing.plan_model import JobPlan, QueryPlan
from millrace.sizing.prices_and_limits import limit_per_second

_SHORTEST_TRIGGER = 2.0
"""Seconds for which a shard is read at least in two batches of a bounded run."""

CATALOG = "lake"
"""Name of the Spark catalog that holds every table of an environment."""


def job_settings(environment: Environment, job_plan: JobPlan, names: Names) -> launch.JobSettings:
    """Return one job's settings.

    Parameters
    ----------
    job_plan
        The job's triggers and limits; every number of the result that was computed comes from here.
    """
    job = environment.jobs[job_plan.name]
    retention = environment.storage.dead_letter_retention
    return launch.JobSettings(
        version=1,
        environment=environment.name,
        job=job_plan.name,
        engine=job.engine,
        catalog=CATALOG,
        checkpoints=names.checkpoints_url(job_plan.name),
        batch_retries=job.batch_retries,
        dead_letters_kept_seconds=None if retention is None else int(retention.total_seconds()),
        erase_share=environment.storage.erase_share,
        upkeep=_upkeep_settings(environment, job_plan.name, names),
        connections={
            cluster: _connection_settings(environment, cluster, names)
            for cluster in connected_kafka_clusters(environment, job)
        },
        queries=tuple(
            _query_settings(environment, job_plan.name, query, job_plan.queries[name], names)
            for name, query in job.queries.items()
        ),
        run_every_seconds=None if job_plan.run is None else float(job_plan.run.every_seconds.value),
    )


def _upkeep_settings(environment: Environment, job: str, names: Names) -> launch.MaintenanceSettings | None:
    upkeep = environment.storage.upkeep
    if upkeep is None:
        return None
    return launch.MaintenanceSettings(
        file_bytes=upkeep.file_size,
        snapshots_kept_seconds=int(upkeep.snapshots.total_seconds()),
        orphans_kept_seconds=int(upkeep.orphans.total_seconds()),
        tables=tuple(
            launch.MaintainedTableSettings(
                names.table(table),
                tuple(
                    f"{names.checkpoints_url(job)}/{query}"
                    for job, query in environment.readers_of_table(table)
                ),
            )
            for table in environment.maintained_tables(job)
        ),
    )


def source_streams_of_job(environment: Environment, job: Job) -> dict[str, Stream]:
    """Return the streams that a job's queries read, by logical name and in the queries' order."""
    return {
        name: environment.streams[name]
        for query in job.queries.values()
        for name in query.source_stream_names
    }


def connected_kafka_clusters(environment: Environment, job: Job) -> tuple[str, ...]:
    """Return the logical names of the Kafka clusters that a job reads and writes."""
    read = (stream.cluster_name for stream in source_streams_of_job(environment, job).values())
    written = (cluster for sink in job.sinks for cluster in sink.kafka_cluster_names(environment.streams))
    return tuple(dict.fromkeys(name for name in (*read, *written) if name is not None))


def _connection_settings(environment: Environment, cluster: str, names: Names) -> launch.Connection:
    kafka = environment.kafka[cluster]
    external = kafka if isinstance(kafka, ExternalCluster) else None
    login = kafka.authentication
    return launch.Connection(
        cluster=names.cluster(cluster) if external is None else None,
        # CloudFormation has no attribute for the brokers: the job's role looks them up at start.
        bootstrap_servers=None if external is None else external.bootstrap_servers,
        authentication=login.kind
        if isinstance(login, IamLogin | NoLogin) or login.secret is None
        else launch.SecretLogin(login.kind, login.secret),
    )


def _query_settings(
    environment: Environment, job: str, query: Query, plan: QueryPlan, names: Names
) -> launch.QuerySettings:
    trigger = float(plan.trigger_seconds.value)
    if isinstance(query, DeriveQuery):
        latest = query.latest_by
        return launch.DeriveSettings(
            name=plan.name,
            trigger_seconds=trigger,
            source_table=names.table(query.source),
            route=query.route,
            dead_letters=None if query.dead_letters is None else names.table(query.dead_letters),
            state=None if query.state is None else _state_settings(query.state, names),
            latest_by=() if latest is None else latest.key,
            latest_order=None if latest is None else latest.order,
            history=latest is not None and latest.history,
            rows_per_batch=rows_per_batch_of_derive_query(environment, query, trigger),
            tasks=plan.cores.value,
            **_enrich_transform_and_sink_settings(environment, query, plan, names),
        )
    repartition = None
    if plan.repartition is not None:
        # What is pinned is Spark's own option, which shuffles nothing.
        repartition = None if plan.repartition.origin == "pinned" else plan.repartition.value
    elif plan.records_per_partition is not None:
        # Records of shards are shuffled in any case, and each task behind the shuffle writes a file.
        repartition = plan.cores.value
    routes = {
        place: _route_settings(environment, job, query, place[-1] if place else None, reading, plan, names)
        for place, reading in query.stream_readings_by_place.items()
    }
    if isinstance(query, DirectQuery | DirectRouteQuery):
        return launch.DirectSettings(
            name=plan.name,
            routes=tuple(
                launch.DirectRouteSettings(
                    **vars(routes[place]),
                    **_enrich_transform_and_sink_settings(environment, end, plan, names),
                )
                for place, end in query.sinks_by_place.items()
            ),
            kind=query.kind,
            dead_letters=names.table(query.dead_letters),
            trigger_seconds=trigger,
            repartition=repartition,
        )
    return launch.LandSettings(
        plan.name, tuple(routes.values()), query.kind, names.table(query.table), trigger, repartition
    )


def _route_settings(
    environment: Environment,
    job: str,
    query: SourceQueryBase,
    name: str | None,
    route: Reading,
    plan: QueryPlan,
    names: Names,
) -> launch.SourceRouteSettings:
    return launch.SourceRouteSettings(
        name,
        origin=route.topic or names.stream(route.source) if isinstance(route, Route) else None,
        source=_source_settings(environment, job, query, route.source, plan, names),
        format=route.format.launch_settings(),
        schema=route.schema_,
        decompress_up_to=route.decompress_up_to,
        redact=route.redact,
        changes_of=route.changes_of if isinstance(route, Route) else None,
        rules=tuple(
            _rule_settings(rule, asked, name)
            for rule, asked in route.rules_with_any_field_rule(environment.value_locations.root).items()
        ),
    )


def _enrich_transform_and_sink_settings(
    environment: Environment, end: Any, plan: QueryPlan, names: Names
) -> dict[str, Any]:
    return {
        "enrich": tuple(
            launch.EnrichmentSettings(
                names.table(item.table), item.on, item.columns, item.refresh.total_seconds()
            )
            for item in end.enrich
        ),
        "transform": end.transform,
        "sink": end.sink.launch_settings(SinkContext(names, batch_bytes_at_peak(environment, end, plan))),
    }


def _state_settings(state: State, names: Names) -> launch.StateSettings:
    return launch.StateSettings(
        watermark=_watermark_settings(state.watermark),
        distinct=state.distinct,
        key=state.key,
        output_mode=state.output_mode,
        join=None
        if state.join is None
        else launch.JoinSettings(
            names.table(state.join.source), _watermark_settings(state.join.watermark), state.join.route
        ),
    )


def _watermark_settings(mark: Watermark) -> launch.WatermarkSettings:
    return launch.WatermarkSettings(mark.time, mark.delay.total_seconds(), mark.ahead.total_seconds())


def _source_settings(
    environment: Environment,
    job: str,
    query: SourceQueryBase,
    name: str,
    plan: QueryPlan,
    names: Names,
) -> Source:
    assert plan.records_per_batch is not None, f"{plan.name}: the plan has no limit for a batch"
    each = plan.records_per_partition
    context = StreamReadingContext(
        names,
        job,
        plan.name,
        query,
        # A shard is read for half of it. In a bounded run a batch takes longer than its trigger only after a backlog.
        plan.trigger_seconds.value
        if not environment.jobs[job].has_bounded_runs
        else max(_SHORTEST_TRIGGER, 2 * plan.batch_seconds.value),
        _stream_share_of_batch_records(environment, query, name, plan.records_per_batch.value),
        None if each is None else each.value,
        0.0 if each is None else _seconds_to_deliver(environment.streams[name], each.value),
    )
    return environment.streams[name].launch_settings(name, context)


def _seconds_to_deliver(stream: Stream, records: int) -> float:
    """Return the seconds that a partition needs to deliver so many records of average size to one reader."""
    out = (limit_per_second(limit) for limit in stream.limits if limit.of == "bytes out")
    return sum(records * stream.traffic.record_size / each for each in out)


def _stream_share_of_batch_records(
    environment: Environment, query: SourceQueryBase, name: str, records: int
) -> int:
    """Return a stream's share of a batch's records, in proportion to its peak arrivals; rounded up."""
    peaks = {
        each: environment.streams[each].traffic.records_per_second
        * environment.streams[each].traffic.peak_factor
        for each in query.source_stream_names
    }
    return records if len(peaks) == 1 else math.ceil(records * peaks[name] / sum(peaks.values()))


def _rule_settings(name: str, rule: Rule, route: str | None) -> launch.RuleSettings:
    landed = rule.where
    if route is not None:
        from millrace.config.sql_conditions import parse_condition  # its parser takes half a second to import

        landed = parse_condition(rule.where).condition_in_struct(route, frozenset(ENVELOPE))
    return launch.RuleSettings(name, rule.where, landed, rule.action)
