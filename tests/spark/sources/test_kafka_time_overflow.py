"""Kafka records with timestamps beyond any table's range land around the others, from a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults import in_process_job
from tests.faults.in_process_job import Job

NANOS = 1_790_000_000_000_000_000
"""A time of 2026 in nanoseconds, sent as milliseconds."""
LARGEST = 2**63 - 1
DAY = 86_400_000

_numbers = iter(range(1000))


class Timed(Job):
    """A job whose producer chooses its records' times."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, home: Path, kind: str) -> None:
        super().__init__(spark, broker, home, next(_numbers), kind)
        self.spark, self.kind = spark, kind
        self.client = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self.sent = 0

    def send_at(self, *times: int, partition: int = 0) -> None:
        """A record for each time, in milliseconds."""
        for at in times:
            payload = json.dumps({"n": self.sent, "text": "x"}).encode()
            headers: Any = [("trace", b"\x01\xff")]
            self.client.produce(
                self._topic, payload, f"k{self.sent}".encode(), partition, timestamp=at, headers=headers
            )
            self.sent += 1
        assert self.client.flush(30) == 0

    def rows(self, what: str) -> list[Row]:
        return self.spark.table(self._full(what)).orderBy("_id").collect()

    def good(self) -> list[int]:
        good = self.spark.table(self._full("out" if self.kind == "direct" else "landed")).where(
            "n IS NOT NULL"
        )
        return sorted(row["n"] for row in good.select("n").collect())

    def letters(self) -> list[Row]:
        table = self.spark.table(self._full("letters" if self.kind == "direct" else "landed"))
        bad = table.where("_error IS NOT NULL").orderBy("_id")
        return bad.withColumn("_arrived_at", F.expr("unix_millis(_arrived_at)")).collect()


class Routed(Timed):
    """Two topics of one query, each with a route; of the second one a field is redacted."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, home: Path, kind: str) -> None:
        super().__init__(spark, broker, home, "land")
        self.routed = kind
        broker.create_topic(f"{self._topic}-b", 1, any_time=True)

    def _queries(self) -> list[dict[str, Any]]:
        (land,) = super()._queries()
        shared = ("format", "schema", "decompress_up_to")
        routes = []
        for name, topic, redact in (("a", self._topic, []), ("b", f"{self._topic}-b", ["text"])):
            source = {**land["source"], "name": name, "topic": topic}
            route: dict[str, Any] = {
                "name": name,
                "changes_of": None,
                "origin": topic,
                "source": source,
                "redact": redact,
                "rules": [],
            }
            route |= {key: land[key] for key in shared}
            if self.routed == "direct-route":
                sink = {"kind": "iceberg", "table": self._table(f"out_{name}")}
                route |= {"enrich": [], "transform": None, "sink": sink}
            routes.append(route)
        query = {"kind": self.routed, "name": "all", "routes": routes, "trigger_seconds": 0, "repartition": 3}
        table = "dead_letters" if self.routed == "direct-route" else "table"
        return [{**query, table: self._table("landed")}]


@pytest.fixture(params=["land", pytest.param("direct", marks=pytest.mark.slow)])
def job(
    request: pytest.FixtureRequest, spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> Iterator[Timed]:
    made = Timed(spark, broker, tmp_path, request.param)
    yield made
    made.drop()


def now() -> int:
    return round(time.time() * 1000)


@pytest.mark.faults
@pytest.mark.slow
def test_a_time_that_overflows_is_a_dead_letter_and_stops_nothing(
    job: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = now()
    # The first batch of a checkpoint, and one that follows; poison at the beginning, side by side, at the end.
    job.send_at(NANOS, begun, begun, LARGEST, NANOS, begun)
    job.send_at(begun, begun, LARGEST, partition=1)
    # In batches of a few, those behind one that was read around are written by the same process.
    monkeypatch.setattr(in_process_job, "PORTION", 3)
    result = job.run()
    assert (result.status, result.message) == (0, "")
    job.send_at(begun, LARGEST, begun)
    result = job.run()
    assert (result.status, result.message) == (0, "")
    poison = {0, 3, 4, 8, 10}
    assert job.good() == sorted(set(range(12)) - poison)
    letters = job.letters()
    assert [row["_stage"] for row in letters] == ["timestamp"] * len(poison)
    assert {json.loads(bytes(row["_bytes"]))["n"] for row in letters} == poison
    for row in letters:
        n = json.loads(bytes(row["_bytes"]))["n"]
        assert bytes(row["_bytes"]) == json.dumps({"n": n, "text": "x"}).encode()
        assert bytes(row["_key"]) == f"k{n}".encode()
        trace, original = row["_headers"]
        assert (trace["key"], bytes(trace["value"])) == ("trace", b"\x01\xff")
        at = str(NANOS if n in (0, 4) else LARGEST)
        assert (original["key"], bytes(original["value"]).decode()) == ("millrace-timestamp", at)
        assert at in row["_error"]
        assert begun <= row["_arrived_at"] <= now()
        assert row["_hash"] is not None
    batches = [each for each in job.events if each["event"] == "batch"]
    assert sum(each["bad"] for each in batches) == 1
    (passed,) = (each for each in job.events if each["event"] == "read_around")
    assert passed["first"] == [f"{job._topic}/0/7"]
    assert passed["table"] == job._full("letters" if job.kind == "direct" else "landed")


@pytest.mark.faults
@pytest.mark.slow
def test_times_far_off_do_not_open_a_writer_for_each_day(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    job = Timed(spark, broker, tmp_path, "land")
    begun = now()
    past = [begun - days * DAY for days in range(1000)]
    future = [begun + days * DAY for days in range(2, 1002)]
    odd = [1, 1_790_000_000_000_000, begun + DAY // 2]
    job.send_at(*past, *future, *odd)
    assert job.run().status == 0
    assert job.good() == list(range(len(past) + len(future) + len(odd)))
    # Whatever days a producer chooses: those of a month, a year each before, and the time of the batch.
    files = spark.table(f"{job._full('landed')}.files").count()
    batches = sum(each["event"] == "batch" for each in job.events)
    assert files <= 2 * batches * (33 + 57)
    rows = {
        row["n"]: row
        for row in spark.table(job._full("landed"))
        .withColumn("at", F.expr("unix_millis(_arrived_at)"))
        .collect()
    }
    assert [rows[n]["at"] for n in range(31)] == past[:31]
    assert len(rows[0]["_headers"]) == 1
    year = rows[999]["_arrived_at"]
    assert (year.month, year.day) == (1, 1)
    for n, at in ((999, past[999]), (1000, future[0]), (2000, odd[0]), (2001, odd[1])):
        assert bytes(rows[n]["_headers"][-1]["value"]).decode() == str(at)
    assert begun <= rows[1000]["at"] <= now()
    assert begun <= rows[2001]["at"] <= now()
    assert rows[2002]["at"] == odd[2]
    job.drop()


@pytest.mark.slow
@pytest.mark.faults
def test_times_before_1970_and_none_are_those_of_the_batch_and_one_that_overflows_is_found_too(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    """No index of times leads to the last one: each record is looked at."""
    job = Timed(spark, broker, tmp_path, "land")
    begun = now()
    job.send_at(-1, -62_135_596_800_001, begun)
    job.send_at(begun, -NANOS, begun, partition=1)
    # Found by the index, and not enough.
    job.send_at(LARGEST)
    result = job.run()
    assert (result.status, result.message) == (0, "")
    assert job.good() == [0, 1, 2, 3, 5]
    assert [json.loads(bytes(row["_bytes"]))["n"] for row in job.letters()] == [6, 4]
    times = spark.table(job._full("landed")).select(F.expr("unix_millis(_arrived_at)").alias("at")).collect()
    assert all(begun <= row["at"] <= now() for row in times)
    job.drop()


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["route", "direct-route"])
def test_routes_are_read_around_times_that_overflow(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, kind: str
) -> None:
    job = Routed(spark, broker, tmp_path, kind)
    begun = now()
    job.send_at(begun, NANOS, begun)
    job.client.produce(f"{job._topic}-b", b'{"n": 3, "text": "secret"}', timestamp=LARGEST)
    job.client.produce(f"{job._topic}-b", b'{"n": 4, "text": "secret"}', timestamp=begun)
    assert job.client.flush(30) == 0
    result = job.run()
    assert (result.status, result.message) == (0, "")
    landed = spark.table(job._full("landed"))
    letters = landed.where("_error IS NOT NULL").orderBy("_route").collect()
    assert [(row["_route"], row["_stage"], row["a"], row["b"]) for row in letters] == [
        ("a", "timestamp", None, None),
        ("b", "timestamp", None, None),
    ]
    assert [json.loads(bytes(row["_bytes"])) for row in letters] == [
        {"n": 1, "text": "x"},
        {"n": 3, "text": None},
    ]
    if kind == "route":
        good = landed.where("_error IS NULL").selectExpr("coalesce(a.n, b.n) AS n")
    else:
        good = spark.table(job._full("out_a")).select("n").union(spark.table(job._full("out_b")).select("n"))
    assert sorted(row["n"] for row in good.collect()) == [0, 2, 4]
    for name in ("out_a", "out_b"):
        spark.sql(f"DROP TABLE IF EXISTS {job._full(name)} PURGE")
    job.drop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["land", "direct", "derive"])
def test_a_batch_is_no_code_of_its_own(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from batch to batch stands beside Spark's generated code: compiled again, it is warmed up again, too."""
    monkeypatch.setattr(in_process_job, "PORTION", 1)
    job = Timed(spark, broker, tmp_path, kind)
    job.send_at(*[now()] * 12)
    compiled: list[int] = []
    times: Any = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()  # type: ignore[union-attr]
    result = job.run(disturbed=lambda: compiled.append(times.getCount()))
    assert (result.status, result.message) == (0, "")
    # With another query beside it, a batch may hold what two of the other have written.
    assert len(compiled) > 8
    assert compiled[-3:] == [compiled[-1]] * 3, compiled
    job.drop()
