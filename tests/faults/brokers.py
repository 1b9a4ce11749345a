"""Brokers that go away: ``python -m tests.faults.brokers``.

Three brokers, a topic with three copies of everything and at least two in step, and the land job. While records flow the leader of a
partition is killed (kill -9) and comes back, each broker in turn is ended and started as an upgrade of a cluster does it, and
the job itself is killed while a leader is away. Ends with 1 where a record is missing or twice.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs

from millrace.sandbox import jars
from millrace.sandbox.process import RUN, Process, free_port
from millrace.sandbox.producer import KafkaProducer
from millrace.sandbox.toolchain import java_home, program_environment
from tests.faults.feed import Feed
from tests.faults.kafka import KafkaStage
from tests.faults.stage import StalledError, UnsupportedError

HOME = RUN / "faults-brokers"
BROKERS = 3
PARTITIONS = 6
TOPIC = "events"
SECONDS = 120.0
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass
class Cluster:
    """Brokers that can be ended one by one; ports and data stay theirs."""

    home: Path
    ports: list[int]
    controllers: list[int]
    processes: list[Process | None]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def leaders(self) -> dict[int, int]:
        """Leader of each partition, by node; -1 for none."""
        topic = self.admin().list_topics(TOPIC, timeout=10).topics[TOPIC]
        return {number: partition.leader for number, partition in topic.partitions.items()}

    def whole(self) -> bool:
        """Whether every copy is in step."""
        try:
            topic = self.admin().list_topics(TOPIC, timeout=5).topics[TOPIC]
        except KafkaException:
            return False
        return len(topic.partitions) == PARTITIONS and all(
            len(each.isrs) == BROKERS for each in topic.partitions.values()
        )

    def start(self, node: int) -> None:
        """Start a broker, again or for the first time."""
        java = _java()
        log = self.home / f"broker-{node}.log"
        self.processes[node - 1] = Process.start(
            f"broker-{node}",
            [*java, "kafka.Kafka", self.home / f"broker-{node}.properties"],
            environment=program_environment(),
            log=log,
        )

    def end(self, node: int, *, kill: bool) -> None:
        """End a broker, as a crash or as an upgrade does."""
        process = self.processes[node - 1]
        assert process is not None, f"broker {node} is away already"
        if kill:
            process.kill()
        else:
            process.stop(grace_seconds=60)
        self.processes[node - 1] = None

    def close(self) -> None:
        for process in self.processes:
            if process is not None:
                process.kill()


def _java() -> list[str | Path]:
    class_path = ":".join(str(path) for path in jars.files("kafka-broker"))
    return [java_home() / "bin" / "java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", class_path]


def _settings(cluster: Cluster, node: int) -> str:
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(cluster.controllers, 1))
    broker, controller = cluster.ports[node - 1], cluster.controllers[node - 1]
    return "\n".join(
        (
            "process.roles=broker,controller",
            f"node.id={node}",
            f"controller.quorum.voters={voters}",
            f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{broker}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={cluster.home / f'data-{node}'}",
            "offsets.topic.replication.factor=3",
            "transaction.state.log.replication.factor=3",
            "transaction.state.log.min.isr=2",
            "auto.create.topics.enable=false",
            "unclean.leader.election.enable=false",
            "broker.session.timeout.ms=6000",
            "replica.lag.time.max.ms=6000",
            "",
        )
    )


@contextmanager
def brokers(home: Path) -> Iterator[Cluster]:
    """Start three brokers, and end them."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    ports = [free_port() for _ in range(2 * BROKERS)]
    cluster = Cluster(home, ports[:BROKERS], ports[BROKERS:], [None] * BROKERS)
    try:
        for node in range(1, BROKERS + 1):
            file = home / f"broker-{node}.properties"
            file.write_text(_settings(cluster, node))
            formatting = Process.start(
                "kafka-format",
                [*_java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", file],
                environment=program_environment(),
                log=home / "format.log",
            )
            formatting.popen.wait()
            formatting.kill()
            cluster.start(node)
        _until(lambda: len(_known(cluster)) == BROKERS, "three brokers answer")
        topic = NewTopic(
            TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS, config={"min.insync.replicas": "2"}
        )
        admin = cluster.admin()
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()
        _until(cluster.whole, "every copy of the topic is in step")
        yield cluster
    finally:
        cluster.close()


def _known(cluster: Cluster) -> dict[int, Any]:
    try:
        return dict(cluster.admin().list_topics(timeout=2).brokers)
    except KafkaException:
        return {}


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise StalledError(f"not within {SECONDS:.0f} s: {what}")
        time.sleep(0.3)


@dataclass
class BrokersStage(KafkaStage):
    """The stage with the three brokers, which somebody else starts and ends."""

    cluster: Cluster | None = None

    def create_stream(self, shards: int) -> None:
        assert self.cluster is not None
        producer = KafkaProducer(self.cluster.bootstrap, TOPIC, settings={"acks": "all"})
        self.feed = Feed(producer, self.choose)  # type: ignore[arg-type]  # it sends as Kinesis' does

    def _connections(self) -> dict[str, Any]:
        assert self.cluster is not None
        main = {"kind": "external", "cluster": None, "authentication": "none"}
        return {"main": main | {"bootstrap_servers": self.cluster.bootstrap}}

    def close(self) -> None:
        for run in self.runs:
            run.kill()
        self.catalog.close()


def _others_lead(cluster: Cluster, gone: int) -> None:
    _until(lambda: gone not in cluster.leaders().values(), f"others lead the partitions of broker {gone}")


def _goes_on(stage: BrokersStage) -> None:
    before = stage.landed()
    _until(lambda: stage.landed() > before, "the job goes on")


def story(stage: BrokersStage, cluster: Cluster, records: int, say: Callable[[str], None]) -> None:
    """What happens, while records flow."""
    stage.feed.backlog(records // 10)
    stage.start()
    stage.until_landed(1)
    with stage.feed.flowing(per_second=records / 150):
        for _ in range(2):
            leader = cluster.leaders()[stage.choose.randrange(PARTITIONS)]
            cluster.end(leader, kill=True)
            say(
                f"broker {leader} is killed, leader of {sum(n == leader for n in cluster.leaders().values())} yet"
            )
            _others_lead(cluster, leader)
            _goes_on(stage)
            cluster.start(leader)
            _until(cluster.whole, "its copies are in step again")
        leader = cluster.leaders()[0]
        cluster.end(leader, kill=True)
        stage.job.kill()
        say(f"the job is killed while broker {leader} is away")
        stage.start()
        _goes_on(stage)
        cluster.start(leader)
        _until(cluster.whole, "its copies are in step again")
        for node in range(1, BROKERS + 1):
            cluster.end(node, kill=False)
            cluster.start(node)
            _until(cluster.whole, f"broker {node} is in step again")
            say(f"broker {node} was ended and started")
        stage.until(lambda: stage.feed.sent >= records, 600, "the last record is sent")
    stage.until_complete()


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.brokers", description="Brokers that go away."
    )
    reading.add_argument("--records", type=int, default=60_000)
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main(arguments: list[str] | None = None) -> int:
    """Play, compare, print."""
    given = parser().parse_args(arguments)
    begun = time.monotonic()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:5.0f} s: {line}\n")

    with brokers(HOME / "cluster") as cluster:
        choose = random.Random(given.seed)
        stage = BrokersStage(_NoKinesis(), HOME / "stage", TOPIC, choose, cluster=cluster)
        stalled = ""
        try:
            stage.create_stream(0)
            story(stage, cluster, given.records, say)
        except StalledError as error:
            stalled = str(error)
            say(stalled)
        finally:
            for run in stage.runs:
                run.kill()
        found = stage.account()
        batches = len(stage.batches())
        stage.close()
    sys.stdout.write(
        f"{found.produced:,} records, 3 leaders killed, 3 brokers restarted, the job killed once, {batches} batches: "
        f"{found.lost} lost, {found.duplicated} twice, {found.unknown + found.misjudged + found.altered} others"
        f"{'; STALLED' if stalled else ''}\n"
    )
    return int(bool(stalled) or not found.exact)


class _NoKinesis:
    """No stream is read here."""

    endpoint = ""

    def client(self) -> Any:
        return None

    def throttle(self, probability: float) -> None:
        raise UnsupportedError(f"brokers are read here: there is no stream to throttle to {probability:.0%}")

    def set_clock(self, ahead_seconds: float) -> None:
        raise UnsupportedError(
            f"brokers are read here: no stream has a clock to set {ahead_seconds:g} s ahead"
        )


if __name__ == "__main__":
    raise SystemExit(main())
