"""Checks of everything around streams and jobs: network, storage, observability, history server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import IPv4Network

from millrace.config.aws import zones_refused_by_services
from millrace.config.aws.regions import LACKING
from millrace.config.base import arn_region_account_resource
from millrace.config.document.problems import MISSING, Finding, Path, findings_for_refused_keys
from millrace.config.model import Environment
from millrace.config.units import format_duration

_DAY = timedelta(days=1)

FARGATE_MEMORY_GIB = {1: range(2, 9), 2: range(4, 17), 4: range(8, 31)}
"""Memory in GiB that Fargate offers, by vCPUs (ECS developer guide, "Task CPU and memory")."""


def check_infrastructure(environment: Environment) -> Iterator[Finding]:
    """Check every section that is neither stream, cluster nor job."""
    for check in (
        _check_network,
        _check_storage,
        _check_reference_refresh_before_expiry,
        _check_observability,
        _check_region_has_resource_types,
        _check_history_server,
        _check_role_accounts,
    ):
        yield from check(environment)


def _check_role_accounts(environment: Environment) -> Iterator[Finding]:
    """Check that roles belong to the environment's account, as services accept no others."""
    named: list[tuple[Path, str | None]] = [
        *((("jobs", name, "role"), job.role) for name, job in environment.jobs.items()),
        (("network", "flow_logs_role"), environment.network.flow_logs_role),
        (("observability", "channel_role"), environment.observability.channel_role),
    ]
    for path, role in named:
        if role is not None and arn_region_account_resource(role)[1] != (
            environment.account or arn_region_account_resource(role)[1]
        ):
            yield Finding(path, role, f"a role of account {environment.account}")


def _check_reference_refresh_before_expiry(environment: Environment) -> Iterator[Finding]:
    """Check that a reference table is refreshed before the snapshot that a job reads can expire."""
    if (upkeep := environment.storage.upkeep) is None:
        return
    for job, name, query in environment.queries:
        enrich = [
            ((*place, "enrich", str(number)), item)
            for place, end in query.sinks_by_place.items()
            for number, item in enumerate(end.enrich)
        ]
        for place, item in enrich:
            if 2 * item.refresh > upkeep.snapshots and item.table not in environment.tables:
                yield Finding(
                    ("jobs", job, "queries", name, *place, "refresh"),
                    format_duration(item.refresh),
                    f"at most {format_duration(upkeep.snapshots / 2)}, half of storage.upkeep.snapshots: after "
                    "that the snapshot that is read may expire",
                )


def _check_network(environment: Environment) -> Iterator[Finding]:
    network = environment.network
    if network.subnets and network.vpc is None:
        yield Finding(
            ("network", "subnets"),
            ", ".join(network.subnets),
            "only together with network.vpc, which holds them",
        )
    if network.vpc is not None and len(set(network.subnets)) < 2:
        yield Finding(
            ("network", "subnets"),
            ", ".join(network.subnets) or MISSING,
            f"two or more subnets of {network.vpc}, in different Availability Zones",
        )
    for subnet, zone in network.zones.items():
        if subnet not in network.subnets:
            yield Finding(("network", "zones", subnet), zone, "only subnets that network.subnets lists")
        elif not zone.startswith(environment.region):
            yield Finding(("network", "zones", subnet), zone, f"a zone of {environment.region}")
    if network.zones and len(set(network.zones.values())) < 2:
        yield Finding(
            ("network", "zones"), ", ".join(network.zones.values()), "two or more Availability Zones"
        )
    if network.vpc is not None:
        keys = ("flow_logs_role", "allowed_domains", *(["egress"] if network.egress != "endpoints" else []))
        allowed = f"nothing: the existing VPC {network.vpc} is never changed"
        yield from findings_for_refused_keys(("network",), network, keys, allowed)
    yield from _check_zone_ids(environment)
    try:
        cidr = IPv4Network(network.cidr)
    except ValueError as error:
        yield Finding(("network", "cidr"), network.cidr, f"an IPv4 range, such as 10.42.0.0/16: {error}")
        return
    if not 16 <= cidr.prefixlen <= 24 or not cidr.is_private:
        yield Finding(
            ("network", "cidr"), network.cidr, "a private range from /16 to /24, such as 10.42.0.0/16"
        )


def _check_zone_ids(environment: Environment) -> Iterator[Finding]:
    network = environment.network
    if not network.zone_ids:
        return
    path, zone_ids = ("network", "zone_ids"), ", ".join(network.zone_ids)
    if network.vpc is not None:
        yield Finding(
            path, zone_ids, f"nothing: the subnets of the existing VPC {network.vpc} have their zones"
        )
    elif len(set(network.zone_ids)) != len(network.zone_ids) or (
        len(network.zone_ids) != (network.availability_zones or max(2, min(3, len(network.zone_ids))))
    ):
        count = network.availability_zones or "2 or 3"
        yield Finding(path, zone_ids, f"{count} different zones, as network.availability_zones says")
    for zone in network.zone_ids:
        if (allowed := zones_refused_by_services.suggest_zones_instead_of(environment, zone)) is not None:
            yield Finding(path, zone, allowed)


def _check_storage(environment: Environment) -> Iterator[Finding]:
    storage = environment.storage
    owners: dict[str, str] = {}
    existing: dict[str, str] = {str(kind): bucket for kind, bucket in storage.buckets.items()}
    if storage.database is not None:
        existing["database"] = storage.database
    for kind, bucket in storage.buckets.items():
        if (first := owners.setdefault(bucket, kind)) != kind:
            yield Finding(
                ("storage", "buckets", kind), bucket, f"a bucket of its own: {first} is {bucket} already"
            )
    for name in storage.disposable:
        if name in existing:
            yield Finding(
                ("storage", "disposable"), name, f"nothing that exists: {existing[name]} is not ours"
            )
    for key in ("dead_letter_retention", "event_log_retention"):
        value: timedelta | None = getattr(storage, key)
        if value is not None and value % _DAY:
            yield Finding(("storage", key), format_duration(value), "whole days, such as 30d")
    retention = storage.dead_letter_retention
    longest = max((stream.retention for stream in environment.streams.values()), default=timedelta(0))
    if retention is not None and retention < longest:
        # A record that is read again from its stream must still be known as a dead letter.
        yield Finding(
            ("storage", "dead_letter_retention"),
            format_duration(retention),
            f"at least {format_duration(longest)}, as long as a stream keeps its records",
        )


def _check_region_has_resource_types(environment: Environment) -> Iterator[Finding]:
    """Check that the region has the resource types; otherwise CloudFormation fails in the middle of a deployment."""
    region = environment.region
    observability = environment.observability
    if observability.prometheus and region in LACKING["AWS::APS::Workspace"]:
        yield Finding(
            ("observability", "prometheus"), "true", f"false in {region}, which has no such workspace"
        )
    if observability.channels and region in LACKING["AWS::Chatbot::SlackChannelConfiguration"]:
        yield Finding(
            ("observability", "channels"),
            str(observability.channels),
            f"none in {region}, which has no such service",
        )
    if region in LACKING["AWS::MSK::ServerlessCluster"]:
        for name, cluster in environment.created_clusters.items():
            if cluster.tier == "serverless":
                allowed = f"standard or express in {region}, which has no serverless clusters"
                yield Finding(("kafka", name, "tier"), "serverless", allowed)


def _check_observability(environment: Environment) -> Iterator[Finding]:
    if environment.observability.channels and environment.observability.channel_role is None:
        yield Finding(("observability", "channel_role"), MISSING, "a role for the channels")
    if (retention := environment.observability.prometheus_retention) % _DAY:
        path = ("observability", "prometheus_retention")
        yield Finding(path, format_duration(retention), "whole days, such as 150d")


def _check_history_server(environment: Environment) -> Iterator[Finding]:
    if (history := environment.history) is None:
        return
    path: Path = ("history",)
    memory = FARGATE_MEMORY_GIB[history.vcpu]
    if history.memory_gib not in memory:
        yield Finding(
            (*path, "memory_gib"),
            str(history.memory_gib),
            f"with {history.vcpu} vCPU: {memory[0]} to {memory[-1]}",
        )
    for position, text in enumerate(history.clients):
        try:
            private = IPv4Network(text).is_private
        except ValueError:
            private = False
        if not private:
            yield Finding((*path, "clients", position), text, "a private IPv4 range, such as 10.0.0.0/8")
    if history.sign_in is not None and history.certificate is None:
        yield Finding(
            (*path, "certificate"),
            MISSING,
            "a certificate: without HTTPS, anybody on the network can take over a session",
        )
