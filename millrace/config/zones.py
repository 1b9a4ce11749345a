"""Availability Zones, by the ids that are the same in every account, in which a service has subnets."""

from __future__ import annotations

from datetime import date

from millrace.config.model import EmrJob, Environment, MskCluster

AS_OF = date(2026, 11, 23)
"""When :data:`EMR_SERVERLESS` was read."""

EMR_SERVERLESS = {
    "us-east-1": ("use1-az1", "use1-az2", "use1-az4", "use1-az5", "use1-az6"),
    "us-east-2": ("use2-az1", "use2-az2", "use2-az3"),
}
"""By region, the zones to which EMR Serverless says it is limited (its user guide, "Endpoints and quotas").

Of other regions the list is not known here, and of Glue and Fargate none at all.
"""

MSK_REFUSES = {"us-east-1": ("use1-az3",)}
"""By region, zones in which clients of MSK may have no subnets (MSK developer guide). Of other regions none is known here; MSK
names the zones that it refuses in its answer to a new cluster as well.
"""


def unfit(environment: Environment, zone: str) -> str | None:
    """Say which zones an environment may take in the place of one that a service of its own refuses; None where it may stay.

    Parameters
    ----------
    environment
        Its region, jobs and clusters.
    zone
        Such as ``use1-az1``.
    """
    known = EMR_SERVERLESS.get(environment.region)
    if known is not None and on_emr(environment) and zone not in known:
        return f"zones in which EMR Serverless is ({AS_OF}): {', '.join(known)}"
    refused = MSK_REFUSES.get(environment.region, ())
    if own_brokers(environment) and zone in refused:
        return f"a zone that MSK takes ({AS_OF}): not {', '.join(refused)}"
    return None


def on_emr(environment: Environment) -> bool:
    """Whether a job runs on EMR Serverless."""
    return any(isinstance(job, EmrJob) for job in environment.jobs.values())


def own_brokers(environment: Environment) -> bool:
    """Whether a cluster of MSK is made."""
    clusters = environment.kafka.values()
    return any(isinstance(each, MskCluster) and each.existing is None for each in clusters)


def chosen_by_aws(environment: Environment) -> str | None:
    """Warn of subnets whose zones AWS chooses, where a service is known to refuse some of the region's."""
    network, region = environment.network, environment.region
    if network.vpc is not None or network.zone_ids:
        return None
    services = ["EMR Serverless"] * (region in EMR_SERVERLESS and on_emr(environment))
    services += ["MSK"] * (region in MSK_REFUSES and own_brokers(environment))
    if not services:
        return None
    return (
        f"network.zone_ids: not given, so AWS chooses the zones, and {' and '.join(services)} may refuse one of them "
        f"(as of {AS_OF}); to name them after the first deployment makes all subnets anew"
    )
