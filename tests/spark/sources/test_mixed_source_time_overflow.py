"""A query on topics and a Kinesis stream continues at Kafka timestamps that overflow."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millrace.etl.job.supervise import Supervisor
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests import kinesalite
from tests.faults import small_job_documents
from tests.faults.in_process_job import RunResult
from tests.kinesalite import CREDENTIALS, REGION, Kinesalite
from tests.spark.sources.test_kafka_time_overflow import LARGEST, NANOS, Routed, now

STREAM = "shop"
NO_CBOR = "org.apache.spark.sql.kinesis.shaded.amazonaws.sdk.disableCbor"
"""The connector's own copy of AWS's SDK, which otherwise speaks what the local server does not."""

PATIENCE = 120.0
"""Seconds after which a run that lands nothing more is ended; what it landed is compared anyway."""


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[Kinesalite]:
    with pytest.MonkeyPatch.context() as patch, kinesalite.running() as running:
        for name, value in {**CREDENTIALS, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}.items():
            patch.setenv(name, value)
        system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
        system.setProperty(NO_CBOR, "true")
        yield running
        system.clearProperty(NO_CBOR)


class Mixed(Routed):
    """Two topics and a stream, each with a route, in one query."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, server: Kinesalite, home: Path) -> None:
        super().__init__(spark, broker, home, "route")
        self.binds = {"kinesis.endpoint": server.endpoint}
        self.stream = f"{STREAM}-{home.name}"[:100]
        self.kinesis = server.client()
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=2)
        waiter = self.kinesis.get_waiter("stream_exists")
        waiter.wait(StreamName=self.stream, WaiterConfig={"Delay": 1})

    def _queries(self) -> list[dict[str, Any]]:
        (query,) = super()._queries()
        first = query["routes"][0]
        source = {**small_job_documents.stream(self.stream, REGION), "name": "shop"}
        route = {
            **first,
            "name": "shop",
            "changes_of": None,
            "origin": self.stream,
            "source": source,
            "redact": [],
            "rules": [],
        }
        return [{**query, "routes": [*query["routes"], route]}]

    def put(self, count: int) -> None:
        """Records of the stream."""
        for _ in range(count):
            payload = json.dumps({"n": self.sent, "text": "y"}).encode()
            self.kinesis.put_record(StreamName=self.stream, Data=payload, PartitionKey=f"k{self.sent}")
            self.sent += 1

    def _end(self, supervisor: Supervisor, count: int, over: threading.Event) -> None:
        """Stop the job when it has landed as many rows as were sent: a stream has no end that Spark would know."""
        ends = time.monotonic() + PATIENCE
        while len(self._spark.streams.active) < count and not over.wait(0.1):
            pass
        while not over.wait(0.5) and time.monotonic() < ends:
            if self._spark.table(self._full("landed")).count() >= self.sent:
                break
        supervisor.request_stop()

    def landed(self) -> list[Row]:
        """All that the table holds."""
        return self._spark.table(self._full("landed")).orderBy("_id").collect()

    def numbers(self) -> Counter[int]:
        """How often each record is in the table, good or bad, by its number."""
        held = Counter[int]()
        for row in self.landed():
            given = next((row[route] for route in ("a", "b", "shop") if row[route] is not None), None)
            held[given["n"] if given is not None else json.loads(bytes(row["_bytes"]))["n"]] += 1
        return held


@pytest.fixture
def mixed(spark: SparkSession, broker: KafkaBroker, server: Kinesalite, tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(spark, broker, server, tmp_path)
    yield made
    made.drop()


Send = Callable[[Mixed], None]


def poisoned(job: Mixed) -> None:
    begun = now()
    job.send_at(begun, NANOS, begun, LARGEST, NANOS)
    job.send_at(begun, LARGEST, begun, partition=1)


def found_by_no_index(job: Mixed) -> None:
    begun = now()
    job.send_at(begun, -NANOS, begun, partition=1)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("send", [poisoned, found_by_no_index])
def test_a_query_on_topics_and_a_stream_goes_on_at_a_time_that_overflows(mixed: Mixed, send: Send) -> None:
    first = mixed.sent
    send(mixed)
    mixed.put(7)
    # Of the first batch of a checkpoint, whose log has no batch before it.
    result = mixed.run()
    assert (result.status, result.message) == (0, "")
    # Of a later one; then of none.
    mixed.put(5)
    send(mixed)
    result = mixed.run()
    assert (result.status, result.message) == (0, "")
    mixed.put(5)
    mixed.send_at(now(), now())
    result = mixed.run()
    assert (result.status, result.message) == (0, "")
    assert not [each for each in mixed.events if each["event"] == "read_around"]
    assert mixed.numbers() == Counter(range(first, mixed.sent))
    letters = [row for row in mixed.landed() if row["_error"] is not None]
    assert {row["_stage"] for row in letters} == {"timestamp"}
    assert len(letters) == (2 * 4 if send is poisoned else 2)
    for row in letters:
        at = bytes(row["_headers"][-1]["value"]).decode()
        assert at in row["_error"]
        assert at in {str(each) for each in (NANOS, LARGEST, -NANOS)}


@pytest.mark.faults
@pytest.mark.slow
def test_batches_behind_one_that_was_read_around_are_read_by_spark(mixed: Mixed) -> None:
    poisoned(mixed)
    mixed.put(3)
    batches: list[int] = []

    def more() -> None:
        batches.append(mixed.sent)
        if len(batches) in (2, 4, 6):
            mixed.send_at(now(), partition=len(batches) % 2)
            mixed.put(1)

    result = mixed.run(disturbed=more)
    assert (result.status, result.message) == (0, "")
    assert mixed.numbers() == Counter(range(mixed.sent))
    assert len([each for each in mixed.events if each["event"] == "read_around"]) <= 2


@pytest.mark.slow
@pytest.mark.faults
def test_bounded_runs_end_behind_the_last_record_of_each_shard(mixed: Mixed) -> None:
    """The connector writes where a batch ended only when it plans the next one, for which it waits for records."""
    mixed.run_every_seconds = 600.0
    shards = mixed.kinesis.list_shards(StreamName=mixed.stream)["Shards"]
    for period in range(4):
        if period != 1:
            mixed.put(7)
        if period == 2:
            middle = str(int(shards[0]["HashKeyRange"]["EndingHashKey"]) // 2)
            mixed.kinesis.split_shard(
                StreamName=mixed.stream, ShardToSplit=shards[0]["ShardId"], NewStartingHashKey=middle
            )
            mixed.kinesis.get_waiter("stream_exists").wait(StreamName=mixed.stream, WaiterConfig={"Delay": 1})
            mixed.put(3)
            assert mixed.run(dies=True).status == 1
        assert mixed.run() == RunResult(0, "")
        assert mixed.numbers() == Counter(range(mixed.sent)), period
    # What comes during a run is left to the next one, or is in the batch that covers the end.
    before = mixed.sent
    mixed.put(1)
    assert mixed.run(disturbed=lambda: mixed.put(1)) == RunResult(0, "")
    assert set(range(before + 1)) <= mixed.numbers().keys()
    assert mixed.run() == RunResult(0, "")
    assert mixed.numbers() == Counter(range(mixed.sent))
