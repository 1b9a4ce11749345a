"""Queries of an environment that report each metric, and their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from functools import lru_cache

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, SourceQueryBase
from millrace.etl.launch.metric_names import METRICS, PREFIX, Metric


def metric_namespace(job: str) -> str:
    """Return the CloudWatch namespace of a job's metrics; its role may write in no other, because alarms depend on them.

    Parameters
    ----------
    job
        Deployed name.

    Examples
    --------
    >>> metric_namespace("flights-prod-departures")
    'Millrace/flights-prod-departures'
    """
    return f"{PREFIX}/{job}"


def reporting_queries(metric: Metric, environment: Environment, job: str) -> tuple[str, ...]:
    """Return the queries of a job that report a metric; none for a metric of the job itself.

    Parameters
    ----------
    metric
        One of :data:`etl.launch.metric_names.METRICS`.
    job
        Name of a job in the environment.
    """
    return tuple(
        name for name in environment.jobs[job].queries if _reported_kinds(environment, job, name)[metric.of]
    )


def metric_count(environment: Environment) -> int:
    """Return the number of metrics that an environment sends; each combination of name and dimensions counts as one."""
    kinds = Counter(metric.of if metric.is_per_query else "job" for metric in METRICS)
    return len(environment.jobs) * kinds.pop("job") + sum(
        number * reported[of]
        for job, name, _ in environment.queries
        for reported in (_reported_kinds(environment, job, name),)
        for of, number in kinds.items()
    )


@lru_cache(maxsize=4)
def queries_with_rules(environment: Environment) -> Set[tuple[str, str]]:
    """Return job and name of each query with data rules, also that of its schema, for which its file is read."""
    root = environment.value_locations.root
    return {
        (job, name)
        for job, name, query in environment.queries
        if any(each.rules_with_any_field_rule(root) for each in query.stream_readings_by_place.values())
    }


def _reported_kinds(environment: Environment, job: str, name: str) -> Mapping[str, bool]:
    """Return for each kind of metric whether a query reports it."""
    query = environment.jobs[job].queries[name]
    reads = isinstance(query, SourceQueryBase)
    return {
        "job": False,
        "query": True,
        "source": reads,
        "kafka": isinstance(query, SourceQueryBase)
        and all(environment.streams[name].counted for name in query.source_stream_names),
        "letters": reads or (isinstance(query, DeriveQuery) and query.dead_letters is not None),
        "state": isinstance(query, DeriveQuery) and query.state is not None,
        "latest": isinstance(query, DeriveQuery) and query.latest_by is not None,
        "rules": (job, name) in queries_with_rules(environment),
    }
