"""Two runs or jobs that write one table at a time write each record once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.commit_batch_once import NoRowsSinceSnapshot
from millrace.etl.record import tables
from millrace.etl.record.errors import LeaseLostError
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.spark.queries import test_derive, test_direct
from tests.spark.queries.test_exactly_once import compact
from tests.spark.sink_input_rows import none_refused
from tests.spark.source_batches import (
    Events,
    frame,
    good,
    ids,
    kafka_rows,
    lander,
    log_offsets,
)

Names = Callable[[str], Table]


@dataclass(frozen=True)
class Overtaken(IcebergSink):
    """Lets somebody else commit between this sink's look-up and its commit, once."""

    other: list[Callable[[], None]] = field(default_factory=list)
    commits: list[NoRowsSinceSnapshot | None] = field(default_factory=list)

    def _append_files(self, rows: DataFrame, fence: NoRowsSinceSnapshot | None) -> None:
        self.commits.append(fence)
        if self.other:
            self.other.pop()()
        super()._append_files(rows, fence)


def test_of_two_runs_of_a_land_query_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    rows = frame(spark, kafka_rows(0, 0, [good(n) for n in range(5)]))
    log_offsets(tmp_path, 0, {"flights-topic": {"0": 5}})
    first = lander(spark, landing, Events(), checkpoint=tmp_path)
    second = lander(spark, landing, events, checkpoint=tmp_path)
    second.sink = Overtaken(landing, [lambda: first(rows, 0)])
    with pytest.raises(LeaseLostError, match="another process"):
        second(rows, 0)
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(5)]


def test_what_others_land_meanwhile_is_looked_up_once_more(
    spark: SparkSession, table: Names, tmp_path: Path, regime: str
) -> None:
    """A refill or a replay is no rival: the batch continues, and finds what they have landed."""
    landing, events = table("landing"), Events()
    rows = kafka_rows(0, 0, [good(n) for n in range(5)])
    log_offsets(tmp_path / "here", 0, {"flights-topic": {"0": 5}})
    other = lander(spark, landing, Events(), checkpoint=tmp_path / "other")
    write = lander(spark, landing, events, checkpoint=tmp_path / "here")
    write.sink = Overtaken(landing, [lambda: other(frame(spark, rows[:3]), 0)])
    write(frame(spark, rows), 0)
    assert events.accounts() == (5, 3, 2, 2, 0)
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(5)]


@pytest.mark.slow
def test_jobs_that_share_a_topic_out_do_not_refuse_each_other(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """After the first conflict a part commits beside the others, and still tells a rival."""
    landing, events = table("landing"), Events()
    parts = [lander(spark, landing, events, checkpoint=tmp_path / str(p)) for p in range(2)]

    def batch(part: int, number: int) -> None:
        log_offsets(tmp_path / str(part), number, {"flights-topic": {str(part): 2 * number + 2}})
        parts[part](frame(spark, kafka_rows(part, 2 * number, [good(1), good(2)])), number)

    attempts: list[NoRowsSinceSnapshot | None] = []
    for number in range(3):
        sink = Overtaken(landing, [lambda number=number: batch(1, number)], attempts)  # type: ignore[misc]
        parts[0].sink = sink
        batch(0, number)
    assert len(attempts) == 4  # of three batches the first was written twice
    assert ids(spark, landing) == sorted(f"flights-topic/{p}/{n}" for p in range(2) for n in range(6))

    rival = lander(spark, landing, Events(), checkpoint=tmp_path / "0")
    rows = frame(spark, kafka_rows(0, 6, [good(1), good(2)]))
    parts[0].sink = Overtaken(landing, [lambda: rival(rows, 3)])
    with pytest.raises(LeaseLostError, match="another process"):
        batch(0, 3)


@dataclass
class Job:
    """A job that lands two records a batch, whose checkpoint was made at some time."""

    spark: SparkSession
    landing: Table
    folder: Path
    created: int
    source: str = "all"
    number: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        log_offsets(self.folder, 0, {"flights-topic": {"0": 2}})
        os.utime(self.folder / "metadata", (self.created, self.created))
        self.begin()

    def begin(self) -> None:
        """Start, or start again."""
        self.write = lander(self.spark, self.landing, Events(), checkpoint=self.folder)
        self.write.checkpoint = replace(self.write.checkpoint, source=self.source)

    def batch(self) -> None:
        log_offsets(self.folder, self.number, {"flights-topic": {"0": 2 * self.number + 2}})
        self.write(frame(self.spark, kafka_rows(0, 2 * self.number, [good(1), good(2)])), self.number)
        self.number += 1


@pytest.mark.slow
def test_a_job_that_writes_what_an_older_one_writes_is_refused_and_the_other_continues(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """While both run: neither a hand-over nor a job with other partitions is a second owner."""
    landing = table("landing")
    owner, other, rest = (
        Job(spark, landing, tmp_path / name, created, source)
        for name, created, source in (("owner", 1000, "all"), ("other", 2000, "all"), ("rest", 3000, "part"))
    )

    def refused() -> None:
        with pytest.raises(LeaseLostError, match="another job writes it from the same source"):
            other.batch()

    for batch in (owner, other, rest, other, rest, owner):
        batch.batch()  # a job that takes over continues while the first does not
    refused()
    refused()
    rest.batch()
    owner.batch()
    other.begin()
    other.batch()
    owner.batch()
    refused()
    owner.begin()
    owner.batch()
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(2 * owner.number)]


@pytest.mark.slow
def test_of_two_jobs_that_derive_the_same_the_younger_is_refused(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = test_derive.Pipeline(spark, table, tmp_path / "owner")
    others = pipe.deriver_of()
    for deriver in (pipe.deriver, others):
        deriver.checkpoint = replace(deriver.checkpoint, source="landing")
    others.checkpoint = replace(others.checkpoint, location=str(tmp_path / "other"))
    for number in range(3):
        pipe.land(frame(spark, kafka_rows(0, 3 * number, [good(n) for n in range(3)])), number)
        if number == 2:
            with pytest.raises(Exception, match="another job writes it from the same source"):
                pipe.derive(others, tmp_path / "other")
        pipe.derive()
        if number == 0:
            os.utime(tmp_path / "owner" / "metadata", (1000, 1000))
            pipe.deriver.checkpoint = replace(pipe.deriver.checkpoint, _made=[])
            pipe.derive(others, tmp_path / "other")
    assert pipe.written().count() == pipe.written().select("_id").distinct().count() == 6


def test_results_that_a_table_was_joined_to_take_the_place_of_others(
    spark: SparkSession, table: Names
) -> None:
    """In a table that is written copy on write, as those with a time in their key are."""
    results, names = table("results"), table("names")
    shape = spark.createDataFrame([], "_id STRING, at TIMESTAMP, name STRING").schema
    tables.create_or_evolve_table(spark, results, shape, time="at")
    spark.sql(f"CREATE TABLE {names} (_id STRING, name STRING) USING iceberg")
    sink = KeyedIcebergSink(results, "at")
    for name in ("first", "later"):
        spark.sql(f"INSERT OVERWRITE {names} VALUES ('1', '{name}')")  # noqa: S608 - our own names
        batch = spark.range(3).select(
            F.col("id").cast("string").alias("_id"), F.timestamp_micros(F.col("id")).alias("at")
        )
        rows = batch.join(F.broadcast(spark.table(str(names))), "_id", "left")
        assert sink.write(rows, None, none_refused).written == 3
        result = {row["_id"]: row["name"] for row in spark.table(str(results)).collect()}
        assert result == {"0": None, "1": name, "2": None}


@pytest.mark.slow
def test_of_two_merges_of_results_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """By Iceberg's own validation, for results that are there and for such that both would insert."""
    results = table("results")
    tables.create_or_evolve_table(
        spark, results, spark.createDataFrame([], "_id STRING, at TIMESTAMP, n BIGINT").schema, time="at"
    )
    sink = KeyedIcebergSink(results, "at")

    def rows(first: int, value: int) -> DataFrame:
        numbers = spark.range(first, first + 3, 1, 1)
        at = F.timestamp_micros(F.col("id") * 60_000_000)
        return numbers.select(
            F.col("id").cast("string").alias("_id"), at.alias("at"), F.lit(value).alias("n")
        )

    sink.write(rows(0, 1), None, none_refused)
    for first in (0, 10):
        begun, go = tmp_path / f"begun-{first}", tmp_path / f"go-{first}"

        @F.udf("bigint", useArrow=False)
        def waits(value: int, begun: Path = begun, go: Path = go) -> int:
            begun.touch()
            while not go.exists():
                time.sleep(0.01)
            return value

        rows(first, 2).withColumn("n", waits("n")).createOrReplaceTempView("late")
        with ThreadPoolExecutor(1) as other:
            late = other.submit(
                spark.sql,
                f"MERGE INTO {results} t USING late s ON t._id = s._id AND t.at >= timestamp_micros(0) "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            )
            while not begun.exists():
                time.sleep(0.01)
            sink.write(rows(first, 3), None, none_refused)
            go.touch()
            with pytest.raises(Exception, match="conflicting files"):
                late.result()
        assert {r["n"] for r in spark.table(str(results)).where(f"_id = '{first}'").collect()} == {3}


def test_a_compaction_meanwhile_refuses_nobody(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, checkpoint=tmp_path)
    for number in range(3):
        log_offsets(tmp_path, number, {"flights-topic": {"0": 2 * number + 2}})
        if number == 2:
            write.sink = Overtaken(landing, [lambda: compact(spark, landing)])
        write(frame(spark, kafka_rows(0, 2 * number, [good(1), good(2)])), number)
    operations = [
        r["operation"] for r in spark.table(f"{landing}.snapshots").orderBy("committed_at").collect()
    ]
    assert operations == ["append", "append", "replace", "append"]
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(6)]


def test_of_two_runs_of_a_derive_query_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = test_derive.Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(9)])), 0)
    rival = pipe.deriver_of()
    held: list[DataFrame] = []

    def handle(batch: DataFrame, batch_id: int) -> None:
        held.append(batch)
        pipe.deriver.sink = Overtaken(pipe.sink, [lambda: rival(batch, batch_id)])
        pipe.deriver(batch, batch_id)

    with pytest.raises(Exception, match="another process"):
        pipe.derive(handle)
    assert pipe.written().count() == pipe.written().select("_id").distinct().count() == 6


@pytest.mark.slow
def test_of_two_runs_of_a_direct_query_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = test_direct.Pipeline(spark, table, tmp_path)
    rival = pipe.restarted()
    second = pipe.restarted(sink=Overtaken(pipe.sink, [lambda: pipe.batch(0, 0, [good(1), good(2)], rival)]))
    with pytest.raises(LeaseLostError, match="another process"):
        pipe.batch(0, 0, [good(1), good(2)], second)
    assert pipe.flights() == [1, 2]
