"""A derive query on a table with expired snapshots reads all rows, or fails with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.checkpoints.derive_allowed_batch_ends import query_with_allowed_batch_ends
from millrace.etl.checkpoints.derive_start_after_expiry import IcebergStreamInPlan, iceberg_streams_of_plan
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.maintenance import table_maintenance
from millrace.etl.queries import derive
from millrace.etl.record.errors import StartError
from millrace.etl.record.ready_query import ReadyQuery
from tests.spark.maintained_table import (
    Names,
    begin,
    compact,
    expire,
    flights,
    land,
    read,
    snapshots,
    wanted,
)
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import Events, drained

pytestmark = pytest.mark.usefixtures("forgetful")


@pytest.mark.slow
def test_a_new_reader_of_an_expired_table_reads_all_of_it(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 4)
    expire(spark, pipe)
    land(pipe, 4, 1)
    rows = derive.stream_landing_table(spark, pipe.landing)
    # What Iceberg does by itself: it begins with what the oldest state that it knows has added.
    pipe.derive(lambda *_: None, tmp_path / "control")
    control: list[int] = []
    drained(rows, lambda batch, _: control.extend(r["flight"] for r in batch.collect()), tmp_path / "alone")
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


@pytest.mark.slow
def test_what_lands_before_all_is_read_takes_nothing_from_it(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """A batch that continues into the next state would be given as many files of the first as that one added."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 3)
    expire(spark, pipe)
    begin(pipe)
    land(pipe, 3, 1)
    # The second batch has two files of six left, and is planned to have those of the next state as well.
    assert read(pipe, 4) == (list(range(8)), 1)


@pytest.mark.slow
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


@pytest.mark.slow
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
    table_maintenance.call_iceberg_procedure(
        spark, pipe.landing, "expire_snapshots", older_than="TIMESTAMP '2099-01-01 00:00:00'", retain_last="1"
    )
    pipe.checkpoint = tmp_path / "another"
    with pytest.raises(StartError, match=f"query derive-flights: table {pipe.landing}: .*rewrite_manifests"):
        begin(pipe)
    table_maintenance.call_iceberg_procedure(spark, pipe.landing, "rewrite_manifests")
    land(pipe, 5, 1)
    begin(pipe)
    assert read(pipe) == ([0, *range(2, 12)], 0)


@pytest.mark.slow
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
    assert begin(pipe) == ()
    assert read(pipe)[0] == list(range(6))
    # Nobody needs it any more, but it must be there.
    kept.write_bytes(text[:9])
    assert begin(pipe) == ()
    land(pipe, 3, 1)
    assert read(pipe)[0] == [6, 7]


@pytest.mark.slow
def test_two_readings_of_one_table_are_two_sources(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    """As of a join of two routes: each has a beginning of its own, and a batch ends with the state for both."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    expire(spark, pipe)
    one, other = (derive.stream_landing_table(spark, pipe.landing) for _ in range(2))
    both = one.join(other.select("_id"), "_id")
    assert iceberg_streams_of_plan(both) == (
        IcebergStreamInPlan(str(pipe.landing), 0),
        IcebergStreamInPlan(str(pipe.landing), 1),
    )
    assert begin(pipe, both) == (str(pipe.landing),) * 2
    land(pipe, 2, 1)
    assert read(pipe, rows=both) == (list(range(6)), 1)


def twice(rows: DataFrame) -> DataFrame:
    return rows.where("flight % 2 = 0").unionByName(rows.where("flight % 2 = 1"))


@pytest.mark.slow
@pytest.mark.parametrize("expired", [False, True])
def test_one_reading_that_is_used_twice_is_one_source(
    spark: SparkSession, table: Names, tmp_path: Path, expired: bool
) -> None:
    """As in the transform of a query with state; Spark's log has a line for each use."""
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    if expired:
        expire(spark, pipe)
    rows = twice(derive.stream_landing_table(spark, pipe.landing))
    assert iceberg_streams_of_plan(rows) == (IcebergStreamInPlan(str(pipe.landing), 0),) * 2
    assert begin(pipe, rows) == ((str(pipe.landing),) if expired else ())
    land(pipe, 2, 1)
    assert read(pipe, rows=rows) == (list(range(6)), int(expired))
    land(pipe, 3, 1)
    assert read(pipe, rows=rows) == ([6, 7], 0)


@pytest.mark.slow
def test_a_log_that_is_damaged_meanwhile_is_told_and_nothing_else_ends(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe, events = Pipeline(spark, table, tmp_path / "reader"), Events()
    land(pipe, 0, 2)
    planned = pipe.checkpoint / "offsets" / "0"

    def damaging(*_: Any) -> None:
        planned.with_name(".0.crc").unlink()
        planned.write_bytes(b"")
        raise RuntimeError("not now")

    rows = derive.stream_landing_table(spark, pipe.landing)
    bare = ReadyQuery("derive-flights", rows, damaging, str(pipe.checkpoint), 0.0)
    query = query_with_allowed_batch_ends(bare, Checkpoint(str(pipe.checkpoint)), whole_commits=False)
    assert (
        Supervisor(spark, events.reporter, retries=RetryLimits(1, first_seconds=0.0)).run_to_exit_status(
            [query]
        )
        == 1
    )
    assert [event["event"] for event in events.all()] == ["started", "retrying", "failed"]
    assert not spark.streams.active


def test_a_table_with_its_whole_history_is_begun_as_ever(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    land(pipe, 0, 2)
    assert begin(pipe) == ()
    pipe.derive()
    assert flights(pipe) == wanted(4)


@pytest.mark.slow
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
