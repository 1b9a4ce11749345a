"""Checks of a Kafka cluster's authentication: the cluster supports it, and jobs can read its secret."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.base import arn_region_account_resource
from millrace.config.checks.network_storage_observability import check_same_region
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.kafka.login import TlsLogin, secret_and_key_arns_of_login
from millrace.config.model import Environment, ExternalCluster, MskCluster

MSK_SECRET = "AmazonMSK_"  # noqa: S105 - what the names of secrets begin with
"""Prefix of secrets that MSK accepts (MSK developer guide, "Set up SASL/SCRAM authentication for an Amazon MSK cluster",
read 2026-11-23; it also excludes secrets that are encrypted with AWS' own key).
"""


def check_login(
    environment: Environment, name: str, cluster: MskCluster | ExternalCluster
) -> Iterator[Finding]:
    """Check a cluster's ``authentication`` for contradictions.

    Parameters
    ----------
    environment
        Its region is where the jobs run.
    """
    login, path = cluster.authentication, ("kafka", name, "authentication")
    if isinstance(cluster, MskCluster):
        yield from _check_msk_login(path, cluster)
    if isinstance(login, TlsLogin) and login.secret is None and login.secret_key is not None:
        yield Finding((*path, "secret_key"), login.secret_key, "nothing without secret")
    arn = secret_and_key_arns_of_login(login)
    if arn is None:
        return
    secret, key = arn
    yield from check_same_region((*path, "secret"), secret, "a secret", environment.region)
    yield from check_same_region((*path, "secret_key"), key, "a key", environment.region)


def _check_msk_login(path: Path, cluster: MskCluster) -> Iterator[Finding]:
    login = cluster.authentication
    if login.kind == "iam":
        return
    if cluster.existing is None:
        yield Finding(
            path,
            login.kind,
            "iam: a cluster that this environment creates supports no other authentication",
            "for another authentication, name an existing cluster with existing, or with kind: external",
        )
    elif cluster.tier == "serverless":
        yield Finding(path, login.kind, "iam: a serverless cluster supports no other authentication")
    elif login.kind == "plain":
        yield Finding(path, login.kind, "iam, scram-sha-512, mutual-tls, tls or none: MSK has no SASL/PLAIN")
    elif login.kind == "scram-sha-512":
        secret, key = login.secret, login.secret_key
        if not arn_region_account_resource(secret)[2].removeprefix("secret:").startswith(MSK_SECRET):
            yield Finding(
                (*path, "secret"), secret, f"a secret whose name begins with {MSK_SECRET}: MSK takes no other"
            )
        if key is None:
            yield Finding(
                (*path, "secret_key"),
                MISSING,
                "the secret's customer key: MSK takes no secret with AWS' own key",
            )
