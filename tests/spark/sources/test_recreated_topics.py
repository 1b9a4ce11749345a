"""A query refuses a topic that was deleted and created again under its name."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from pyspark.sql import SparkSession

from millrace.etl.launch.sources import KafkaReadingOptions, KafkaSource
from millrace.etl.record.errors import NoAnswerError
from millrace.etl.sources.kafka import topic_ids_and_partitions
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.records.producer import KafkaProducer
from tests.faults.in_process_job import PARTITIONS, PORTION, Job

_numbers = iter(range(1000))


def make_again(broker: KafkaBroker, topic: str, partitions: int = 1) -> None:
    """Delete a topic and make it with the same name, empty."""
    admin = broker.admin()  # its futures die with it
    for future in admin.delete_topics([topic], operation_timeout=30).values():
        future.result()
    deadline = time.monotonic() + 60

    def described() -> None:
        for future in admin.describe_topics(TopicCollection([topic])).values():
            future.result()

    # A broker answers for what was made only when it has heard of it.
    for step in (lambda: broker.create_topic(topic, partitions), described):
        while True:
            try:
                step()
            except KafkaException:
                assert time.monotonic() < deadline, "the topic does not go, or does not come"
                time.sleep(0.1)
            else:
                break


class Shop(Job):
    """A job whose topic can be made again, and whose stream can have another name."""

    stream = "events"

    def __init__(self, spark: SparkSession, broker: KafkaBroker, home: Path, kind: str = "land") -> None:
        super().__init__(spark, broker, home, next(_numbers), kind)
        self.broker = broker

    def make_topic_again(self) -> None:
        make_again(self.broker, self._topic, PARTITIONS)
        self._producer = KafkaProducer(self._bootstrap, self._topic)

    def _queries(self) -> list[dict[str, Any]]:
        queries = super()._queries()
        for query in queries:
            if "source" in query:
                query["source"]["name"] = self.stream
        return queries

    def forget_checkpoint(self) -> None:
        """As ``millrace checkpoint reset`` does it: the folder goes, and the manifest."""
        query = "direct" if self._kind == "direct" else "land"
        shutil.rmtree(self.checkpoints / query)
        (self.checkpoints / "_millrace" / f"{query}.manifest.json").unlink()

    def landed(self) -> Counter[tuple[str, str, int]]:
        """Records by stream, identity and hash of their payload."""
        table = self._full("out" if self._kind == "direct" else "landed")
        columns = ("_source", "_id", "n") if self._kind == "direct" else ("_source", "_id", "_hash")
        return Counter(map(tuple, self._spark.table(table).select(*columns).collect()))

    def kept(self) -> dict[str, Any]:
        query = "direct" if self._kind == "direct" else "land"
        text = (self.checkpoints / "_millrace" / f"{query}.sources.json").read_text()
        return dict(json.loads(text))


@pytest.fixture(params=["land", pytest.param("direct", marks=pytest.mark.slow)])
def shop(
    request: pytest.FixtureRequest, spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> Iterator[Shop]:
    made = Shop(spark, broker, tmp_path, request.param)
    made.send()
    assert made.run().status == 0
    yield made
    made.drop()


@pytest.mark.slow
@pytest.mark.faults
def test_a_topic_that_was_made_again_is_refused_and_a_stream_of_another_name_takes_it(shop: Shop) -> None:
    first = shop.landed()
    shop.make_topic_again()
    shop.send()
    shop.send()
    result = shop.run()
    assert result.status == 2, "it continued as if nothing had been"
    old = shop.kept()["checkpoint"]
    (key,) = (key for key in old if key.startswith("topic "))
    assert f"its id was {old[key]} and is " in result.message
    assert "was deleted and created again" in result.message
    # The checkpoint alone is no way out: the old records have the identities of the new ones.
    shop.forget_checkpoint()
    again = shop.run()
    assert again.status == 2, "it would leave the new records out as duplicates"
    assert "give the stream another name" in again.message
    assert shop.landed() == first
    # What the message says: another name for the stream, and a new checkpoint.
    shop.stream = "events-of-november"
    assert shop.run().status == 0
    after = shop.landed()
    assert not first - after
    new = after - first
    assert set(after.values()) == {1}
    assert {source for source, _, _ in new} == {"events-of-november"}
    good = sum(1 for bad in shop._producer.ledger.dirt if bad is None)
    assert len(new) == (good if shop._kind == "direct" else 2 * PORTION)
    # And it continues from there.
    shop.send()
    assert shop.run().status == 0
    assert len(shop.landed()) - len(after) > 0


@pytest.mark.slow
@pytest.mark.faults
def test_what_is_made_again_while_a_query_runs_is_found(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    """By name and by pattern, whose new topics are adopted."""
    names = [f"{tmp_path.name}.{kind}" for kind in ("orders", "gifts")]
    broker.create_topic(names[0], 1)
    reading = KafkaReadingOptions(pattern=True)
    one = KafkaSource("orders", names[0], "main", "earliest", 10, 3600)
    every = replace(one, name="all", topic=rf"{tmp_path.name}\..*", reading=reading)
    connecting = {"kafka.bootstrap.servers": broker.bootstrap}
    named, matched = (
        topic_ids_and_partitions.cluster_and_topic_ids(spark, [source], connecting) for source in (one, every)
    )
    assert named == matched
    assert set(named) == {"cluster", f"topic {names[0]}"}
    broker.create_topic(names[1], 1)
    more = topic_ids_and_partitions.cluster_and_topic_ids(spark, [every], connecting)
    assert {**more, **named} == more
    assert set(more) - set(named) == {f"topic {names[1]}"}
    with pytest.raises(NoAnswerError, match="UnknownTopicOrPartition"):
        topic_ids_and_partitions.cluster_and_topic_ids(spark, [replace(one, topic="nowhere")], connecting)
    make_again(broker, names[0])
    again = topic_ids_and_partitions.cluster_and_topic_ids(spark, [one], connecting)
    assert again["cluster"] == named["cluster"]
    assert again[f"topic {names[0]}"] != named[f"topic {names[0]}"]
