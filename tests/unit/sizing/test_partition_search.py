"""No number of shards or partitions that somebody pins makes an environment cheaper than the plan's own."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from millrace.config import load
from millrace.sizing import plan, total_cost
from millrace.sizing.alternatives import partition_search
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from tests.performance.plan import large
from tests.unit.sizing.plan_relations import (
    an_easier_environment_is_no_worse,
    cores_that_are_not_sized_would_not_be_chosen,
    several,
    sized,
)
from tests.unit.sizing.random_environments import Document

pytestmark = pytest.mark.usefixtures("without_remedies")

EXPRESS = {"main": {"kind": "msk", "tier": "express"}}


def pins_cost_no_less(document: Document, pins: list[dict[str, int]]) -> None:
    made = PlansMade()
    _, free = sized(document, made)
    assert free is not None
    for numbers in pins:
        pinned = copy.deepcopy(document)
        for name, number in numbers.items():
            stream = pinned["streams"][name]
            stream["shards" if stream["kind"] == "kinesis" else "partitions"] = number
        _, found = sized(pinned, made)
        assert found is not None
        assert total_cost(found).value >= total_cost(free).value - 0.01


def topic(document: Document, name: str) -> None:
    """Make a stream a topic of an Express cluster."""
    stream = document["streams"][name]
    del stream["mode"]
    document["streams"][name] = {**stream, "kind": "kafka", "cluster": "main"}
    document["kafka"] = EXPRESS


def test_partitions_between_two_doublings_are_tried() -> None:
    """Brokers hold 272 partitions and 408 for the same price; the search looked at twice as many, four times …, three steps long."""
    rate = {"records_per_second_per_core": 8326, "batch_overhead": "469ms", "basis": "measured"}
    traffic = {"records_per_second": 31480, "record_size": "4096B"}
    document = several(
        {"engine": "emr", "latency": "13449097ms", "rate": rate, "run_every": "10m"},
        one={**traffic, "peak_factor": 2},
        two={**traffic, "peak_factor": 1.5},
    )
    for name in ("one", "two"):
        topic(document, name)
    pins_cost_no_less(document, [dict.fromkeys(("one", "two"), number) for number in (136, 408)])


def test_many_partitions_of_a_small_topic_save_the_shuffle_beside_a_large_stream() -> None:
    """From one partition the search went no further than a few at a time, of which none saved anything: 2.5 % more."""
    document = several(
        {"engine": "glue", "latency": "3338795ms", "run_every": "5m"},
        large={"records_per_second": 34642, "peak_factor": 2, "record_size": "4096B"},
        small={"records_per_second": 4356, "record_size": "900B"},
    )
    topic(document, "small")
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_small", "sink": sink}
    pins_cost_no_less(document, [{"small": number} for number in (2, 8, 16)])


def test_shards_of_small_streams_shorten_runs_that_wait_for_them() -> None:
    """32 shards of each small stream cost a fifth less; the search took a few more at a time, of which none saved anything."""
    rate = {"records_per_second_per_core": 583, "batch_overhead": "364ms", "basis": "measured"}
    job = {"engine": "glue", "rate": rate, "latency": "2478314ms", "run_every": "10m"}
    small = {
        "two": {"records_per_second": 120, "record_size": "400B"},
        "three": {"records_per_second": 12, "record_size": "1000B"},
        "four": {"records_per_second": 127, "peak_factor": 5, "record_size": "100B"},
        "five": {"records_per_second": 1, "peak_factor": 1.5, "record_size": "102400B"},
        "six": {"records_per_second": 1553, "record_size": "1024B"},
    }
    document = several(
        job | {"catch_up": {"outage": "15m", "within": "2h"}},
        one={"records_per_second": 14387, "peak_factor": 5, "record_size": "400B"},
        **small,
    )
    pins_cost_no_less(document, [{"one": 72, **dict.fromkeys(small, 32)}])


def test_no_topic_has_partitions_so_that_its_brokers_are_more() -> None:
    """Of more brokers the volumes were of a smaller step: 28,001 partitions, and $3,600 more with a looser SLA, which had no reason for them."""
    rate = {"records_per_second_per_core": 17142, "batch_overhead": "3357ms", "basis": "measured"}
    job = {
        "engine": "glue",
        "latency": "1817696ms",
        "rate": rate,
        "catch_up": {"outage": "1m", "within": "2h"},
    }
    document = several(
        job,
        quiet={"records_per_second": 1, "peak_factor": 1.5, "record_size": "4KiB"},
        large={"records_per_second": 50_000, "peak_factor": 5, "record_size": "4KiB"},
    )
    document["streams"]["quiet"]["mode"] = "on-demand"
    topic(document, "large")
    document["kafka"] = {"main": {"kind": "msk", "tier": "standard"}}
    queries = document["jobs"]["job"]["queries"]
    queries["again"] = {**queries["land-quiet"], "table": "landed_again"}
    sink = {"kind": "iceberg", "table": "derived"}
    queries["derive"] = {"kind": "derive", "source": "landed_quiet", "sink": sink}
    land = queries.pop("land-large")
    del land["table"]
    queries["direct"] = {
        **land,
        "kind": "direct",
        "dead_letters": "dead",
        "sink": {**sink, "table": "direct"},
    }
    an_easier_environment_is_no_worse(document, 8)


def test_a_batch_has_no_hundreds_of_tasks_for_a_few_cores() -> None:
    """A file of each task was not counted, nor its start: 253 and 560 partitions for a few records, to end runs 5 % sooner."""
    job = {
        "engine": "glue",
        "latency": "2768254ms",
        "rate": {"records_per_second_per_core": 500, "batch_overhead": "2890ms", "basis": "measured"},
        "scaling": "fixed",
        "catch_up": {"outage": "15m", "within": "2h"},
        "run_every": "5m",
    }
    document = several(
        job,
        quiet={"records_per_second": 36.8, "record_size": "100B"},
        busy={"records_per_second": 1426.2, "record_size": "900B"},
    )
    document["jobs"]["job"]["queries"]["again"] = {
        "kind": "land",
        "source": "busy",
        "schema": "pipelines/a.ddl",
        "table": "landed_again",
    }
    for name in ("quiet", "busy"):
        topic(document, name)
    _, found = sized(document)
    assert found is not None
    cores = found.jobs["job"].executors.value * found.jobs["job"].vcpu
    assert all(each.expected_partitions.value <= 3 * cores for each in found.streams.values())


def test_a_run_is_estimated_on_the_cores_that_its_partitions_keep_busy() -> None:
    """On the executors of the present partitions a few more looked slow, so with a looser SLA runs from fewer on cost $5 more."""
    rate = {"records_per_second_per_core": 500, "batch_overhead": "919ms", "basis": "measured"}
    document = several(
        {"engine": "glue", "latency": "4447994ms", "rate": rate, "run_every": "30m"},
        one={"records_per_second": 5571.1, "peak_factor": 1.5, "record_size": "900B"},
    )
    topic(document, "one")
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_one", "sink": sink}
    pins_cost_no_less(document, [{"one": number} for number in (40, 44, 48, 52)])


def test_a_shard_more_is_tried_where_it_saves_an_executor_that_is_there_for_memory() -> None:
    """The cores of all executors counted as needed, so nothing was to be saved: $69 more, and more cores than for 1.3 times the traffic."""
    document = several(
        {"engine": "glue", "latency": "6768931ms", "memory": {"state": "8GiB"}},
        one={"records_per_second": 5.08, "peak_factor": 1.5, "record_size": "100KiB"},
        two={"records_per_second": 15818.2, "peak_factor": 1.5, "record_size": "100B"},
    )
    topic(document, "two")
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_one", "sink": sink}
    pins_cost_no_less(document, [{"one": number} for number in (3, 4)])


def test_more_cores_that_end_a_run_sooner_for_less_are_sized() -> None:
    """With a bound 1.3 times too high they are left out, which few environments that are drawn show."""
    rate = {"records_per_second_per_core": 538, "batch_overhead": "316ms", "basis": "measured"}
    job = {
        "engine": "emr",
        "latency": "8386230ms",
        "rate": rate,
        "memory": {"state": "100GiB"},
        "run_every": "5m",
    }
    document = several(
        job,
        one={"records_per_second": 16051.3, "peak_factor": 5, "record_size": "1KiB"},
        two={"records_per_second": 13716.2, "record_size": "900B"},
    )
    for name in ("one", "two"):
        topic(document, name)
    document["kafka"] = {"main": {"kind": "msk", "tier": "standard"}}
    cores_that_are_not_sized_would_not_be_chosen(document)


def test_jobs_that_differ_in_names_alone_get_what_each_gets_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one of them stands a job with another trigger, and all of their topics share a cluster."""
    file = tmp_path / "alike.yaml"
    # Rates repeat after fifty streams.
    text = large(200, 100).replace("source: s107x,", "source: s107x, trigger: 5s,")
    file.write_text(text, encoding="utf-8")
    environment, searched = load(file), []
    search = partition_search._cheapest_partitions_of_job

    def counted(*asked: object) -> dict[str, int]:
        searched.append(asked[2])
        return search(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_search, "_cheapest_partitions_of_job", counted)
    together = plan_as_plain_data(plan(environment, simulated=False))
    assert {"j7x", "j57x"} <= set(searched)
    assert len(searched) < len(environment.jobs)
    monkeypatch.setattr(PlansMade, "result", lambda *asked: asked[-1]())
    searched.clear()
    assert plan_as_plain_data(plan(environment, simulated=False)) == together
    assert len(searched) == len(environment.jobs)
