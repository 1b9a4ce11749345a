"""Sign-in of a job to its brokers, and their MSK cluster: with IAM a job's role must name it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from millrace.config.aws.pagination import list_all

if TYPE_CHECKING:
    from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings


def bootstrap_servers_of(program: ImportedStreamSettings) -> str:
    """Return the bootstrap servers that a program names; empty without any."""
    return program.first_option("kafka.bootstrap.servers", "bootstrap.servers") or ""


_PASSWORDS = {"SCRAM-SHA-512": "scram-sha-512", "PLAIN": "plain"}

_SIGN_INS_BY_PORT = {
    port: {"kafka.security.protocol": protocol, "kafka.sasl.mechanism": mechanism}
    for ports, protocol, mechanism in (
        (("9092",), "PLAINTEXT", ""),
        (("9094", "9194"), "SSL", ""),
        (("9096", "9196"), "SASL_SSL", "SCRAM-SHA-512"),
        (("9098", "9198"), "SASL_SSL", "AWS_MSK_IAM"),
    )
    for port in ports
}
"""Ports of MSK's brokers, and those for access from outside (MSK developer guide, "Port information")."""


def names_sign_in(options: Mapping[str, str]) -> bool:
    """Return whether options name a protocol, or the mechanism that has one protocol alone."""
    names = ("security.protocol", "sasl.mechanism")
    values = [options.get(f"{prefix}{each}", "").upper() for prefix in ("kafka.", "") for each in names]
    return any(re.search("AWS_MSK_IAM|SSL|PLAINTEXT", each) for each in values)


def security_options_of_port(servers: str) -> dict[str, str] | None:
    """Return the options that the port of bootstrap servers stands for; None if it is none of MSK's, or if they have several."""
    ports = set(re.findall(r":(\d+)", servers))
    return _SIGN_INS_BY_PORT.get(ports.pop()) if len(ports) == 1 else None


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
