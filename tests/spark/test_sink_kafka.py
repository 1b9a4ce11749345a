"""Kafka: a real broker; every message has the identity by which a reader tells a repeated one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from etl.errors import StartError
from etl.settings import Connection
from etl.settings_sinks import KafkaSinkSettings
from etl.sinks.base import Written
from etl.sinks.kafka import KafkaSink
from millrace.sandbox import kafka
from millrace.sandbox.kafka import Kafka
from tests.spark.sinks import Refused, breaking, none_refused, place, results, row, rows


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with kafka.running() as running:
        yield running


def sink(broker: Kafka, topic: str, key: str | None = None, most: int = 100_000) -> KafkaSink:
    connection = Connection("external", None, broker.bootstrap, "none")
    return KafkaSink(KafkaSinkSettings("kafka", topic, "main", key, most), connection)


def messages(broker: Kafka, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, in the order of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[dict[str, Any]] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "the broker does not answer"
        if message.error():
            consumer.close()
            return found
        headers = {name: value.decode() for name, value in message.headers()}
        found.append(
            {"key": message.key().decode(), "headers": headers, "value": json.loads(message.value())}
        )


def test_messages_hold_the_row_and_its_identity(spark: SparkSession, broker: Kafka) -> None:
    broker.create_topic("whole", 1)
    one = sink(broker, "whole")
    batch = rows(spark, [row(1, carrier=None), row(2)], parts=1)
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused) == Written(2, 2)
    first, second = messages(broker, "whole")
    assert first["key"] == "flights-topic/0/1"
    assert first["headers"] == {"millrace-id": "flights-topic/0/1", "millrace-source": "flights"}
    assert "carrier" not in first["value"]
    assert second["value"]["at"] == "2026-01-01T12:00:02.123456Z"
    assert second["value"]["seat"] == {"row": 2, "letter": "C"}


def test_a_broken_batch_that_comes_again_loses_nothing_and_repeats_under_the_same_identity(
    spark: SparkSession, broker: Kafka
) -> None:
    broker.create_topic("again", 1)
    one = sink(broker, "again", key="carrier")
    batch = rows(spark, [row(n) for n in range(20)], parts=4)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 19), place(0), none_refused)
    assert one.write(batch, place(0), none_refused) == Written(20, 20)
    found = messages(broker, "again")
    assert len(found) > 20  # the limit that the docstring states
    assert {m["headers"]["millrace-id"] for m in found} == {f"flights-topic/0/{n}" for n in range(20)}
    assert {m["key"] for m in found} == {"ÄA"}


def test_a_message_too_large_is_a_letter(spark: SparkSession, broker: Kafka) -> None:
    broker.create_topic("small", 1)
    one, refused = sink(broker, "small", most=2000), Refused()
    batch = rows(spark, [row(1), row(2, carrier="x" * 3000), row(3)])
    assert one.write(batch, place(0), refused) == Written(3, 2, 1)
    assert sorted(m["value"]["flight"] for m in messages(broker, "small")) == [1, 3]
    (why,) = refused.reasons().values()
    assert why.endswith("bytes; the most is 2000")
    assert refused.fields("flights-topic/0/2")["carrier"] == "x" * 3000


def test_the_largest_message_is_taken(spark: SparkSession, broker: Kafka) -> None:
    """What counts as small enough passes the producer's own limit, too."""
    broker.create_topic("largest", 1)
    empty = results(spark, {"": 1})
    letters = Refused()
    sink(broker, "largest", most=1).write(empty, place(0), letters)
    (why,) = letters.reasons().values()
    least = int(why.split()[3])
    most = 50_000
    batch = results(
        spark, {"x" * ((most - least) // 4): 1}
    )  # the carrier stands in key, header and value twice
    assert sink(broker, "largest", most=most).write(batch, place(0), none_refused) == Written(1, 1)
    assert len(messages(broker, "largest")) == 1


def test_a_topic_or_key_that_is_not_there_stops_the_start(spark: SparkSession, broker: Kafka) -> None:
    schema = rows(spark, []).schema
    with pytest.raises(StartError, match="there is no Kafka topic nowhere on 127"):
        sink(broker, "nowhere").prepare(spark, schema)
    with pytest.raises(StartError, match="rows have no column colour"):
        sink(broker, "nowhere", key="colour").prepare(spark, schema)
