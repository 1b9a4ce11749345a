"""Connections to Kafka clusters, as a launch document says them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SecretLogin:
    """What a cluster lets in by, or is known by, and the secret of Secrets Manager that holds it.

    Attributes
    ----------
    secret
        ARN of a JSON object: see :mod:`etl.sources.kafka.login`.
    """

    kind: Literal["scram-sha-512", "plain", "mutual-tls", "tls"]
    secret: str


@dataclass(frozen=True)
class Connection:
    """How to reach a Kafka cluster.

    MSK's brokers are known to AWS only: ``cluster`` is looked up at start by the
    job's own role, unless ``--bind kafka.NAME.bootstrap=HOST:PORT`` gives them.
    """

    cluster: str | None
    bootstrap_servers: str | None
    authentication: Literal["iam", "tls", "none"] | SecretLogin
