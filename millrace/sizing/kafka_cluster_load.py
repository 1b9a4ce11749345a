"""Load of a Kafka cluster's brokers, from the traffic of its topics and their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.config.aws.deployed_sizes_to_keep import DeployedCluster
from millrace.config.model import Environment
from millrace.sizing.plan_model import Inputs
from millrace.sizing.queries.demand import QueryDemand

MIB, GIB = 1024**2, 1024**3


@dataclass(frozen=True)
class ClusterLoad:
    """Load of a cluster's brokers from all its topics together.

    Attributes
    ----------
    mib_in
        MiB/s from producers at peak.
    stored_gib
        Data within retention at the average rate, in one copy.
    copies
        Replicas of each partition.
    gb_month, gb_month_out
        Data a month from producers and to readers, at the average rate, in GB of 10⁹ bytes.
    readers
        Readers of a byte at peak; a mean, as each topic has its own.
    topics
        Bytes a second at peak from producers and to readers, and the partitions, by topic.
    """

    mib_in: float
    stored_gib: float
    gb_month: float
    gb_month_out: float
    partitions: int
    readers: float
    assumed: bool
    copies: int
    topics: Mapping[str, tuple[float, float, int]]
    deployed: DeployedCluster | None = None
    inputs: Inputs = ()


def replication_factor(environment: Environment, cluster: str) -> int:
    """Return the number of copies of each partition: one in each zone, three at most.

    It follows the zones and not the brokers, so that a cluster can grow: no topic ever changes it. Topics that exist keep theirs.
    """
    deployed = environment.deployed_sizes.clusters.get(cluster)
    return (deployed and deployed.replication) or broker_zone_count(environment)


def cluster_load(
    environment: Environment,
    cluster: str,
    partitions: Mapping[str, int],
    demands: Mapping[str, Sequence[QueryDemand]],
) -> ClusterLoad:
    """Return the sum of all topics of one cluster, including topics of others on it.

    Parameters
    ----------
    partitions, demands
        By stream: partitions, and demands of the queries that read it.
    """
    topics = {name: stream for name, stream in environment.streams.items() if stream.cluster_name == cluster}
    peaks = {name: t.traffic.peak_records_per_second * t.traffic.record_size for name, t in topics.items()}
    peak = sum(peaks.values())
    # Queries that share a topic read it once, together.
    readers = {name: round(sum(demand.part for demand in demands.get(name, ()))) for name in topics}
    return ClusterLoad(
        mib_in=peak / MIB,
        stored_gib=sum(
            t.traffic.records_per_second * t.traffic.record_size * t.retention.total_seconds()
            for t in topics.values()
        )
        / GIB,
        gb_month=sum(t.traffic.monthly_gb for t in topics.values()),
        gb_month_out=sum(t.traffic.monthly_gb * readers[name] for name, t in topics.items()),
        partitions=sum(partitions[name] for name in topics),
        readers=sum(each / peak * readers[name] for name, each in peaks.items()),
        assumed=any(t.traffic.basis == "assumed" for t in topics.values()),
        copies=replication_factor(environment, cluster),
        topics={name: (each, each * readers[name], partitions[name]) for name, each in peaks.items()},
        deployed=environment.deployed_sizes.clusters.get(cluster),
        inputs=tuple(f"streams.{name}.expected_partitions" for name in topics),
    )


def broker_zone_count(environment: Environment) -> int:
    """Return the number of Availability Zones with brokers."""
    return min(3, environment.zone_count)
