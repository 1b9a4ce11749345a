"""Every plan keeps its SLA in the simulation at the peak with all executors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.config import Environment, environment_names, load
from millrace.sizing import Plan, plan
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.plan_model import JobPlan
from millrace.sizing.queries.partition_tasks import divide_stream
from millrace.sizing.simulation import (
    Arrivals,
    DynamicAllocation,
    FixedExecutors,
    GlueAutoScaling,
    QueryLoad,
    Scenario,
    plan_simulation_check,
    simulate,
)
from millrace.sizing.simulation.plan_scenario import scaling_policy_of_job, scenario_of_job, streams_of_job
from tests.unit.sizing.plan_relations import contradictions_of_plan, several
from tests.unit.sizing.test_plan import built

ROOT = Path(__file__).resolve().parents[4]


def at_peak(environment: Environment, job: str, seconds: float) -> dict[str, Arrivals]:
    found = {}
    for name in streams_of_job(environment, job):
        traffic = environment.streams[name].traffic
        found[name] = Arrivals.constant(traffic.records_per_second * traffic.peak_factor, seconds)
    return found


def keeps(environment: Environment, job: str, seconds: float) -> None:
    sized = plan(environment)
    result = simulate(
        scenario_of_job(environment, sized, job, at_peak(environment, job, seconds), fixed=True)
    )
    for name, query in result.queries.items():
        promised = sized.jobs[job].queries[name].latency_seconds.value
        assert query.ages.oldest <= promised * (1 + 1e-6), f"{job}/{name}"
        assert query.waiting <= query.arrived * promised / seconds + 1


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_plans_keep_their_promise(name: str) -> None:
    environment = load(name, root=ROOT)
    for job in environment.jobs:
        keeps(environment, job, 3600.0)


@settings(max_examples=25)
@given(
    rate=st.floats(1, 50_000),
    size=st.integers(1, 20_000),
    per_core=st.floats(100, 50_000),
    sla=st.floats(6, 600),
    overhead=st.floats(0.1, 1.4),
)
def test_any_plan_keeps_its_promise(
    rate: float, size: int, per_core: float, sla: float, overhead: float
) -> None:
    environment = built(rate=rate, size=size, per_core=per_core, sla=sla, overhead=overhead)
    keeps(environment, "clicks", 12 * sla)


def test_scaling_is_the_deployed_one() -> None:
    environment = load("prod", root=ROOT)
    scaled = {
        name: environment.jobs[name].model_copy(update={"scaling": "auto"})
        for name in ("departures", "flights")
    }
    environment = environment.model_copy(update={"jobs": {**environment.jobs, **scaled}})
    sized = plan(environment)
    glue = scaling_policy_of_job(environment, sized.jobs["departures"])
    assert isinstance(glue, GlueAutoScaling)
    assert (glue.least, glue.most) == (1, sized.jobs["departures"].executors.value)
    emr = scaling_policy_of_job(environment, sized.jobs["flights"])
    assert isinstance(emr, DynamicAllocation)
    assert (emr.ratio, emr.idle_timeout, emr.shuffle_timeout) == (1.0, 60.0, 300.0)
    assert emr.least == sized.jobs["flights"].scaling.min_executors.value
    assert scaling_policy_of_job(environment, sized.jobs["flights"], fixed=True) == FixedExecutors(
        sized.jobs["flights"].executors.value
    )


def emr(rate: int, sla: str, mode: str, peak_factor: float = 1.0) -> Environment:
    traffic = {"records_per_second": rate, "peak_factor": peak_factor, "record_size": "400B"}
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    return Environment.model_validate(
        {
            "name": "built",
            "project": "built",
            "streams": {"clicks": {"kind": "kinesis", "mode": mode, "traffic": traffic}},
            "jobs": {"clicks": {"engine": "emr", "latency": sla, "queries": {"land": query}}},
        }
    )


@pytest.mark.parametrize("mode", ["provisioned", "on-demand"])
@pytest.mark.parametrize("sla", ["4m", "14m", "2h"])
@pytest.mark.parametrize("rate", [6400, 30000])
def test_dynamic_allocation_brings_back_the_executors_that_a_batch_needs(
    rate: int, sla: str, mode: str
) -> None:
    """Between long triggers executors are idle and end: a ratio of 0.7 of one task a core never asks for all of them again."""
    environment = emr(rate, sla, mode, 3.0)
    assert list(contradictions_of_plan(environment, plan(environment))) == []


def test_an_executor_that_joins_during_a_batch_stays_while_it_works() -> None:
    """Its work takes longer than the time-out of idle executors, which counts from the end of its tasks."""
    load = QueryLoad("land", 1.0, 0.01, 600.0, Arrivals.constant(100.0, 3600.0), divide_stream(16))
    scaling = DynamicAllocation(1, 4, 1, 1.0, 1.0, 1.0, 60.0, 60.0, 60.0)
    played = simulate(Scenario(3600.0, (load,), 1, scaling))
    ends = played.queries["land"].ends
    assert len(ends) > 3
    assert list(played.executors_at(ends - 1.0)) == [4] * len(ends)


def test_a_derived_query_follows_its_own_jobs_landing() -> None:
    environment = load("prod", root=ROOT)
    made = scenario_of_job(
        environment, plan(environment), "bookings", at_peak(environment, "bookings", 600.0)
    )
    assert [query.source for query in made.queries[1:]] == ["land-bookings", "land-bookings"]


def small_beside_large(latency: str) -> dict[str, Any]:
    """A job that lands a small stream and two large ones."""
    rate = {"records_per_second_per_core": 1153, "batch_overhead": "768ms", "basis": "measured"}
    document = several(
        {"engine": "emr", "latency": latency, "rate": rate},
        one={"records_per_second": 26.5, "record_size": "4KiB"},
        two={"records_per_second": 5672.4, "record_size": "1KiB"},
        three={"records_per_second": 845.6, "record_size": "4KiB"},
    )
    for name in ("one", "two"):
        document["streams"][name]["mode"] = "on-demand"
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        derive = {"kind": "derive", "source": "landed_two", "sink": sink}
        document["jobs"]["job"]["queries"][f"derive-{name}"] = derive
    return document


@pytest.mark.slow
@pytest.mark.parametrize("late", [True, False])
def test_a_shorter_outage_tells_who_catches_up_late(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    """A catch-up of eight hours was judged after the simulation had ended, and played whole it takes long."""
    environment = Environment.model_validate(small_beside_large("38909ms"))
    sized = plan(environment)
    environment = environment_as_planned(environment, sized)
    query = sized.jobs["job"].queries["land-two"]
    assert query.catch_up_seconds is not None
    promised = query.catch_up_seconds.value * (0.5 if late else 1.0)
    assert promised > plan_simulation_check.PLAYED_CATCH_UP
    too_soon = replace(query, catch_up_seconds=replace(query.catch_up_seconds, value=promised))
    job = replace(sized.jobs["job"], queries={**sized.jobs["job"].queries, "land-two": too_soon})

    def late_queries() -> dict[str, float]:
        played = plan_simulation_check.simulated_queries_of_job(environment, sized, job)
        return {each.query: each.waiting for each in played if each.waiting}

    shortened = late_queries()
    monkeypatch.setattr(plan_simulation_check, "PLAYED_CATCH_UP", math.inf)
    plan_simulation_check._remembered_answers.cache_clear()
    whole = late_queries()
    assert whole.keys() == ({"land-two"} if late else set())
    assert shortened == pytest.approx(whole, rel=0.1)


def test_a_small_query_beside_large_ones_gets_more_of_what_is_to_spare() -> None:
    """Its limit was 2 % above what arrives, as for the others, while its tasks wait for theirs: it caught up in a day."""
    environment = Environment.model_validate(small_beside_large("38909ms"))
    sized = plan(environment)
    assert list(contradictions_of_plan(environment, sized)) == []
    again = {name: query.catch_up_seconds for name, query in sized.jobs["job"].queries.items()}
    assert again["land-one"] is not None
    assert again["land-three"] is not None
    assert again["land-two"] is not None
    assert again["land-one"].value < again["land-three"].value < again["land-two"].value


def test_a_catch_up_counts_whole_records_of_each_shard() -> None:
    """The limit of 1,766 records is 76 for each of 23 shards, 1,748 together: 13,719 s were promised, and it takes a third longer."""
    job = {"engine": "glue", "latency": "15s", "scaling": "fixed", "memory": {"state": "8GiB"}}
    traffic = {"records_per_second": 112.8, "peak_factor": 2, "record_size": "100KiB"}
    environment = Environment.model_validate(several(job, one=traffic))
    sized = plan(environment)
    assert list(contradictions_of_plan(environment, sized)) == []
    query = sized.jobs["job"].queries["land-one"]
    assert query.records_per_partition is not None
    assert query.catch_up_seconds is not None
    shards = sized.streams["one"].expected_partitions.value
    taken = query.records_per_partition.value * shards / query.trigger_seconds.value
    assert query.catch_up_seconds.value == pytest.approx(225.6 * 600 / (taken - 225.6), abs=0.1)


def test_jobs_that_are_alike_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 300 jobs was simulated anew under its own names, when it was planned and when it was judged."""
    asked: list[str] = []
    answers = plan_simulation_check._answers_of_job

    def counted(
        environment: Environment, found: Plan, job: JobPlan, made: Scenario
    ) -> list[dict[str, float]]:
        asked.append(job.name)
        return answers(environment, found, job, made)

    monkeypatch.setattr(plan_simulation_check, "_answers_of_job", counted)
    traffic = {"records_per_second": 3217.0, "record_size": "1KiB"}
    document = several({"engine": "emr", "latency": "60s"}, one=traffic, two=traffic, three=traffic)
    job = document["jobs"].pop("job")
    for name, query in job["queries"].items():
        document["jobs"][name.removeprefix("land-")] = {**job, "queries": {name: query}}
    document["jobs"]["three"] |= {"latency": "90s"}
    environment = Environment.model_validate(document)
    played = [*plan_simulation_check.simulated_queries_of_plan(environment, plan(environment))]
    assert [(each.job, each.query) for each in played] == [
        (name, f"land-{name}") for name in ("one", "two", "three")
    ]
    assert played[0] == replace(played[1], job="one", query="land-one")
    assert played[2].sla == 90
    assert "two" not in asked
    assert len(asked) == len(set(asked))
