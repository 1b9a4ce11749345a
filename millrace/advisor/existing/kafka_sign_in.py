"""Sign-in of a job to its brokers, and their MSK cluster: with IAM a job's role must name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from millrace.advisor.existing.stream_choice import ImportedStreamSettings
from millrace.config.aws.pagination import list_all


def bootstrap_servers_of(program: ImportedStreamSettings) -> str:
    """Return the bootstrap servers that a program names; empty without any."""
    return program.first_option("kafka.bootstrap.servers", "bootstrap.servers") or ""


_PASSWORDS = {"SCRAM-SHA-512": "scram-sha-512", "PLAIN": "plain"}


def broker_authentication(program: ImportedStreamSettings) -> BrokerAuthentication:
    """Return the authentication that a program uses for its brokers."""
    if "authentication" in program.open:
        return BrokerAuthentication(None, program.open["authentication"])
    mechanism = (program.first_option("kafka.sasl.mechanism", "sasl.mechanism") or "").upper()
    protocol = (program.first_option("kafka.security.protocol", "security.protocol") or "PLAINTEXT").upper()
    if "AWS_MSK_IAM" in mechanism:
        return BrokerAuthentication("iam")
    if protocol == "SASL_SSL" and mechanism in _PASSWORDS:
        return BrokerAuthentication(_PASSWORDS[mechanism], secret=program.first_option("secret") or "")
    if protocol not in ("PLAINTEXT", "SSL"):
        how = f"{protocol} with {mechanism or 'no mechanism'}"
        return BrokerAuthentication(
            None,
            f"the program signs in by {how}, which is none of iam, scram-sha-512 and plain over TLS: offer one of these on the cluster",
        )
    if program.first_option("kafka.ssl.keystore.location", "ssl.keystore.location"):
        return BrokerAuthentication("mutual-tls", secret="")
    return BrokerAuthentication("tls" if protocol == "SSL" else "none")


class BrokerAuthentication(NamedTuple):
    """Authentication of a job at its brokers.

    Attributes
    ----------
    kind
        As the environment file names it; None where it is open.
    open
        The question then.
    secret
        ARN of the secret of a kind that needs one; empty where it is not known.
    """

    kind: str | None
    open: str = ""
    secret: str | None = None


class FoundCluster(NamedTuple):
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


NOT_ASKED = FoundCluster(None)


def find_msk_cluster(client: Callable[[str], Any], servers: str) -> FoundCluster:
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
    addresses = {each.strip() for each in servers.split(",")}
    kafka = client("kafka")
    refused: list[str] = []
    try:
        arns = [str(each["ClusterArn"]) for each in list_all(kafka, "list_clusters_v2", "ClusterInfoList")]
    except ClientError as error:
        return FoundCluster(None, f"kafka:ListClustersV2 was refused: {error}")
    for arn in arns:
        try:
            offered = kafka.get_bootstrap_brokers(ClusterArn=arn).get("BootstrapBrokerStringSaslIam", "")
        except ClientError as error:
            refused.append(f"kafka:GetBootstrapBrokers of {arn} was refused: {error}")
            continue
        if addresses & set(offered.split(",")):
            return FoundCluster(arn)
    return FoundCluster(None, "; ".join(refused))
