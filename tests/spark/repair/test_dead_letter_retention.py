"""Old dead letters leave the landing table, and derive queries see no change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.job.maintenance_schedule import MaintenanceThread
from millrace.etl.maintenance.table_maintenance import DeadLetterRetention
from millrace.etl.record import batch_accounts
from millrace.etl.record.tables import Table
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import EPOCH, Events, added_records, frame, good, kafka_rows, lander

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]


def backdate(spark: SparkSession, landing: Table, before: int) -> None:
    """Records up to a position were landed when they arrived."""
    spark.sql(f"UPDATE {landing} SET _landed_at = _arrived_at WHERE _position < {before}")  # noqa: S608 - our own


def test_only_dead_letters_and_only_old_ones_go(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), b"old", b"old too", good(2), b"stamped long ago"])), 0)
    # Landed when they arrived, but for the last one, whose producer's clock was wrong.
    backdate(spark, pipe.landing, 4)
    pipe.land(frame(spark, kafka_rows(0, 90, [b"young", good(4)])), 1)
    pipe.derive()
    events = Events()
    keep = (
        batch_accounts.utc_now() - EPOCH - timedelta(seconds=60)
    )  # the first batch's letters are older, 90 is not
    expire = DeadLetterRetention(table=pipe.landing, keep=keep, report=events.reporter)
    expire(spark)
    assert (events.last()["event"], events.last()["dead_letters"]) == ("expired", 2)
    left = spark.table(str(pipe.landing)).collect()
    assert sorted(r["_position"] for r in left) == [str(n).zfill(20) for n in (0, 3, 4, 90, 91)]
    commits = len(added_records(spark, pipe.landing))
    expire(spark)
    assert len(added_records(spark, pipe.landing)) == commits, "a table without old letters was written"
    # The stream and what derives from it continue.
    pipe.land(frame(spark, kafka_rows(0, 92, [good(5)])), 2)
    pipe.derive()
    assert sorted(r["flight"] for r in pipe.written().collect()) == [1, 2, 4, 5]


def test_it_runs_beside_the_queries_and_a_failure_ends_nothing(spark: SparkSession, table: Names) -> None:
    events, ran = Events(), threading.Event()
    landing = table("landing")
    lander(spark, landing, Events())(frame(spark, kafka_rows(0, 0, [b"old"])), 0)
    backdate(spark, landing, 1)

    class Last(DeadLetterRetention):
        def __call__(self, spark: SparkSession) -> None:
            super().__call__(spark)
            ran.set()

    other = table("other")
    spark.sql(f"CREATE TABLE {other} (flight INT) USING iceberg")
    nowhere = DeadLetterRetention(table=other, keep=timedelta(days=1), report=events.reporter)
    there = Last(table=landing, keep=timedelta(days=1), report=events.reporter)
    chores = MaintenanceThread(spark, (nowhere, there), events.reporter, first=timedelta(milliseconds=10))
    chores.start()
    assert ran.wait(60)
    chores.stop()
    time.sleep(0.1)
    assert [e["event"] for e in events.all()] == ["chore_failed", "expired"]
    assert spark.table(str(landing)).count() == 0


def test_nothing_runs_where_letters_are_kept(spark: SparkSession) -> None:
    before = threading.active_count()
    MaintenanceThread(spark, (), Events().reporter).start()
    assert threading.active_count() == before
