"""Copies of the version table's constants agree with it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from millrace.config.engines import KINDS
from millrace.config.engines.versions import (
    BY_LINE,
    DEFAULT,
    LINES,
    VERSIONS,
    SparkLine,
    check_engine_version,
    jar_set_name,
    version_row,
)

ROOT = Path(__file__).parents[3]
OTHERS = [line for line in LINES.values() if not line.is_default_line]


def jars(name: str, line: SparkLine) -> dict[str, str]:
    """Versions of a locked set by artifact."""
    locked = json.loads((ROOT / "toolchain" / "jars.lock.json").read_text())
    return {each["name"]: each["version"] for each in locked[jar_set_name(name, line)]}


def test_pythons_lock_has_the_default_line() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "sandbox"
    ]
    assert f"pyspark=={LINES[DEFAULT].spark}; python_version < '3.12'" in needed
    assert f"pyspark=={list(LINES.values())[-1].spark}; python_version >= '3.12'" in needed
    rules = (ROOT / "Makefile").read_text()
    assert f"DEFAULT_SPARK := {DEFAULT}\n" in rules
    assert f"NEWEST_SPARK := {list(LINES)[-1]}\n" in rules


@pytest.mark.parametrize("line", OTHERS, ids=lambda line: line.name)
def test_every_other_line_has_a_hashed_lock_of_its_own(line: SparkLine) -> None:
    text = (ROOT / "toolchain" / f"spark-{line.name}.txt").read_text()
    assert re.search(rf"^pyspark=={re.escape(line.spark)} \\\n    --hash=sha256:", text, re.MULTILINE)


@pytest.mark.parametrize("line", LINES.values(), ids=lambda line: line.name)
def test_the_locked_jars_are_those_of_the_line(line: SparkLine) -> None:
    kafka, suffix = jars("kafka-client", line), f"_{line.scala}"
    assert kafka[f"spark-sql-kafka-0-10{suffix}"] == line.spark
    assert kafka["kafka-clients"] == line.libraries["kafka_clients"]
    assert kafka["commons-pool2"] == line.libraries["commons_pool"]
    assert jars("avro", line) == {f"spark-avro{suffix}": line.spark}
    assert jars("sandbox", line)[f"iceberg-spark-runtime-{line.name}{suffix}"] == line.libraries["iceberg"]


def test_sets_that_hold_no_scala_serve_every_line() -> None:
    locked = json.loads((ROOT / "toolchain" / "jars.lock.json").read_text())
    for name, result in locked.items():
        of_spark = (
            any(each["name"].endswith(("_2.12", "_2.13")) for each in result) and name != "kafka-broker"
        )
        assert of_spark == (name.rpartition("-4.")[0] in BY_LINE or name in BY_LINE), name


def test_a_version_is_of_one_engine() -> None:
    assert {each.engine for each in VERSIONS} == set(KINDS)
    assert len({each.name for each in VERSIONS}) == len(VERSIONS), "a Spark release is by version alone"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("5.1", "5.1"), ("5.2", "5.1"), ("6.1", "6.0"), ("10.0", "6.0"), ("emr-7.15.0", "emr-7.14.0"),
        ("emr-8.0.0", "emr-7.14.0"), ("emr-spark-8.1.1", "emr-spark-8.1.0"), ("emr-spark-9.0.0", "emr-spark-8.2.0"),
        ("5.0", None), ("emr-7.12.0", None), ("emr-spark-7.0.0", None), ("6", None), ("6.0.0", None), ("emr-6", None),
        ("emr-spark-8.1", None), ("latest", None), ("", None),
    ],
)  # fmt: skip
def test_a_newer_version_stands_for_the_newest_before_it_in_its_series(name: str, row: str | None) -> None:
    if row is not None:
        assert version_row(name).name == row
    engine = "emr" if name.startswith("emr") else "glue"
    for kind in KINDS:
        if row is not None and kind == engine:
            assert check_engine_version(kind, name) == name
        else:
            with pytest.raises(ValueError, match="or a later one"):
                check_engine_version(kind, name)


@pytest.mark.parametrize("engine", KINDS)
def test_the_default_is_the_newest_version_on_the_line_of_most_tests(engine: str) -> None:
    *_, newest = (each.name for each in VERSIONS if each.engine == engine and each.spark_line.is_default_line)
    assert KINDS[engine].model_fields["version"].default == newest
