"""Compaction, expiry and orphan removal: nothing lost, nobody who is behind cut off, also while streams run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import StreamingQueryException  # type: ignore[attr-defined]  # its home in Spark 3.3 to 4

from etl import derive, upkeep
from etl.beginning import begin_with_everything, kept_whole, streamed
from etl.checkpoint import Checkpoint
from etl.chores import Chores
from etl.errors import StartError
from etl.supervise import Query
from etl.tables import Table
from etl.upkeep import Compaction, Expiry, Orphans
from tests.spark.batches import Events, frame, good, kafka_rows
from tests.spark.test_derive import Pipeline

Names = Callable[[str], Table]

NOW = timedelta(0)
"""Keeps nothing that need not be kept."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few commits have something to forget."""
    monkeypatch.setattr(upkeep, "FEWEST_SNAPSHOTS", 1)


def files(spark: SparkSession, table: Table) -> int:
    return spark.table(f"{table}.files").count()


def snapshots(spark: SparkSession, table: Table) -> int:
    return spark.table(f"{table}.snapshots").count()


def compact(spark: SparkSession, table: Table, events: Events | None = None) -> None:
    Compaction(table, 64 * 1024**2, (events or Events()).reporter)(spark)


def expire(spark: SparkSession, pipe: Pipeline, *readers: Path, keep: timedelta = NOW) -> Events:
    events = Events()
    Expiry(pipe.landing, keep, tuple(map(str, readers)), events.reporter)(spark)
    return events


def land(pipe: Pipeline, first: int, batches: int, rows: int = 2) -> None:
    for number in range(first, first + batches):
        offsets = range(number * rows, (number + 1) * rows)
        pipe.land(frame(pipe.spark, kafka_rows(0, offsets[0], [good(n) for n in offsets])), number)


def begin(pipe: Pipeline) -> tuple[str, ...]:
    rows = derive.read(pipe.spark, pipe.landing)
    return begin_with_everything(pipe.spark, rows, Checkpoint(str(pipe.checkpoint)), "derive-flights")


def read(pipe: Pipeline, most: int | None = None) -> tuple[list[int], int]:
    """What a query reads that doubles what comes twice, and how often its batch was cut."""
    found: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(row["flight"] for row in batch.collect())

    rows = derive.read(pipe.spark, pipe.landing, most)
    bare = Query("derive-flights", rows, take, str(pipe.checkpoint), 0.0)
    query = kept_whole(bare, Checkpoint(str(pipe.checkpoint)))
    assert query.reopen is not None
    for cuts in range(9):
        running = (
            rows.writeStream.option("checkpointLocation", query.checkpoint).foreachBatch(query.handle).start()
        )
        try:
            running.processAllAvailable()
            return sorted(found), cuts
        except StreamingQueryException as error:
            if "to be read as a whole first" not in str(error):
                raise
            rows = query.reopen()
        finally:
            running.stop()
    raise AssertionError("cut again and again")


def flights(pipe: Pipeline) -> list[int]:
    return sorted(row["flight"] for row in pipe.written().collect())


def wanted(rows: int) -> list[int]:
    return [n for n in range(rows) if n % 3]


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
    monkeypatch.setattr(upkeep, "MOST_SNAPSHOTS", 3)
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 5)
    expire(spark, pipe, keep=timedelta(hours=1))
    assert snapshots(spark, pipe.landing) == 3


def test_a_new_reader_of_an_expired_table_reads_all_of_it(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 4)
    expire(spark, pipe)
    land(pipe, 4, 1)
    rows = derive.read(spark, pipe.landing)
    # What Iceberg does by itself: it begins with what the oldest state that it knows has added.
    pipe.derive(lambda *_: None, tmp_path / "control")
    control: list[int] = []
    query = (
        rows.writeStream.option("checkpointLocation", str(tmp_path / "alone"))
        .foreachBatch(lambda batch, _: control.extend(r["flight"] for r in batch.collect()))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    assert sorted(control) == [6, 7, 8, 9], "Iceberg begins elsewhere now: is the beginning still needed?"
    assert begin(pipe) == (str(pipe.landing),)
    pipe.derive()
    assert flights(pipe) == wanted(10)
    # A query that has begun keeps its place.
    assert begin(pipe) == ()
    land(pipe, 5, 1)
    pipe.derive()
    assert flights(pipe) == wanted(12)
    assert sum(account[3] for account in pipe.accounts()) == len(wanted(12))


def test_what_lands_before_all_is_read_takes_nothing_from_it(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """A batch that goes on into the next state would be given as many files of the first as that one added."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 3)
    expire(spark, pipe)
    begin(pipe)
    land(pipe, 3, 1)
    # The second batch has two files of six left, and is planned to have those of the next state as well.
    assert read(pipe, 4) == (list(range(8)), 1)


def test_a_reader_begins_though_a_chore_wrote_last(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    """The source passes over a commit that appends nothing, and over all files of such a state."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 3)
    expire(spark, pipe)
    compact(spark, pipe.landing)
    spark.sql(f"DELETE FROM {pipe.landing} WHERE flight = 1")  # noqa: S608 - a name of ours
    # Also hours later: a state that can be begun at stays.
    expire(spark, pipe)
    assert begin(pipe) == (str(pipe.landing),)
    # What was deleted since is read too, as by every query that was behind.
    assert read(pipe) == (list(range(6)), 0)
    land(pipe, 3, 1)
    assert read(pipe) == ([6, 7], 0)


def test_no_deleted_file_is_read_and_none_of_the_others_left_out(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)

    def merge_lists_from(count: int) -> None:
        spark.sql(
            f"ALTER TABLE {pipe.landing} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge'='{count}')"
        )

    merge_lists_from(2)
    land(pipe, 2, 1)
    merge_lists_from(100)
    expire(spark, pipe)
    # One list names this file as deleted, and all others as there, also in the states that follow.
    spark.sql(f"DELETE FROM {pipe.landing} WHERE flight = 1")  # noqa: S608 - a name of ours
    land(pipe, 3, 2)
    expire(spark, pipe)
    assert snapshots(spark, pipe.landing) == 4, "the last state that can be begun at is to stay"
    begin(pipe)
    assert read(pipe, 4) == (list(range(10)), 1)
    # Where somebody else has forgotten that state there is none, which is told.
    upkeep.call(
        spark, pipe.landing, "expire_snapshots", older_than="TIMESTAMP '2099-01-01 00:00:00'", retain_last="1"
    )
    pipe.checkpoint = tmp_path / "another"
    with pytest.raises(StartError, match=f"query derive-flights: table {pipe.landing}: .*rewrite_manifests"):
        begin(pipe)
    upkeep.call(spark, pipe.landing, "rewrite_manifests")
    land(pipe, 5, 1)
    begin(pipe)
    assert read(pipe) == ([0, *range(2, 12)], 0)


def test_a_beginning_that_was_lost_is_written_anew_only_where_it_is_known(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    expire(spark, pipe)
    begin(pipe)

    def failing(*_: Any) -> None:
        raise RuntimeError("killed before its first commit")

    with pytest.raises(StreamingQueryException, match="killed before"):
        pipe.derive(failing)
    land(pipe, 2, 1)
    kept = pipe.checkpoint / "sources" / "0" / "offsets" / "0"
    text = kept.read_bytes()
    kept.write_bytes(text[:9])
    with pytest.raises(StartError, match=f"query derive-flights: the file {kept} is lost or damaged"):
        begin(pipe)
    kept.unlink()
    with pytest.raises(StartError, match=f"query derive-flights: the file {kept} is lost or damaged"):
        begin(pipe)
    kept.write_bytes(text)
    kept.with_name(".0.crc").unlink()
    assert begin(pipe) == ()
    assert read(pipe)[0] == list(range(6))
    # Nobody needs it any more, but it must be there.
    kept.write_bytes(text[:9])
    assert begin(pipe) == ()
    land(pipe, 3, 1)
    assert read(pipe)[0] == [6, 7]


def test_two_readings_of_one_table_are_two_sources(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    """As of a join of two routes: each has a beginning of its own."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    expire(spark, pipe)
    one, other = (derive.read(spark, pipe.landing) for _ in range(2))
    assert streamed(one) == [str(pipe.landing)]
    both = one.join(other.select("_id"), "_id")
    checkpoint = Checkpoint(str(pipe.checkpoint))
    assert begin_with_everything(spark, both, checkpoint, "derive-flights") == (str(pipe.landing),) * 2
    found: list[int] = []
    running = (
        both.writeStream.option("checkpointLocation", checkpoint.location)
        .foreachBatch(lambda batch, _: found.extend(row["flight"] for row in batch.collect()))
        .start()
    )
    running.processAllAvailable()
    running.stop()
    assert sorted(found) == list(range(4))


def test_a_table_with_its_whole_history_is_begun_as_ever(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    assert begin(pipe) == ()
    pipe.derive()
    assert flights(pipe) == wanted(4)


def test_a_beginning_that_is_forgotten_before_the_first_batch_is_an_error(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    begin(pipe)
    expire(spark, pipe)
    with pytest.raises(StreamingQueryException, match=r"(?i)snapshot"):
        pipe.derive()
    assert flights(pipe) == []


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
    Orphans(pipe.landing, timedelta(days=1), events.reporter)(spark)
    assert (events.last()["event"], events.last()["files"]) == ("orphans_removed", 1)
    assert (orphan.exists(), young.exists()) == (False, True)
    assert spark.table(str(pipe.landing)).count() == 4


def test_all_three_beside_a_stream_that_lands_and_one_that_derives(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 1)
    kept = Events()
    done = threading.Event()

    class Round(Orphans):
        def __call__(self, spark: SparkSession) -> None:
            super().__call__(spark)
            done.set()

    again = timedelta(milliseconds=1)
    chores = Chores(
        spark,
        (
            Compaction(pipe.landing, 64 * 1024**2, kept.reporter, again),
            Expiry(pipe.landing, NOW, (str(pipe.checkpoint),), kept.reporter, again),
            Compaction(pipe.sink, 64 * 1024**2, kept.reporter, again),
            Round(pipe.landing, timedelta(days=1), kept.reporter, again),
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
