"""A small file that is written by URL is complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.record import hadoop_files


def test_a_file_that_spark_wrote_is_written_over_and_read_again(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).selectExpr("'old' AS value").coalesce(1).write.text(str(tmp_path / "written"))
    (file,) = (tmp_path / "written").glob("part-*")
    assert file.with_name(f".{file.name}.crc").exists(), "Hadoop keeps no checksum beside it now"
    hadoop_files.write_text(spark, file.as_uri(), "neu, länger\r\n")
    assert hadoop_files.read_text(spark, str(file)) == "neu, länger\r\n"
    assert [row.value for row in spark.read.text(str(file)).collect()] == ["neu, länger"]


def test_a_file_that_cannot_be_written_whole_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "new" / "0"
    hadoop_files.write_text(spark, str(file), "old")
    # In the way of the first step, as a full disk would be.
    (tmp_path / "new" / ".0.half").mkdir()
    with pytest.raises(OSError, match="half"):
        hadoop_files.write_text(spark, str(file), "new")
    assert file.read_text() == "old"
    assert hadoop_files.list_names(spark, str(tmp_path / "new")) == [".0.half", "0"]
