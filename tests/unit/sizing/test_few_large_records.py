"""Few records come by chance: a batch gets twice or three times as many as on average, and the plan has room for them."""

from __future__ import annotations

import math

import pytest

from millrace.config import Environment
from millrace.sizing import plan
from millrace.sizing.queries.sizing_formulas import burst_factor
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from tests.unit.sizing.plan_relations import several
from tests.unit.sizing.random_environments import EXISTING

DAY = 24 * 3600.0


def environment(size: str, rate: float, sla: str, **stream: object) -> Environment:
    speed = {"records_per_second_per_core": 10, "batch_overhead": "2s", "basis": "measured"}
    traffic = {"records_per_second": rate, "record_size": size, "peak_factor": 1}
    document = several({"engine": "glue", "latency": sla, "rate": speed}, large=traffic)
    document["streams"]["large"] |= {"max_record_size": "10MiB", **stream}
    return Environment.model_validate(document)


def shares_in_time(environment: Environment) -> list[float]:
    """The shares of records in time that `millrace simulate --poisson` tells for three seeds."""
    found, shares = plan(environment), []
    sla = found.jobs["job"].queries["land-large"].latency_seconds.value
    for seed in (1, 2, 3):
        arrivals = {
            name: Arrivals.constant(traffic.peak_records_per_second, DAY).poisson(seed)
            for name, traffic in traffic_by_stream(environment, "job").items()
        }
        played = simulate(scenario_of_job(environment, found, "job", arrivals))
        shares.append(played.queries["land-large"].share_in_time(sla, DAY) or 0.0)
    return shares


@pytest.mark.parametrize(
    ("size", "rate", "sla"),
    [("9MiB", 0.1, "30s"), ("9MiB", 0.1, "60s"), ("5MiB", 0.5, "2m"), ("1MiB", 1.9, "60s")],
)
def test_a_plan_of_few_records_keeps_its_sla_when_they_come_by_chance(
    size: str, rate: float, sla: str
) -> None:
    asked = environment(size, rate, sla)
    assert all(each.meets_sla for each in simulated_queries_of_plan(asked, plan(asked)))
    assert min(shares_in_time(asked)) >= 0.999


def test_a_pinned_shard_that_chance_fills_is_no_kept_sla() -> None:
    """A shard delivers six records of 9 MiB in a batch, and in one of thirty more come than that."""
    pinned = environment("9MiB", 0.1, "60s", shards=1)
    assert max(shares_in_time(pinned)) < 0.999
    assert not any(each.meets_sla for each in simulated_queries_of_plan(pinned, plan(pinned)))


def test_derived_work_has_room_for_what_chance_brings_too() -> None:
    """A record takes two core-seconds in each of two queries, and a batch of 15 gets 30 now and then."""
    traffic = {"records_per_second": 1, "record_size": "5MiB", "peak_factor": 2}
    speed = {"records_per_second_per_core": 0.5, "batch_overhead": "500ms", "basis": "measured"}
    document = several({"engine": "glue", "latency": "30s", "rate": speed}, large=traffic)
    document["streams"]["large"]["max_record_size"] = "10MiB"
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_large", "sink": sink}
    asked = Environment.model_validate(document)
    assert all(each.meets_sla for each in simulated_queries_of_plan(asked, plan(asked)))


def test_the_least_limit_beside_state_has_room_for_what_chance_brings() -> None:
    """Beside 8 GiB of state a batch takes as little memory as it can, and 21 records at most are too few for 20.6 on average."""
    traffic = {"records_per_second": 1, "record_size": "100B", "peak_factor": 2}
    document = several({"engine": "emr", "latency": "41267ms", "memory": {"state": "8GiB"}}, large=traffic)
    document["streams"]["large"] = {"kind": "kafka", "cluster": "main", "traffic": traffic}
    document["kafka"] = {"main": {"kind": "msk", "existing": EXISTING}}
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_large", "sink": sink}
    asked = Environment.model_validate(document)
    assert all(each.meets_sla for each in simulated_queries_of_plan(asked, plan(asked)))


@pytest.mark.parametrize("records", [0.05, 0.5, 1.5, 6, 25])
def test_chance_brings_more_than_that_to_one_batch_of_thousands(records: float) -> None:
    most = math.floor(records * burst_factor(records)) + 1
    as_many = [
        math.exp(number * math.log(records) - records - math.lgamma(number + 1)) for number in range(most + 1)
    ]
    assert 1 - sum(as_many) < 2e-4


def test_of_many_records_nothing_is_added() -> None:
    assert burst_factor(300) == 1
    largest = [records * burst_factor(records) for records in range(1, 400)]
    assert largest == sorted(largest)
