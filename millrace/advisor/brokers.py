"""How a job signs in to its brokers, and which MSK cluster they belong to: with IAM a job's role must name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from botocore.exceptions import ClientError

from millrace.advisor.job_program import ProgramSettings


def servers_of(said: ProgramSettings) -> str:
    """Bootstrap servers that a program names; empty where none."""
    return said.first_option("kafka.bootstrap.servers", "bootstrap.servers") or ""


def authentication_of(said: ProgramSettings) -> Literal["iam", "tls", "none"]:
    """How a program signs in to them."""
    if "AWS_MSK_IAM" in (said.first_option("kafka.sasl.mechanism") or ""):
        return "iam"
    return "tls" if "SSL" in (said.first_option("kafka.security.protocol") or "") else "none"


class Cluster(NamedTuple):
    """What is known of the cluster that a job signs in to.

    Attributes
    ----------
    arn
        None where there is no such cluster, or where it may not be asked for.
    refused
        What AWS refused on the way, for people; empty where nothing.
    """

    arn: str | None
    refused: str = ""


NOT_ASKED = Cluster(None)


def cluster_of(client: Callable[[str], Any], servers: str) -> Cluster:
    """Find the cluster of this account and region that offers one of these addresses for IAM.

    Asks ``kafka:ListClustersV2`` and ``kafka:GetBootstrapBrokers`` of each cluster. Who may not ask one may ask another.

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
