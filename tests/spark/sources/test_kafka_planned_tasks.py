"""A batch of a topic is written in as many tasks as the plan's, which ``minPartitions`` alone does not make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs
from pyspark.sql import SparkSession

from millrace.etl.launch.settings import Connection
from millrace.etl.record.tables import Table
from millrace.etl.sources.kafka.topic_stream import open_topic_stream
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.spark.source_batches import KAFKA, Events, good, lander

EACH = 500


@pytest.mark.parametrize(("partitions", "planned"), [(3, 4), (5, 3), (2, 4)])
def test_a_batch_is_written_in_the_planned_tasks(
    spark: SparkSession,
    broker: KafkaBroker,
    table: Callable[[str], Table],
    tmp_path: Path,
    partitions: int,
    planned: int,
) -> None:
    """Spark splits each partition into a whole number of parts: of three it made three for four, and of five five for three."""
    topic, landing, events = f"planned-tasks-{partitions}-{planned}", table("landing"), Events()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions)], operation_timeout=30).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(EACH * partitions):
        producer.produce(topic, good(number), partition=number % partitions)
    producer.flush(30)
    source = dataclasses.replace(KAFKA, topic=topic, records_per_batch=10**6)
    stream = open_topic_stream(
        spark, [source], Connection(None, broker.bootstrap, "none"), partitions=planned
    )
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, tasks=planned)
    query = (
        stream.writeStream.option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    assert spark.table(f"{landing}.files").count() == planned
    assert spark.table(str(landing)).select("_id").distinct().count() == EACH * partitions
