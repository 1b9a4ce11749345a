"""A topic that grew beyond the lists of the jobs that share it out is never read in part, in silence."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.etl.launch.settings import Connection
from millrace.etl.record.errors import LossError, StartError, UnansweredError
from millrace.etl.sources.kafka import connection as kafka
from millrace.etl.sources.kafka import topic_state
from millrace.etl.sources.kafka.source import KafkaReading, KafkaSource
from millrace.etl.sources.kafka.topic_state import Watch
from tests.unit.etl.test_sources import FakeMsk

READING = KafkaReading(partitions=(0, 2), partition_count=4)
SOURCE = KafkaSource("kafka", "orders", "shop.orders", "main", "earliest", 100, 3600, READING)


def refuses() -> int:
    raise UnansweredError("TimeoutException: no broker")


@pytest.mark.parametrize("found", [4, 3])
def test_a_topic_that_the_lists_know_is_read(found: int) -> None:
    watch = Watch(SOURCE, lambda: found)
    watch()
    watch.at_start()


def test_new_partitions_are_named() -> None:
    watch = Watch(SOURCE, lambda: 6)
    with pytest.raises(LossError, match=r"shop.orders has 6 partitions, .* know 4: nobody reads 4, 5"):
        watch()
    with pytest.raises(StartError, match=r"stream orders: topic shop\.orders has 6"):
        watch.at_start()


def test_nobody_who_knows_stops_a_start_and_not_a_run() -> None:
    watch = Watch(SOURCE, refuses)
    with pytest.raises(UnansweredError):
        watch()
    with pytest.raises(StartError, match="no broker"):
        watch.at_start()


def test_a_job_that_runs_asks_the_brokers_and_aws_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the brokers of a cluster are is asked once, and a refusal then is an error of the start."""
    msk, asked = FakeMsk(), list[Any]()

    def count(_spark: Any, topic: str, connecting: Any) -> int:
        asked.append((topic, connecting["kafka.bootstrap.servers"]))
        return 4

    monkeypatch.setattr(kafka, "_msk_client", lambda: msk)
    monkeypatch.setattr(topic_state, "count", count)
    spark: Any = None
    connection = Connection("msk", "acme-kafka", None, "iam")
    watch = topic_state.watch(spark, SOURCE, connection)
    assert watch is not None
    msk.refused = "TooManyRequestsException"
    watch()
    watch()
    assert asked == [("shop.orders", "iam.arn:acme-kafka:9098")] * 2
    with pytest.raises(StartError, match=r"MSK cluster acme-kafka: .*TooManyRequestsException"):
        topic_state.watch(spark, SOURCE, connection)
