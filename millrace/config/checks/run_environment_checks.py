"""Checks for mistakes that one section alone cannot show, without Spark, CDK or a network.

Each check takes the readable parts of the environment and yields findings; none
stops at the first, so that one load reports everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path as FilePath

from millrace.config.aws import kafka_versions
from millrace.config.aws.regions import AS_OF, REGIONS
from millrace.config.base import arn_region_account_resource
from millrace.config.checks.jobs import check_jobs
from millrace.config.checks.kafka import check_login
from millrace.config.checks.network_storage_observability import check_infrastructure
from millrace.config.checks.resource_names_and_tags import check_names, check_tags
from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import MISSING, Finding, Path, findings_for_refused_keys
from millrace.config.job_networks import check_job_networks
from millrace.config.model import Environment, MskCluster
from millrace.config.sources.base import StreamUse


def run_checks(
    environment: Environment, streams: Set[str], clusters: Set[str], root: FilePath
) -> Iterator[Finding]:
    """Run every check.

    Parameters
    ----------
    environment
        Only its valid parts if other parts are broken.
    streams, clusters
        Names of all that the file declares, also of broken ones, so that a job that
        reads a broken stream gets no message that the stream is unknown.
    root
        Folder of the project, with schemas and transforms.

    Yields
    ------
    Finding
        In no particular order.
    """
    yield from check_names(environment)
    if environment.region not in REGIONS:
        yield Finding(
            ("region",),
            environment.region,
            f"a region of AWS, as of {AS_OF}",
            did_you_mean_text(environment.region, REGIONS),
        )
    for check in (check_tags, check_infrastructure, check_job_networks, _check_clusters):
        yield from check(environment)
    for name, stream in environment.streams.items():
        yield from stream.check(StreamUse(name, environment, clusters))
    yield from check_jobs(environment, streams, root)


def _check_clusters(environment: Environment) -> Iterator[Finding]:
    zones = min(3, environment.zone_count)
    for name, cluster in environment.kafka.items():
        path = ("kafka", name)
        yield from check_login(name, cluster)
        if not isinstance(cluster, MskCluster):
            for server in cluster.bootstrap_servers.split(","):
                host, _, port = server.strip().rpartition(":")
                if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
                    yield Finding((*path, "bootstrap_servers"), server.strip(), "host:port, comma separated")
            if cluster.authentication.kind == "iam" and cluster.arn is None:
                yield Finding(
                    (*path, "arn"),
                    MISSING,
                    "the cluster's ARN, as a job's role must name what it connects to",
                )
            continue
        if cluster.existing is not None:
            yield from _check_existing_cluster(environment, path, cluster, cluster.existing)
            continue
        versions = kafka_versions.supported_or_unconfirmed_versions(cluster.tier)
        if cluster.tier != "serverless" and cluster.version not in versions:
            on = "" if cluster.version not in kafka_versions.STANDARD else f" with tier {cluster.tier}"
            yield Finding(
                (*path, "version"),
                cluster.version,
                f"one of {', '.join(versions)}{on}",
                did_you_mean_text(cluster.version, versions),
            )
        if cluster.tier == "express":
            yield from findings_for_refused_keys(
                path,
                cluster,
                ("storage",),
                "none, because Express brokers have no volumes whose size you choose",
            )
        if cluster.tier == "express" and zones != 3:
            yield Finding(
                (*path, "tier"), "express", f"express only over 3 Availability Zones; the network has {zones}"
            )
        if cluster.tier == "serverless":
            allowed = "nothing: a serverless cluster has no brokers to size"
            yield from findings_for_refused_keys(
                path, cluster, ("brokers", "broker_type", "storage"), allowed
            )
            yield from _check_serverless_topics(environment, name)
            continue
        if cluster.brokers is not None and cluster.brokers % zones:
            yield Finding(
                (*path, "brokers"),
                str(cluster.brokers),
                f"a multiple of {zones}, the same number in each Availability Zone",
            )


def _check_serverless_topics(environment: Environment, cluster: str) -> Iterator[Finding]:
    """Refuse topics that would have to be created: CloudFormation creates them on provisioned clusters only (AWS::MSK::Topic)."""
    for name, stream in environment.streams.items():
        if stream.cluster_name == cluster and not stream.belongs_to_others:
            yield Finding(
                ("streams", name, "existing"),
                "false",
                f"true, as {cluster} is a serverless cluster, on which CloudFormation makes no topics",
                "deploy the cluster, make the topic with Kafka's own kafka-topics.sh, then start the job; or take tier: "
                "standard or express",
            )


def _check_existing_cluster(
    environment: Environment, path: Path, cluster: MskCluster, existing: str
) -> Iterator[Finding]:
    allowed = "nothing: an existing cluster is never changed"
    yield from findings_for_refused_keys(
        path, cluster, ("brokers", "broker_type", "storage", "disposable"), allowed
    )
    region, account, _ = arn_region_account_resource(existing)
    if region != environment.region or account != (environment.account or account):
        yield Finding(
            (*path, "existing"),
            existing,
            f"a cluster of account {environment.account} in {environment.region}",
            "one elsewhere is kind: external, with its bootstrap_servers and arn",
        )
