"""Cores, workers and stages of jobs that run in turns hold relations for environments in which they once did not."""

from __future__ import annotations

import pytest

from millrace.config import Environment
from millrace.sizing import plan, total_cost
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from tests.unit.sizing.plan_relations import (
    KEPT,
    a_pin_changes_nothing,
    an_easier_environment_is_no_worse,
    several,
    sized,
    verdict,
)
from tests.unit.sizing.random_environments import EXISTING, Document

pytestmark = pytest.mark.usefixtures("without_remedies")


def test_a_shard_that_shortens_the_runs_of_two_jobs_pays_by_both() -> None:
    """One job alone saves less than a shard costs, so it was not bought: $4.75 more."""
    document = several(
        {"engine": "glue", "latency": "10671111ms", "run_every": "30m"},
        one={"records_per_second": 192.0, "peak_factor": 2, "record_size": "400B"},
        two={"records_per_second": 571.4, "record_size": "900B"},
    )
    del document["streams"]["two"]["mode"]
    document["streams"]["two"] |= {"kind": "kafka", "cluster": "main"}
    document["kafka"] = {"main": {"kind": "msk", "tier": "express"}}
    query = document["jobs"]["job"]["queries"]["land-one"] | {"table": "landed_again"}
    job = {"engine": "glue", "latency": "4944426ms", "run_every": "30m", "queries": {"land-again": query}}
    document["jobs"]["again"] = job
    a_pin_changes_nothing(document)
    costs = []
    for shards in (None, 2, 3, 4):
        document["streams"]["one"]["shards"] = shards
        costs.append(total_cost(plan(Environment.model_validate(document))).value)
    assert costs[0] == pytest.approx(min(costs))


@pytest.mark.parametrize(("rate", "joined"), [(4000.0, False), (8000.0, True)])
def test_all_cores_of_the_cheapest_workers_are_tried(rate: float, joined: bool) -> None:
    """Cores were tried in steps of the workers for the fewest, and the cheapest had more on each: some stayed idle."""
    document = several(
        {
            "engine": "emr",
            "latency": "13380010ms",
            "run_every": "30m",
            "rate": {"records_per_second_per_core": 9562, "batch_overhead": "300ms", "basis": "measured"},
        },
        small={"records_per_second": 1.2, "peak_factor": 5, "record_size": "400B"},
        large={"records_per_second": rate, "record_size": "4KiB"},
    )
    document["streams"]["large"]["mode"] = "on-demand"
    derive: Document = {"kind": "derive", "source": "landed_large"}
    derive["sink"] = {"kind": "iceberg", "table": "derived"}
    if joined:
        watermark = {"time": "_arrived_at", "delay": "10m"}
        derive["transform"] = "pipelines.clicks.transforms:matched"
        derive["state"] = {"watermark": watermark, "join": {"source": "landed_small", "watermark": watermark}}
    document["jobs"]["job"]["queries"]["derive"] = derive
    a_pin_changes_nothing(document)


def test_pinned_workers_of_a_run_may_be_of_any_size() -> None:
    """Workers were chosen for the fewest cores, and those that end runs sooner were not tried: $542 more of $30,909."""
    traffic = {"records_per_second": 50_000.0, "peak_factor": 1.5, "record_size": "900B"}
    document = several({"engine": "glue", "latency": "3747188ms", "run_every": "30m"}, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    land = document["jobs"]["job"]["queries"]["land-one"] | {"table": "again"}
    document["jobs"]["again"] = {"engine": "glue", "latency": "10218661ms", "queries": {"land": land}}
    a_pin_changes_nothing(document)


def test_pins_that_change_no_cost_change_no_partitions() -> None:
    """The search from a pinned limit came to another design, of 5 cents less."""
    job = {"engine": "glue", "latency": "2754115ms", "run_every": "5m", "memory": {"state": "100GiB"}}
    job["rate"] = {
        "records_per_second_per_core": 7502,
        "batch_overhead": "1114ms",
        "basis": "measured",
    }
    document = several(
        job,
        one={"records_per_second": 5.6, "record_size": "900B"},
        two={"records_per_second": 22.5, "record_size": "4KiB"},
    )
    document["streams"]["one"]["mode"] = "on-demand"
    del document["streams"]["two"]["mode"]
    document["streams"]["two"] |= {"kind": "kafka", "cluster": "main"}
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk", "tier": "express"}}})


def test_a_shard_less_of_an_on_demand_stream_makes_no_run_dearer() -> None:
    """Memory and time of a run were those of whole shards, of which each has more records when one has gone: $75 more."""
    traffic = {"records_per_second": 9019.4, "record_size": "900B"}
    document = several({"engine": "glue", "latency": "13573465ms", "run_every": "30m"}, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    for factor in (1.01, 1.05, 1.1):
        an_easier_environment_is_no_worse(document, factor)


@pytest.mark.parametrize("factor", [1.1, 1.3, 2])
def test_a_run_uses_all_cores_for_what_is_landed_and_then_for_what_is_derived(factor: float) -> None:
    """Both stages shared the cores, and with more time a run took fewer tasks and so longer: $220 more."""
    job = {"engine": "glue", "latency": "2942147ms", "run_every": "30m"}
    job["rate"] = {
        "records_per_second_per_core": 1195,
        "batch_overhead": "782ms",
        "basis": "measured",
    }
    document = several(
        job,
        one={"records_per_second": 21.4, "record_size": "4KiB"},
        two={"records_per_second": 4140.5, "record_size": "900B"},
    )
    del document["streams"]["one"]["mode"]
    document["streams"]["one"] |= {
        "kind": "kafka",
        "cluster": "main",
        "existing": True,
        "partitions": 30,
    }
    document["streams"]["two"]["mode"] = "on-demand"
    document["kafka"] = {"main": {"kind": "msk", "existing": EXISTING}}
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_two", "sink": sink}
    an_easier_environment_is_no_worse(document, factor)
    _, found = sized(document)
    assert found is not None
    # The least cores on which both stages end: one alone takes half of what both at once would.
    assert found.jobs["job"].cores.value <= 20


def test_a_simulated_run_derives_when_all_is_landed() -> None:
    """As in the core. What was landed sooner was derived beside the rest of landing, which came too late."""
    job = {"engine": "emr", "latency": "8838235ms", "run_every": "30m"}
    document = several(
        job,
        one={"records_per_second": 49730.2, "peak_factor": 5, "record_size": "100B"},
        two={"records_per_second": 4031.1, "peak_factor": 1.5, "record_size": "4KiB"},
    )
    queries = document["jobs"]["job"]["queries"]
    watermark = {"time": "_arrived_at", "delay": "10m"}
    for name, joined in (("alone", False), ("both", True)):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        queries[f"derive-{name}"] = {"kind": "derive", "source": "landed_two", "sink": sink}
        if joined:
            queries[f"derive-{name}"]["transform"] = "pipelines.clicks.transforms:matched"
            queries[f"derive-{name}"]["state"] = {
                "watermark": watermark,
                "join": {"source": "landed_one", "watermark": watermark},
            }
    assert verdict(document)[0] == KEPT
    environment, found = sized(document)
    assert found is not None
    seconds = 8 * 1800.0
    arrivals = {
        name: Arrivals.constant(traffic.peak_records_per_second, seconds)
        for name, traffic in traffic_by_stream(environment, "job").items()
    }
    played = simulate(scenario_of_job(environment, found, "job", arrivals)).queries
    landed = [
        [*zip(played[each].starts, played[each].ends, strict=True)] for each in ("land-one", "land-two")
    ]
    derived = [*played["derive-alone"].starts, *played["derive-both"].starts]
    assert len(derived) >= 8
    for start in derived:
        assert not any(begin < start < end for batches in landed for begin, end in batches)


def test_pinned_cores_of_a_run_are_no_reason_for_more_files() -> None:
    """With cores pinned at the plan's own, 23 tasks wrote what three read and wrote as soon: five cents of requests."""
    rate = {"records_per_second_per_core": 14369, "batch_overhead": "3995ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "5948590ms", "rate": rate, "memory": {"state": "100GiB"}}
    document = several(
        {**job, "run_every": "90m", "catch_up": {"outage": "15m", "within": "2h"}},
        one={"records_per_second": 3.8, "peak_factor": 5, "record_size": "100B"},
        two={"records_per_second": 1.0, "record_size": "1KiB"},
    )
    document["kafka"] = {"main": {"kind": "msk", "tier": "express"}}
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    del document["streams"]["one"]["mode"]
    a_pin_changes_nothing(document)


def test_fewer_cores_are_tried_where_their_workers_hold_a_pinned_limit() -> None:
    """On 52 cores a pinned limit took two workers more for its memory, so only more cores were tried: 1.1 % more a month."""
    rate = {"records_per_second_per_core": 2450, "batch_overhead": "398ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "3616318ms", "rate": rate, "run_every": "30m"}
    document = several(
        job | {"memory": {"state": "100GiB"}},
        one={"records_per_second": 1.0, "record_size": "4KiB"},
        two={"records_per_second": 439.8, "record_size": "400B"},
        three={"records_per_second": 12621.7, "record_size": "4KiB"},
    )
    for name, partitions in (("two", 48), ("three", 47)):
        topic = {"kind": "kafka", "cluster": "main", "existing": True, "partitions": partitions}
        document["streams"][name] = topic | {"traffic": document["streams"][name]["traffic"]}
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk", "existing": EXISTING}}})


def test_a_shuffle_is_tried_where_another_one_keeps_a_pinned_limit() -> None:
    """With a limit pinned at the plan's own, waves took eight cores, and their shuffle hid the one on four: $12 more."""
    job = {"engine": "glue", "latency": "14103652ms", "run_every": "30m"}
    traffic = {"records_per_second": 3.2, "peak_factor": 5, "record_size": "1KiB"}
    document = several(job, one=traffic)
    document["streams"]["one"].pop("mode", None)
    document["streams"]["one"] |= {
        "kind": "kafka",
        "cluster": "main",
        "existing": True,
        "partitions": 12,
    }
    settings = document["jobs"]["job"]
    settings["rate"] = {"basis": "measured", "records_per_second_per_core": 8907, "batch_overhead": "3720ms"}
    (landed,) = settings["queries"].values()
    settings["queries"] |= {
        "derive": {
            "kind": "derive",
            "source": landed["table"],
            "sink": {"kind": "iceberg", "table": "derived"},
        },
        "direct": {
            "kind": "direct",
            "source": "one",
            "schema": landed["schema"],
            "dead_letters": "dead",
            "sink": {"kind": "iceberg", "table": "direct"},
        },
    }
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk", "existing": EXISTING}}})
