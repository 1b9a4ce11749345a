"""Costs of jobs with fixed workers, and with workers that scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.sizing import plan
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.planning import total_cost
from millrace.sizing.simulation.expected_cost import largest_monthly_cost, plan_with_expected_cost
from millrace.sizing.simulation.plan_scenario import scaling_policy_of_job
from millrace.sizing.simulation.scaling_policies import DynamicAllocation, FixedExecutors, GlueAutoScaling

ROOT = Path(__file__).parents[3]

YAML = """\
project: held
account: "111122223333"
streams:
  clicks:
    kind: kinesis
    traffic: {{records_per_second: 4000, peak_factor: 2.5, record_size: 600B, basis: measured}}
jobs:
  clicks:
    engine: {engine}
    latency: 60s
    {worker}
    rate: {{records_per_second_per_core: 2200, batch_overhead: 2s, basis: measured}}
    {more}
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
"""
WORKERS = {"glue": "worker: G.1X", "emr": "worker: {vcpu: 4, memory: 16GiB}"}


def sized(engine: str, folder: Path, more: str = ""):
    file = folder / "held.yaml"
    file.write_text(YAML.format(engine=engine, worker=WORKERS[engine], more=more))
    environment = load(file, root=ROOT)
    return environment, plan_with_expected_cost(environment, plan(environment))


@pytest.mark.parametrize("engine", ["glue", "emr"])
def test_fixed_workers_are_all_there_from_the_start_and_cost_the_most(engine: str, tmp_path: Path) -> None:
    environment, found = sized(engine, tmp_path, "scaling: fixed")
    job = found.jobs["clicks"]
    executors = job.executors.value
    assert executors > 1
    assert (job.scaling.min_executors.value, job.scaling.initial_executors.value) == (executors, executors)
    assert scaling_policy_of_job(environment, job) == FixedExecutors(executors)
    assert job.expected_usd is not None
    assert job.expected_usd.value == pytest.approx(largest_monthly_cost(job))
    assert not any("at the average rate" in line for line in job.advice)


@pytest.mark.parametrize(("engine", "kind"), [("glue", GlueAutoScaling), ("emr", DynamicAllocation)])
def test_scaling_is_the_engines_unless_it_is_fixed(engine: str, kind: type, tmp_path: Path) -> None:
    environment, found = sized(engine, tmp_path, "scaling: auto")
    assert isinstance(scaling_policy_of_job(environment, found.jobs["clicks"]), kind)


def test_workers_that_would_come_too_late_are_held_unless_the_scaling_is_pinned(tmp_path: Path) -> None:
    environment, found = sized("glue", tmp_path)
    job = found.jobs["clicks"]
    assert scaling_policy_of_job(environment, job) == FixedExecutors(job.executors.value)
    assert not job.late_at_rise
    scaled = sized("glue", tmp_path, "scaling: auto")[1]
    assert scaled.jobs["clicks"].late_at_rise
    assert total_cost(found).value == total_cost(scaled).value


def test_what_a_job_will_cost_stands_beside_the_most_with_where_it_is_from(tmp_path: Path) -> None:
    environment, found = sized("glue", tmp_path, "scaling: auto")
    job = found.jobs["clicks"]
    assert job.expected_usd is not None
    # All the time one executor less than all, and the driver.
    assert 0.3 * largest_monthly_cost(job) < job.expected_usd.value < 0.9 * largest_monthly_cost(job)
    assert "simulated at the average rate" in job.expected_usd.why
    [line] = [each for each in job.advice if "at the average rate" in each]
    for figure in (job.expected_usd.value, largest_monthly_cost(job)):
        assert f"${figure:,.2f}" in line
    assert "of land's records are in time: `scaling: fixed` keeps all workers" in line
    # Holding them is the plan's own bill: it has always counted all of them.
    held = sized("glue", tmp_path, "scaling: fixed")[1]
    assert total_cost(held).value == total_cost(plan(environment)).value


def test_it_is_in_the_document(tmp_path: Path) -> None:
    _, found = sized("glue", tmp_path)
    document = json.loads(json.dumps(plan_as_plain_data(found)))["jobs"]["clicks"]["expected_usd"]
    assert document["unit"] == "USD/month"
    assert document["assumed"]


def test_executors_that_are_pinned_beside_fixed_scaling_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sized("emr", tmp_path, "scaling: fixed\n    min_executors: 1\n    initial_executors: 2")
    assert [each.key for each in caught.value.problems] == [
        "jobs.clicks.min_executors",
        "jobs.clicks.initial_executors",
    ]
    assert all("scaling: fixed" in each.allowed for each in caught.value.problems)
