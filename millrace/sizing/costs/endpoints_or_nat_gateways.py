"""Network path from jobs to AWS: called services, and the choice between endpoints and NAT gateways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from millrace.config.aws.foreign_accounts_and_hosts import hosts_of_urls_and_servers, hosts_on_internet
from millrace.config.job_networks import reason_job_runs_in_vpc, reasons_for_vpc_by_part
from millrace.config.kafka.login import secret_and_key_arns_of_login
from millrace.config.model import Environment, Job, MskCluster, Stream
from millrace.sizing.cost import HOURS, cost_item, quantity_by_tier
from millrace.sizing.plan_model import CostItem, Figure, FigureInput, NetworkPlan, pinned_figure
from millrace.sizing.prices_and_limits import PriceTable
from millrace.sizing.readable_numbers import count, join_names

Egress = Literal["endpoints", "nat"]


_NAMES: Mapping[Egress, str] = {"endpoints": "endpoints", "nat": "NAT gateways"}


_DATA_TIERS = ((0, ""), (1e6, "after_1000000."), (5e6, "after_5000000."))
"""GB a month before each tier of an endpoint's data, and the tier's price name (price page of PrivateLink)."""

_AWS_DOMAINS = ("*.amazonaws.com", "*.amazonaws.com.cn", "*.api.aws", "*.internal")
"""Domains of services, and of machines in a VPC (VPC user guide, "DNS attributes for your VPC")."""

_LOOKUPS_HOUR = 120
"""Times in an hour that a worker asks for a name: Java keeps an answer for 30 seconds (``networkaddress.cache.ttl``)."""


def called_services(environment: Environment) -> tuple[str, ...]:
    """Return the AWS services that are called from the VPC, by the names of their endpoints.

    S3 and DynamoDB are not among them: their gateway endpoints cost nothing. A service that
    no job calls has no endpoint, as each costs by the hour and zone.
    """
    jobs = jobs_in_vpc(environment).values()
    found = ["logs", "monitoring", "kms", "sts", "glue"] if jobs else ["logs"] * bool(environment.history)
    found += dict.fromkeys(each for stream in _streams_read_in_vpc(environment) for each in stream.services)
    if any(isinstance(cluster, MskCluster) for cluster in environment.kafka.values()):
        found.append("kafka")
    if environment.observability.prometheus and any(job.remote_writes for job in jobs):
        found.append("aps-workspaces")
    asked = {service for job in jobs for sink in job.sinks for service in sink.services}
    if any(secret_and_key_arns_of_login(cluster.authentication) for cluster in environment.kafka.values()):
        asked.add("secretsmanager")
    found += sorted(asked.difference(found))
    if environment.history is not None:
        found += ["ecr.api", "ecr.dkr"]
    return tuple(found)


def jobs_in_vpc(environment: Environment) -> dict[str, Job]:
    """Return the jobs that run in the VPC, by name."""
    return {
        name: job
        for name, job in environment.jobs.items()
        if reason_job_runs_in_vpc(environment, name) is not None
    }


def _streams_read_in_vpc(environment: Environment) -> list[Stream]:
    """Return the streams that queries of jobs in the VPC read; one for each query."""
    return [
        environment.streams[name]
        for job in jobs_in_vpc(environment).values()
        for query in job.queries.values()
        for name in query.source_stream_names
    ]


def needs_private_history_image(environment: Environment, network: NetworkPlan) -> bool:
    """Return whether the history server's image must be in the account's own registry before the server is deployed.

    Interface endpoints do not reach the public gallery (ECR user guide, "VPC endpoints"); NAT gateways do, unless the DNS
    firewall stops them: the gallery's layers are at a host of CloudFront, whose other hosts are anybody's. The network of an
    existing VPC is unknown, and a private copy works in all cases.
    """
    history = environment.history
    reached = network.egress.value == "nat" and environment.network.allowed_domains is None
    return history is not None and history.image is None and not reached


def network_plan_and_cost_items(
    environment: Environment, prices: PriceTable
) -> tuple[NetworkPlan, tuple[CostItem, ...]]:
    """Choose the egress of a VPC that the environment creates.

    Parameters
    ----------
    environment
        ``network.egress`` is the policy: ``cheapest`` lets the plan choose.

    Returns
    -------
    tuple
        The plan, and its cost; an existing VPC costs this environment nothing, and neither does none.
    """
    if not reasons_for_vpc_by_part(environment):
        why = "no job needs a VPC: all reach AWS by its public endpoints, with TLS and IAM"
        return NetworkPlan(Figure("none", "egress", why), (), 0), ()
    called = called_services(environment)
    if environment.network.vpc is not None:
        why = f"{environment.network.vpc} is left as it is; it must reach {', '.join(called)} and S3"
        return NetworkPlan(pinned_figure("existing", "egress", why, ("network", "vpc")), called, 0), ()
    zones, asked = environment.zone_count, environment.network.egress
    costs = _cost_items_by_egress(environment, called, prices)
    usd = {way: sum(line.usd for line in cost) for way, cost in costs.items()}
    tree = environment.value_locations.tree
    outside = [] if tree is None else hosts_on_internet(tree.child("kafka"), tree.child("jobs"))
    possible: tuple[Egress, ...] = ("nat",) if outside else ("endpoints", "nat")
    chosen = min(possible, key=usd.__getitem__) if asked == "cheapest" else asked
    other: Egress = "nat" if chosen == "endpoints" else "endpoints"
    unreached = {
        "nat": f", without a route to {join_names(outside)} unless by peering or PrivateLink",
        "endpoints": f"; {join_names(outside)} only by peering or PrivateLink",
    }[chosen] * bool(outside)
    why = (
        f"{_NAMES[chosen]} ${usd[chosen]:,.0f} a month, {_NAMES[other]} ${usd[other]:,.0f}"
        f" for {', '.join(called)} in {zones} zones{unreached}"
    )
    figure: Figure[str] = Figure(
        chosen,
        "egress",
        why,
        "computed" if asked == "cheapest" else "pinned",
        assumed=any(line.assumed for cost in costs.values() for line in cost),
        inputs=lambda: (FigureInput("egress", asked, path=("network", "egress")),),
    )
    first, *rest = costs[chosen]
    first = replace(first, why=f"{first.why}; {_NAMES[other]} would make it ${usd[other]:,.0f}{unreached}")
    return NetworkPlan(figure, called, zones), (first, *rest)


def _gb_read_monthly_and_is_assumed(streams: Iterable[Stream]) -> tuple[float, bool]:
    """Return the GB a month that queries in the VPC read from streams, and whether that is assumed."""
    read = [stream.traffic for stream in streams]
    return sum(each.monthly_gb for each in read), any(each.basis == "assumed" for each in read)


def _clusters_on_internet(environment: Environment) -> list[str]:
    """Return the Kafka clusters whose brokers are on the internet, by their names."""
    tree = environment.value_locations.tree
    return [name for name in environment.kafka if tree and hosts_on_internet(tree.at(("kafka", name)))]


def _cost_items_by_egress(
    environment: Environment, called: tuple[str, ...], prices: PriceTable
) -> dict[Egress, tuple[CostItem, ...]]:
    zones, read = environment.zone_count, _streams_read_in_vpc(environment)
    far = _clusters_on_internet(environment)
    # S3's traffic uses its gateway endpoint.
    volume, guess = _gb_read_monthly_and_is_assumed(each for each in read if each.services)
    brokers, _ = _gb_read_monthly_and_is_assumed(each for each in read if each.cluster_name in far)
    data = f"{volume + brokers:,.0f} GB"
    if brokers:
        data += f", {brokers:,.0f} of them from {join_names(far)} on the internet; peering or PrivateLink would bypass the gateways"
    endpoints = f"{', '.join(called)} in {zones} zones"
    # One in each zone: the failure of a zone affects only its own gateway.
    gateways = f"{count(zones, 'gateway')}, one in each zone, for {HOURS} h"
    return {
        "endpoints": (
            cost_item(
                "endpoints",
                len(called) * zones,
                "network.endpoint_month",
                prices,
                endpoints,
                assumed=False,
            ),
            *(
                cost_item(
                    "endpoint data", gb, f"network.{tier}endpoint_gb", prices, f"{gb:,.0f} GB", assumed=guess
                )
                for _, tier, gb in quantity_by_tier(volume, _DATA_TIERS) or [(0, "", 0.0)]
            ),
        ),
        "nat": (
            cost_item("NAT gateways", zones * HOURS, "network.nat_hour", prices, gateways, assumed=False),
            cost_item(
                "NAT data", volume + brokers, "network.nat_gb", prices, data, assumed=guess or brokers > 0
            ),
        ),
    }


def domains_to_resolve(environment: Environment) -> tuple[str, ...]:
    """Return the domains that the DNS firewall lets through: those of AWS, of the file's hosts, and the allowed ones."""
    tree = environment.value_locations.tree
    hosts = [] if tree is None else hosts_of_urls_and_servers(tree)
    return tuple(sorted({*_AWS_DOMAINS, *hosts, *(environment.network.allowed_domains or ())}))


def dns_firewall_cost_items(
    environment: Environment, workers: int, prices: PriceTable
) -> tuple[CostItem, ...]:
    """Return the cost of the DNS firewall, if there is one.

    Parameters
    ----------
    workers
        Of all jobs; each is taken to ask for each service and for S3 whenever its answer expires.
    """
    if environment.network.allowed_domains is None:
        return ()
    names = len(called_services(environment)) + 1
    queries = workers * names * _LOOKUPS_HOUR * HOURS / 1e6
    domains = len(domains_to_resolve(environment)) + 1
    why = f"{count(workers, 'worker')} ask for {count(names, 'name')} {_LOOKUPS_HOUR} times an hour"
    return (
        cost_item("DNS queries", queries, "network.dns_million_queries", prices, why, assumed=True),
        cost_item(
            "DNS domains",
            domains,
            "network.dns_domain_month",
            prices,
            f"{count(domains, 'domain')}, all others as one",
            assumed=False,
        ),
    )


def created_kms_keys_with_contents(environment: Environment) -> dict[str, str]:
    """Return the keys that are created here, as ``class of data: what it holds``.

    A class with a customer's own key (``storage.keys``), or without resources
    of the environment, has none.
    """
    given = environment.storage.keys
    streams = any(stream.is_created for stream in environment.streams.values())
    clusters = any(each.tier != "serverless" for each in environment.created_clusters.values())
    wanted = {
        "data": "tables, checkpoints, dead letters",
        "logs": "event logs, log groups",
        "alerts": "alerts, state machines",
        **({"streams": "streams"} if streams else {}),
        **({"kafka": "Kafka topics"} if clusters else {}),
    }
    return {name: holds for name, holds in wanted.items() if getattr(given, name) is None}
