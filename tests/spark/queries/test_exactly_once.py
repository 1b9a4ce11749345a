"""Each record lands once under any plan of Spark's, beside other writers, and with thousands of partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.maintenance.table_maintenance import call_iceberg_procedure
from millrace.etl.record import batch_accounts
from millrace.etl.record.errors import LossError
from millrace.etl.record.tables import Table
from millrace.etl.sinks import refused_rows_dead_letters
from millrace.etl.sinks.base import LETTER, BatchIdentity
from millrace.etl.sinks.iceberg import AppendResult, IcebergSink
from millrace.etl.sources.batch_offsets import MOST_CONDITIONS, offset_ranges_condition
from tests.spark.queries import test_derive, test_direct
from tests.spark.source_batches import (
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


def compact(spark: SparkSession, table: Table) -> None:
    call_iceberg_procedure(spark, table, "rewrite_data_files", options="map('rewrite-all', 'true')")


# ---- an executor lost while the batch is written ----


@dataclass(frozen=True)
class LosesShuffles(IcebergSink):
    """Deletes the files of all shuffles when the first row is written, as a lost executor does."""

    marker: Path

    def _append_files(self, rows: DataFrame, *rest: Any) -> None:
        marker, jvm = self.marker, rows.sparkSession._jvm
        claim = marker.with_suffix(".claimed")
        assert jvm is not None
        blocks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
        folders = [str(folder.getPath()) for folder in blocks.localDirs()]

        @F.udf("binary", useArrow=False)
        def lose(key: bytearray) -> bytearray:
            with suppress(FileExistsError):
                claim.touch(exist_ok=False)  # by any task: whichever partition it is that has rows
                for folder in folders:
                    for path in Path(folder).rglob("shuffle_*"):
                        path.unlink()
                marker.touch()
            while not marker.exists():  # nobody ends before, so that the others find the files gone
                time.sleep(0.01)
            return key

        super()._append_files(rows.withColumn("_key", lose("_key")), *rest)


def growing_shard(spark: SparkSession, reads: Path, first: int, now: Any) -> DataFrame:
    """A shard of which each read finds five records more."""
    reads.mkdir()

    def shard(_: Iterator[int]) -> Iterator[tuple[Any, ...]]:
        number = len(list(reads.iterdir())) + 1
        (reads / str(number)).touch()
        yield from kinesis_rows(range(first, first + 35 + 5 * number), now)

    schema = spark.createDataFrame([], ENVELOPE).schema
    return spark.createDataFrame(spark.sparkContext.parallelize([0], 1).mapPartitions(shard), schema)


@pytest.mark.slow
@pytest.mark.faults
def test_an_executor_lost_behind_the_join_loses_nothing(
    spark: SparkSession, table: Names, tmp_path: Path, regime: str
) -> None:
    """Both counts stand where the writing does: one before the join doubles with the reading, and tells nothing."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
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


@pytest.mark.slow
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_batches_that_come_again_otherwise_land_once_whatever_is_lost(
    spark: SparkSession,
    table: Names,
    tmp_path_factory: pytest.TempPathFactory,
    regime: str,
    data: st.DataObject,
) -> None:
    """Kinesis: a replay ends elsewhere, an executor is lost, files are compacted, processes start from the beginning."""
    landing, now, folder = (
        table(f"landing_{time.monotonic_ns()}"),
        batch_accounts.utc_now(),
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
        plan = str(offset_ranges_condition("flights", ranges)._jc.toString())
        # As Iceberg's scan describes itself, and as that of Spark 4.1 does.
        result = plan.count("_position >=") + plan.count(">=(_position")
        assert result == min(count, MOST_CONDITIONS)
        assert spark.table(str(landing)).where(offset_ranges_condition("flights", ranges)).count() == 0
        held = ranges | {"4999": (0, 8)}
        assert spark.table(str(landing)).where(offset_ranges_condition("flights", held)).count() == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_refused_rows_are_looked_up_only_where_others_may_have_kept_them(
    spark: SparkSession, table: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a new batch nor one that comes again compares its letters with all that were ever refused."""
    kept = table("letters")
    looked: list[tuple[bool, int]] = []

    class Noting(IcebergSink):
        def append(
            self, batch: DataFrame, look_up: DuplicateLookUp, *figures: Column, **more: Any
        ) -> AppendResult:
            looked.append((look_up.rows is not None, len(look_up.commits)))
            return super().append(batch, look_up, *figures, **more)

    monkeypatch.setattr(refused_rows_dead_letters, "IcebergSink", Noting)

    def refused(number: int) -> DataFrame:
        landed = batch_accounts.utc_now() if number >= 0 else None
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

    def process() -> refused_rows_dead_letters.DeadLetterTable:
        made = refused_rows_dead_letters.DeadLetterTable(kept, "derive-flights")
        made.prepare(spark)
        return made

    keep = process()
    for number in (0, 1, 1):
        keep.refused_row_handler(BatchIdentity("run", number))(refused(number))
    assert looked == [(False, 0), (False, 0), (False, 1)]
    looked.clear()
    # Another process of the same run, then a run after a reset: of what was landed since nothing is there.
    process().refused_row_handler(BatchIdentity("run", 2))(refused(2))
    keep = process()
    keep.refused_row_handler(BatchIdentity("reset", 0))(refused(3))
    assert looked == [(False, 0), (False, 0)]
    looked.clear()
    # A result does not say when it landed.
    keep = process()
    for run in ("again", "again"):
        keep.refused_row_handler(BatchIdentity(run, 0))(refused(-4))
    assert looked[:2] == [(False, 0), (True, 0)]
    assert spark.table(str(kept)).count() == 5
