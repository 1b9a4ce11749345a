"""Sign-in of a job to its brokers, and their MSK cluster: with IAM a job's role must name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from botocore.exceptions import ClientError

from millrace.advisor.job_program import ProgramSettings


def servers_of(said: ProgramSettings) -> str:
    """Return the bootstrap servers that a program names; empty without any."""
    return said.first_option("kafka.bootstrap.servers", "bootstrap.servers") or ""


def authentication_of(said: ProgramSettings) -> Literal["iam", "tls", "none"]:
    """Return the authentication that a program uses for its brokers."""
    if "AWS_MSK_IAM" in (said.first_option("kafka.sasl.mechanism") or ""):
        return "iam"
    return "tls" if "SSL" in (said.first_option("kafka.security.protocol") or "") else "none"


class Cluster(NamedTuple):
    """The cluster that a job signs in to, as far as it is known.

    Attributes
    ----------
    arn
        None where there is no such cluster, or where the look-up was refused.
    refused
        What AWS refused during the look-up, for people; else empty.
    """

    arn: str | None
    refused: str = ""


NOT_ASKED = Cluster(None)


def cluster_of(client: Callable[[str], Any], servers: str) -> Cluster:
    """Find the cluster of this account and region that offers one of these addresses for IAM.

    Asks ``kafka:ListClustersV2`` and ``kafka:GetBootstrapBrokers`` of each cluster. A refusal for one cluster does
    not end the search.

    Parameters
    ----------
    client
        Makes a boto3 client of a service.
    servers
        ``host:port``, comma separated.
    """
    wanted = {each.strip() for each in servers.split(",")}
    kafka = client("kafka")
    refused: list[str] = []
    try:
        pages = list(kafka.get_paginator("list_clusters_v2").paginate())
    except ClientError as error:
        return Cluster(None, f"kafka:ListClustersV2 was refused: {error}")
    for arn in (str(cluster["ClusterArn"]) for page in pages for cluster in page["ClusterInfoList"]):
        try:
            offered = kafka.get_bootstrap_brokers(ClusterArn=arn).get("BootstrapBrokerStringSaslIam", "")
        except ClientError as error:
            refused.append(f"kafka:GetBootstrapBrokers of {arn} was refused: {error}")
            continue
        if wanted & set(offered.split(",")):
            return Cluster(arn)
    return Cluster(None, "; ".join(refused))
