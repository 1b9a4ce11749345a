"""Queries of an environment that report each metric, and their number."""

from __future__ import annotations

from collections import Counter

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, Query, SourceQueryBase
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
        name
        for name, query in environment.jobs[job].queries.items()
        if _reports_metric(metric.of, environment, query)
    )


def metric_count(environment: Environment) -> int:
    """Return the number of metrics that an environment sends; each combination of name and dimensions counts as one."""
    kinds = Counter(metric.of if metric.is_per_query else "job" for metric in METRICS)
    return len(environment.jobs) * kinds.pop("job") + sum(
        number * _reports_metric(of, environment, query)
        for *_, query in environment.queries
        for of, number in kinds.items()
    )


def _reports_metric(kinds: str, environment: Environment, query: Query) -> bool:
    if kinds == "rules":
        return any(
            each.rules_with_any_field_rule(environment.value_locations.root)
            for each in query.stream_readings_by_place.values()
        )
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
    }[kinds]
