"""Kafka sink on a real broker: every message has the identity by which readers find repetitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # forgotten in its stubs
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.launch.settings import Connection
from millrace.etl.launch.sinks import KafkaSinkSettings
from millrace.etl.record.errors import StartError
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delivery.kafka_tail import TopicTail
from millrace.etl.sinks.delivery.sink_end_offset_marks import TASK_RETRIED
from millrace.etl.sinks.kafka import KafkaSink
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults import sink_contents
from tests.spark.sink_input_rows import Refused, breaking, changes, none_refused, place, results, row, rows


def sink(broker: KafkaBroker, topic: str, key: str | None = None, most: int = 100_000) -> KafkaSink:
    connection = Connection(None, broker.bootstrap, "none")
    return KafkaSink(KafkaSinkSettings(topic, "main", key, most), connection)


def messages(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, in the order of a partition."""
    return [
        {
            "key": message.key().decode(),
            "headers": {name: value.decode() for name, value in message.headers()},
            "value": None if message.value() is None else json.loads(message.value()),
        }
        for message in sink_contents.messages(broker.bootstrap, topic)
    ]


@pytest.mark.slow
def test_a_result_that_is_deleted_is_a_tombstone(spark: SparkSession, broker: KafkaBroker) -> None:
    broker.create_topic("deleted", 1)
    one = sink(broker, "deleted")
    done = one.write(changes(spark, {"AA": 1, "UA": None}), place(0), none_refused)
    assert done == WriteCounts(2, 2)
    kept, gone = messages(broker, "deleted")
    assert kept["value"] == {"_id": '{"carrier": "AA"}', "carrier": "AA", "flights": 1}
    assert (gone["key"], gone["value"]) == ('{"carrier": "UA"}', None)


def test_messages_hold_the_row_and_its_identity(spark: SparkSession, broker: KafkaBroker) -> None:
    broker.create_topic("whole", 1)
    one = sink(broker, "whole")
    batch = rows(spark, [row(1, carrier=None), row(2)], parts=1)
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused) == WriteCounts(2, 2)
    first, second = messages(broker, "whole")
    assert first["key"] == "flights-topic/0/1"
    assert first["headers"] == {"millrace-id": "flights-topic/0/1", "millrace-source": "flights"}
    assert "carrier" not in first["value"]
    assert second["value"]["at"] == "2026-01-01T12:00:02.123456Z"
    assert second["value"]["seat"] == {"row": 2, "letter": "C"}


def test_a_null_key_is_refused_by_a_compacted_topic_alone(spark: SparkSession, broker: KafkaBroker) -> None:
    """The broker would refuse the complete batch of the producer."""
    batch = rows(spark, [row(1), row(2, carrier=None), row(3)], parts=1)
    admin = broker.admin()  # its futures end with it
    for topic, policy in (("compacted", "compact,delete"), ("not-compacted", "delete")):
        broker.create_topic(topic, 1)
        changed = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[changed])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
        one, refused = sink(broker, topic, key="carrier"), Refused()
        one.prepare(spark, batch.schema)
        done = one.write(batch, place(0), refused)
        lacking = {"flights-topic/0/2"} if policy != "delete" else set()
        assert done == WriteCounts(3, 3 - len(lacking), len(lacking))
        assert refused.reasons().keys() == lacking
        assert all("carrier is null, and a compacted topic" in why for why in refused.reasons().values())
        sent = {
            dict(m.headers())["millrace-id"].decode() for m in sink_contents.messages(broker.bootstrap, topic)
        }
        assert sent == {f"flights-topic/0/{n}" for n in (1, 2, 3)} - lacking


@pytest.mark.faults
@pytest.mark.slow
def test_a_broken_batch_that_comes_again_writes_what_the_topic_lacks(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("again", 1)
    one = sink(broker, "again", key="carrier")
    before, batch = (
        rows(spark, [row(n) for n in range(100, 105)]),
        rows(spark, [row(n) for n in range(20)], 4),
    )
    assert one.write(before, place(0, notes=tmp_path), none_refused) == WriteCounts(5, 5)
    # Spark has the task come again, in vain: were it let, it would write its messages again.
    with pytest.raises(Exception, match=TASK_RETRIED):
        one.write(breaking(batch, 19), place(1, notes=tmp_path), none_refused)
    half = len(messages(broker, "again")) - 5
    assert 0 < half < 20
    # In the same run, then as a new one finds it, whose first batch may be one that was written already.
    assert one.write(batch, place(1, notes=tmp_path), none_refused) == WriteCounts(20, 20 - half)
    two = sink(broker, "again", key="carrier")
    assert two.write(batch, place(1, notes=tmp_path), none_refused) == WriteCounts(20, 0)
    assert two.write(rows(spark, [row(20)]), place(2, notes=tmp_path), none_refused) == WriteCounts(1, 1)
    result = messages(broker, "again")
    identities = Counter(m["headers"]["millrace-id"] for m in result)
    assert identities == Counter(f"flights-topic/0/{n}" for n in [*range(21), *range(100, 105)])
    assert {m["headers"]["millrace-batch"] for m in result if m["value"]["flight"] < 20} == {"run-1/1"}
    # A new checkpoint writes again what it reads again, and skips nothing that is new.
    fresh = place(0, "run-2", tmp_path / "other")
    assert sink(broker, "again").write(batch, fresh, none_refused) == WriteCounts(20, 20)


@pytest.mark.slow
@pytest.mark.faults
def test_a_task_that_comes_again_has_its_batch_begin_anew(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("tasks", 1)
    lost = tmp_path / "lost"

    def once_lost(part: Iterable[Any]) -> Iterator[Any]:
        for number, each in enumerate(part):
            if number == 2500 and not lost.exists():
                lost.touch()
                raise RuntimeError("the executor was lost")
            yield each

    batch = rows(spark, [row(n) for n in range(3000)], parts=1)

    def again() -> DataFrame:
        return spark.createDataFrame(batch.rdd.mapPartitions(once_lost), batch.schema)

    done = sink(broker, "tasks").write(again(), place(0, notes=tmp_path), none_refused, again)
    assert done.offered == 3000
    assert 0 < done.written < 3000
    assert sorted(m["value"]["flight"] for m in messages(broker, "tasks")) == list(range(3000))


def test_results_that_come_again_are_left_out_and_later_ones_are_not(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("totals", 1)
    one, letters = sink(broker, "totals", most=400), Refused()
    first = results(spark, {"AA": 1, "x" * 400: 2})
    assert one.write(first, place(0, notes=tmp_path), letters) == WriteCounts(2, 1, 1)
    assert one.write(first, place(0, notes=tmp_path), letters) == WriteCounts(2, 0, 1)
    assert one.write(results(spark, {"AA": 5}), place(1, notes=tmp_path), none_refused) == WriteCounts(1, 1)
    assert [m["value"]["flights"] for m in messages(broker, "totals")] == [1, 5]


@pytest.mark.slow
@pytest.mark.faults
def test_what_a_topic_forgot_or_got_since_is_looked_at(spark: SparkSession, broker: KafkaBroker) -> None:
    """Its oldest messages are gone, a partition was added, and other programs write it, too."""
    broker.create_topic("shared", 1)
    tail = TopicTail("shared", {"kafka.bootstrap.servers": broker.bootstrap})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(3):
        producer.produce("shared", value="theirs")
    producer.flush()
    assert tail.next_offsets(spark) == {"0": 3}
    admin = broker.admin()  # its futures die with it
    admin.create_partitions([NewPartitions("shared", 2)])["shared"].result()
    headers = {"millrace-id": b"t/0/1", "millrace-source": b"t", "millrace-batch": b"run/1"}
    producer = Producer({"bootstrap.servers": broker.bootstrap})  # which knows the new partition
    producer.produce("shared", value="ours", headers=headers, partition=1)
    producer.produce("shared", value="theirs", headers={"other": b"run/1"}, partition=0)
    producer.flush()
    held = tail.identities_in_topic(spark, "run/1", {"0": 3})
    assert held is not None
    assert [tuple(r) for r in held.collect()] == [("t/0/1", "t")]
    others = tail.identities_in_topic(spark, "run/2", {"0": 3})
    assert others is not None
    assert others.isEmpty()
    assert tail.identities_in_topic(spark, "run/1", {"0": 4, "1": 1}) is None  # nothing came since
    for future in admin.delete_records([TopicPartition("shared", 1, 1)]).values():
        future.result()
    forgotten = tail.identities_in_topic(spark, "run/1", {"0": 3, "1": 0})
    assert forgotten is not None
    assert forgotten.isEmpty()


def test_a_message_too_large_is_a_letter(spark: SparkSession, broker: KafkaBroker) -> None:
    broker.create_topic("small", 1)
    one, refused = sink(broker, "small", most=2000), Refused()
    batch = rows(spark, [row(1), row(2, carrier="x" * 3000), row(3)])
    assert one.write(batch, place(0), refused) == WriteCounts(3, 2, 1)
    assert sorted(m["value"]["flight"] for m in messages(broker, "small")) == [1, 3]
    (why,) = refused.reasons().values()
    assert why.endswith("bytes; the limit is 2000")
    assert refused.fields("flights-topic/0/2")["carrier"] == "x" * 3000


@pytest.mark.slow
def test_the_largest_message_is_taken(spark: SparkSession, broker: KafkaBroker) -> None:
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
    assert sink(broker, "largest", most=most).write(batch, place(0), none_refused) == WriteCounts(1, 1)
    assert len(messages(broker, "largest")) == 1


def test_a_topic_or_key_that_is_not_there_stops_the_start(spark: SparkSession, broker: KafkaBroker) -> None:
    schema = rows(spark, []).schema
    with pytest.raises(StartError, match="Kafka topic nowhere does not exist on 127"):
        sink(broker, "nowhere").prepare(spark, schema)
    with pytest.raises(StartError, match="is column colour, which the rows do not have"):
        sink(broker, "nowhere", key="colour").prepare(spark, schema)
