"""Compaction, expiry and orphan removal lose nothing and cut off no reader, also while streams run."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.job.maintenance_schedule import MaintenanceThread
from millrace.etl.maintenance import table_maintenance
from millrace.etl.maintenance.table_maintenance import Compaction, OrphanFileRemoval, SnapshotExpiry
from millrace.etl.record import tables
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.spark.maintained_table import (
    NOW,
    Names,
    begin,
    compact,
    expire,
    files,
    flights,
    land,
    snapshots,
    wanted,
)
from tests.spark.queries.test_derive import Pipeline
from tests.spark.sink_input_rows import none_refused
from tests.spark.source_batches import Events

pytestmark = [pytest.mark.usefixtures("forgetful"), pytest.mark.slow]


def test_a_reader_that_is_behind_reads_on_through_compaction_and_expiry(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    pipe.derive()
    land(pipe, 2, 3)  # has yet to be read
    events = Events()
    compact(spark, pipe.landing, events)
    told = events.last()
    # Each batch left a file for each of its two tasks.
    assert (told["event"], told["files_before"], told["files_after"]) == ("compacted", 10, 1)
    assert files(spark, pipe.landing) == 1
    before = snapshots(spark, pipe.landing)
    (held,) = [e for e in expire(spark, pipe, pipe.checkpoint).all() if e["event"] == "expiry_held"]
    assert held["reader"] == str(pipe.checkpoint)
    # The state that it read last and all four since (three batches, one compaction) are there.
    assert (before, snapshots(spark, pipe.landing)) == (6, 5)
    pipe.derive()
    assert flights(pipe) == wanted(10)
    assert sum(account[3] for account in pipe.accounts()) == len(wanted(10))
    # What it has read last stays, and is the last append; with the next one all before goes, and the small files.
    land(pipe, 5, 1)
    pipe.derive()
    told = expire(spark, pipe, pipe.checkpoint).last()
    assert (told["event"], snapshots(spark, pipe.landing)) == ("snapshots_expired", 1)
    assert told["files"] >= 10
    assert spark.table(f"{pipe.landing}.all_data_files").count() == 3
    assert flights(pipe) == wanted(12)


def test_a_reader_whose_position_is_not_known_holds_everything(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 3)

    def failing(*_: Any) -> None:
        raise RuntimeError("killed before its first commit")

    with pytest.raises(Exception, match="killed before"):
        pipe.derive(failing)
    events = expire(spark, pipe, pipe.checkpoint)
    assert ([e["event"] for e in events.all()], snapshots(spark, pipe.landing)) == (["expiry_held"], 3)
    pipe.derive()
    assert flights(pipe) == wanted(6)
    # Nor is that of one whose log is damaged.
    log = pipe.checkpoint / "offsets"
    newest = max((p for p in log.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
    newest.write_bytes(newest.read_bytes()[:9])
    newest.with_name(f".{newest.name}.crc").unlink()
    assert expire(spark, pipe, pipe.checkpoint).last()["event"] == "expiry_held"


def test_what_is_young_stays(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 3)
    expire(spark, pipe, keep=timedelta(hours=1))
    assert snapshots(spark, pipe.landing) == 3


def test_too_many_go_however_young(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "MOST_SNAPSHOTS", 3)
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 5)
    expire(spark, pipe, keep=timedelta(hours=1))
    assert snapshots(spark, pipe.landing) == 3


def test_orphans_of_some_age_go_and_nothing_else(
    spark: SparkSession, table: Names, warehouse: Path, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    folder = warehouse / "tests" / pipe.landing.name / "data"
    orphan, young = folder / "killed-writer.parquet", folder / "writer-at-work.parquet"
    for file in (orphan, young):
        file.write_bytes(b"rows that nobody committed")
    old = time.time() - 2 * 86400
    os.utime(orphan, (old, old))
    events = Events()
    OrphanFileRemoval(table=pipe.landing, older_than=timedelta(days=1), report=events.reporter)(spark)
    assert (events.last()["event"], events.last()["files"]) == ("orphans_removed", 1)
    assert (orphan.exists(), young.exists()) == (False, True)
    assert spark.table(str(pipe.landing)).count() == 4


@pytest.mark.slow
def test_all_three_beside_a_stream_that_lands_and_one_that_derives(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 1)
    kept = Events()
    done = threading.Event()

    class Round(OrphanFileRemoval):
        def __call__(self, spark: SparkSession) -> None:
            super().__call__(spark)
            done.set()

    again = timedelta(milliseconds=1)
    chores = MaintenanceThread(
        spark,
        (
            Compaction(table=pipe.landing, file_size=64 * 1024**2, report=kept.reporter, every=again),
            SnapshotExpiry(
                table=pipe.landing,
                keep=NOW,
                readers=(str(pipe.checkpoint),),
                report=kept.reporter,
                every=again,
            ),
            Compaction(table=pipe.sink, file_size=64 * 1024**2, report=kept.reporter, every=again),
            Round(table=pipe.landing, older_than=timedelta(days=1), report=kept.reporter, every=again),
        ),
        kept.reporter,
        first=NOW,
    )
    begin(pipe)
    pipe.derive()
    chores.start()
    rounds = 0
    try:
        for number in range(1, 9):
            land(pipe, number, 1)
            if number % 2 == 0:
                pipe.derive()
            rounds += done.is_set()
            done.clear()
        assert done.wait(60)
    finally:
        chores.stop()
    pipe.derive()
    assert flights(pipe) == wanted(18)
    assert sum(account[3] for account in pipe.accounts()) == len(wanted(18))
    told = {e["event"] for e in kept.all()}
    assert {"compacted", "snapshots_expired"} <= told
    assert "chore_failed" not in told, [e for e in kept.all() if e["event"] == "chore_failed"]
    assert rounds


def test_results_without_a_time_are_replaced_without_rewriting_files_and_compacted(
    spark: SparkSession, table: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file may hold one of them: a batch adds the places of those it replaces, until compaction works them off."""
    monkeypatch.setattr(table_maintenance, "_DELETE_FILES", 1)
    results = table("results")
    tables.create_or_evolve_table(
        spark, results, spark.createDataFrame([], "_id STRING, n BIGINT").schema, time=None
    )
    sink = KeyedIcebergSink(results)
    for value in range(3):
        rows = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS _id", f"{value}L AS n")
        sink.write(rows if value == 0 else rows.where("_id < '2'"), None, none_refused)
    replaced = spark.table(str(results)).where("n > 0").count()
    newest = spark.table(f"{results}.snapshots").orderBy("committed_at").collect()[-1]["summary"]
    assert int(newest["total-position-deletes"]) == 2 * replaced
    assert (
        int(newest["total-records"]) == 100 + 2 * replaced
    )  # nothing was written again but what was replaced
    compact(spark, results, Events())
    newest = spark.table(f"{results}.snapshots").orderBy("committed_at").collect()[-1]["summary"]
    assert int(newest["total-records"]) == 100
    values = {r["n"]: r["count"] for r in spark.table(str(results)).groupBy("n").count().collect()}
    assert values == {0: 100 - replaced, 2: replaced}
