"""How a job signs in to its brokers, and which MSK cluster they belong to: with IAM a job's role must name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from botocore.exceptions import ClientError

from millrace.advisor.script import Said


def servers_of(said: Said) -> str:
    """Bootstrap servers that a program names; empty where none."""
    return said.option("kafka.bootstrap.servers", "bootstrap.servers") or ""


def authentication_of(said: Said) -> Literal["iam", "tls", "none"]:
    """How a program signs in to them."""
    if "AWS_MSK_IAM" in (said.option("kafka.sasl.mechanism") or ""):
        return "iam"
    return "tls" if "SSL" in (said.option("kafka.security.protocol") or "") else "none"


def cluster_of(client: Callable[[str], Any], servers: str) -> str | None:
    """Find the ARN of the cluster of this account and region that offers one of these addresses for IAM.

    Asks ``kafka:ListClustersV2`` and ``kafka:GetBootstrapBrokers`` of each cluster.

    Parameters
    ----------
    client
        Makes a boto3 client of a service.
    servers
        ``host:port``, comma separated.

    Returns
    -------
    str or None
        None where there is no such cluster, or where it may not be asked for.
    """
    wanted = {each.strip() for each in servers.split(",")}
    kafka = client("kafka")
    try:
        for page in kafka.get_paginator("list_clusters_v2").paginate():
            for cluster in page["ClusterInfoList"]:
                arn = str(cluster["ClusterArn"])
                offered = kafka.get_bootstrap_brokers(ClusterArn=arn).get("BootstrapBrokerStringSaslIam", "")
                if wanted & set(offered.split(",")):
                    return arn
    except ClientError:
        return None
    return None
