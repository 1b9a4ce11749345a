"""JVM names are looked up once for each session."""

from __future__ import annotations

import pytest
from py4j.java_gateway import JavaPackage, JVMView
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.etl.record import hadoop_files
from millrace.etl.services import jvm_name_cache


def test_columns_and_paths_are_made_without_a_look_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked: list[str] = []
    for kind in (JVMView, JavaPackage):

        def look(self: object, name: str, real: object = kind.__getattr__) -> object:
            asked.append(name)
            return real(self, name)  # type: ignore[operator]

        monkeypatch.setattr(kind, "__getattr__", look)
    there = tmp_path_factory.mktemp("names") / "file"
    there.write_text("x")
    assert spark.range(3).select(F.col("id") + F.lit(1)).where(F.expr("true")).count() == 3
    assert hadoop_files.read_text(spark, str(there)) == "x"
    assert not asked


def test_every_name_is_a_class(spark: SparkSession) -> None:
    """A misspelt one would be kept as a package, and looked up in vain."""
    for name in jvm_name_cache.NAMES:
        result = spark._jvm
        for part in name.split("."):
            result = getattr(result, part)
        assert not isinstance(result, JavaPackage), name
