"""Relations between plans of any environment, and agreement with a second simulator."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, currently_in_test_context, event, given, settings
from hypothesis import strategies as st

from millrace.config import Environment
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import Plan, plan, planning, total_cost
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from millrace.sizing.simulation.scenario_model import Outage
from tests.run import SLOWLY
from tests.unit.sizing.plain_simulator import PlainQuery, play
from tests.unit.sizing.random_environments import EXISTING, SIZES, Document, documents

INFEASIBLE, MISSED, KEPT = range(3)


@pytest.fixture(scope="module", autouse=True)
def without_remedies() -> Iterator[None]:
    """No relation asks what would make a refused environment possible, which takes many plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "findings_with_remedies", lambda _, problems, __: problems)
        yield


def sized(document: Document) -> tuple[Environment, Plan | None]:
    environment = Environment.model_validate(document)
    try:
        return environment, plan(environment)
    except ConfigurationError:
        return environment, None


def verdict(document: Document) -> tuple[int, Plan | None]:
    environment, found = sized(document)
    if found is None:
        return INFEASIBLE, None
    return (
        KEPT if all(each.meets_sla for each in simulated_queries_of_plan(environment, found)) else MISSED
    ), found


def seconds(duration: str) -> float:
    return float(duration.removesuffix("ms")) / 1000


def looser(document: Document, factor: float) -> Document:
    changed = copy.deepcopy(document)
    for job in changed["jobs"].values():
        job["latency"] = f"{round(seconds(job['latency']) * factor * 1000)}ms"
    return changed


def quieter(document: Document, factor: float) -> Document:
    changed = copy.deepcopy(document)
    for stream in changed["streams"].values():
        stream["traffic"]["records_per_second"] /= factor
    return changed


def an_easier_environment_is_no_worse(document: Document, factor: float) -> None:
    before, first = verdict(document)
    if currently_in_test_context():
        event(("infeasible", "missed", "kept")[before])
    assert before != MISSED, "a plan misses its own SLA"
    for easier in (looser(document, factor), quieter(document, factor)):
        after, second = verdict(easier)
        assert after >= before
        if first is None or second is None:
            continue
        assert total_cost(second).value <= total_cost(first).value * (1 + 1e-9)
        if easier["jobs"] == document["jobs"]:
            # Bounded runs take more cores where shorter ones cost less.
            for name, job in first.jobs.items():
                bounded = {"run", "run_every"} & document["jobs"][name].keys()
                assert bounded or second.jobs[name].cores.value <= job.cores.value


def a_pin_changes_nothing(document: Document) -> None:
    _, first = sized(document)
    if first is None:
        return
    # With another period a pin may be worth more: a period that does not keep its promises is not tried with other shards.
    own = copy.deepcopy(document)
    for job in first.jobs.values():
        if own["jobs"][job.name].pop("run", None) is not None and job.run is not None:
            own["jobs"][job.name]["run_every"] = f"{job.run.every_seconds.value * 1000}ms"
    for change in (lambda _: None, *_pins(first)):
        changed = copy.deepcopy(own)
        change(changed)
        _, second = sized(changed)
        assert second is not None, "its own number is refused"
        assert total_cost(second).value == pytest.approx(total_cost(first).value, rel=1e-9)


def _pins(found: Plan) -> list[Callable[[Document], None]]:
    def pin(value: object, *path: str) -> Callable[[Document], None]:
        def change(document: Document) -> None:
            holder = document
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value

        return change

    pins = []
    for job in found.jobs.values():
        pins.append(pin(job.cores.value, "jobs", job.name, "cores"))
        pins.append(pin(job.max_workers.value, "jobs", job.name, "max_workers"))
        for query in job.queries.values():
            path = ("jobs", job.name, "queries", query.name)
            if job.run is None:
                pins.append(pin(f"{round(query.trigger_seconds.value * 1000)}ms", *path, "trigger"))
            if query.records_per_batch is not None:
                pins.append(pin(query.records_per_batch.value, *path, "records_per_batch"))
    for stream in found.streams.values():
        if stream.partitions is not None:
            key = "shards" if stream.kind == "kinesis" else "partitions"
            pins.append(pin(stream.partitions.value, "streams", stream.name, key))
    return pins


def order_and_names_change_nothing(document: Document) -> None:
    turned = copy.deepcopy(document)
    for section in ("streams", "jobs"):
        turned[section] = dict(reversed(turned[section].items()))
    turned["jobs"] = {f"other-{name}": job for name, job in turned["jobs"].items()}
    for job in turned["jobs"].values():
        job["queries"] = dict(reversed(job["queries"].items()))
        job["latency"] = f"{seconds(job['latency']):.3f}s"
    (_, first), (_, second) = sized(document), sized(turned)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert total_cost(second).value == pytest.approx(total_cost(first).value, rel=1e-9)


def two_equal_jobs_cost_twice_one(document: Document) -> None:
    one = copy.deepcopy(document)
    (name, job), *_ = one["jobs"].items()
    one["jobs"] = {name: job}
    two = copy.deepcopy(one)
    # No name of the second job is one of the first.
    again = re.sub(r"\b(stream-|landed_|derived_|direct_|dead_)(?=\d)", r"\1o", json.dumps(job))
    two["jobs"]["other"] = json.loads(again)
    two["streams"] |= {
        stream.replace("stream-", "stream-o"): each for stream, each in document["streams"].items()
    }
    (_, first), (_, second) = sized(one), sized(two)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        costs = [[line.usd for line in each.cost] for each in (first.jobs[name], *second.jobs.values())]
        assert costs[0] == pytest.approx(costs[1])
        assert costs[0] == pytest.approx(costs[2])


def a_steady_state_is_what_each_batch_gives(document: Document) -> None:
    environment, found = sized(document)
    if found is None:
        return
    for name, job in found.jobs.items():
        longest = max(query.trigger_seconds.value for query in job.queries.values())
        rates = {
            each: traffic.records_per_second for each, traffic in traffic_by_stream(environment, name).items()
        }
        seconds = 60 * longest + 1200
        at_peak = {each: Arrivals.constant(2 * rate, seconds) for each, rate in rates.items()}
        rising = {
            each: Arrivals.spikes(rate, 1.5 * rate, 30 * longest, 60 * longest)
            for each, rate in rates.items()
        }
        away = [Outage(20 * longest, 600.0)]
        for made in (
            scenario_of_job(environment, found, name, at_peak),
            scenario_of_job(environment, found, name, at_peak, outages=away),
            scenario_of_job(environment, found, name, rising),
        ):
            brief, whole = simulate(made), simulate(made, each_batch=True)
            assert brief.usd == pytest.approx(whole.usd, rel=1e-9)
            assert brief.executors.tolist() == whole.executors.tolist()
            for query, expected in whole.queries.items():
                result = brief.queries[query]
                for what in ("starts", "ends", "records", "backlog", "oldest_age_by_batch"):
                    assert getattr(result, what) == pytest.approx(getattr(expected, what), rel=1e-6, abs=1e-3)
                assert result.waiting == pytest.approx(expected.waiting, rel=1e-6, abs=1e-2)
                assert result.committed == pytest.approx(expected.committed, rel=1e-6)


def the_plain_simulator_agrees(document: Document) -> None:
    state, found = verdict(document)
    if state != KEPT or found is None:
        return
    for name in (each.name for each in found.jobs.values() if each.run is None):
        queries, day = plain(document, found, name), 24 * 3600.0
        # Each task of several queries is played: a day of short triggers would take minutes.
        seconds = day if len(queries) == 1 else min(day, 120 * max(each.trigger for each in queries.values()))
        at_once = found.jobs[name].vcpu / service_limits()["spark.driver.cores_per_batch"]
        for query, result in play(queries, seconds, found.jobs[name].cores.value, at_once).items():
            assert result.kept, f"{name}.{query}"


def plain(document: Document, found: Plan, name: str) -> dict[str, PlainQuery]:
    """The numbers of a job for the plain simulator."""
    job, sizes = document["jobs"][name], {text: size for size, text in SIZES.items()}
    queries: dict[str, PlainQuery] = {}
    landed: dict[str, tuple[str, float]] = {}
    for query, asked in job["queries"].items():
        planned = found.jobs[name].queries[query]
        common = {
            "overhead": seconds(job["rate"]["batch_overhead"]),
            "per_record": 1 / job["rate"]["records_per_second_per_core"],
            "sla": planned.latency_seconds.value,
            "trigger": planned.trigger_seconds.value,
            "cores": planned.cores.value,
        }
        if asked["kind"] == "derive":
            tables = [asked["source"]]
            if "state" in asked:
                tables.append(asked["state"]["join"]["source"])
            rate = sum(landed[table][1] for table in tables)
            queries[query] = PlainQuery(
                rate=rate, landed_by=tuple(landed[table][0] for table in tables), **common
            )
            continue
        stream = (asked if "source" in asked else asked["routes"]["all"])["source"]
        traffic = document["streams"][stream]["traffic"]
        rate = traffic["records_per_second"] * traffic["peak_factor"]
        partitions = found.streams[stream].expected_partitions.value
        assert planned.records_per_batch is not None
        limit = planned.records_per_batch.value
        if planned.records_per_partition is not None:
            limit = planned.records_per_partition.value * partitions
        kinesis = document["streams"][stream]["kind"] == "kinesis"
        queries[query] = PlainQuery(
            rate=rate,
            partitions=partitions,
            limit=limit,
            spread=planned.repartition is not None,
            shard_bytes=sizes[traffic["record_size"]] if kinesis else 0.0,
            **common,
        )
        if "table" in asked:
            landed[asked["table"]] = (query, rate)
    return queries


PHASES = (Phase.explicit, Phase.generate)
"""Examples take too long to be made smaller."""

RELATIONS = [
    (an_easier_environment_is_no_worse, (documents(), st.sampled_from([1.01, 1.3, 2, 8]))),
    (a_pin_changes_nothing, (documents(),)),
    (order_and_names_change_nothing, (documents(),)),
    (two_equal_jobs_cost_twice_one, (documents(),)),
    (a_steady_state_is_what_each_batch_gives, (documents(),)),
    (the_plain_simulator_agrees, (documents(rated=True),)),
]


@pytest.mark.parametrize(("relation", "drawn"), RELATIONS, ids=[each.__name__ for each, _ in RELATIONS])
def test_it_holds(relation: Callable[..., None], drawn: tuple[st.SearchStrategy[object], ...]) -> None:
    # That one simulates each draw six times, and each time twice; the test below takes turns.
    examples = 5 if relation is a_steady_state_is_what_each_batch_gives else 15
    settings(max_examples=examples, phases=PHASES)(given(*drawn)(relation))()


def several(jobs: Document, **streams: Document) -> Document:
    """Streams of Kinesis, and a job that lands each of them."""
    document = {"name": "drawn", "project": "drawn", "region": "us-east-1", "account": "111122223333"}
    queries = {
        f"land-{name}": {
            "kind": "land",
            "source": name,
            "schema": "pipelines/a.ddl",
            "table": f"landed_{name}",
        }
        for name in streams
    }
    made = {
        name: {"kind": "kinesis", "mode": "provisioned", "traffic": {"basis": "measured", **traffic}}
        for name, traffic in streams.items()
    }
    return document | {"streams": made, "jobs": {"job": {**jobs, "queries": queries}}}


def test_pins_refuse_no_step_to_the_best_design() -> None:
    traffic = {"records_per_second": 2364.9, "peak_factor": 2, "record_size": "4KiB"}
    a_pin_changes_nothing(several({"engine": "emr", "latency": "235210ms"}, one=traffic, two=traffic))


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


def test_shards_that_cost_less_in_all_stay_with_pinned_cores() -> None:
    """Two shards more shorten the runs, which saves more than these shards cost."""
    rate = {"records_per_second_per_core": 3539, "batch_overhead": "300ms", "basis": "measured"}
    job = {"engine": "glue", "latency": "5206927ms", "rate": rate, "run_every": "30m"}
    traffic = {"records_per_second": 5848.2, "peak_factor": 1.5, "record_size": "4KiB"}
    a_pin_changes_nothing(several(job, one=traffic))


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
    environment, found = sized(document)
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


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "drawn"), RELATIONS, ids=[each.__name__ for each, _ in RELATIONS])
def test_it_holds_for_many(
    relation: Callable[..., None], drawn: tuple[st.SearchStrategy[object], ...]
) -> None:
    steady = relation is a_steady_state_is_what_each_batch_gives
    most = 300 if steady else 3000
    # All take an hour, so a relation's day has a share; the first of them are those of the test above, as both draw by one seed.
    examples = most // 25 if os.environ.get(SLOWLY) == "today" else most
    settings(max_examples=examples, phases=PHASES)(given(*drawn)(relation))()


@pytest.mark.parametrize("overhead", [0.5, 3.0])
@pytest.mark.parametrize("share", [1.5, 1.9, 2.0])
def test_what_is_infeasible_is_kept_by_no_design(overhead: float, share: float) -> None:
    """No shards, workers and trigger of a grid keep an SLA that the plan refuses."""
    sla = round(share * overhead, 3)
    traffic = {"records_per_second": 500, "record_size": "1KiB", "basis": "measured"}
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    rate = {"records_per_second_per_core": 1000, "batch_overhead": f"{round(overhead * 1000)}ms"}
    job = {"engine": "glue", "latency": f"{round(sla * 1000)}ms", "rate": rate, "queries": {"land": query}}
    streams = {"clicks": {"kind": "kinesis", "traffic": traffic}}
    document = {"name": "built", "project": "built", "streams": streams, "jobs": {"clicks": job}}
    assert sized(document)[1] is None
    for partitions in (1, 2, 3, 8, 64):
        for cores in (1, 2, 8, 64, 512):
            for part in range(1, 40):
                tried = PlainQuery(500.0, overhead, 1e-3, sla, sla * part / 40, cores, partitions, 1e12)
                assert not play({"land": tried}, 200 * overhead)["land"].kept


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
