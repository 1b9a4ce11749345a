"""Connections to Kafka clusters, as a launch document defines them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SecretLogin:
    """Method of authentication at a cluster, and the secret in Secrets Manager that it needs.

    Attributes
    ----------
    secret
        ARN of a JSON object: see :mod:`etl.sources.kafka.login`.
    """

    kind: Literal["scram-sha-512", "plain", "mutual-tls", "tls"]
    secret: str


@dataclass(frozen=True)
class Connection:
    """Address and authentication of a Kafka cluster.

    The addresses of MSK's brokers are known to AWS only: the job's own role looks up ``cluster`` at
    start, unless ``--bind kafka.NAME.bootstrap=HOST:PORT`` gives them.
    """

    cluster: str | None
    bootstrap_servers: str | None
    authentication: Literal["iam", "tls", "none"] | SecretLogin
