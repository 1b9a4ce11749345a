"""Invariants of every plan."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.config import Environment
from millrace.config.model import GlueJob, KinesisStream, Rate, Traffic
from millrace.config.queries import LandQuery, Query
from millrace.sizing import cost_saving_moves, plan, planning, total_cost
from millrace.sizing.alternatives import partition_search
from millrace.sizing.alternatives.job_planner import JobPlanner, PlansMade
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from tests.run import examples
from tests.unit.sizing.conftest import Loader
from tests.unit.sizing.plan_relations import several
from tests.unit.sizing.random_environments import SCHEMA

MIB = 1024**2
TRAFFIC = {"records_per_second": 5000, "record_size": "1KiB"}


def built(
    *, rate: float, size: int = 300, sla: float = 60, per_core: float = 2000, overhead: float = 1
) -> Environment:
    stream = KinesisStream.model_validate(
        {
            "kind": "kinesis",
            "traffic": Traffic.model_validate({"records_per_second": rate, "record_size": f"{size}B"}),
        }
    )
    query = LandQuery.model_validate(
        {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    )
    job = GlueJob.model_validate(
        {
            "engine": "glue",
            "queries": {"land": query},
            "latency": f"{round(sla * 1000)}ms",
            "rate": Rate.model_validate(
                {"records_per_second_per_core": per_core, "batch_overhead": f"{round(overhead * 1000)}ms"}
            ),
        }
    )
    return Environment(name="built", project="built", streams={"clicks": stream}, jobs={"clicks": job})


RATES = st.floats(0.1, 200_000)
BYTES = st.integers(1, 100_000)
PER_CORE = st.floats(50, 100_000)


@settings(max_examples=examples(60))
@given(rate=RATES, size=BYTES, per_core=PER_CORE, sla=st.floats(5, 600))
def test_every_plan_respects_what_the_services_allow(
    rate: float, size: int, per_core: float, sla: float
) -> None:
    found = plan(built(rate=rate, size=size, per_core=per_core, sla=sla))
    job, stream = found.jobs["clicks"], found.streams["clicks"]
    shards = stream.expected_partitions.value
    assert rate <= shards * 1000 * (1 + 1e-9)
    assert rate * size <= shards * MIB * (1 + 1e-9)
    assert job.executors.value * job.vcpu >= job.cores.value > rate / per_core
    assert job.memory.value <= job.memory_gib
    assert job.max_workers.value == job.executors.value + 1
    query = job.queries["land"]
    assert query.records_per_batch is not None
    assert query.records_per_partition is not None
    assert query.records_per_partition.value >= 1
    assert query.records_per_partition.value * shards >= rate * query.trigger_seconds.value, "keeps up"
    assert 0 < query.trigger_seconds.value <= round(sla, 3) / 2


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(rate=RATES, factor=st.floats(1, 20), size=BYTES, per_core=PER_CORE)
def test_more_load_never_takes_less(rate: float, factor: float, size: int, per_core: float) -> None:
    less = plan(built(rate=rate, size=size, per_core=per_core), simulated=False)
    more = plan(built(rate=rate * factor, size=size, per_core=per_core), simulated=False)
    assert more.jobs["clicks"].cores.value >= less.jobs["clicks"].cores.value
    assert more.jobs["clicks"].max_workers.value >= less.jobs["clicks"].max_workers.value
    assert sum(i.usd for i in more.jobs["clicks"].cost) >= sum(i.usd for i in less.jobs["clicks"].cost)
    if factor >= 2:  # below that, a core more may let a stream do with fewer, fuller waves
        assert total_cost(more).value >= total_cost(less).value


@settings(max_examples=examples(60))
@given(rate=RATES, sla=st.floats(5, 600), factor=st.floats(1, 20), per_core=PER_CORE)
def test_a_tighter_sla_never_takes_fewer_cores(
    rate: float, sla: float, factor: float, per_core: float
) -> None:
    tight = plan(built(rate=rate, sla=sla, per_core=per_core), simulated=False)
    loose = plan(built(rate=rate, sla=sla * factor, per_core=per_core), simulated=False)
    assert tight.jobs["clicks"].cores.value >= loose.jobs["clicks"].cores.value
    tight_cost, loose_cost = (sum(i.usd for i in each.jobs["clicks"].cost) for each in (tight, loose))
    assert tight_cost >= loose_cost * (1 - 1e-9), "a tighter SLA is never a cheaper plan"


def test_looking_for_moves_goes_through_the_queries_as_often_with_more_streams(
    from_text: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stream went through all queries: of 1,000 streams, a million."""
    monkeypatch.setattr(cost_saving_moves, "_TRIED", 0)
    queries, read = Environment.queries, [0]

    def counted(environment: Environment) -> Iterator[tuple[str, str, Query]]:
        read[-1] += 1
        found: Iterator[tuple[str, str, Query]] = queries.__get__(environment)
        return found

    for number in (2, 8):
        names = [f"s{each}" for each in range(number)]
        document = several(
            {"engine": "glue"}, **{name: {"records_per_second": 10, "record_size": "1KiB"} for name in names}
        )
        del document["name"]
        environment = from_text(json.dumps(document).replace("pipelines/a.ddl", SCHEMA))
        found = plan(environment)
        with monkeypatch.context() as patch:
            patch.setattr(Environment, "queries", property(counted))
            read.append(0)
            cost_saving_moves.find_moves(environment, found, lambda *_: True)
    assert read[-1] == read[-2] > 0


def test_a_variant_searches_partitions_again_only_for_the_job_that_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A move changes one key, and planned every job of the environment from the beginning."""
    document = several({"engine": "glue"}, one=TRAFFIC, two=TRAFFIC)
    queries = document["jobs"]["job"]["queries"]
    document["jobs"]["other"] = {"engine": "emr", "queries": {"land-two": queries.pop("land-two")}}
    environment, made, searched = Environment.model_validate(document), PlansMade(), []
    found = plan(environment, made)
    search = partition_search._cheapest_partitions_of_job

    def recorded(planner: JobPlanner, readings: Any, job: str, *rest: Any) -> dict[str, int]:
        searched.append(job)
        return search(planner, readings, job, *rest)

    monkeypatch.setattr(partition_search, "_cheapest_partitions_of_job", recorded)
    assert plan_as_plain_data(plan(environment, made)) == plan_as_plain_data(found)
    assert not searched
    document["jobs"]["other"]["latency"] = "5m"
    changed = Environment.model_validate(document)
    again = plan_as_plain_data(plan(changed, made))
    assert searched == ["other"]
    assert again == plan_as_plain_data(plan(changed))


def test_no_period_is_searched_whose_fewest_worker_seconds_cost_more_than_continuous_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight periods were searched, each for a second, with two workers for the fixed time and none for the work of the driver."""
    document = several(
        {"engine": "glue", "latency": "2h", "run": "auto"},
        large={"records_per_second": 12.9, "record_size": "100KiB"},
        small={"records_per_second": 25_606.8, "peak_factor": 1.5, "record_size": "100B"},
    )
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_small", "sink": sink}
    periods, sized = [], planning._monthly_usd_or_none

    def recorded(environment: Environment, *rest: Any) -> float | None:
        periods.append(environment.jobs["job"].run_every)
        return sized(environment, *rest)

    monkeypatch.setattr(planning, "_monthly_usd_or_none", recorded)
    assert plan(Environment.model_validate(document)).jobs["job"].run is None
    assert periods == [None]
