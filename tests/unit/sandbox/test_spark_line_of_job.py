"""A local job runs on the Spark line of its engine's version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millrace.config.engines.versions import VERSIONS, EngineVersion, SparkLine
from millrace.lifecycle.account.deployed_environment import LaunchDocument
from millrace.sandbox.programs import jars, run_launch_document_locally, start_spark_submit
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark


class Stack:
    """A LocalStack that has nothing."""

    endpoint, region = "http://127.0.0.1:4566", "us-east-1"

    def environment_variables(self) -> dict[str, str]:
        return {}


def document(version: EngineVersion) -> LaunchDocument:
    settings = {"catalog": "lake", "checkpoints": "s3://c/job", "connections": {}, "queries": []}
    return LaunchDocument(
        "s3://assets/launch.json",
        {
            "engine": version.engine,
            "engine_version": version.name,
            "environment": "local",
            "job": "departures",
            "entry_script": "s3://assets/main.py",
            "archive": "s3://assets/archive.zip",
            "jars": [],
            "arguments": [],
            "workers": {"type": "G.1X", "max": 2}
            if version.engine == "glue"
            else {"type": "EMR", "max": 2, "vcpu": 4},
            "spark": {"spark.sql.catalog.lake.warehouse": "s3://lake/warehouse"},
            "settings": settings,
        },
    )


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_job_runs_on_the_line_of_its_engines_version(
    version: EngineVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, Any] = {}

    def start(*given: Any, **named: Any) -> None:
        started.update(named, settings=given[3], arguments=given[4])

    def files(name: str, line: SparkLine) -> list[Path]:
        return [tmp_path / f"{name}-of-{line.name}.jar"]

    monkeypatch.setattr(run_launch_document_locally, "RUN", tmp_path)
    monkeypatch.setattr(start_spark_submit, "start_driver", start)
    monkeypatch.setattr(jars, "jar_files", files)
    monkeypatch.setattr(SandboxSpark, "_download_from_s3", lambda _, __, target: target)
    running: Any = SandboxSpark(stack=Stack(), kafka="127.0.0.1:9092")  # type: ignore[arg-type]
    running.submit(document(version), "departures-1")
    assert started["line"] is version.spark_line
    settings: Mapping[str, str] = started["settings"]
    assert all(
        each.endswith(f"-of-{version.spark_line.name}.jar") for each in settings["spark.jars"].split(",")
    )
    assert ("--engine", "sandbox") in zip(started["arguments"], started["arguments"][1:], strict=False)
