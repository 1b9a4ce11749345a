"""The pytest plugin of projects runs transforms on rows and returns rows."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, window

from millrace.cli.plan.init_project import new_project_texts_by_path
from millrace.etl.record.errors import StartError
from millrace.sandbox.programs.toolchain import ROOT, installed_spark_line, spark_submit_variables
from millrace.sandbox.schemas.traffic_values import SampleError
from millrace.testing import Bench

SCHEMA = "depot STRING NOT NULL, at TIMESTAMP NOT NULL, note STRING"


def scans(*hours: int) -> list[dict[str, str]]:
    return [{"depot": "d", "at": f"2026-01-30T{hour:02}:15:00Z"} for hour in hours]


def per_hour(records: DataFrame) -> DataFrame:
    counted = records.groupBy(window("at", "1 hour"), "depot").agg(count("*").alias("scans"))
    return counted.select(col("window.start").alias("hour"), "depot", "scans")


@pytest.mark.slow
def test_windows_count_what_is_in_time_and_leave_out_what_is_late(spark: SparkSession) -> None:
    batches = [scans(8, 8, 9), scans(8), scans(14), scans(8), scans(14)]
    rows = Bench(spark).windows(per_hour, batches, SCHEMA, time="at", delay="1 hour", key=["hour", "depot"])
    # By hand: the fourth batch comes when the watermark is at 13:15, and its hour has ended.
    counted = sorted(
        (row["hour"].astimezone(UTC).hour if row["hour"].tzinfo else row["hour"].hour, row["scans"])
        for row in rows
    )
    assert [number for _, number in counted] == [3, 1, 2]


def test_the_last_record_of_a_key_stays_until_it_is_deleted(spark: SparkSession) -> None:
    def transform(records: DataFrame) -> DataFrame:
        return records.select("_position", "_deleted", col("_key").cast("string").alias("depot"), "note")

    changes = [
        {"_key": key, **scans(8)[0], "note": note} for key, note in (("a", "1"), ("b", "1"), ("a", "2"))
    ]
    deletes = [{"_key": "b", "_deleted": True}, {"_key": "c", "_deleted": True}]
    rows = Bench(spark).latest_by(transform, [*changes, *deletes], SCHEMA, key=["depot"])
    assert rows == [{"depot": "a", "note": "2"}]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (("depot", "_position", "note"), "its result lacks the columns _deleted"),
        (("depot", "_deleted", "note"), "its result lacks the columns _position"),
        (("_position", "_deleted", "note"), "its result lacks the columns depot, which latest_by names"),
        (("_position", "_deleted", "depot", "note AS _written_at"), "_written_at is reserved"),
    ],
)
def test_what_the_core_refuses_fails_in_a_test_too(
    spark: SparkSession, columns: tuple[str, ...], told: str
) -> None:
    with pytest.raises(StartError, match=told):
        Bench(spark).latest_by(lambda rows: rows.selectExpr(*columns), scans(8), SCHEMA, key=["depot"])


def test_an_order_of_its_own_says_which_record_is_the_last(spark: SparkSession) -> None:
    def transform(records: DataFrame) -> DataFrame:
        return records.select("_position", "_deleted", "depot", "at", "note")

    late_first = [{**each, "note": note} for each, note in zip(scans(9, 8), ("nine", "eight"), strict=True)]
    for order, last in (("at", "nine"), (None, "eight")):
        rows = Bench(spark).latest_by(transform, late_first, SCHEMA, key=["depot"], order=order)
        assert [row["note"] for row in rows] == [last]


def test_a_record_that_the_schema_does_not_take_is_named(spark: SparkSession) -> None:
    with pytest.raises(SampleError, match="record 1: the required field depot has no value"):
        Bench(spark).transform(lambda rows: rows, [*scans(8), {"at": str(datetime.now(UTC))}], SCHEMA)


def test_records_are_as_the_schema_file_of_a_query_declares_them(spark: SparkSession, tmp_path: Path) -> None:
    declared = "at TIMESTAMP COMMENT 'epoch milliseconds'"
    bench, at = Bench(spark), [{"at": 1764500000000}]
    [row] = bench.transform(lambda rows: rows.selectExpr("unix_millis(at) AS at"), at, declared)
    avro = '{"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]}'
    (tmp_path / "x.avsc").write_text(avro)
    assert bench.transform(lambda rows: rows, at, tmp_path / "x.avsc") == [row] == at
    (tmp_path / "x.desc").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"x\.desc: give the columns of its message as DDL"):
        bench.transform(lambda rows: rows, at, tmp_path / "x.desc")


@pytest.mark.slow
def test_the_tests_of_a_new_project_pass_and_can_fail(tmp_path: Path) -> None:
    for name, text in new_project_texts_by_path("my-streams").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "millrace.testing", "-p", "no:cacheprovider"]
    environment = {**os.environ, **spark_submit_variables(installed_spark_line()), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    broken = tmp_path / "pipelines/orders/transforms.py"
    broken.write_text(
        broken.read_text().replace('col("quantity") *', 'col("quantity") +').replace('"_deleted",', "", 1)
    )
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
