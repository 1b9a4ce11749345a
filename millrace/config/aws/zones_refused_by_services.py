"""Availability Zones that a service refuses, and zones instead of them, by the ids that are the same in every account."""

from __future__ import annotations

from datetime import date

from millrace.config.job_networks import reasons_for_vpc_by_part
from millrace.config.model import Environment

AS_OF = date(2026, 11, 23)
"""Date on which the lists of zones were read."""

MSK_REFUSES = {"us-east-1": ("use1-az3",)}
"""Zones in which clients of MSK may have no subnets, by region (MSK developer guide). For other regions none is known here;
MSK also names the zones that it refuses when it refuses a new cluster.
"""


def suggest_zones_instead_of(environment: Environment, zone: str) -> str | None:
    """Say which zones can replace one that a service of the environment refuses; None if the zone may stay.

    Parameters
    ----------
    zone
        Such as ``use1-az1``.
    """
    for title, known in _zones_by_limited_engine(environment).items():
        if zone not in known:
            return f"zones in which {title} is ({AS_OF}): {', '.join(known)}"
    refused = MSK_REFUSES.get(environment.region, ())
    if environment.created_clusters and zone in refused:
        return f"a zone that MSK takes ({AS_OF}): not {', '.join(refused)}"
    return None


def _zones_by_limited_engine(environment: Environment) -> dict[str, tuple[str, ...]]:
    """Return the zones of each engine that is limited to some zones of the region, by the engine's name."""
    jobs = environment.jobs.values()
    return {job.title: job.zones[environment.region] for job in jobs if environment.region in job.zones}


def warning_if_aws_chooses_zones(environment: Environment) -> str | None:
    """Warn if AWS chooses the zones of subnets and a service is known to refuse some zones of the region."""
    network, region = environment.network, environment.region
    if network.vpc is not None or network.zone_ids or not reasons_for_vpc_by_part(environment):
        return None
    services = list(_zones_by_limited_engine(environment))
    services += ["MSK"] * (region in MSK_REFUSES and bool(environment.created_clusters))
    if not services:
        return None
    return (
        f"network.zone_ids: not given, so AWS chooses the zones, and {' and '.join(services)} may refuse one of them "
        f"(as of {AS_OF}); to name them after the first deployment replaces all subnets"
    )
