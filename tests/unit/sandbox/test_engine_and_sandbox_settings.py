"""Spark settings of a job on its engine, and the differences of a run in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Names, environment_names, load
from millrace.config.engines.versions import VERSIONS
from millrace.infra.launch.launch_document import AssetUrls, launch_document
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import (
    REPLACED,
    SandboxSpark,
    engine_default_settings,
    read_settings_table,
)
from millrace.sizing import plan

ROOT = Path(__file__).resolve().parents[3]
URLS = AssetUrls("s3://assets/main.py", "s3://assets/archive.zip")
LOCAL = SandboxSpark(LocalStack("http://127.0.0.1:4566", "us-east-1", None), kafka="127.0.0.1:9092")


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in environment_names(ROOT):
        environment = load(name, ROOT)
        names = Names(environment, environment.account or "111122223333")
        for job, size in plan(environment).jobs.items():
            yield f"{name}/{job}", launch_document(environment, size, names, URLS)


DOCUMENTS = dict(documents())


def differences(document: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """Settings of the engine and of the sandbox, where they are not the same."""
    engine, here = engine_default_settings(document) | document["spark"], LOCAL.job_spark_settings(document)
    return {
        name: (engine.get(name), here.get(name))
        for name in engine | here
        if engine.get(name) != here.get(name)
    }


@pytest.mark.parametrize("job", DOCUMENTS)
def test_every_difference_between_sandbox_and_engine_has_a_reason(job: str) -> None:
    result = differences(DOCUMENTS[job])
    unexplained = {name: values for name, values in result.items() if not name.startswith(tuple(REPLACED))}
    assert not unexplained, f"{job}: engine, sandbox: {unexplained}"


def test_every_reason_is_needed() -> None:
    result = [name for document in DOCUMENTS.values() for name in differences(document)]
    assert [prefix for prefix in REPLACED if not any(n.startswith(prefix) for n in result)] == []


def test_no_way_to_plan_a_query_is_the_sandboxs_own() -> None:
    """Joins, shuffles and what changes plans are the engine's; of Spark SQL the catalog alone is replaced."""
    assert [prefix for prefix in REPLACED if prefix.startswith("spark.sql.")] == ["spark.sql.catalog."]


@pytest.mark.parametrize("attempts", ["4", "7"])
def test_a_task_is_tried_as_often_as_on_the_engine(attempts: str) -> None:
    document = DOCUMENTS["local/departures"]
    spark = document["spark"] | {"spark.task.maxFailures": attempts}
    assert LOCAL.job_spark_settings(document | {"spark": spark})["spark.master"] == f"local[2,{attempts}]"


@pytest.mark.parametrize(
    ("engine", "version", "workers", "partitions", "ansi", "adaptive_stream"),
    [
        ("glue", "5.1", {"type": "G.2X", "max": 10}, "72", "false", None),
        ("glue", "6.0", {"type": "G.1X", "max": 100}, "396", "true", "true"),
        ("emr", "emr-7.13.0", {"type": "EMR", "max": 9, "vcpu": 4}, "200", "false", None),
        ("emr", "emr-spark-8.0.0", {"type": "EMR", "max": 9, "vcpu": 4}, "200", "true", None),
    ],
)
def test_what_a_job_without_settings_of_its_own_finds(
    engine: str,
    version: str,
    workers: dict[str, Any],
    partitions: str,
    ansi: str,
    adaptive_stream: str | None,
) -> None:
    result = engine_default_settings({"engine": engine, "engine_version": version, "workers": workers})
    assert result["spark.sql.shuffle.partitions"] == partitions
    assert result["spark.sql.ansi.enabled"] == ansi
    assert result.get("spark.sql.adaptive.streaming.stateless.enabled") == adaptive_stream


def test_a_value_that_nobody_confirmed_says_what_it_rests_on() -> None:
    rows = [value for row in read_settings_table().settings.values() for value in row.engines.values()]
    assert all(len(value.source) > 20 for value in rows)
    assert {value.confirmed for value in rows} == {True, False}


@pytest.mark.parametrize("version", [each.name for each in VERSIONS])
def test_every_version_that_is_known_has_a_profile(version: str) -> None:
    engine = "emr" if version.startswith("emr") else "glue"
    workers = {"type": "G.1X", "max": 3, "vcpu": 4}
    assert engine_default_settings({"engine": engine, "engine_version": version, "workers": workers})[
        "spark.sql.shuffle.partitions"
    ]
