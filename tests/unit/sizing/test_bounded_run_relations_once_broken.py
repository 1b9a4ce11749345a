"""Relations between plans of jobs that run in turns hold for environments in which they once did not."""

from __future__ import annotations

import pytest

from millrace.config import Environment
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import plan, total_cost
from millrace.sizing.alternatives.job_planner import PlansMade
from tests.unit.sizing.plan_relations import (
    MISSED,
    a_pin_changes_nothing,
    an_easier_environment_is_no_worse,
    looser,
    order_and_names_change_nothing,
    quieter,
    several,
    sized,
    verdict,
)
from tests.unit.sizing.random_environments import EXISTING, Document

pytestmark = pytest.mark.usefixtures("without_remedies")


@pytest.mark.parametrize(
    ("engine", "latency", "traffic"),
    [
        ("emr", "2351066ms", {"records_per_second": 76.5, "peak_factor": 2, "record_size": "100KiB"}),
        ("glue", "4497424ms", {"records_per_second": 21918.3, "peak_factor": 1.5, "record_size": "100B"}),
    ],
)
def test_pins_refuse_no_partitions_of_a_bounded_run(engine: str, latency: str, traffic: Document) -> None:
    """The search comes to the partitions from a start that the pinned cores, or limit of a batch, refuse or make dear."""
    document = several({"engine": engine, "latency": latency, "scaling": "fixed", "run": "auto"}, one=traffic)
    del document["streams"]["one"]["mode"]
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    if engine == "emr":
        query = document["jobs"]["job"]["queries"].pop("land-one")
        del query["table"]
        query |= {"kind": "direct", "dead_letters": "dead", "sink": {"kind": "iceberg", "table": "direct"}}
        document["jobs"]["job"]["queries"]["direct"] = query
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk", "tier": "standard"}}})


@pytest.mark.parametrize("factor", [1.005, 1.01])
def test_runs_of_streams_that_are_alike_are_shortened_together(factor: float) -> None:
    traffic = {"records_per_second": 11212.8, "peak_factor": 5, "record_size": "1KiB"}
    job = {"engine": "glue", "latency": "1800000ms", "run_every": "5m"}
    job["catch_up"] = {"outage": "1m", "within": "2h"}
    document = several(job, one=traffic, two=traffic)
    for stream in document["streams"].values():
        del stream["mode"]
        stream |= {"kind": "kafka", "cluster": "main"}
    arn = "arn:aws:kafka:us-east-1:111122223333:cluster/main/12345678-1234-1234-1234-123456789012-1"
    an_easier_environment_is_no_worse(
        document | {"kafka": {"main": {"kind": "msk", "existing": arn}}}, factor
    )


def test_fewer_records_take_no_longer_runs() -> None:
    traffic = {"records_per_second": 2223.7, "record_size": "900B"}
    few = {"records_per_second": 1.8, "peak_factor": 2, "record_size": "1KiB"}
    rate = {"records_per_second_per_core": 6920, "batch_overhead": "2974ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "12183173ms", "rate": rate, "scaling": "fixed", "run_every": "30m"}
    job["catch_up"] = {"outage": "1m", "within": "2h"}
    document = several(
        job,
        one=traffic,
        two=few,
        three={"records_per_second": 1.0, "peak_factor": 1.5, "record_size": "400B"},
    )
    for stream in document["streams"].values():
        stream["mode"] = "on-demand"
    for name, table in (("a", "one"), ("b", "one"), ("c", "three")):
        sink = {"kind": "iceberg", "table": f"derived_{name}"}
        derive = {"kind": "derive", "source": f"landed_{table}", "sink": sink}
        document["jobs"]["job"]["queries"][f"derive-{name}"] = derive
    (_, first), (_, second) = sized(document), sized(quieter(document, 1.01))
    assert first is not None
    assert second is not None
    assert total_cost(second).value <= total_cost(first).value


def test_shards_that_shorten_a_run_are_taken_with_a_looser_sla_too() -> None:
    small = {"records_per_second": 67.9, "peak_factor": 5, "record_size": "4KiB"}
    large = {"records_per_second": 3534.2, "record_size": "4KiB"}
    job = {"engine": "glue", "latency": "3166617ms", "run_every": "30m"}
    document = several(job, one=small, two=large, three=small)
    document["streams"]["two"]["mode"] = "on-demand"
    an_easier_environment_is_no_worse(document, 1.3)


def test_a_pin_of_shards_is_read_as_if_the_plan_had_chosen_it() -> None:
    """What a task holds between two runs decides on the shards of the second stream, and its tasks follow the traffic."""
    job = {"engine": "glue", "latency": "3201693ms", "run_every": "30m"}
    one = {"records_per_second": 1.0, "peak_factor": 2, "record_size": "100KiB"}
    three = {"records_per_second": 55.7, "record_size": "100KiB"}
    document = several(job, one=one, two={"records_per_second": 1942.7, "record_size": "400B"}, three=three)
    document["streams"]["one"]["mode"] = document["streams"]["three"]["mode"] = "on-demand"
    a_pin_changes_nothing(document)


@pytest.mark.parametrize("factor", [1.3, 2])
def test_runs_are_as_many_cores_as_cost_the_least_at_the_average_rate(factor: float) -> None:
    """One executor more costs less, at the average rate that is billed; at the peak it would not."""
    traffic = {"records_per_second": 413.9, "peak_factor": 2, "record_size": "900B"}
    rate = {"records_per_second_per_core": 500, "batch_overhead": "478ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "2617151ms", "rate": rate, "run_every": "30m"}
    document = several(job, one=traffic)
    document["streams"]["one"]["mode"] = "on-demand"
    an_easier_environment_is_no_worse(document, factor)


def test_shards_that_shorten_the_runs_of_one_query_are_searched_for() -> None:
    """With 1 % less traffic only one number of shards was known, so no other was tried: $9.86 more."""
    job = {"engine": "glue", "latency": "7436971ms", "scaling": "fixed", "run_every": "30m"}
    document = several(job, one={"records_per_second": 5763.5, "record_size": "400B"})
    document["jobs"]["job"]["catch_up"] = {"outage": "1m", "within": "2h"}
    an_easier_environment_is_no_worse(document, 1.01)
    costs, made = [], PlansMade()
    for shards in (None, *range(6, 13)):
        document["streams"]["one"]["shards"] = shards
        _, found = sized(document, made)
        costs.append(float("inf") if found is None else total_cost(found).value)
    assert costs[0] == pytest.approx(min(costs))


def test_the_only_number_of_partitions_that_saves_an_executor_is_found_with_a_looser_sla() -> None:
    """With 19 of the small topic the tasks of all queries end together on 268 cores, else on 272; nothing leads from 1 to 19."""
    job = {"engine": "emr", "latency": "3076518ms", "run_every": "30m"}
    job |= {"rate": {"records_per_second_per_core": 1048, "batch_overhead": "1094ms", "basis": "measured"}}
    document = several(
        job,
        one={"records_per_second": 44948.5, "peak_factor": 1, "record_size": "1KiB"},
        two={"records_per_second": 1989.8, "peak_factor": 5, "record_size": "400B"},
        three={"records_per_second": 26970.5, "peak_factor": 1.5, "record_size": "4KiB"},
    )
    document["streams"]["one"]["mode"] = "on-demand"
    del document["streams"]["two"]["mode"]
    document["streams"]["two"] |= {"kind": "kafka", "cluster": "main"}
    document |= {"kafka": {"main": {"kind": "msk", "existing": EXISTING}}}
    (_, tight), (_, loose) = sized(document), sized(looser(document, 2))
    assert tight is not None
    assert loose is not None
    assert loose.jobs["job"].cores.value <= tight.jobs["job"].cores.value


@pytest.mark.parametrize("factor", [1, 1.01])
def test_partitions_that_fill_their_waves_are_searched_for_a_bounded_run(factor: float) -> None:
    traffic = {"records_per_second": 40065.4, "peak_factor": 1, "record_size": "1KiB"}
    rate = {"records_per_second_per_core": 18545, "batch_overhead": "301ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "30m", "run_every": "5m", "scaling": "fixed", "rate": rate}
    document = quieter(several(job, one=traffic), factor)
    del document["streams"]["one"]["mode"]
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    document |= {"kafka": {"main": {"kind": "msk", "tier": "standard"}}}
    made = PlansMade()
    _, found = sized(document, made)
    assert found is not None
    for partitions in range(2, 34):
        document["streams"]["one"]["partitions"] = partitions
        _, pinned = sized(document, made)
        assert pinned is None or total_cost(found).value <= total_cost(pinned).value * (1 + 1e-9)


def test_shards_that_cost_less_in_all_stay_with_pinned_cores() -> None:
    """Two shards more shorten the runs, which saves more than these shards cost."""
    rate = {"records_per_second_per_core": 3539, "batch_overhead": "300ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "5206927ms", "rate": rate, "run_every": "30m"}
    traffic = {"records_per_second": 5848.2, "peak_factor": 1.5, "record_size": "4KiB"}
    a_pin_changes_nothing(several(job, one=traffic))


def test_a_bounded_run_takes_its_cores_on_workers_of_another_size() -> None:
    """More cores that cost less stood on workers of four cores, and the fewest that hold the batches on those of two."""
    rate = {"records_per_second_per_core": 4727, "batch_overhead": "300ms", "basis": "measured"}
    document = several(
        {"engine": "emr", "latency": "3121481ms", "rate": rate, "run_every": "15m"},
        one={"records_per_second": 116.1, "peak_factor": 5, "record_size": "100KiB"},
        two={"records_per_second": 498.9, "peak_factor": 5, "record_size": "1KiB"},
        three={"records_per_second": 2477.4, "peak_factor": 2, "record_size": "100B"},
    )
    streams = document["streams"]
    topic = {"kind": "kafka", "cluster": "main", "existing": True, "partitions": 6}
    streams["two"] = topic | {"traffic": streams["two"]["traffic"]}
    streams["three"]["mode"] = "on-demand"
    sink = {"kind": "iceberg", "table": "derived"}
    derive = {"kind": "derive", "source": "landed_one", "sink": sink}
    document["jobs"]["job"]["queries"]["derive"] = derive
    a_pin_changes_nothing(document | {"kafka": {"main": {"kind": "msk", "existing": EXISTING}}})


@pytest.mark.parametrize(
    "job", [{"latency": "15s", "memory": {"state": "100GiB"}},
            {"latency": "5637823ms", "run_every": "90m", "memory": {"state": "40GiB"}}]
)  # fmt: skip
def test_state_is_divided_among_all_workers(job: Document) -> None:
    """Each was as large as one of the fewest executors for the cores would have to be."""
    a_pin_changes_nothing(
        several({"engine": "emr", **job}, one={"records_per_second": 1.0, "record_size": "100KiB"})
    )


@pytest.mark.parametrize("shared", [False, True])
def test_a_limit_of_the_plan_is_not_refused_with_fewer_partitions(shared: bool) -> None:
    """The search for them began with one, of which no run may have so large a batch, and went no further."""
    job = {"engine": "emr", "latency": "9900209ms", "run_every": "30m", "memory": {"state": "40GiB"}}
    document = several(job, one={"records_per_second": 3.1, "record_size": "100KiB"})
    del document["streams"]["one"]["mode"]
    document["streams"]["one"] |= {"kind": "kafka", "cluster": "main"}
    document |= {"kafka": {"main": {"kind": "msk", "existing": EXISTING}}}
    if shared:
        query = {**document["jobs"]["job"]["queries"]["land-one"], "table": "again"}
        document["jobs"]["again"] = {"engine": "glue", "latency": "15s", "queries": {"land": query}}
    a_pin_changes_nothing(document)


@pytest.mark.parametrize("factor", [1.05, 1.3, 2, 3])
def test_rounding_does_not_decide_on_shards_that_are_full(factor: float) -> None:
    """A run reads the shards in two waves that end exactly when its batches must."""
    traffic = {"records_per_second": 4946.9, "peak_factor": 5, "record_size": "900B", "basis": "measured"}
    query = {
        "kind": "land",
        "source": "stream",
        "schema": "pipelines/clicks/schemas/click.ddl",
        "table": "landed",
    }
    derive = {"kind": "derive", "source": "landed", "sink": {"kind": "iceberg", "table": "derived"}}
    job = {
        "engine": "glue",
        "latency": "1800000ms",
        "run_every": "5m",
        "queries": {"land": query, "derive": derive},
    }
    streams = {"stream": {"kind": "kinesis", "mode": "provisioned", "traffic": traffic}}
    document = {"name": "drawn", "project": "drawn", "region": "us-east-1", "account": "111122223333"}
    asked: Document = document | {"streams": streams, "jobs": {"job": job}}
    (_, first), (_, second) = sized(asked), sized(quieter(asked, factor))
    assert first is not None
    assert second is not None
    assert second.jobs["job"].cores.value <= first.jobs["job"].cores.value


def test_any_job_that_reads_a_stream_may_decide_on_its_shards() -> None:
    """Of jobs that take as many cores to read a stream the first one decided, which cost 5 % more in one order."""
    large = {"records_per_second": 17.6, "record_size": "100KiB"}
    small = {"records_per_second": 2507.1, "peak_factor": 12, "record_size": "100B"}
    document = several({"engine": "glue", "latency": "60000ms"}, large=large)
    other = several({"engine": "emr", "latency": "3993243ms", "run": "bounded"}, large=large, small=small)
    other["jobs"]["job"]["queries"]["land-large"]["table"] = "landed_again"
    document["streams"] = other["streams"]
    document["jobs"]["other"] = other["jobs"]["job"]
    order_and_names_change_nothing(document)


def test_a_run_beside_other_readers_gets_the_shards_that_it_reads_a_period_from() -> None:
    """The plan took the one shard of the other readers, and refused every period: $804 in place of $678."""
    document = several(
        {"engine": "emr"}, one={"records_per_second": 3.6, "peak_factor": 2, "record_size": "100KiB"}
    )
    query = document["jobs"]["job"]["queries"]["land-one"]
    for name, latency in {"job": "23318ms", "often": "66968ms", "seldom": "1757204ms"}.items():
        document["jobs"][name] = {
            "engine": "emr",
            "latency": latency,
            "queries": {"land": {**query, "table": name}},
        }
    document["jobs"]["seldom"]["run"] = "auto"
    an_easier_environment_is_no_worse(document, 1.3)
    del document["jobs"]["seldom"]["run"]
    document["jobs"]["seldom"]["run_every"] = "20m"
    document["streams"]["one"]["shards"] = 3
    with pytest.raises(
        ConfigurationError, match=r"at least 4: land reads in 377\.204 s what arrives in 1200 s"
    ):
        plan(Environment.model_validate(document))


def test_a_stream_that_is_read_as_fast_as_it_delivers_is_planned_beside_a_run() -> None:
    """The share of the readers was divided by what they leave of it, which is nothing."""
    document = several(
        {"engine": "emr", "latency": "361817ms"}, one={"records_per_second": 759.5, "record_size": "4KiB"}
    )
    document["streams"]["one"]["mode"] = "on-demand"
    queries = document["jobs"]["job"]["queries"]
    again = {"land": {**queries["land-one"], "table": "again"}}
    queries["derive"] = {
        "kind": "derive",
        "source": "landed_one",
        "sink": {"kind": "iceberg", "table": "derived"},
    }
    document["jobs"]["seldom"] = {"engine": "glue", "latency": "30m", "run_every": "5m", "queries": again}
    assert verdict(document)[0] != MISSED


def test_the_order_of_streams_that_cost_the_same_decides_nothing() -> None:
    traffics = [
        {"records_per_second": 15.9, "record_size": "100B"},
        {"records_per_second": 4261.6, "record_size": "100B"},
        {"records_per_second": 10.0, "record_size": "900B"},
    ]
    names = ("one", "two", "three")
    document = several(
        {"engine": "emr", "latency": "7077166ms", "run_every": "5m"},
        **dict(zip(names, traffics, strict=True)),
    )
    for name in ("one", "three"):
        del document["streams"][name]["mode"]
        document["streams"][name] |= {"kind": "kafka", "cluster": "main"}
    document["streams"]["two"]["mode"] = "on-demand"
    document |= {"kafka": {"main": {"kind": "msk", "tier": "express"}}}
    for name in ("derive", "more"):
        document["jobs"]["job"]["queries"][name] = {
            "kind": "derive", "source": "landed_two", "sink": {"kind": "iceberg", "table": f"derived_{name}"}
        }  # fmt: skip
    order_and_names_change_nothing(document)


@pytest.mark.parametrize(
    ("job", "one", "two"),
    [({"engine": "glue", "latency": "45m", "rate": (2000, "4s")}, (60, 8, "3KiB"), (15, 8, "3KiB")),
     ({"engine": "emr", "latency": "2h", "rate": (4000, "4s")}, (250, 4, "700B"), (40, 4, "700B")),
     ({"engine": "glue", "latency": "24h", "rate": (5000, "3s")}, (5000, 3, "500B"), (1, 1, "500B"))]
)  # fmt: skip
def test_a_period_is_tried_with_the_shards_that_larger_workers_hold(
    job: Document, one: tuple[float, float, str], two: tuple[float, float, str]
) -> None:
    """The shards of a longer period were those for usual workers, so the chosen number, pinned, gave a cheaper plan: 5 % less."""
    keys = ("records_per_second", "peak_factor", "record_size")
    per_core, overhead = job["rate"]
    rate = {"records_per_second_per_core": per_core, "batch_overhead": overhead, "basis": "measured"}
    document = several(
        {**job, "run": "bounded", "rate": rate},
        one=dict(zip(keys, one, strict=True)),
        two=dict(zip(keys, two, strict=True)),
    )
    for stream in document["streams"].values():
        stream["retention"] = "7d"
    made = PlansMade()
    _, free = sized(document, made)
    assert free is not None
    document["streams"]["one"]["shards"] = free.streams["one"].expected_partitions.value
    _, pinned = sized(document, made)
    assert pinned is not None
    assert total_cost(free).value == pytest.approx(total_cost(pinned).value)
