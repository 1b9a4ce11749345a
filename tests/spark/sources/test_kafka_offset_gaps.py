"""Topics with gaps in their offsets (transactions, compaction, deleted records) are read completely."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs
from pyspark.sql import SparkSession

from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.spark.sinks.test_latest_by import Customers


@pytest.fixture
def job(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> Iterator[Customers]:
    made = Customers(spark, broker, tmp_path)
    yield made
    made.drop()


class Transactions:
    """A producer of transactions, whose records go into the ledger of a job only if they are committed."""

    def __init__(self, job: Customers, name: str) -> None:
        self.job, self.pending = job, list[tuple[int, str | None]]()
        self.client = Producer(
            {"bootstrap.servers": job._bootstrap, "transactional.id": name, "log_level": 0}
        )
        self.client.init_transactions(30)

    def begin(self, *records: tuple[int, str | None]) -> None:
        self.client.begin_transaction()
        for customer, text in records:
            payload = None if text is None else json.dumps({"n": customer, "text": text}).encode()
            self.client.produce(self.job._topic, payload, str(customer).encode(), customer % 2)
        self.client.flush(30)
        self.pending = list(records)

    def end(self, *, commit: bool) -> None:
        (self.client.commit_transaction if commit else self.client.abort_transaction)(30)
        for customer, text in self.pending if commit else ():
            if text is None:
                self.job.latest.pop(customer, None)
            else:
                self.job.latest[customer] = text


def texts(job: Customers) -> list[tuple[str, str | None]]:
    rows = job.spark.table(job._full("landed")).select("_key", "text", "_error").collect()
    assert not any(row["_error"] for row in rows)
    return sorted((bytes(row["_key"]).decode(), row["text"] or "") for row in rows)


@pytest.mark.slow
@pytest.mark.faults
def test_what_a_transaction_did_counts_when_it_is_committed(job: Customers) -> None:
    one, other = Transactions(job, "one"), Transactions(job, "other")
    one.begin((1, "a"), (2, "a"), (3, "a"))
    one.end(commit=True)
    one.begin((1, "aborted"), (2, None), (5, "aborted"))
    one.end(commit=False)
    other.begin((2, "b"), (4, "b"))
    other.end(commit=True)
    other.begin((1, "open"), (3, None))
    assert job.run().status == 0
    assert job.held() == job.latest == {1: "a", 2: "b", 3: "a", 4: "b"}
    # Behind an open transaction nothing is read, and nothing is passed over.
    one.begin((3, "later"), (7, "later"))
    one.end(commit=True)
    assert job.run(dies=True).status == 0, "nothing new may be read"
    assert 7 not in job.held()
    other.end(commit=True)
    job.latest.update({3: "later", 1: "open"})  # the log's order is that of the records, not of the commits
    one.begin((7, "aborted"), (1, "aborted"))
    one.end(commit=False)
    assert job.run(dies=True).status == 1
    assert job.run().status == 0
    assert job.held() == job.latest
    sent = [
        ("1", "a"),
        ("2", "a"),
        ("3", "a"),
        ("2", "b"),
        ("4", "b"),
        ("1", "open"),
        ("3", ""),
        ("3", "later"),
        ("7", "later"),
    ]
    assert texts(job) == sorted(sent)


@pytest.mark.slow
@pytest.mark.faults
def test_records_that_were_deleted_unread_are_told(job: Customers, broker: KafkaBroker) -> None:
    """As after a stop that was longer than the retention."""
    for number in range(10):
        job.put(number, "first")
    job.sent()
    assert job.run().status == 0
    admin = broker.admin()

    def truncate(before: int) -> None:
        for future in admin.delete_records([TopicPartition(job._topic, 0, before)]).values():
            future.result()

    truncate(5)  # all of them are read
    job.put(0, "second")
    job.sent()
    assert job.run().status == 0
    assert job.held() == job.latest
    before = dict(job.latest)
    for _ in range(3):
        job.put(2, "third")
    job.sent()
    truncate(8)
    told = job.run()
    assert told.status == 1
    assert job._topic in told.message
    assert "lost" in told.message
    assert job.held() == before


class Compacting(KafkaBroker):
    """A broker whose topics are compacted at once."""

    def create_topic(self, name: str, partitions: int, *, any_time: bool = False) -> None:
        settings = {
            "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0",
        }  # fmt: skip
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()  # its futures end with it
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_topic_that_is_compacted_while_the_job_is_stopped(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    job = Customers(spark, Compacting(broker.bootstrap, broker.process), tmp_path)
    for number in range(10):
        job.put(number, "first")
    job.sent()
    assert job.run().status == 0
    for turn in range(20):
        for number in range(0, 8, 2):
            job.put(number, f"turn {turn}")
        job.put(1, None if turn == 19 else "back")
        job.sent()
        time.sleep(0.15)  # a segment is closed by the next record
    until = time.monotonic() + 120
    while (left := _records(broker, job._topic)) > 40 and time.monotonic() < until:
        job.put(9, "again")
        job.sent()
        time.sleep(1)
    assert left <= 40, "not compacted"
    assert job.run(dies=True).status == 1
    assert job.run().status == 0
    assert job.held() == job.latest
    assert len(texts(job)) < 110, "what was removed unread is not there"


def _records(broker: KafkaBroker, topic: str) -> int:
    """Count the records of a topic's log."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "count", "enable.partition.eof": True}
    )
    reader.assign([TopicPartition(topic, part, 0) for part in (0, 1)])
    ended = result = 0
    while ended < 2:
        message = reader.poll(10)
        assert message is not None
        ended += message.error() is not None
        result += message.error() is None
    reader.close()
    return result
