"""A real Kafka broker (KRaft) on 127.0.0.1."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs

from millrace.config.kafka.clusters import TIME_LIMITS
from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, free_port, stopping_at_end
from millrace.sandbox.programs.toolchain import java_home, program_variables

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True)
class KafkaBroker:
    """A running broker; ``bootstrap`` is ``127.0.0.1:port``."""

    bootstrap: str
    process: ChildProcess

    def admin(self) -> AdminClient:
        """Return an admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    def create_topic(self, name: str, partitions: int, *, any_time: bool = False) -> None:
        """Create a topic without replicas and wait until it exists.

        Parameters
        ----------
        any_time
            Accept records with any time, as other people's topics do.

        Raises
        ------
        KafkaException
            The broker refused, for example because the topic exists.
        """
        limits = {} if any_time else dict(TIME_LIMITS)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=limits)
        admin = self.admin()  # its futures end with it
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()


def broker_count(bootstrap: str) -> int:
    """Return the number of brokers that the answering one knows."""
    try:
        return len(
            AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=2).brokers
        )
    except KafkaException:
        return 0


@contextmanager
def running_broker(
    *,
    keep: bool = False,
    name: str = "kafka",
    listeners: Mapping[str, tuple[str, int]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[KafkaBroker]:
    """Start an empty broker and stop it at the end; with ``keep`` only after a failure.

    Parameters
    ----------
    keep
        Whether it runs on after success.
    name
        Name of its folder, its log and its process; a second broker needs another one.
    listeners
        Listeners beside the plain one: name to protocol and port, such as ``{"SCRAM": ("SASL_SSL", 9096)}``; their host is
        ``localhost``, as in the certificates.
    settings
        Further settings of the broker.

    Raises
    ------
    SandboxError
        It did not start.
    """
    home, log = RUN / name, RUN / f"{name}.log"
    shutil.rmtree(home, ignore_errors=True)
    log.unlink(missing_ok=True)
    ports = [free_port(), free_port()]
    write_broker_settings_and_format_storage(home, 1, ports[:1], ports[1:], listeners or {}, settings or {})
    process = start_broker(home, 1, name, log)
    bootstrap = f"127.0.0.1:{ports[0]}"
    process.wait_until(lambda: broker_count(bootstrap) == 1, seconds=60, what="answering")
    with stopping_at_end(process, keep=keep):
        yield KafkaBroker(bootstrap, process)


def write_broker_settings_and_format_storage(
    home: Path,
    number: int,
    ports: Sequence[int],
    controllers: Sequence[int],
    listeners: Mapping[str, tuple[str, int]],
    more: Mapping[str, str],
) -> None:
    """Write the settings of one broker of as many as there are ports, and format its log folder."""
    home.mkdir(parents=True, exist_ok=True)
    others = {name: f"{name}://localhost:{port}" for name, (_, port) in listeners.items()}
    plain = f"PLAINTEXT://127.0.0.1:{ports[number - 1]}"
    protocols = [f"{name}:{protocol}" for name, (protocol, _) in listeners.items()]
    control = f"CONTROLLER://127.0.0.1:{controllers[number - 1]}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(
            f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1)
        ),
        "listeners": ",".join((plain, control, *others.values())),
        "advertised.listeners": ",".join((plain, *others.values())),
        "listener.security.protocol.map": ",".join(
            ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *protocols)
        ),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": home / f"data-{number}",
        "offsets.topic.replication.factor": len(ports),
        "transaction.state.log.replication.factor": len(ports),
        "transaction.state.log.min.isr": min(2, len(ports)),
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "message.max.bytes": 10485880,
        **more,
    }
    file = _broker_properties_file(home, number)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*_broker_java_command(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", file]
    formatting = ChildProcess.start(
        "kafka-format", command, environment=program_variables(), log=home / "format.log"
    )
    formatting.popen.wait()
    formatting.kill()


def start_broker(home: Path, number: int, name: str, log: Path) -> ChildProcess:
    """Start a broker whose settings are written."""
    command = [*_broker_java_command(), "kafka.Kafka", _broker_properties_file(home, number)]
    return ChildProcess.start(name, command, environment=program_variables(), log=log)


def _broker_properties_file(home: Path, number: int) -> Path:
    return home / f"broker-{number}.properties"


def _broker_java_command() -> list[str | Path]:
    class_path = ":".join(str(path) for path in jars.jar_files("kafka-broker"))
    # Plain HotSpot flags: a broker of one node needs neither a large heap nor parallel collection.
    return [java_home() / "bin" / "java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", class_path]
