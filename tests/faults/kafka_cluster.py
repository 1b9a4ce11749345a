"""Several Kafka brokers on 127.0.0.1 that can be stopped one by one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import ChildProcess, free_port, wait_until


@dataclass
class Cluster:
    """Brokers that can be stopped one by one, and keep their ports and data. Numbers start at 1."""

    home: Path
    ports: Sequence[int]
    processes: dict[int, ChildProcess] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, running or not."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def admin(self) -> AdminClient:
        """Return an admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self, number: int) -> None:
        """Start a broker, for the first time or again."""
        name = f"broker-{number}"
        self.processes[number] = kafka_broker.start_broker(self.home, number, name, self.home / f"{name}.log")

    def stop_broker(self, number: int, *, kill: bool) -> None:
        """Stop a broker, as a crash or as an upgrade does."""
        process = self.processes.pop(number)
        if kill:
            process.kill()
        else:
            process.stop(grace_seconds=60)


@contextmanager
def cluster(home: Path, count: int, settings: Mapping[str, str]) -> Iterator[Cluster]:
    """Start several empty brokers, and stop them at the end.

    Parameters
    ----------
    home
        Their folder; an existing one is deleted.
    settings
        Further settings of the brokers.

    Raises
    ------
    SandboxError
        They did not start.
    """
    shutil.rmtree(home, ignore_errors=True)
    ports = [free_port() for _ in range(2 * count)]
    made = Cluster(home, ports[:count])
    try:
        for number in range(1, count + 1):
            kafka_broker.write_broker_settings_and_format_storage(
                home, number, ports[:count], ports[count:], {}, settings
            )
            made.start(number)
        answering = partial(kafka_broker.broker_count, made.bootstrap)
        runs = tuple(made.processes.values())
        wait_until(lambda: answering() == count, seconds=120, what="all answering", runs=runs)
        yield made
    finally:
        for number in list(made.processes):
            made.stop_broker(number, kill=True)
