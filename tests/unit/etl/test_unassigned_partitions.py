"""A query stops if a shared topic has partitions that no job's list names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millrace.etl.launch.settings import Connection
from millrace.etl.launch.sources import KafkaReadingOptions, KafkaSource
from millrace.etl.record.errors import LossError, NoAnswerError, StartError
from millrace.etl.sources.kafka import connection as kafka
from millrace.etl.sources.kafka import topic_ids_and_partitions
from tests.unit.etl.test_source_options import FakeMsk

READING = KafkaReadingOptions(partitions=(0, 2), partition_count=4)
SOURCE = KafkaSource("orders", "shop.orders", "main", "earliest", 100, 3600, READING)


BROKERS = Connection(None, "broker:9092", "none")


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """Makes a watch of a topic that has so many partitions at its start, and so many later; None where brokers do not say."""

    def watch(*answers: int | None) -> Callable[[], None]:
        left = iter(answers)

        def count(*_: Any) -> int:
            if (result := next(left)) is None:
                raise NoAnswerError("TimeoutException: no broker")
            return result

        monkeypatch.setattr(topic_ids_and_partitions, "partition_count", count)
        spark: Any = None
        made = topic_ids_and_partitions.check_unlisted_partitions_and_return_checker(spark, SOURCE, BROKERS)
        assert made is not None
        return made

    return watch


@pytest.mark.parametrize("found", [4, 3])
def test_a_topic_that_the_lists_know_is_read(found: int, watching: Callable[..., Callable[[], None]]) -> None:
    watching(found, found)()


def test_new_partitions_are_named(watching: Callable[..., Callable[[], None]]) -> None:
    look = watching(4, 6)
    with pytest.raises(
        LossError, match=r"shop.orders has 6 partitions, .* were given only 4: no job reads 4, 5"
    ):
        look()
    with pytest.raises(StartError, match=r"stream orders: topic shop\.orders has 6"):
        watching(6)


def test_nobody_who_knows_stops_a_start_and_not_a_run(watching: Callable[..., Callable[[], None]]) -> None:
    look = watching(4, None)
    with pytest.raises(NoAnswerError):
        look()
    with pytest.raises(StartError, match="no broker"):
        watching(None)


def test_a_job_that_runs_asks_the_brokers_and_aws_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the brokers of a cluster are is asked once, and a refusal then is an error of the start."""
    msk, asked = FakeMsk(), list[Any]()

    def count(_spark: Any, topic: str, connecting: Any) -> int:
        asked.append((topic, connecting["kafka.bootstrap.servers"]))
        return 4

    monkeypatch.setattr(kafka, "_msk_client", lambda: msk)
    monkeypatch.setattr(topic_ids_and_partitions, "partition_count", count)
    spark: Any = None
    connection = Connection("acme-kafka", None, "iam")
    watch = topic_ids_and_partitions.check_unlisted_partitions_and_return_checker(spark, SOURCE, connection)
    assert watch is not None
    msk.refused = "TooManyRequestsException"
    watch()
    watch()
    assert asked == [("shop.orders", "iam.arn:acme-kafka:9098")] * 3
    with pytest.raises(StartError, match=r"MSK cluster acme-kafka: .*TooManyRequestsException"):
        topic_ids_and_partitions.check_unlisted_partitions_and_return_checker(spark, SOURCE, connection)
