"""A job's settings as its launch document holds them and ``etl.launch.settings`` reads them.

The core imports nothing else of Millrace and nothing here may import the core, so
the shape is written twice; ``tests/template/test_contract.py`` proves for every job
of every environment that the two agree.
"""

from __future__ import annotations

import math
from typing import Any

from millrace.config.check_columns import ENVELOPE
from millrace.config.kafka_login import secret_of
from millrace.config.model import Environment, ExternalCluster, Job, Stream
from millrace.config.names import Names
from millrace.config.queries import (
    DirectQuery,
    DirectRoute,
    DirectRouteQuery,
    Enrichment,
    LandQuery,
    Payload,
    Query,
    Route,
    RouteQuery,
    Routing,
    Rule,
    SourceQuery,
    State,
    StreamQuery,
    Watermark,
    WritesSink,
)
from millrace.config.sinks.base import SinkContext
from millrace.config.sources.base import StreamContext
from millrace.config.table_writers import maintained_tables, readers
from millrace.etl.launch import typed_json
from millrace.sizing.files_per_batch import batch_bytes
from millrace.sizing.model import JobPlan, QueryPlan
from millrace.sizing.prices_and_limits import a_second

from .sinks import written_clusters

CATALOG = "lake"
"""Name of the Spark catalog that holds every table of an environment."""


def job_settings(environment: Environment, job_plan: JobPlan, names: Names) -> dict[str, Any]:
    """Write one job's settings.

    Parameters
    ----------
    job_plan
        The job's triggers and limits; every number of the result that was computed comes from here.

    Returns
    -------
    dict
        JSON, parsed by ``etl.launch.settings.parse``.
    """
    job = environment.jobs[job_plan.name]
    kept = environment.storage.dead_letter_retention
    return {
        "version": 1,
        "environment": environment.name,
        "job": job_plan.name,
        "engine": job.engine,
        "catalog": CATALOG,
        "checkpoints": names.checkpoints(job_plan.name),
        "batch_retries": job.batch_retries,
        "dead_letters_kept_seconds": None if kept is None else int(kept.total_seconds()),
        "upkeep": _upkeep(environment, job_plan.name, names),
        "connections": {
            cluster: _connection(environment, cluster, names)
            for cluster in dict.fromkeys(
                (*kafka_clusters(environment, job), *written_clusters(environment, job))
            )
        },
        "queries": [
            _query(environment, job_plan.name, query, job_plan.queries[name], names)
            for name, query in job.queries.items()
        ],
    }


def _upkeep(environment: Environment, job: str, names: Names) -> dict[str, Any] | None:
    if environment.storage.upkeep is None:
        return None
    upkeep = environment.storage.upkeep
    return {
        "file_bytes": upkeep.file_size,
        "snapshots_kept_seconds": int(upkeep.snapshots.total_seconds()),
        "orphans_kept_seconds": int(upkeep.orphans.total_seconds()),
        "tables": [
            {
                "table": names.table(table),
                "readers": [
                    f"{names.checkpoints(reader)}/{query}" for reader, query in readers(environment, table)
                ],
            }
            for table in maintained_tables(environment, job)
        ],
    }


def sources(environment: Environment, job: Job) -> dict[str, Stream]:
    """Return the streams that a job's queries read, by logical name and in the queries' order."""
    return {
        name: environment.streams[name]
        for query in job.queries.values()
        if isinstance(query, SourceQuery)
        for name in query.streams
    }


def kafka_clusters(environment: Environment, job: Job) -> tuple[str, ...]:
    """Return the logical names of the Kafka clusters that a job connects to."""
    found = (stream.cluster_name for stream in sources(environment, job).values())
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _connection(environment: Environment, cluster: str, names: Names) -> dict[str, Any]:
    kafka = environment.kafka[cluster]
    login, secret = kafka.authentication.kind, secret_of(kafka.authentication)
    return {
        "cluster": None if isinstance(kafka, ExternalCluster) else names.cluster(cluster),
        # CloudFormation has no attribute for the brokers: the job's role looks them up at start.
        "bootstrap_servers": kafka.bootstrap_servers if isinstance(kafka, ExternalCluster) else None,
        "authentication": login if secret is None else {"kind": login, "secret": secret[0]},
    }


def _query(environment: Environment, job: str, query: Query, plan: QueryPlan, names: Names) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "kind": query.kind,
        "name": plan.name,
        "trigger_seconds": float(plan.trigger_seconds.value),
    }
    if isinstance(query, SourceQuery):
        settings["repartition"] = None if plan.repartition is None else plan.repartition.value
    if isinstance(query, Routing):
        settings["routes"] = [
            _route(environment, job, query, name, route, plan, names) for name, route in query.routes.items()
        ]
    if isinstance(query, RouteQuery):
        return settings | {"table": names.table(query.table)}
    if isinstance(query, DirectRouteQuery):
        return settings | {"dead_letters": names.table(query.dead_letters)}
    if isinstance(query, StreamQuery):
        settings |= {
            "source": _source(environment, job, query, query.source, plan, names),
            **_payload(query, None),
        }
    if isinstance(query, LandQuery):
        return settings | {"table": names.table(query.table)}
    settings |= _written(environment, query, plan, names)
    if isinstance(query, DirectQuery):
        return settings | {"dead_letters": names.table(query.dead_letters)}
    latest = query.latest_by
    return settings | {
        "source_table": names.table(query.source),
        "route": query.route,
        "dead_letters": None if query.dead_letters is None else names.table(query.dead_letters),
        "state": None if query.state is None else _state(query.state, names),
        "latest_by": list(latest.key) if latest is not None else [],
        "latest_order": None if latest is None else latest.order,
    }


def _route(
    environment: Environment,
    job: str,
    query: Routing,
    name: str,
    route: Route,
    plan: QueryPlan,
    names: Names,
) -> dict[str, Any]:
    found = {"name": name, "origin": route.topic or names.stream(route.source), **_payload(route, name)}
    found["source"] = _source(environment, job, query, route.source, plan, names)
    return found | (_written(environment, route, plan, names) if isinstance(route, DirectRoute) else {})


def _written(environment: Environment, end: WritesSink, plan: QueryPlan, names: Names) -> dict[str, Any]:
    return {
        "enrich": [_enrichment(item, names) for item in end.enrich],
        "transform": end.transform,
        "sink": typed_json.write(end.sink.settings(SinkContext(names, batch_bytes(environment, end, plan)))),
    }


def _state(state: State, names: Names) -> dict[str, Any]:
    return {
        "watermark": _watermark(state.watermark),
        "distinct": list(state.distinct),
        "key": list(state.key),
        "output_mode": state.output_mode,
        "join": None
        if state.join is None
        else {
            "source_table": names.table(state.join.source),
            "route": state.join.route,
            "watermark": _watermark(state.join.watermark),
        },
    }


def _watermark(mark: Watermark) -> dict[str, Any]:
    return {
        "time": mark.time,
        "delay_seconds": mark.delay.total_seconds(),
        "ahead_seconds": mark.ahead.total_seconds(),
    }


def _source(
    environment: Environment,
    job: str,
    query: StreamQuery | Routing,
    name: str,
    plan: QueryPlan,
    names: Names,
) -> dict[str, Any]:
    assert plan.records_per_batch is not None, f"{plan.name}: no limit for a batch in the plan"
    each = plan.records_per_partition
    context = StreamContext(
        names,
        job,
        plan.name,
        query,
        plan.trigger_seconds.value,
        _part(environment, query, name, plan.records_per_batch.value),
        None if each is None else each.value,
        0.0 if each is None else _handed_over(environment.streams[name], each.value),
    )
    written: dict[str, Any] = typed_json.write(environment.streams[name].settings(name, context))
    return written


def _handed_over(stream: Stream, records: int) -> float:
    """Return the seconds that a partition needs to deliver so many records of average size to one reader."""
    out = (a_second(limit) for limit in stream.limits if limit.of == "bytes out")
    return sum(records * stream.traffic.record_size / each for each in out)


def _part(environment: Environment, query: StreamQuery | Routing, name: str, records: int) -> int:
    """Return a stream's share of a batch's records, in proportion to its peak arrivals; rounded up."""
    peaks = {
        each: environment.streams[each].traffic.records_per_second
        * environment.streams[each].traffic.peak_factor
        for each in query.streams
    }
    return records if len(peaks) == 1 else math.ceil(records * peaks[name] / sum(peaks.values()))


def _payload(asked: Payload, route: str | None) -> dict[str, Any]:
    return {
        "format": typed_json.write(asked.format.settings()),
        "schema": asked.schema_,
        "decompress_up_to": asked.decompress_up_to,
        "redact": list(asked.redact),
        "rules": [_rule(name, rule, route) for name, rule in asked.rules.items()],
    }


def _rule(name: str, rule: Rule, route: str | None) -> dict[str, str]:
    landed = rule.where
    if route is not None:
        from millrace.config.conditions import parse_condition  # its parser takes half a second to import

        landed = parse_condition(rule.where).condition_in_struct(route, frozenset(ENVELOPE))
    return {"name": name, "where": rule.where, "where_landed": landed, "action": rule.action}


def _enrichment(item: Enrichment, names: Names) -> dict[str, Any]:
    return {
        "table": names.table(item.table),
        "on": dict(item.on),
        "columns": dict(item.columns),
        "refresh_seconds": item.refresh.total_seconds(),
    }
