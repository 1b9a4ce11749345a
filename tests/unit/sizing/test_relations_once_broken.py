"""Relations between plans of jobs that run all the time hold for environments in which they once did not."""

from __future__ import annotations

import copy

import pytest

from millrace.sizing import total_cost
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from tests.unit.sizing.plan_relations import (
    KEPT,
    MISSED,
    a_pin_changes_nothing,
    an_easier_environment_is_no_worse,
    quieter,
    several,
    sized,
    verdict,
)
from tests.unit.sizing.random_environments import EXISTING, Document

pytestmark = pytest.mark.usefixtures("without_remedies")


def test_pins_refuse_no_step_to_the_best_design() -> None:
    traffic = {"records_per_second": 2364.9, "peak_factor": 2, "record_size": "4KiB"}
    a_pin_changes_nothing(several({"engine": "emr", "latency": "235210ms"}, one=traffic, two=traffic))


def test_shards_that_deliver_slowly_are_as_many_as_save_an_executor() -> None:
    """Of large records only as many shards were tried as their work asks for, and not their delivery: $47 more."""
    document = several(
        {"engine": "glue", "latency": "987677ms"},
        one={"records_per_second": 112.5, "record_size": "100KiB"},
        two={"records_per_second": 1.0, "peak_factor": 5, "record_size": "400B"},
        three={"records_per_second": 1.0, "peak_factor": 5, "record_size": "900B"},
    )
    document["kafka"] = {"main": {"kind": "msk", "tier": "standard"}}
    document["streams"]["two"]["mode"] = "on-demand"
    document["streams"]["three"] |= {"kind": "kafka", "cluster": "main"}
    del document["streams"]["three"]["mode"]
    for name, table in (("a", "one"), ("b", "one"), ("c", "three")):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        derive = {"kind": "derive", "source": f"landed_{table}", "sink": sink}
        document["jobs"]["job"]["queries"][f"derive-{name}"] = derive
    a_pin_changes_nothing(document)
    costs = []
    for shards in (None, *range(11, 32)):
        document["streams"]["one"]["shards"] = shards
        _, found = sized(document)
        costs.append(float("inf") if found is None else total_cost(found).value)
    assert costs[0] == pytest.approx(min(costs))


def test_cores_that_memory_brings_take_fewer_partitions() -> None:
    """A join takes workers of four cores, which the search for partitions thought to be dearer than two of two."""
    document = several(
        {"engine": "glue", "latency": "15000ms"},
        one={"records_per_second": 8.4, "peak_factor": 1.5, "record_size": "100B"},
        two={"records_per_second": 28.1, "peak_factor": 2, "record_size": "100KiB"},
    )
    streams, queries = document["streams"], document["jobs"]["job"]["queries"]
    streams["one"]["mode"] = "on-demand"
    streams["two"] = {"kind": "kafka", "cluster": "main", "traffic": streams["two"]["traffic"]}
    for name, table in (("a", "one"), ("b", "two"), ("c", "two")):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        queries[f"derive-{name}"] = {"kind": "derive", "source": f"landed_{table}", "sink": sink}
    watermark = {"time": "_arrived_at", "delay": "10m"}
    queries["derive-c"]["transform"] = "pipelines.clicks.transforms:matched"
    join = {"source": "landed_one", "watermark": watermark}
    queries["derive-c"]["state"] = {"watermark": watermark, "join": join}
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk"}}})


def test_an_on_demand_stream_is_kept_with_a_looser_sla_for_no_more() -> None:
    """With 15 min a job on a stream whose shards change was shuffled behind too few cores: no record was in time."""
    document = several({"engine": "glue"}, one={"records_per_second": 30_000, "record_size": "900B"})
    document["streams"]["one"]["mode"] = "on-demand"
    costs = []
    for sla in ("60000ms", "300000ms", "900000ms"):
        document["jobs"]["job"]["latency"] = sla
        state, found = verdict(document)
        assert state == KEPT
        assert found is not None
        costs.append(total_cost(found).value)
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("sla", ["149000ms", "297000ms", "61357ms"])
def test_queries_on_one_path_do_not_beat(sla: str, apart: bool) -> None:
    """Triggers of 74 and 75 s gave a derive batch two landing batches now and then."""
    sink = {"kind": "iceberg", "table": "derived"}
    derive = {"kind": "derive", "source": "landed_one", "sink": sink}
    document = several(
        {"engine": "emr", "latency": sla}, one={"records_per_second": 2000, "record_size": "1KiB"}
    )
    job = document["jobs"]["job"]
    if apart:
        document["jobs"]["other"] = {"engine": "glue", "latency": "400000ms", "queries": {"derive": derive}}
    else:
        job["queries"]["derive"] = derive
    environment, found = sized(document, simulated=True)
    assert found is not None
    landing, deriving = (
        query.trigger_seconds.value for each in found.jobs.values() for query in each.queries.values()
    )
    assert deriving / landing == pytest.approx(round(deriving / landing), abs=1e-9)
    assert [each.within for each in simulated_queries_of_plan(environment, found)] == [1.0, 1.0]


def test_shards_of_one_reader_with_a_short_sla_are_not_refused() -> None:
    """One reader reads nothing during the fixed cost of its batches, so it needs more shards than what arrives."""
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "2200ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "5000ms", "rate": rate}
    document = several(job, one={"records_per_second": 9000, "record_size": "1KiB"})
    _, found = sized(document)
    assert found is not None
    assert found.streams["one"].expected_partitions.value > 9
    a_pin_changes_nothing(document)


def test_one_partition_more_than_the_traffic_needs_shortens_tasks() -> None:
    """A looser SLA took more cores: of a topic that needs exactly one partition, two were planned like one."""
    topic = {"kind": "kafka", "cluster": "main"}
    document = several(
        {"engine": "glue", "latency": "15000ms"},
        one={"records_per_second": 1.0, "record_size": "100KiB"},
        two={"records_per_second": 3780.5, "peak_factor": 2, "record_size": "100B"},
        three={"records_per_second": 1.3, "peak_factor": 2, "record_size": "900B"},
    )
    document["kafka"] = {"main": {"kind": "msk", "existing": EXISTING}}
    for name, stream in document["streams"].items():
        fixed = {"existing": True, "partitions": 6} if name == "one" else {}
        document["streams"][name] = topic | {"traffic": stream["traffic"]} | fixed
    an_easier_environment_is_no_worse(document, 2)


@pytest.mark.parametrize("tier", ["standard", "express"])
def test_the_cores_of_a_job_are_all_of_its_executors(tier: str) -> None:
    """Of two executors with two cores each the plan named three, and for one per cent less traffic four, which cost less."""
    document = several(
        {"engine": "emr", "latency": "23356ms"},
        one={"records_per_second": 40, "record_size": "100KiB", "basis": "measured"},
    )
    document["kafka"] = {"main": {"kind": "msk", "tier": tier}}
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    del document["streams"]["one"]["mode"]
    for name in ("a", "b"):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        derive = {"kind": "derive", "source": "landed_one", "sink": sink}
        document["jobs"]["job"]["queries"][f"derive-{name}"] = derive
    an_easier_environment_is_no_worse(document, 1.01)
    a_pin_changes_nothing(document)
    _, found = sized(document)
    assert found is not None
    job = found.jobs["job"]
    assert max(query.cores.value for query in job.queries.values()) <= job.cores.value
    assert job.cores.value == job.executors.value * job.vcpu


@pytest.mark.parametrize("factor", [1.3, 2, 8])
def test_batches_take_no_memory_of_state_with_a_looser_sla(factor: float) -> None:
    """A trigger eight times as long took one large worker, as the state had no room beside its batches: 22 % more."""
    rate = {"records_per_second_per_core": 8670, "batch_overhead": "1027ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "283937ms", "rate": rate, "memory": {"state": "5GiB"}}
    job["catch_up"] = {"outage": "15m", "within": "2h"}
    one = {"records_per_second": 2.3, "peak_factor": 1.5, "record_size": "100B"}
    document = several(job, one=one, two={"records_per_second": 1.0, "record_size": "900B"})
    document["streams"]["one"]["mode"] = "on-demand"
    an_easier_environment_is_no_worse(document, factor)


@pytest.mark.parametrize("memory", [{"state": "1GiB"}, {"tables": "1GiB"}])
def test_no_limit_of_a_batch_costs_less_than_that_of_the_plan(memory: Document) -> None:
    """The largest limit that the cores may process took the memory of the state, and one executor more: $760 in place of $680."""
    traffic = {"records_per_second": 293.4, "peak_factor": 2, "record_size": "900B", "basis": "measured"}
    document = several({"engine": "glue", "latency": "383702ms", "memory": memory}, one=traffic)
    costs = []
    for limit in (None, *(100_000 * number for number in range(1, 8))):
        document["jobs"]["job"]["queries"]["land-one"]["records_per_batch"] = limit
        _, found = sized(document)
        costs.append(float("inf") if found is None else total_cost(found).value)
    assert costs[0] <= min(costs) * (1 + 1e-9)
    assert len(set(costs)) > 1


@pytest.mark.parametrize("factor", [1.2, 2, 4, 16])
def test_state_that_fewer_records_bring_to_fewer_executors_costs_no_more(factor: float) -> None:
    """With half of the records one executor had to hold all of the state, on a worker that cost more than two."""
    rate = {"records_per_second_per_core": 3000, "batch_overhead": "3000ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "240000ms", "rate": rate, "memory": {"state": "20GiB"}}
    document = several(
        job, one={"records_per_second": 8000, "peak_factor": 2, "record_size": "500B", "basis": "measured"}
    )
    an_easier_environment_is_no_worse(document, factor)
    _, found = sized(quieter(document, factor))
    assert found is not None
    held = found.jobs["job"]
    assert held.scaling.min_executors.value == held.executors.value == 2
    a_pin_changes_nothing(quieter(document, factor))


def test_pinned_cores_of_an_on_demand_stream_keep_the_shuffle() -> None:
    """Its shards change, so its partitions cannot be counted on, whoever chose the cores."""
    rate = {"records_per_second_per_core": 10_000, "batch_overhead": "3000ms", "basis": "measured"}
    traffic = {"records_per_second": 60_000, "peak_factor": 3, "record_size": "400B", "basis": "measured"}
    document = several({"engine": "glue", "latency": "900000ms", "rate": rate}, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    _, first = sized(document)
    assert first is not None
    document["jobs"]["job"]["cores"] = first.jobs["job"].cores.value
    _, second = sized(document)
    assert second is not None
    queries = [each.jobs["job"].queries["land-one"] for each in (first, second)]
    shuffled = [each.repartition and each.repartition.value for each in queries]
    assert shuffled == [first.jobs["job"].cores.value] * 2


def test_a_query_of_one_route_is_simulated_with_its_records() -> None:
    """The whole table was simulated, and the query planned for its route alone: no record was in time."""
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "2000ms", "basis": "measured"}
    document = several(
        {"engine": "glue", "latency": "120000ms", "rate": rate},
        few={"records_per_second": 1000, "record_size": "300B"},
        many={"records_per_second": 9000, "record_size": "300B"},
    )
    routes = {name: {"source": name, "schema": "pipelines/a.ddl"} for name in document["streams"]}
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"] = {
        "land": {"kind": "route", "routes": routes, "table": "landed"},
        "derive": {"kind": "derive", "source": "landed", "route": "few", "sink": sink},
    }
    assert verdict(document)[0] == KEPT


def test_a_plan_of_shared_cores_keeps_its_own_sla() -> None:
    traffic = {"records_per_second": 19.0, "peak_factor": 2, "record_size": "100KiB", "basis": "measured"}
    route = {"source": "stream", "schema": "pipelines/clicks/schemas/click.ddl"}
    derived = [{"kind": "iceberg", "table": f"derived_{n}"} for n in range(2)]
    queries = {"land": {"kind": "route", "routes": {"all": route}, "table": "landed"}}
    queries |= {
        f"derive-{n}": {"kind": "derive", "source": "landed", "sink": sink} for n, sink in enumerate(derived)
    }
    rate = {"records_per_second_per_core": 1570, "batch_overhead": "3593ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "21905ms", "scaling": "fixed", "rate": rate, "queries": queries}
    streams = {"stream": {"kind": "kinesis", "mode": "on-demand", "traffic": traffic}}
    document = {"name": "drawn", "project": "drawn", "region": "us-east-1", "account": "111122223333"}
    assert verdict(document | {"streams": streams, "jobs": {"job": job}})[0] != MISSED


@pytest.mark.parametrize("factor", [1.01, 1.05, 2])
def test_no_rounding_of_shards_that_are_an_estimate_decides_on_waves(factor: float) -> None:
    """Of 47.1 MiB/s two readers read 95 shards in two waves, but of 44.8 MiB/s 90 shards in one, which cost 43 % more."""
    traffic = {"records_per_second": 133.9, "peak_factor": 12, "record_size": "30KiB"}
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "2000ms", "basis": "measured"}
    document = several({"engine": "glue", "latency": "60000ms", "rate": rate}, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    document["jobs"]["other"] = copy.deepcopy(document["jobs"]["job"])
    document["jobs"]["other"]["queries"]["land-one"]["table"] = "landed_again"
    an_easier_environment_is_no_worse(document, factor)
    a_pin_changes_nothing(document)


@pytest.mark.parametrize("factor", [1.01, 2, 8, 64])
def test_a_stated_limit_of_a_batch_takes_a_shorter_trigger(factor: float) -> None:
    """A looser SLA would have a trigger in which more records arrive than a batch may have."""
    document = several({"engine": "glue", "latency": "45206ms"}, one={"records_per_second": 2237.3, "record_size": "400B"})  # fmt: skip
    document["jobs"]["job"]["queries"]["land-one"]["records_per_batch"] = 100_000
    an_easier_environment_is_no_worse(document, factor)
    assert verdict(document)[0] == KEPT


def test_partitions_that_bring_state_to_a_smaller_worker_are_many_times_as_many() -> None:
    """Twelve bring a task's part below 10 GiB, and eight times the one that traffic needs was the most that was tried."""
    job = {"engine": "emr", "latency": "15000ms", "memory": {"state": "8GiB"}}
    document = several(job, one={"records_per_second": 1.1, "peak_factor": 5, "record_size": "100KiB"})
    del document["streams"]["one"]["mode"]
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    document |= {"kafka": {"main": {"kind": "msk", "tier": "express"}}}
    an_easier_environment_is_no_worse(document, 1.3)


def test_a_longer_trigger_takes_no_more_cores_to_read_a_shared_stream() -> None:
    """What others leave unread during a batch's fixed cost counted in full, which is less of a longer batch: $54 more."""
    traffic = {"records_per_second": 37.0, "record_size": "100KiB"}
    document = several({"engine": "glue", "latency": "15000ms"}, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    land, job = document["jobs"]["job"]["queries"]["land-one"], document["jobs"]["job"]
    sink = {"kind": "iceberg", "table": "derived"}
    job["queries"]["derive"] = {"kind": "derive", "source": "landed_one", "sink": sink}
    others = {f"land-{each}": land | {"table": f"landed_{each}"} for each in "ab"}
    document["jobs"]["others"] = {"engine": "glue", "latency": "50m", "queries": others}
    costs = []
    for seconds in (15, 17, 19.5, 25, 40, 80):
        job["latency"] = f"{round(seconds * 1000)}ms"
        state, found = verdict(document)
        assert state == KEPT
        assert found is not None
        costs.append(total_cost(found).value)
    assert costs == sorted(costs, reverse=True)


def test_a_limit_that_is_pinned_may_be_no_smaller_than_the_plans() -> None:
    """A tenth more than keeps up was planned for what memory holds, and not of a pinned limit: with it, $4 less."""
    document = several(
        {"engine": "glue", "latency": "1162782ms", "memory": {"state": "8GiB"}},
        one={"records_per_second": 40.4, "record_size": "100KiB"},
        two={"records_per_second": 45.1, "peak_factor": 1.5, "record_size": "1KiB"},
    )
    del document["streams"]["two"]["mode"]
    document["streams"]["two"] |= {"kind": "kafka", "cluster": "main"}
    document["kafka"] = {"main": {"kind": "msk", "tier": "standard"}}
    a_pin_changes_nothing(document)


def test_workers_are_held_where_fewer_would_leave_a_backlog() -> None:
    """Only a rise to the peak was looked at; with more time for that, workers that come and go left a backlog."""
    document = several(
        {"engine": "emr", "latency": "633636ms"},
        one={"records_per_second": 12.9, "record_size": "100B"},
        two={"records_per_second": 17175.0, "peak_factor": 5, "record_size": "400B"},
    )
    del document["streams"]["two"]["mode"]
    document["streams"]["two"] |= {"kind": "kafka", "cluster": "main"}
    document["kafka"] = {"main": {"kind": "msk"}}
    queries = document["jobs"]["job"]["queries"]
    watermark = {"time": "_arrived_at", "delay": "10m"}
    for name in ("a", "b"):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        queries[f"derive-{name}"] = {"kind": "derive", "source": "landed_two", "sink": sink}
    queries["derive-b"]["transform"] = "pipelines.clicks.transforms:matched"
    queries["derive-b"]["state"] = {
        "watermark": watermark,
        "join": {"source": "landed_one", "watermark": watermark},
    }
    assert verdict(document)[0] == KEPT


@pytest.mark.parametrize(
    ("latency", "factor", "per_core", "overhead", "traffic"),
    [("300000ms", 3, 5000, "3s", {"records_per_second": 2500, "peak_factor": 2, "record_size": "400B"}),
     ("120000ms", 2.5, 1500, "4s", {"records_per_second": 15_000, "peak_factor": 2, "record_size": "4KiB"})]
)  # fmt: skip
def test_batches_that_catch_up_fit_into_memory_without_more_shards(
    latency: str, factor: float, per_core: int, overhead: str, traffic: Document
) -> None:
    """A looser SLA took the trigger that memory holds at the peak; batches of three times that took half as many shards more."""
    rate = {"records_per_second_per_core": per_core, "batch_overhead": overhead, "basis": "measured"}
    job = {"engine": "glue", "latency": latency, "rate": rate}
    document = several(job | {"catch_up": {"outage": "4h", "within": "2h"}}, one=traffic)
    document["streams"]["one"]["retention"] = "48h"
    an_easier_environment_is_no_worse(document, factor)


def test_cores_that_wait_for_shards_are_no_more_behind_a_repartition() -> None:
    """Reading took the 10 % more of a repartition, too: 55 cores, called the fewest, and 54 that were pinned kept the SLA."""
    rate = {"records_per_second_per_core": 8000, "batch_overhead": "3s", "basis": "measured"}
    job = {"engine": "emr", "latency": "600000ms", "goal": "throughput", "rate": rate}
    traffic = {"records_per_second": 50_000, "peak_factor": 2, "record_size": "1KiB"}
    document = several(job, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    state, found = verdict(document)
    assert state == KEPT
    assert found is not None
    assert found.jobs["job"].cores.value == 50  # 100,000 records/s of 1 KiB, 2 MiB/s of a shard
    document["jobs"]["job"]["cores"] = 49
    assert sized(document)[1] is None


def test_cores_that_a_plan_chooses_can_be_pinned_however_many() -> None:
    """The file took 10,000 cores at most, and a plan for this traffic more."""
    traffic = {"records_per_second": 80_000_000, "record_size": "300B"}
    document = several({"engine": "glue", "latency": "60s"}, one=traffic)
    _, found = sized(document)
    assert found is not None
    job = found.jobs["job"]
    assert job.cores.value > 10_000
    document["jobs"]["job"] |= {"cores": job.cores.value, "max_workers": job.max_workers.value}
    _, pinned = sized(document)
    assert pinned is not None
    assert total_cost(pinned).value == pytest.approx(total_cost(found).value, rel=1e-9)
