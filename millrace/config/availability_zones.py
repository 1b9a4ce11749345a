"""Availability Zones, by the ids that are the same in every account, in which a service has subnets."""

from __future__ import annotations

from datetime import date

from millrace.config.model import Environment, MskCluster

AS_OF = date(2026, 11, 23)
"""When the lists of zones were read."""

MSK_REFUSES = {"us-east-1": ("use1-az3",)}
"""By region, zones in which clients of MSK may have no subnets (MSK developer guide). Of other regions none is known here; MSK
names the zones that it refuses in its answer to a new cluster as well.
"""


def zones_to_use_instead(environment: Environment, zone: str) -> str | None:
    """Say which zones an environment may take in the place of one that a service of its own refuses; None where it may stay.

    Parameters
    ----------
    environment
        Its region, jobs and clusters.
    zone
        Such as ``use1-az1``.
    """
    for title, known in _limited(environment).items():
        if zone not in known:
            return f"zones in which {title} is ({AS_OF}): {', '.join(known)}"
    refused = MSK_REFUSES.get(environment.region, ())
    if own_brokers(environment) and zone in refused:
        return f"a zone that MSK takes ({AS_OF}): not {', '.join(refused)}"
    return None


def _limited(environment: Environment) -> dict[str, tuple[str, ...]]:
    """By the names of its engines that are limited to some zones of the region, those zones."""
    jobs = environment.jobs.values()
    return {job.title: job.zones[environment.region] for job in jobs if environment.region in job.zones}


def own_brokers(environment: Environment) -> bool:
    """Whether a cluster of MSK is made."""
    clusters = environment.kafka.values()
    return any(isinstance(each, MskCluster) and each.existing is None for each in clusters)


def chosen_by_aws(environment: Environment) -> str | None:
    """Warn of subnets whose zones AWS chooses, where a service is known to refuse some of the region's."""
    network, region = environment.network, environment.region
    if network.vpc is not None or network.zone_ids:
        return None
    services = list(_limited(environment))
    services += ["MSK"] * (region in MSK_REFUSES and own_brokers(environment))
    if not services:
        return None
    return (
        f"network.zone_ids: not given, so AWS chooses the zones, and {' and '.join(services)} may refuse one of them "
        f"(as of {AS_OF}); to name them after the first deployment replaces all subnets"
    )
