"""Stored data in a plan's bill, and costs that no bill of a plan includes."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.base import grouped
from millrace.config.job_networks import reasons_for_vpc_by_part
from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, DirectRouteQuery, LandingQueryBase, Query, WritesSink
from millrace.sizing.cost import GB
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand


def gb_added_per_second(
    environment: Environment, query: Query, demand: QueryDemand, *, iceberg: bool = False
) -> float:
    """Return the data that a query adds to its tables, in GB of 10⁹ bytes a second at the average rate of each of its streams.

    Every record counts as a row, compressed by ``usage.stored_share``: rows that a transform leaves out or adds are unknown. A
    table whose rows replace each other, and results of a state, have no such rate: 0.

    Parameters
    ----------
    iceberg
        Only data that goes to Iceberg, whose files upkeep rewrites.
    """
    streams = set(demand.streams)
    if isinstance(query, DirectRouteQuery):
        streams = {route.source for route in query.routes.values() if _is_lake_writer(route, iceberg=iceberg)}
    elif not isinstance(query, LandingQueryBase) and not (
        _is_lake_writer(query, iceberg=iceberg) and _adds_a_row_per_record(query)
    ):
        return 0.0
    traffics = (environment.streams[name].traffic for name in demand.streams if name in streams)
    added = sum(each.records_per_second * each.record_size for each in traffics) * demand.part
    return added * service_limits()["usage.stored_share"] / GB


def replaced_file_days(environment: Environment) -> float:
    """Return how long a file is paid for after compaction has replaced it, in days; 0 without upkeep.

    It is kept as long as a snapshot names it, then as long as a bucket of ours keeps replaced versions.
    """
    storage = environment.storage
    if storage.upkeep is None:
        return 0.0
    versions = 0.0 if "lake" in storage.buckets else service_limits()["usage.replaced_days"]
    return storage.upkeep.snapshots.total_seconds() / 86_400 + versions


def unpriced_costs(environment: Environment) -> tuple[str, ...]:
    """Return the costs that are not in a plan's bill, because their rate is unknown."""
    found = [
        "reads from S3",
        "data transfer",
        "requests to KMS",
        "what tables keep beyond the first month",
        "checkpoints, dead letters and event logs",
        "requests of upkeep",
    ]
    rates = grouped(
        (what, f"{job}/{name}") for job, name, query in environment.queries for what in _unknown_costs(query)
    )
    found += [f"{what} of {', '.join(queries)}" for what, queries in rates.items()]
    if environment.history is not None:
        found += ["capacity units of the load balancer", "Container Insights of the history server"]
    if environment.governance.on_demand_advantage:
        found.append("the least throughput that on-demand Advantage bills an account for")
    if others := [name for name, each in environment.kafka.items() if not each.makes_topics]:
        found.append(f"peering or PrivateLink to {', '.join(others)}")
    if environment.network.vpc is None and reasons_for_vpc_by_part(environment):
        found.append("flow logs of the VPC")
    if environment.created_clusters:
        found.append("MSK's metrics by topic and broker")
    return tuple(found)


def _unknown_costs(query: Query) -> Iterator[str]:
    if isinstance(query, DeriveQuery) and query.state is not None:
        yield "requests of the state store"
    for each in query.sinks_by_place.values():
        if not each.sink.in_lake:
            yield f"the {each.sink.kind} sink"
        elif not _adds_a_row_per_record(each):
            yield "storage of the result"


def _is_lake_writer(query: WritesSink, *, iceberg: bool) -> bool:
    """Return whether a query writes files in the lake; with ``iceberg``, only those of its tables."""
    return query.sink.in_catalog if iceberg else query.sink.in_lake


def _adds_a_row_per_record(query: WritesSink) -> bool:
    """Return whether a query adds a row for each record."""
    if not isinstance(query, DeriveQuery) or not query.key:
        return not isinstance(query, DeriveQuery) or query.state is None
    return query.latest_by is not None and query.latest_by.history
