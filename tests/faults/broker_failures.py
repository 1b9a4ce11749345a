"""Fault test of Kafka brokers that stop: ``python -m tests.faults.broker_failures``.

Three brokers, a topic with three copies of everything and at least two in step, and the land job. While records flow the leader of a
partition is killed (kill -9) and comes back, each broker in turn is ended and started as an upgrade of a cluster does it, and
the job itself is killed while a leader is away. Ends with 1 where a record is missing or twice.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs

from millrace.sandbox.programs.child_processes import RUN, SandboxError, wait_until
from millrace.sandbox.records.producer import KafkaProducer
from tests.faults import kafka_cluster
from tests.faults.kafka_cluster import Cluster
from tests.faults.kafka_round_setup import KafkaStage
from tests.faults.record_sender import Feed
from tests.faults.round_setup import Stage

HOME = RUN / "faults-brokers"
BROKERS = 3
PARTITIONS = 6
TOPIC = "events"
SECONDS = 120.0


SETTINGS = {
    "unclean.leader.election.enable": "false",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "6000",
}


def leaders(cluster: Cluster) -> dict[int, int]:
    """Leader of each partition, by node; -1 for none."""
    topic = cluster.admin().list_topics(TOPIC, timeout=10).topics[TOPIC]
    return {number: partition.leader for number, partition in topic.partitions.items()}


def whole(cluster: Cluster) -> bool:
    """Whether every copy is in step."""
    try:
        topic = cluster.admin().list_topics(TOPIC, timeout=5).topics[TOPIC]
    except KafkaException:
        return False
    return len(topic.partitions) == PARTITIONS and all(
        len(each.isrs) == BROKERS for each in topic.partitions.values()
    )


@contextmanager
def brokers(home: Path) -> Iterator[Cluster]:
    """Start three brokers with the topic, and end them."""
    with kafka_cluster.cluster(home, BROKERS, SETTINGS) as cluster:
        topic = NewTopic(
            TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS, config={"min.insync.replicas": "2"}
        )
        admin = cluster.admin()
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()
        _until(lambda: whole(cluster), "every copy of the topic is in step")
        yield cluster


def _until(reached: Callable[[], bool], what: str) -> None:
    wait_until(reached, seconds=SECONDS, what=what, poll_seconds=0.3)


def _others_lead(cluster: Cluster, gone: int) -> None:
    _until(lambda: gone not in leaders(cluster).values(), f"others lead the partitions of broker {gone}")


def _goes_on(stage: Stage) -> None:
    before = stage.landed()
    _until(lambda: stage.landed() > before, "the job goes on")


def story(stage: Stage, cluster: Cluster, records: int, say: Callable[[str], None]) -> None:
    """What happens, while records flow."""
    stage.feed.backlog(records // 10)
    stage.start()
    stage.until_landed(1)
    with stage.feed.flowing(per_second=records / 150):
        for _ in range(2):
            leader = leaders(cluster)[stage.choose.randrange(PARTITIONS)]
            cluster.stop_broker(leader, kill=True)
            say(
                f"broker {leader} is killed, leader of {sum(n == leader for n in leaders(cluster).values())} yet"
            )
            _others_lead(cluster, leader)
            _goes_on(stage)
            cluster.start(leader)
            _until(lambda: whole(cluster), "its copies are in step again")
        leader = leaders(cluster)[0]
        cluster.stop_broker(leader, kill=True)
        stage.job.kill()
        say(f"the job is killed while broker {leader} is away")
        stage.start()
        _goes_on(stage)
        cluster.start(leader)
        _until(lambda: whole(cluster), "its copies are in step again")
        for node in range(1, BROKERS + 1):
            cluster.stop_broker(node, kill=False)
            cluster.start(node)
            _until(lambda: whole(cluster), f"broker {node} is in step again")
            say(f"broker {node} was ended and started")
        stage.until(lambda: stage.feed.sent >= records, 600, "the last record is sent")
    stage.until_complete()


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.broker_failures", description="Brokers that go away."
    )
    reading.add_argument("--records", type=int, default=60_000)
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main(arguments: list[str] | None = None) -> int:
    """Play, compare, print."""
    options = parser().parse_args(arguments)
    begun = time.monotonic()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:5.0f} s: {line}\n")

    with brokers(HOME / "cluster") as cluster:
        choose = random.Random(options.seed)
        # Brokers that somebody else starts and ends, so that the stage starts none.
        stage = KafkaStage(None, HOME / "stage", TOPIC, choose, bootstrap=cluster.bootstrap)
        stage.feed = Feed(KafkaProducer(cluster.bootstrap, TOPIC, settings={"acks": "all"}), choose)
        stalled = ""
        try:
            story(stage, cluster, options.records, say)
        except SandboxError as error:
            stalled = str(error)
            say(stalled)
        finally:
            stage.kill()
        result = stage.account()
        batches = len(stage.batches())
        stage.close()
    sys.stdout.write(
        f"{result.produced:,} records, 3 leaders killed, 3 brokers restarted, the job killed once, {batches} batches: "
        f"{result.lost} lost, {result.duplicated} twice, {result.unknown + result.misjudged + result.altered} others"
        f"{'; STALLED' if stalled else ''}\n"
    )
    return int(bool(stalled) or not result.exact)


if __name__ == "__main__":
    raise SystemExit(main())
