"""Access to an environment's Kafka clusters from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from millrace.config.aws.resource_names import Names
from millrace.config.kafka.login import PasswordLogin, secret_and_key_arns_of_login
from millrace.config.model import ExternalCluster
from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

Settings = Mapping[str, Any]
"""Settings of librdkafka."""

_BROKERS = {
    "iam": "BootstrapBrokerStringSaslIam",
    "scram-sha-512": "BootstrapBrokerStringSaslScram",
    "mutual-tls": "BootstrapBrokerStringTls",
    "tls": "BootstrapBrokerStringTls",
    "none": "BootstrapBrokerString",
}

_PRIVATE = {
    "username": "sasl.username",
    "password": "sasl.password",
    "certificate": "ssl.certificate.pem",
    "privateKey": "ssl.key.pem",
    "certificateAuthority": "ssl.ca.pem",
}
"""Keys of a secret to librdkafka's settings."""


def cluster_connection_settings(names: Names, cluster: str, client: Callable[[str], Any]) -> Settings:
    """Return brokers and authentication of a cluster, with the caller's AWS credentials for IAM.

    The same credentials read a cluster's secret.

    Parameters
    ----------
    cluster
        Its logical name.
    client
        Makes a boto3 client of a service.

    Raises
    ------
    NotDeployedError
        There is no such cluster.
    AwsError
        AWS refuses, the cluster has no address for its kind of authentication, or the secret does not fit.
    """
    kafka = names.environment.kafka[cluster]
    login = kafka.authentication
    brokers = (
        kafka.bootstrap_servers
        if isinstance(kafka, ExternalCluster)
        else bootstrap_servers_of_cluster(names, cluster, client)
    )
    if login.kind == "iam":
        return _iam_connection_settings(brokers, names.environment.region)
    result = {
        "bootstrap.servers": brokers,
        "security.protocol": "PLAINTEXT" if login.kind == "none" else "SSL",
    }
    if isinstance(login, PasswordLogin):
        result |= {"security.protocol": "SASL_SSL", "sasl.mechanism": login.kind.upper()}
    secret = secret_and_key_arns_of_login(login)
    return result if secret is None else result | _client_options_of_secret(secret[0], client)


def _client_options_of_secret(secret: str, client: Callable[[str], Any]) -> dict[str, str]:
    with translating_aws_errors(f"cannot read secret {secret}"):
        text = client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]
    try:
        return {_PRIVATE[key]: value for key, value in json.loads(text).items() if key in _PRIVATE}
    except (ValueError, AttributeError):
        # Without its cause, whose text might contain the secret.
        raise AwsError(
            f"the value of secret {secret} must be a JSON object with the login to the cluster "
            "(docs/sources.md)"
        ) from None


def bootstrap_servers_of_cluster(names: Names, cluster: str, client: Callable[[str], Any]) -> str:
    """Ask MSK for the addresses of a cluster's brokers, for its kind of authentication.

    Raises
    ------
    NotDeployedError
        There is no such cluster.
    AwsError
        AWS refuses, or the cluster has no address for that kind.
    """
    kind = names.environment.kafka[cluster].authentication.kind
    name = names.cluster(cluster)
    with translating_aws_errors(f"cannot read the brokers of {name}"):
        msk = client("kafka")
        clusters = msk.list_clusters_v2(ClusterNameFilter=name)["ClusterInfoList"]
        # The filter matches prefixes.
        if not (arns := [c["ClusterArn"] for c in clusters if c["ClusterName"] == name]):
            raise NotDeployedError(f"MSK cluster {name} does not exist yet; `millrace deploy` creates it")
        brokers = msk.get_bootstrap_brokers(ClusterArn=arns[0]).get(_BROKERS[kind])
    if not brokers:
        raise AwsError(f"MSK cluster {name} has no broker address for authentication {kind}")
    return str(brokers)


def _iam_connection_settings(brokers: str, region: str) -> Settings:
    def iam_token_and_expiry(_: str) -> tuple[str, float]:
        made, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return made, expires_ms / 1000

    return {
        "bootstrap.servers": brokers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": iam_token_and_expiry,
    }
