"""The demo on another Spark line."""

from __future__ import annotations

import pytest

from millrace.config import load
from millrace.config.engines.versions import LINES, VERSIONS, EngineVersion
from millrace.sandbox import demo
from millrace.sandbox.demo import JOBS, write_environment_with_spark_version


@pytest.mark.parametrize("line", LINES)
def test_every_job_runs_on_the_line_and_on_its_engine_where_that_has_it(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(demo, "RUN", tmp_path_factory.mktemp("run"))
    before, after = (
        load("local").jobs,
        load(str(write_environment_with_spark_version("local", LINES[line]))).jobs,
    )
    assert {name: job.spark_line.name for name, job in after.items()} == dict.fromkeys(JOBS, line)
    for name, job in before.items():
        has = any(each.spark_line.name == line for each in _versions(job.engine))
        assert (after[name].engine == job.engine) is has


def _versions(engine: str) -> list[EngineVersion]:
    return [each for each in VERSIONS if each.engine == engine]
