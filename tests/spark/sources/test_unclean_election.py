"""A query detects a topic whose new leader lost records and reused their offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs
from pyspark.sql import SparkSession

from millrace.sandbox.programs.child_processes import wait_until
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults import kafka_cluster
from tests.faults.broker_failures import SETTINGS
from tests.faults.kafka_cluster import Cluster
from tests.spark.sinks.test_latest_by import Customers

UNCLEAN = {"unclean.leader.election.enable": "true"}


class OnTwo(KafkaBroker):
    """A cluster whose topics have copies on its first two brokers."""

    def create_topic(self, name: str, partitions: int, *, any_time: bool = False) -> None:
        topic = NewTopic(
            name, num_partitions=partitions, replica_assignment=[[1, 2]] * partitions, config=UNCLEAN
        )
        admin = self.admin()  # its futures end with it
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()


class Renamed(Customers):
    """A job whose stream can get another name, and a new checkpoint."""

    label = "events"

    def reset(self) -> None:
        shutil.rmtree(self.checkpoints)

    def landed(self) -> tuple[int, int]:
        """Rows of the landing table, and identities."""
        rows = self.spark.table(self._full("landed"))
        return rows.count(), rows.select("_source", "_id").distinct().count()

    def _queries(self) -> list[dict[str, Any]]:
        land, *others = super()._queries()
        land["source"]["name"] = self.label
        return [land, *others]

    def put_ten(self, text: str) -> None:
        for number in range(10):
            self.put(number, text)
        self.sent()


def await_leader(cluster: Cluster, topic: str, leader: int) -> None:
    """Wait until a broker leads all partitions, alone."""

    def reached() -> bool:
        try:
            result = cluster.admin().list_topics(topic, timeout=5).topics[topic]
        except KafkaException:
            return False
        return all((each.leader, each.isrs) == (leader, [leader]) for each in result.partitions.values())

    wait_until(reached, seconds=60, what=f"broker {leader} leads alone", poll_seconds=0.3)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_log_that_lost_what_was_read_is_told_and_nothing_is_doubled(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kafka_cluster.cluster(tmp_path / "cluster", 3, SETTINGS | UNCLEAN) as cluster:
        broker = OnTwo(cluster.bootstrap, cluster.processes[1])
        job, late = (Renamed(spark, broker, tmp_path) for _ in range(2))
        for text in ("first", "lost"):
            for each in (job, late):
                each.put_ten(text)
                assert each.run().status == 0
            if text == "first":
                cluster.stop_broker(2, kill=True)
                await_leader(cluster, job._topic, 1)
                await_leader(cluster, late._topic, 1)
        cluster.stop_broker(1, kill=True)
        cluster.start(2)
        await_leader(cluster, job._topic, 2)
        await_leader(cluster, late._topic, 2)
        before = dict(job.latest)
        for texts in ((), ("others", "others again")):
            for text in texts:
                job.put_ten(text)
            # The batch is planned: it is told although the log has become longer than what was read.
            told = job.run()
            assert told.status == 1
            assert f"{job._topic}-" in told.message
            assert "offset was changed from 10 to 5" in told.message
            assert job.held() == before, "what has landed stays"

        job.reset()
        told = job.run()
        assert told.status == 1
        assert "with another payload" in told.message
        assert job.held() == before

        job.reset()
        job.label = "events-2"
        assert job.run().status == 0
        assert job.held() == job.latest
        assert job.landed() == (50, 50)

        # Of a log that is longer again before the job looks, it reads on where it was.
        late.put_ten("passed over")
        late.put_ten("others")
        assert late.run().status == 0
        assert late.held() == late.latest
        assert late.landed() == (30, 30)
        job.drop()
        late.drop()
