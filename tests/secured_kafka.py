"""A real Kafka broker that accepts SCRAM, PLAIN over TLS, and client certificates only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # forgotten in its stubs
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import free_port
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.tls_proxy import Authority

USER, PASSWORD = "shop", 'hun"ter2 \\; sasl=$1'
"""With what a login module's text must escape."""


@dataclass(frozen=True)
class Guarded:
    """A broker with four listeners.

    Attributes
    ----------
    kafka
        With its plain one, by which tests make topics.
    servers
        ``scram-sha-512``, ``plain``, ``mutual-tls`` to ``localhost:port``.
    authority
        Signs the broker's certificate and those of its clients.
    """

    kafka: KafkaBroker
    servers: dict[str, str]
    authority: Authority

    def secret(self, authentication: str) -> dict[str, str]:
        """What lets in."""
        if authentication == "mutual-tls":
            certificate, key = self.authority.signed("client")
            held = {"certificate": certificate, "privateKey": key}
        else:
            held = {"username": USER, "password": PASSWORD}
        return {**held, "certificateAuthority": self.authority.pem.decode()}

    def set_password(self, password: str) -> None:
        """Of the user by SCRAM."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, how, password.encode())
        admin = self.kafka.admin()  # its futures die with it
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result()


@contextmanager
def running(folder: Path, *, days: int = 1) -> Iterator[Guarded]:
    """Start a broker; ``days`` is how long its certificate is good yet."""
    authority = Authority("ours")
    chain, key = authority.signed("localhost", names=("localhost",), days=days)
    (folder / "broker.pem").write_text(chain + key)
    (folder / "authority.pem").write_bytes(authority.pem)
    ports = {name: free_port() for name in ("scram-sha-512", "plain", "mutual-tls")}
    listeners = {
        "SCRAM": ("SASL_SSL", ports["scram-sha-512"]),
        "PLAIN": ("SASL_SSL", ports["plain"]),
        "MUTUAL": ("SSL", ports["mutual-tls"]),
    }
    module = "org.apache.kafka.common.security"
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        # Clients say every few seconds again who they are, as MSK asks of those that come by IAM.
        "listener.name.scram.scram-sha-512.connections.max.reauth.ms": "4000",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": (
            f'{module}.plain.PlainLoginModule required user_{USER}="{escaped}";'
        ),
    }
    with kafka_broker.running_broker(name="kafka-guarded", listeners=listeners, settings=settings) as broker:
        guarded = Guarded(broker, {name: f"localhost:{port}" for name, port in ports.items()}, authority)
        guarded.set_password(PASSWORD)
        yield guarded
