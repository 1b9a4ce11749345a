"""The plan reads a benchmark's result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import ConfigurationError
from millrace.sizing import plan
from millrace.sizing.queries.benchmark_figures import (
    EstimateWithInterval,
    ScalingCurve,
    cores_with_contention,
    speed_of_query,
)
from millrace.sizing.queries.sizing_formulas import InfeasibleError
from tests.unit.sizing.conftest import Loader, text

RESULT: dict[str, Any] = {
    "version": 1,
    "job": "clicks",
    "measured_at": "2026-11-20T10:00:00Z",
    "where": "glue",
    "worker": "G.1X",
    "architecture": "x86_64",
    "record_bytes": 100.0,
    "overhead_seconds": {"value": 1.8, "low": 1.6, "high": 2.0},
    "core_seconds_per_record": {"value": 0.0009, "low": 0.0008, "high": 0.001},
    "held_out_error": 0.05,
}


def with_result() -> str:
    rate = "rate: {records_per_second_per_core: 1000, batch_overhead: 2s, basis: measured}"
    yaml = text()
    assert rate in yaml
    return yaml.replace(rate, "rate: {result: result.json}")


def write(folder: Path, **changes: Any) -> None:
    (folder / "result.json").write_text(json.dumps({**RESULT, **changes}))


def test_the_pessimistic_ends_decide(from_text: Loader, tmp_path: Path) -> None:
    write(tmp_path)
    job = plan(from_text(with_result())).jobs["clicks"]
    assert job.cores.value == plan(from_text(text())).jobs["clicks"].cores.value == 32
    assert not job.cores.assumed


def test_another_engines_figures_are_a_guess(from_text: Loader, tmp_path: Path) -> None:
    write(tmp_path, where="sandbox")
    job = plan(from_text(with_result())).jobs["clicks"]
    assert job.cores.value == 32
    assert job.cores.assumed


@pytest.mark.parametrize(
    ("spark", "version", "told"),
    [
        ("3.5.7", "5.1", None),
        ("3.5.7-amzn-1", "5.1", None),
        ("3.5.7", "6.0", "with Spark 3.5 where the job has 4.1"),
        ("4.1.1", "5.1", "with Spark 4.1 where the job has 3.5"),
        ("4.1.1", "6.0", None),
    ],
)
def test_the_rate_of_another_line_of_spark_is_a_guess(
    spark: str, version: str, told: str | None, from_text: Loader, tmp_path: Path
) -> None:
    write(tmp_path, versions={"spark": spark})
    environment = from_text(with_result().replace("engine: glue", f'engine: glue\n    version: "{version}"'))
    found = speed_of_query(environment, "clicks", "land")
    assert found.basis == ("measured" if told is None else "assumed")
    assert told is None or told in found.origin
    job = plan(environment).jobs["clicks"]
    assert job.cores.assumed == (told is not None)
    assert (f"the rate of land was measured {told}" in " ".join(job.advice)) == (told is not None)


def test_a_wave_is_part_of_the_fixed_cost(from_text: Loader, tmp_path: Path) -> None:
    write(tmp_path, wave_seconds={"value": 0.5, "low": 0.4, "high": 1.0})
    assert plan(from_text(with_result())).jobs["clicks"].cores.value > 32


def test_a_curve_takes_more_cores_and_then_none_do(from_text: Loader, tmp_path: Path) -> None:
    nothing = {"value": 0.0, "low": 0.0, "high": 0.0}
    little = {"value": 0.002, "low": 0.001, "high": 0.004}
    write(tmp_path, scaling={"contention": little, "coherence": nothing, "cores": [1, 2, 4]})
    assert 33 <= plan(from_text(with_result())).jobs["clicks"].cores.value <= 40
    much = {"value": 0.1, "low": 0.05, "high": 0.2}
    write(tmp_path, scaling={"contention": much, "coherence": nothing, "cores": [1, 2, 4]})
    with pytest.raises(
        ConfigurationError, match="each further core adds less than 50% of the work of the first"
    ):
        plan(from_text(with_result()))


@given(needed=st.floats(1.1, 20), alpha=st.floats(0, 0.005), beta=st.floats(0, 1e-5))
def test_stretched_cores_do_the_work(needed: float, alpha: float, beta: float) -> None:
    curve = ScalingCurve(
        contention=EstimateWithInterval(value=alpha, low=alpha, high=alpha),
        coherence=EstimateWithInterval(value=beta, low=beta, high=beta),
        cores=(1, 2, 4, 8),
    )
    found = cores_with_contention(needed, curve)
    assert found >= needed * (1 - 1e-9)
    whole = int(found) + 1
    assert whole * curve.work_share_per_core(whole) >= needed * (1 - 1e-9)


def test_no_core_is_worth_it() -> None:
    full = EstimateWithInterval(value=1.0, low=1.0, high=1.0)
    none = EstimateWithInterval(value=0.0, low=0.0, high=0.0)
    with pytest.raises(InfeasibleError):
        cores_with_contention(3.0, ScalingCurve(contention=full, coherence=none, cores=(1, 2)))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "a readable result file"),
        ("{", "Invalid JSON"),
        (json.dumps({**RESULT, "version": 2}), "version: Input should be 1"),
        (json.dumps({**RESULT, "colour": 1}), "colour: Extra inputs"),
        (
            json.dumps({**RESULT, "overhead_seconds": {"value": 1, "low": 2, "high": 3}}),
            "value must lie between low and high",
        ),
        (
            json.dumps({**RESULT, "core_seconds_per_record": {"value": 0, "low": 0, "high": 0}}),
            "must be larger than 0",
        ),
    ],
)
def test_a_result_that_is_none(from_text: Loader, tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(with_result()))
    (problem,) = caught.value.problems
    assert problem.key == "jobs.clicks.rate.result"
    assert told in problem.allowed


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("rate: {basis: measured}", "either records_per_second_per_core, or result"),
        ("rate: {result: a.json, basis: measured}", "result alone, without basis"),
    ],
)
def test_a_rate_has_one_source(from_text: Loader, rate: str, told: str) -> None:
    yaml = with_result().replace("rate: {result: result.json}", rate)
    with pytest.raises(ConfigurationError) as caught:
        from_text(yaml)
    assert told in str(caught.value)
