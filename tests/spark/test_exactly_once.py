"""Exactly once under any plan of Spark's, beside other writers, and with thousands of partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from etl import accounts, tables
from etl.commits import BatchId, Fence
from etl.errors import LeaseLostError, LossError
from etl.sinks import letters
from etl.sinks.base import LETTER
from etl.sinks.iceberg import Appended, Bound, IcebergSink
from etl.sinks.iceberg_keyed import KeyedIcebergSink
from etl.sources.bounds import MOST_CONDITIONS, offset_bound
from etl.tables import Table
from etl.upkeep import call
from tests.spark import test_derive, test_direct
from tests.spark.batches import (
    ENVELOPE,
    KINESIS,
    Events,
    frame,
    good,
    ids,
    kafka_rows,
    kinesis_rows,
    lander,
    log_offsets,
)

Names = Callable[[str], Table]
REGIMES = {"small": ("10485760", "2", "false"), "large": ("-1", "4", "false")}
"""Broadcast threshold, shuffle partitions, adaptive execution (off in a stream's batches): what is known of a batch is
broadcast, or sorted and merged."""


@pytest.fixture(params=sorted(REGIMES))
def regime(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    names = (
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.shuffle.partitions",
        "spark.sql.adaptive.enabled",
    )
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, REGIMES[request.param], strict=True):
        spark.conf.set(name, value)
    yield request.param
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


def compact(spark: SparkSession, table: Table) -> None:
    call(spark, table, "rewrite_data_files", options="map('rewrite-all', 'true')")


# ---- an executor lost while the batch is written ----


@dataclass(frozen=True)
class LosesShuffles(IcebergSink):
    """Deletes the files of all shuffles when the first task writes, as a lost executor does."""

    marker: Path

    def _commit(self, rows: DataFrame, *rest: Any) -> None:
        marker, jvm = self.marker, rows.sparkSession._jvm
        assert jvm is not None
        blocks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
        folders = [str(folder.getPath()) for folder in blocks.localDirs()]

        @F.udf("binary")
        def lose(key: bytearray) -> bytearray:
            context = TaskContext.get()
            assert context is not None
            if context.partitionId() == 0 and not marker.exists():
                for folder in folders:
                    for path in Path(folder).rglob("shuffle_*"):
                        path.unlink()
                marker.touch()
            while not marker.exists():  # nobody ends before, so that the others find the files gone
                time.sleep(0.01)
            return key

        super()._commit(rows.withColumn("_key", lose("_key")), *rest)


def growing_shard(spark: SparkSession, reads: Path, first: int, now: Any) -> DataFrame:
    """A shard of which each read finds five records more."""
    reads.mkdir()

    def shard(_: Iterator[int]) -> Iterator[tuple[Any, ...]]:
        number = len(list(reads.iterdir())) + 1
        (reads / str(number)).touch()
        yield from kinesis_rows(range(first, first + 35 + 5 * number), now)

    schema = spark.createDataFrame([], ENVELOPE).schema
    return spark.createDataFrame(spark.sparkContext.parallelize([0], 1).mapPartitions(shard), schema)


@pytest.mark.faults
def test_an_executor_lost_behind_the_join_loses_nothing(
    spark: SparkSession, table: Names, tmp_path: Path, regime: str
) -> None:
    """Both counts stand where the writing does: one before the join doubles with the reading, and tells nothing."""
    landing, events, now = table("landing"), Events(), accounts.now()
    write = lander(spark, landing, events, source=KINESIS)
    write.settings = replace(write.settings, repartition=4)  # tasks that wait for others to end
    write(frame(spark, kinesis_rows(range(10), now)), 0)
    write.sink = LosesShuffles(landing, tmp_path / "lost")
    reads = tmp_path / "reads"
    write(growing_shard(spark, reads, 5, now), 1)
    assert (tmp_path / "lost").exists()
    last = max(int(p.name) for p in reads.iterdir())
    assert last >= 2, f"{regime}: nothing was lost"
    assert ids(spark, landing) == sorted(f"flights-stream/{n}" for n in range(40 + 5 * last))


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_batches_that_come_again_otherwise_land_once_whatever_is_lost(
    spark: SparkSession,
    table: Names,
    tmp_path_factory: pytest.TempPathFactory,
    regime: str,
    data: st.DataObject,
) -> None:
    """Kinesis: a replay ends elsewhere, an executor is lost, files are compacted, processes begin anew."""
    landing, now, folder = (
        table(f"landing_{time.monotonic_ns()}"),
        accounts.now(),
        tmp_path_factory.mktemp("runs"),
    )
    wanted: set[int] = set()
    write = lander(spark, landing, Events(), source=KINESIS)
    write.settings = replace(write.settings, repartition=4)
    for step in range(data.draw(st.integers(2, 4), label="steps")):
        first = data.draw(st.integers(0, max(wanted, default=0) + 1), label="first")
        kind = data.draw(st.sampled_from(["batch", "lost", "compacted", "restarted"]), label="kind")
        if kind == "compacted" and wanted:
            compact(spark, landing)
        if kind == "restarted":
            write = lander(spark, landing, Events(), source=KINESIS)
            write.settings = replace(write.settings, repartition=4)
        if kind == "lost":
            write.sink = LosesShuffles(landing, folder / f"lost-{step}")
            reads = folder / f"reads-{step}"
            write(growing_shard(spark, reads, first, now), step)
            wanted |= set(range(first, first + 35 + 5 * max(int(p.name) for p in reads.iterdir())))
            write.sink = IcebergSink(landing)
        else:
            count = data.draw(st.integers(0, 30), label="count")
            write(frame(spark, kinesis_rows(range(first, first + count), now)), step)
            wanted |= set(range(first, first + count))
    assert ids(spark, landing) == sorted(f"flights-stream/{n}" for n in wanted)


# ---- two writers ----


@dataclass(frozen=True)
class Overtaken(IcebergSink):
    """Lets somebody else commit between this sink's look-up and its commit, once."""

    other: list[Callable[[], None]] = field(default_factory=list)
    commits: list[Fence | None] = field(default_factory=list)

    def _commit(self, rows: DataFrame, properties: Any, fence: Fence | None) -> None:
        self.commits.append(fence)
        if self.other:
            self.other.pop()()
        super()._commit(rows, properties, fence)


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
    """A refill or a replay is no rival: the batch goes on, and finds what they have landed."""
    landing, events = table("landing"), Events()
    rows = kafka_rows(0, 0, [good(n) for n in range(5)])
    log_offsets(tmp_path / "here", 0, {"flights-topic": {"0": 5}})
    other = lander(spark, landing, Events(), checkpoint=tmp_path / "other")
    write = lander(spark, landing, events, checkpoint=tmp_path / "here")
    write.sink = Overtaken(landing, [lambda: other(frame(spark, rows[:3]), 0)])
    write(frame(spark, rows), 0)
    assert events.accounts() == (5, 3, 2, 2, 0)
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(5)]


def test_jobs_that_share_a_topic_out_do_not_refuse_each_other(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """After the first conflict a part commits beside the others, and still tells a rival."""
    landing, events = table("landing"), Events()
    parts = [lander(spark, landing, events, checkpoint=tmp_path / str(p)) for p in range(2)]

    def batch(part: int, number: int) -> None:
        log_offsets(tmp_path / str(part), number, {"flights-topic": {str(part): 2 * number + 2}})
        parts[part](frame(spark, kafka_rows(part, 2 * number, [good(1), good(2)])), number)

    attempts: list[Fence | None] = []
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


def test_of_two_merges_of_results_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """By Iceberg's own validation, for results that are there and for such that both would insert."""
    results = table("results")
    tables.ensure(
        spark, results, spark.createDataFrame([], "_id STRING, at TIMESTAMP, n BIGINT").schema, time="at"
    )
    sink = KeyedIcebergSink(results, "at")

    def rows(first: int, value: int) -> DataFrame:
        numbers = spark.range(first, first + 3, 1, 1)
        at = F.timestamp_micros(F.col("id") * 60_000_000)
        return numbers.select(
            F.col("id").cast("string").alias("_id"), at.alias("at"), F.lit(value).alias("n")
        )

    sink.upsert(rows(0, 1))
    for first in (0, 10):
        begun, go = tmp_path / f"begun-{first}", tmp_path / f"go-{first}"

        @F.udf("bigint")
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
            sink.upsert(rows(first, 3))
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


def test_of_two_runs_of_a_direct_query_one_commits_and_the_other_fails(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = test_direct.Pipeline(spark, table, tmp_path)
    rival = pipe.restarted()
    second = pipe.restarted(sink=Overtaken(pipe.sink, [lambda: pipe.batch(0, 0, [good(1), good(2)], rival)]))
    with pytest.raises(LeaseLostError, match="another process"):
        pipe.batch(0, 0, [good(1), good(2)], second)
    assert pipe.flights() == [1, 2]


# ---- one identity, one payload ----


def test_an_identity_with_another_payload_stops_the_query_before_anything_is_dropped(
    spark: SparkSession, table: Names, tmp_path: Path, regime: str
) -> None:
    """A topic that was made again begins at offset 0 again: 10 of 14 records would be taken for duplicates."""
    landing, events = table("landing"), Events()
    lander(spark, landing, Events(), checkpoint=tmp_path / "old")(
        frame(spark, kafka_rows(0, 0, [good(n) for n in range(10)])), 0
    )
    log_offsets(tmp_path / "new", 0, {"flights-topic": {"0": 14}})
    write = lander(spark, landing, events, checkpoint=tmp_path / "new")
    with pytest.raises(LossError, match=r"flights: flights-topic/0/\d+ with another payload.*another name"):
        write(frame(spark, kafka_rows(0, 0, [good(100 + n) for n in range(14)])), 0)
    assert len(ids(spark, landing)) == 10
    assert events.all() == []


# ---- cost that does not grow ----


def test_thousands_of_partitions_are_a_bound_of_a_few_conditions(spark: SparkSession, table: Names) -> None:
    landing = table("landing")
    lander(spark, landing, Events())(frame(spark, kafka_rows(4999, 7, [good(1)])), 0)
    for count in (2, MOST_CONDITIONS, 5000):
        ranges = {str(p): (10 * p, 10 * p + 5) for p in range(5000 - count, 5000)}
        plan = str(offset_bound("flights", ranges)._jc.toString())
        assert plan.count("_position >=") == min(count, MOST_CONDITIONS)
        assert spark.table(str(landing)).where(offset_bound("flights", ranges)).count() == 0
        held = ranges | {"4999": (0, 8)}
        assert spark.table(str(landing)).where(offset_bound("flights", held)).count() == 1


def test_a_job_of_five_thousand_partitions_starts_again(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    rows = [row for p in (0, 4999) for row in kafka_rows(p, 100, [good(1), good(2)])]
    ends = {str(p): 100 for p in range(5000)}
    log_offsets(tmp_path, 0, {"flights-topic": ends})
    log_offsets(tmp_path, 1, {"flights-topic": ends | {"0": 102, "4999": 102}})
    for landed in (4, 0):
        lander(spark, landing, events, checkpoint=tmp_path)(frame(spark, rows), 1)
        assert events.accounts() == (4, 4 - landed, landed, landed, 0)
    # A new checkpoint reads the past again.
    log_offsets(tmp_path / "new", 0, {"flights-topic": {p: end + 2 for p, end in ends.items()}})
    lander(spark, landing, events, checkpoint=tmp_path / "new")(frame(spark, rows), 0)
    assert events.accounts() == (4, 4, 0, 0, 0)


def test_the_first_derive_of_an_old_table_looks_nothing_up(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = test_derive.Pipeline(spark, table, tmp_path)
    for n in range(3):
        pipe.land(frame(spark, kafka_rows(0, 3 * n, [good(k) for k in range(3 * n, 3 * n + 3)])), 0)
    pipe.deriver.sink = test_direct.NoLookUp(pipe.sink)
    pipe.derive()
    pipe.land(frame(spark, kafka_rows(0, 9, [good(10)])), 1)
    pipe.deriver = pipe.deriver_of()
    pipe.deriver.sink = test_direct.NoLookUp(pipe.sink)
    pipe.derive()
    assert sorted(r["flight"] for r in pipe.written().collect()) == [1, 2, 4, 5, 7, 8, 10]


def test_refused_rows_are_looked_up_only_where_others_may_have_kept_them(
    spark: SparkSession, table: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a new batch nor one that comes again compares its letters with all that were ever refused."""
    kept = table("letters")
    looked: list[tuple[bool, int]] = []

    class Noting(IcebergSink):
        def append(self, batch: DataFrame, bound: Bound | None, *figures: Column, **more: Any) -> Appended:
            looked.append((bound is not None and bound.rows is None, len(more["added"])))
            return super().append(batch, bound, *figures, **more)

    monkeypatch.setattr(letters, "IcebergSink", Noting)

    def refused(number: int) -> DataFrame:
        landed = accounts.now() if number >= 0 else None
        rows = [
            (
                f"t/0/{abs(number)}",
                "flights" if landed else None,
                landed,
                landed,
                bytearray(b"{}"),
                "sink",
                "no",
            )
        ]
        return spark.createDataFrame(rows, LETTER)

    def process() -> letters.Letters:
        made = letters.Letters(kept, "derive-flights")
        made.prepare(spark)
        return made

    keep = process()
    for number in (0, 1, 1):
        keep.of(BatchId("run", number))(refused(number))
    assert looked == [(False, 0), (False, 0), (False, 1)]
    looked.clear()
    # Another process of the same run, then a run after a reset: of what was landed since nothing is there.
    process().of(BatchId("run", 2))(refused(2))
    keep = process()
    keep.of(BatchId("reset", 0))(refused(3))
    assert looked == [(False, 0), (False, 0)]
    looked.clear()
    # A result does not say when it landed.
    keep = process()
    for run in ("again", "again"):
        keep.of(BatchId(run, 0))(refused(-4))
    assert looked[:2] == [(False, 0), (True, 0)]
    assert spark.table(str(kept)).count() == 5
