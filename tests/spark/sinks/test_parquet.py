"""Parquet sink: each batch is in its folder once after any replay, for readers of the manifests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.sinks import ParquetSinkSettings
from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.sinks.base import BatchIdentity, WriteCounts
from millrace.etl.sinks.delivery import folder_manifest
from millrace.etl.sinks.parquet import ParquetSink, committed_files
from tests.spark.sink_input_rows import NOON, breaking, none_refused, place, row, rows


def sink(path: Path, files: int = 1) -> ParquetSink:
    return ParquetSink(ParquetSinkSettings(str(path), files))


def flights(spark: SparkSession, path: Path) -> list[int]:
    """What a reader of the manifests reads."""
    files = committed_files(spark, str(path))
    return sorted(r["flight"] for r in spark.read.parquet(*files).collect()) if files else []


def folder(spark: SparkSession, path: Path) -> list[int]:
    """What a reader reads who knows of no manifests."""
    return sorted(r["flight"] for r in spark.read.parquet(str(path)).collect())


def test_a_batch_is_one_file_and_a_replay_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    one, batch = sink(tmp_path), rows(spark, [row(n) for n in range(6)], parts=2)
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused) == WriteCounts(6, 6)
    assert sink(tmp_path).write(batch, place(0), none_refused) == WriteCounts(6, 0)
    assert one.write(rows(spark, []), place(1), none_refused) == WriteCounts(0, 0)
    assert flights(spark, tmp_path) == folder(spark, tmp_path) == list(range(6))
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    one.prepare(spark, batch.schema)
    with pytest.raises(StartError, match="the folder holds rows with _id string"):
        one.prepare(spark, batch.drop("seat").schema)


def test_other_readers_see_old_times_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow counts a day and its nanoseconds of Spark's default type in 64 bits: the year 1 would be 1754."""
    old = [datetime(1, 1, 1, tzinfo=UTC), datetime(1600, 2, 29, 1, 2, 3, 4, tzinfo=UTC)]
    batch = rows(spark, [row(n, at=at) for n, at in enumerate(old)])
    one = sink(tmp_path)
    one.prepare(spark, batch.schema)
    one.write(batch, place(0), none_refused)
    [file] = committed_files(spark, str(tmp_path))
    assert sorted(pq.read_table(file.removeprefix("file:"), columns=["at"])["at"].to_pylist()) == old


@pytest.mark.slow
def test_a_name_with_a_dot_is_one_column_when_rows_are_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    one = sink(tmp_path)
    batch = rows(spark, [row(n) for n in range(3)]).withColumnRenamed("gate", "seat.row")
    one.prepare(spark, batch.schema)
    assert one.write(batch.where("flight < 2"), place(0), none_refused) == WriteCounts(2, 2)
    assert one.write(batch, place(0, "run-2"), none_refused) == WriteCounts(3, 1)
    result = (
        spark.read.parquet(*committed_files(spark, str(tmp_path))).select("`seat.row`", "seat.row").collect()
    )
    assert sorted(map(tuple, result)) == [(n, n) for n in range(3)]


@pytest.mark.faults
def test_killed_in_the_write_or_before_the_manifest_the_batch_takes_its_own_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, batch = sink(tmp_path, files=2), rows(spark, [row(n) for n in range(20)], parts=4)
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 19), place(0), none_refused)
    assert flights(spark, tmp_path) == []

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder_manifest.FolderManifests, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            one.write(batch, place(0), none_refused)
    assert flights(spark, tmp_path) == []
    assert folder(spark, tmp_path) == list(range(20))  # the weaker promise: seen before it is committed
    assert sink(tmp_path, files=2).write(batch, place(0), none_refused) == WriteCounts(20, 20)
    assert flights(spark, tmp_path) == folder(spark, tmp_path) == list(range(20))


@pytest.mark.slow
def test_a_reset_checkpoint_neither_skips_nor_overwrites_nor_doubles(
    spark: SparkSession, tmp_path: Path
) -> None:
    one = sink(tmp_path)
    one.prepare(spark, rows(spark, []).schema)
    one.write(rows(spark, [row(1), row(2)]), place(0), none_refused)
    one.write(rows(spark, [row(3)]), place(1), none_refused)
    again = sink(tmp_path)
    # Numbers begin again, and the batch reaches over what is there; one record came with an old time.
    late = row(5, _arrived_at=NOON - timedelta(days=1))
    assert again.write(
        rows(spark, [row(2), row(3), row(4), late]), place(0, "run-2"), none_refused
    ) == WriteCounts(4, 2)
    assert again.write(rows(spark, [row(6)]), place(1, "run-2"), none_refused) == WriteCounts(1, 1)
    assert flights(spark, tmp_path) == [1, 2, 3, 4, 5, 6]
    # A replay of dead letters is of no batch.
    for new in (1, 0):
        assert again.write(rows(spark, [row(7)]), None, none_refused) == WriteCounts(1, new)


@pytest.mark.slow
def test_rows_without_an_arrival_are_read_and_once_after_a_reset(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the second stream alone, in an outer join: some batches have no others, some hold both."""
    one = sink(tmp_path)
    alone, mixed, paired = (
        rows(spark, [row(n, _arrived_at=None if n % 2 else NOON, _landed_at=None) for n in numbers])
        for numbers in ([1, 3], [2, 5], [6])
    )
    one.prepare(spark, alone.schema)
    assert one.write(alone, place(0), none_refused) == WriteCounts(2, 2)
    assert flights(spark, tmp_path) == [1, 3]
    # All that is there has no arrival: only such rows are looked up.
    early = sink(tmp_path)
    assert early.write(paired, place(0, "run-2"), none_refused) == WriteCounts(1, 1)
    assert early.write(alone, place(1, "run-2"), none_refused) == WriteCounts(2, 0)
    assert one.write(mixed, place(1), none_refused) == WriteCounts(2, 2)
    for run in ("run-3", "run-4"):
        again = sink(tmp_path)
        for number, batch in enumerate((mixed.unionByName(alone), alone, paired)):
            done = again.write(batch, place(number, run), none_refused)
            assert done == WriteCounts(batch.count(), 0)
    assert flights(spark, tmp_path) == folder(spark, tmp_path) == [1, 2, 3, 5, 6]


@pytest.mark.slow
def test_a_committed_batch_takes_rows_that_it_did_not_hold(spark: SparkSession, tmp_path: Path) -> None:
    """A record that could not be decoded is one of its batch once the schema was corrected."""
    one = sink(tmp_path)
    one.prepare(spark, rows(spark, []).schema)
    one.write(rows(spark, [row(1, _arrived_at=NOON)]), place(0, "earlier"), none_refused)
    batch = rows(spark, [row(n, _arrived_at=None if n == 5 else NOON) for n in range(6)])
    for given, written in (
        (batch.where("flight < 3"), 2),
        (batch.where("flight < 5"), 2),
        (batch, 1),
        (batch, 0),
        (batch.where("flight < 2"), 0),
    ):
        assert sink(tmp_path).write(given, place(0), none_refused) == WriteCounts(given.count(), written)
    assert flights(spark, tmp_path) == folder(spark, tmp_path) == list(range(6))
    assert len(list((tmp_path / "_manifests").glob("replay-*.json"))) == 2


def test_one_number_with_other_offsets_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    one, batch = sink(tmp_path), rows(spark, [row(1)])
    one.prepare(spark, batch.schema)
    one.write(batch, place(0), none_refused)
    other = BatchIdentity("run-1", 0, "{}", '{"0":9}')
    with pytest.raises(
        SinkError,
        match=re.escape('batch 0 of checkpoint run-1 is committed with offsets {"0":0} to {"0":1}'),
    ):
        one.write(batch, other, none_refused)


@pytest.mark.slow
@pytest.mark.faults
def test_a_manifest_that_is_cut_short_is_told_and_its_batch_written_anew_without_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, batch = sink(tmp_path), rows(spark, [row(1), row(2)])
    one.prepare(spark, batch.schema)
    one.write(batch, place(0), none_refused)
    (file,) = (tmp_path / "_manifests").glob("run-1-*.json")
    for part in (b"", file.read_bytes()[: file.stat().st_size // 2], b'{"run": "\xff"}'):
        file.write_bytes(part)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        with pytest.raises(SinkError, match=f"{file}, the list of files that batch 0 wrote, cannot be read"):
            sink(tmp_path).write(batch, place(0), none_refused)
        file.unlink()
        assert sink(tmp_path).write(batch, place(0), none_refused) == WriteCounts(2, 2)
    assert flights(spark, tmp_path) == folder(spark, tmp_path) == [1, 2]


@pytest.mark.slow
@pytest.mark.faults
def test_a_damaged_manifest_of_another_checkpoint_is_told_and_never_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without what it says, its rows would be written again, and readers would miss them until then."""
    one = sink(tmp_path)
    one.prepare(spark, rows(spark, []).schema)
    for number in range(2):
        one.write(rows(spark, [row(number)]), place(number), none_refused)
    files = sorted((tmp_path / "_manifests").glob("run-1-*.json"))
    again = sink(tmp_path)
    assert again.write(rows(spark, [row(1)]), place(0, "run-2"), none_refused) == WriteCounts(1, 0)
    whole = files[1].read_bytes()
    files[1].with_name(f".{files[1].name}.crc").unlink(missing_ok=True)  # S3 keeps no sum beside a file
    told = f"_manifests: these manifests of another checkpoint or a replay are damaged: {files[1].name}"
    for part in (b"", b"{}", whole + b"\n" + whole, whole[: len(whole) // 2]):
        files[1].write_bytes(part)
        with pytest.raises(SinkError, match=told):
            committed_files(spark, str(tmp_path))
    # In a run that knows already up to which arrival the other one wrote, and in a new one.
    for writer, where in ((again, place(1, "run-2")), (sink(tmp_path), place(0, "run-3"))):
        with pytest.raises(SinkError, match=told):
            writer.write(rows(spark, [row(1)]), where, none_refused)
    files[1].write_bytes(whole)
    assert sink(tmp_path).write(rows(spark, [row(1)]), place(0, "run-3"), none_refused) == WriteCounts(1, 0)
    assert flights(spark, tmp_path) == [0, 1]


def test_a_folder_of_somebody_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"theirs")
    with pytest.raises(StartError, match="holds files that Millrace did not write"):
        sink(tmp_path).prepare(spark, rows(spark, []).schema)
