"""A real Kafka broker (KRaft, one node) on 127.0.0.1."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs

from millrace.sandbox import jars
from millrace.sandbox.process import RUN, Process, ended, free_port
from millrace.sandbox.toolchain import java_home, program_environment
from millrace.sizing.kafka import TIME_LIMITS

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True)
class Kafka:
    """A running broker; ``bootstrap`` is ``127.0.0.1:port``."""

    bootstrap: str
    process: Process

    def admin(self) -> AdminClient:
        """Make an admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    def create_topic(self, name: str, partitions: int, *, any_time: bool = False) -> None:
        """Create a topic without replicas and wait until it is there.

        Parameters
        ----------
        any_time
            Take records whatever their times say, as topics of others do.

        Raises
        ------
        KafkaException
            The broker refused, for one because the topic exists.
        """
        limits = {} if any_time else dict(TIME_LIMITS)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=limits)
        admin = self.admin()  # its futures die with it
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()


def _answers(bootstrap: str) -> bool:
    try:
        return bool(
            AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=1).brokers
        )
    except KafkaException:
        return False


@contextmanager
def running(
    *,
    keep: bool = False,
    listeners: Mapping[str, tuple[str, int]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Kafka]:
    """Start an empty broker and stop it at the end; one that is to be kept where what it is for fails only.

    Parameters
    ----------
    keep
        Whether it goes on where what it is for succeeds.
    listeners
        Beside the plain one: name to protocol and port, such as ``{"SCRAM": ("SASL_SSL", 9096)}``; clients find them at
        ``localhost``, for which certificates are.
    settings
        More of the broker's own.

    Raises
    ------
    SandboxError
        It did not start.
    """
    kafka = _start(listeners or {}, settings or {})
    with ended(kafka.process, keep=keep):
        yield kafka


def _start(listeners: Mapping[str, tuple[str, int]], more: Mapping[str, str]) -> Kafka:
    home = RUN / "kafka"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    broker, controller = free_port(), free_port()
    others = {name: f"{name}://localhost:{port}" for name, (_, port) in listeners.items()}
    plain = f"PLAINTEXT://127.0.0.1:{broker}"
    protocols = [f"{name}:{protocol}" for name, (protocol, _) in listeners.items()]
    settings = home / "server.properties"
    settings.write_text(
        "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{controller}",
                "listeners=" + ",".join((plain, f"CONTROLLER://127.0.0.1:{controller}", *others.values())),
                "advertised.listeners=" + ",".join((plain, *others.values())),
                "listener.security.protocol.map="
                + ",".join(("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *protocols)),
                "controller.listener.names=CONTROLLER",
                f"log.dirs={home / 'data'}",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
                "auto.create.topics.enable=false",
                "message.max.bytes=10485880",
                *(f"{name}={value}" for name, value in more.items()),
            )
        )
        + "\n"
    )
    class_path = ":".join(str(path) for path in jars.files("kafka-broker"))
    # Plain HotSpot flags: a broker of one node needs neither a large heap nor parallel collection.
    java: list[str | Path] = [java_home() / "bin" / "java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", class_path]
    log = RUN / "kafka.log"
    log.unlink(missing_ok=True)
    formatting = Process.start(
        "kafka-format",
        [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings],
        environment=program_environment(),
        log=log,
    )
    formatting.popen.wait()
    formatting.kill()
    process = Process.start(
        "kafka", [*java, "kafka.Kafka", settings], environment=program_environment(), log=log
    )
    bootstrap = f"127.0.0.1:{broker}"
    try:
        process.wait_until(lambda: _answers(bootstrap), seconds=60, what="answering")
    except BaseException:
        process.stop()
        raise
    return Kafka(bootstrap=bootstrap, process=process)
