"""Queries of one job share its cores: small ones cost their work, and a second simulator agrees."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millrace.config import Environment
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import Plan, plan, total_cost
from millrace.sizing.alternatives import remedies
from millrace.sizing.jobs.shared_cores import LargestBatch, load_headroom_factors
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.driver import batches_driver_serves_at_once, fixed_cost_factor
from millrace.sizing.queries.partition_tasks import SourcePartitions, divide_stream
from millrace.sizing.simulation import Arrivals, FixedExecutors, QueryLoad, Scenario, simulate
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from tests.unit.sizing.plain_simulator import PlainQuery, play
from tests.unit.sizing.plan_relations import plain
from tests.unit.sizing.random_environments import Document

REFERENCE = Path(__file__).parents[2] / "reference"
NAMES = ("changes-of-40-tables", "many-small-streams")


def reference(name: str, **job: object) -> Document:
    """A reference environment, in the units of the plain simulator, with other keys of its only job."""
    document: Document = YAML(typ="safe").load(REFERENCE / f"{name}.yaml")
    for each in document["jobs"].values():
        each["rate"]["batch_overhead"], each["latency"] = "3000ms", "300000ms"
        each |= job
    for stream in document["streams"].values():
        stream["traffic"]["record_size"] = "900B"
    return {"name": "shape", **document}


def kept(document: Document) -> Plan:
    """The plan of an environment; both simulators keep every SLA of it."""
    environment = Environment.model_validate(document)
    found = plan(environment)
    assert not [
        line for each in simulated_queries_of_plan(environment, found) for line in each.contradictions()
    ]
    for name, job in found.jobs.items():
        cores, at_once = job.cores.value, batches_driver_serves_at_once(job.vcpu)
        trigger = max(query.trigger_seconds.value for query in job.queries.values())
        played = play(plain(document, found, name), 60 * trigger, cores, at_once)
        assert all(each.kept for each in played.values())
    return found


@pytest.mark.parametrize(("name", "most"), [(NAMES[0], 1_300), (NAMES[1], 800)])
def test_small_queries_cost_what_their_work_takes(name: str, most: float) -> None:
    assert total_cost(kept(reference(name))).value <= most


@pytest.mark.parametrize("name", NAMES)
def test_fewer_cores_than_queries_can_be_pinned(name: str) -> None:
    (job,) = kept(reference(name, cores=8)).jobs.values()
    assert job.cores.value == 8


@pytest.mark.parametrize(("seconds", "busy"), [(60, True), (600, False)])
def test_batches_that_keep_the_driver_busy_are_a_risk(seconds: int, busy: bool) -> None:
    document = reference("changes-of-40-tables", latency=f"{seconds * 1000}ms")
    told = plan(Environment.model_validate(document)).warnings
    assert any("the driver's time" in line for line in told) is busy


@pytest.mark.parametrize("key", ["schema", "format", None])
def test_queries_that_decode_alike_are_advised_to_share_one(key: str | None) -> None:
    """In each environment; one whose schema or format is its own is not among them."""
    document = reference("changes-of-40-tables", latency="600000ms")
    (job,) = document["jobs"].values()
    for number, query in enumerate(job["queries"].values()):
        if key == "schema":
            query["schema"] = f"pipelines/{number}.ddl"
        elif key == "format" and number > 1:
            query["format"] = {"kind": "csv", "null": f"none{number}"}
    (planned,) = plan(Environment.model_validate(document)).jobs.values()
    hints = [line for line in planned.advice if "one `route` query" in line]
    first, second, *others = job["queries"]
    same = {
        "schema": [],
        "format": [f"{first} and {second} decode"],
        None: [f"{first} and {len(others) + 1} others decode"],
    }
    assert len(hints) == len(same[key])
    assert all(map(str.startswith, hints, same[key]))


@pytest.mark.parametrize("seconds", [600, 300, 120, 60, 30])
def test_a_shorter_sla_takes_a_larger_driver(seconds: int) -> None:
    """Forty batches with 3 s of fixed cost each: those of a trigger must be planned within it."""
    (job,) = kept(reference("changes-of-40-tables", latency=f"{seconds * 1000}ms")).jobs.values()
    trigger = max(query.trigger_seconds.value for query in job.queries.values())
    assert 40 * 3 * service_limits()["spark.driver.cores_per_batch"] / job.vcpu < trigger


@pytest.mark.slow
@pytest.mark.parametrize(
    "own", [{"worker": "G.025X"}, {"run_every": "5m", "latency": "12m", "worker": "G.1X"}]
)
def test_a_driver_that_cannot_plan_all_batches_in_time_is_refused(
    own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "_WANTED", 1)  # another worker is the first that is tried
    document = reference("changes-of-40-tables", **{"latency": "20s", **own})
    for job in document["jobs"].values():
        job["rate"]["batch_overhead"] = "60s" if "run_every" in own else "3s"
    with pytest.raises(ConfigurationError) as refused:
        plan(Environment.model_validate(document))
    message = str(refused.value)
    assert "40 batches begin together on a driver of" in message
    assert "one `route` query" in message
    assert "leave worker to the plan" in message


def test_five_queries_take_as_long_as_was_measured() -> None:
    """One took 1.71 s on two cores, and five that fired together 6.36 s: with tasks and servers, each kept 1.49 cores busy."""
    for number, took in ((1, 1.71), (5, 6.36)):
        assert 1.71 * fixed_cost_factor(number, 2 / 1.49) == pytest.approx(took, rel=0.01)


@pytest.mark.usefixtures("without_remedies")
def test_too_few_cores_are_refused_with_those_that_suffice() -> None:
    with pytest.raises(ConfigurationError, match="at least 2: ") as refused:
        plan(Environment.model_validate(reference("changes-of-40-tables", cores=1)))
    assert "jobs.changes.cores" in str(refused.value)


@pytest.mark.parametrize("cores", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [(1, 1, 1), (4, 1), (9, 2, 2), (1, 30)])
@pytest.mark.parametrize("at_once", [math.inf, 1.5, 0.7])
def test_batches_that_fire_together_end_as_task_by_task(
    cores: int, tasks: tuple[int, ...], at_once: float
) -> None:
    """The simulator and the plain one agree on each batch's end, or a shared driver ends it sooner; none is above the model's bound."""
    trigger, rate = 100.0, 50.0
    factor = fixed_cost_factor(len(tasks), at_once)
    loads = [
        QueryLoad(
            f"q{n}",
            factor * (1.0 + n),
            1e-3 * (n + 1),
            trigger,
            Arrivals.constant(rate, 350.0),
            divide_stream(count),
        )
        for n, count in enumerate(tasks)
    ]
    shape = Scenario(350.0, tuple(loads), cores, FixedExecutors(1))
    played = simulate(shape, each_batch=True)
    again = play(
        {
            load.name: PlainQuery(rate, load.overhead / factor, load.per_record, 100.0, trigger, cores, count)
            for load, count in zip(loads, tasks, strict=True)
        },
        350.0,
        cores,
        at_once,
    )
    for load in loads:
        ends = [end for end, _ in again[load.name].commits]
        # Of cores that become free at one time, either may take the next task.
        longest = max(one.per_record * rate * trigger / n for one, n in zip(loads, tasks, strict=True))
        for end, judged in zip(played.queries[load.name].ends, ends[:3], strict=True):
            assert end >= judged - longest
            assert factor > 1 or end <= judged + longest
    planned = [load.overhead for load in loads]
    slowest = max(query.ends[0] for query in played.queries.values()) - trigger
    batches = [
        LargestBatch(
            load.per_record * rate * trigger,
            (slowest - end) * (1 - 1e-6),
            trigger,
            SourcePartitions.of_equal(count),
        )
        for load, count, end in zip(loads, tasks, planned, strict=True)
    ]
    whole = [batch.divided_into(count) for batch, count in zip(batches, tasks, strict=True)]
    factors = load_headroom_factors(batches, whole, cores, bounded=True)
    assert min(factors) <= 1, "the model promises less time than it takes"
