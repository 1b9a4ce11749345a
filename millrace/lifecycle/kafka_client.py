"""How to reach an environment's Kafka clusters from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from millrace.config.model import ExternalCluster
from millrace.config.names import Names
from millrace.lifecycle.deployed import NotDeployedError
from millrace.lifecycle.problems import AwsError, told

Settings = Mapping[str, Any]
"""Of librdkafka."""

_PROTOCOLS = {"none": "PLAINTEXT", "tls": "SSL"}


def settings(names: Names, cluster: str, client: Callable[[str], Any]) -> Settings:
    """Brokers and authentication of a cluster, with the caller's own AWS credentials where it asks for IAM.

    Parameters
    ----------
    names
        Of what is deployed.
    cluster
        Logical name.
    client
        Makes a boto3 client of a service.

    Raises
    ------
    NotDeployedError
        There is no such cluster.
    AwsError
        AWS refuses, or the cluster takes no one in by IAM.
    """
    kafka = names.environment.kafka[cluster]
    if isinstance(kafka, ExternalCluster):
        if kafka.authentication == "iam":
            return _by_iam(kafka.bootstrap_servers, names.environment.region)
        return {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": _PROTOCOLS[kafka.authentication],
        }
    name = names.cluster(cluster)
    with told(f"asking AWS for the brokers of {name}"):
        msk = client("kafka")
        found = msk.list_clusters_v2(ClusterNameFilter=name)["ClusterInfoList"]
        # The filter matches beginnings.
        arns = [c["ClusterArn"] for c in found if c["ClusterName"] == name]
        if not arns:
            raise NotDeployedError(f"there is no MSK cluster {name}: `millrace deploy` makes it")
        brokers = msk.get_bootstrap_brokers(ClusterArn=arns[0]).get("BootstrapBrokerStringSaslIam")
    if not brokers:
        raise AwsError(f"MSK cluster {name} offers no address for IAM authentication")
    return _by_iam(brokers, names.environment.region)


def _by_iam(brokers: str, region: str) -> Settings:
    def token(_: str) -> tuple[str, float]:
        made, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return made, expires_ms / 1000

    return {
        "bootstrap.servers": brokers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
    }
