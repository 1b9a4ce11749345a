"""``latest_by`` keeps the last record of each key in every sink, and a null payload deletes its row."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.launch.sources import KafkaReadingOptions
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import Job

_numbers = iter(range(1000))


def customers(records: DataFrame) -> DataFrame:
    """The key of a record is its customer's number; the payload has it too, and a delete has no payload."""
    number = F.col("_key").cast("string").cast("int")
    return records.select("_position", "_deleted", number.alias("customer"), "text")


def nobody(records: DataFrame) -> DataFrame:
    """What Spark's optimizer removes from a plan, with all below it."""
    return customers(records).where("false")


def without_order(records: DataFrame) -> DataFrame:
    """Loses by what the last record is found."""
    return records.select("_deleted", F.col("n").alias("customer"))


class Customers(Job):
    """A compacted topic of customers, landed, and the latest of each in a table."""

    transform = "customers"

    def __init__(
        self, spark: SparkSession, broker: KafkaBroker, home: Path, transform: str = "customers"
    ) -> None:
        super().__init__(spark, broker, home, next(_numbers), "derive")
        self.spark, self.transform = spark, transform
        self.client = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self.latest: dict[int, str] = {}
        self.before: dict[int, str] = {}

    def put(self, customer: int, text: str | None) -> None:
        """A record; None deletes."""
        payload = None if text is None else json.dumps({"n": customer, "text": text}).encode()
        self.client.produce(self._topic, payload, str(customer).encode(), customer % 2)
        if text is None:
            self.latest.pop(customer, None)
        else:
            self.latest[customer] = text

    def sent(self) -> None:
        assert self.client.flush(30) == 0

    def _queries(self) -> list[dict[str, Any]]:
        land, derive = super()._queries()
        land["source"]["reading"] = {**dataclasses.asdict(KafkaReadingOptions()), "null_payload": "delete"}
        latest = {"latest_by": ["customer"], "transform": f"{__name__}:{self.transform}"}
        plain = {"name": "plain", "sink": {"kind": "iceberg", "table": self._table("letters")}}
        return [land, {**derive, **latest}, {**derive, **plain}]

    def held(self) -> dict[int, str]:
        rows = self.spark.table(self._full("out")).collect()
        result = {row["customer"]: row["text"] for row in rows}
        assert len(result) == len(rows), f"a customer twice: {rows}"
        return result


@pytest.fixture
def job(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> Iterator[Customers]:
    made = Customers(spark, broker, tmp_path)
    yield made
    made.drop()


@pytest.mark.slow
def test_the_last_record_of_a_key_counts_and_a_null_payload_deletes(job: Customers) -> None:
    for number in range(10):
        job.put(number, f"first {number}")
    job.put(3, "second 3")
    job.put(4, None)
    job.put(5, None)
    job.put(5, "back 5")
    job.put(99, None)  # never was there
    job.sent()
    assert job.run().status == 0
    assert job.held() == job.latest
    landed = job.spark.table(job._full("landed"))
    assert landed.where("_error IS NOT NULL").count() == 0, "a delete is no dead letter"
    assert landed.where("_stage = 'delete'").count() == 3
    plain = job.spark.table(job._full("letters"))
    assert plain.count() == 12, "a query without a key gets records, and no deletes"
    job.put(3, None)
    job.put(7, "second 7")
    job.sent()
    assert job.run(dies=True).status == 1
    assert job.run().status == 0
    assert job.held() == job.latest
    assert {"_deleted", "_position", "_landed_at"}.isdisjoint(job.spark.table(job._full("out")).columns)


@pytest.mark.slow
def test_a_transform_that_the_optimizer_empties_goes_on(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    job = Customers(spark, broker, tmp_path, "nobody")
    for number in range(3):
        job.put(number, "first")
    job.sent()
    assert job.run().status == 0
    assert job.held() == {}
    job.drop()


@pytest.mark.slow
@pytest.mark.faults
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.lists(
            st.tuples(st.integers(0, 5), st.one_of(st.none(), st.text("ab", min_size=1, max_size=3))),
            max_size=8,
        ),
        min_size=2,
        max_size=4,
    ),
    dies=st.booleans(),
)
def test_whatever_comes_the_table_is_that_of_a_dict(
    spark: SparkSession, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, steps: Any, dies: bool
) -> None:
    job = Customers(spark, broker, tmp_path_factory.mktemp("latest"))
    try:
        for number, step in enumerate(steps):
            for customer, text in step:
                job.put(customer, text)
            job.sent()
            job.run(dies=dies and number == 0)
        assert job.run().status == 0
        assert job.held() == job.latest
    finally:
        job.drop()


def test_a_transform_that_loses_the_order_stops_the_start(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    job = Customers(spark, broker, tmp_path, "without_order")
    try:
        result = job.run()
        assert result.status == 2
        assert (
            "its result lacks the columns _position; keep _position, _deleted in its select" in result.message
        )
    finally:
        job.drop()
