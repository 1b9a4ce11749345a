"""Relations that hold between the plans of any environment, and of a plan with a second simulator."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import currently_in_test_context, event

from millrace.config import Environment
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import Plan, plan, total_cost
from millrace.sizing.alternatives.job_planner import JobPlanner, PlansMade
from millrace.sizing.alternatives.partition_candidates import least_job_usd
from millrace.sizing.alternatives.remedies import pins_leave_too_few_cores
from millrace.sizing.alternatives.stream_plans import least_streams_usd
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.jobs import job_plan
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.prices_and_limits import price_table_of_region, service_limits
from millrace.sizing.queries.environment_demands import query_demands_and_findings
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from millrace.sizing.simulation.scenario_model import Outage
from tests.unit.sizing.plain_simulator import PlainQuery, play
from tests.unit.sizing.random_environments import SIZES, Document

INFEASIBLE, MISSED, KEPT = range(3)


def sized(
    document: Document, made: PlansMade | None = None, *, simulated: bool = False
) -> tuple[Environment, Plan | None]:
    """Return an environment and its plan, None if it is refused; by default without the simulation, which changes no size and no dollar.

    Variants of one environment share what was ``made``, as moves do: each would search again for what it has without its pins.
    """
    environment = Environment.model_validate(document)
    try:
        return environment, plan(environment, made, simulated=simulated)
    except ConfigurationError:
        return environment, None


def verdict(document: Document) -> tuple[int, Plan | None]:
    environment, found = sized(document, simulated=True)
    if found is None:
        return INFEASIBLE, None
    return (
        KEPT if all(each.meets_sla for each in simulated_queries_of_plan(environment, found)) else MISSED
    ), found


def contradictions_of_plan(environment: Environment, found: Plan) -> list[str]:
    """Return a line for each promise of a plan that the simulation does not confirm."""
    played = simulated_queries_of_plan(environment, found)
    return [line for each in played for line in each.contradictions()]


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


def known_excess(document: Document, found: Plan) -> float:
    """Dollars that a looser SLA may cost more (``docs/design/plan.md``, trigger): of an executor beside stated state, of more files.

    Of clusters within a hundredth the one with reserve is taken.
    """
    state = any("memory" in job for job in document["jobs"].values())
    clusters = sum(line.usd for cluster in found.clusters.values() for line in cluster.cost)
    return (total_cost(found).value * 0.013 if state else 1.0) + clusters * 0.01


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
        assert total_cost(second).value <= total_cost(first).value * (1 + 1e-9) + known_excess(
            document, first
        )
        if easier["jobs"] == document["jobs"]:
            # Bounded runs take more cores where shorter ones cost less, others where fewer partitions save more than the cores cost.
            for name, job in first.jobs.items():
                bounded = {"run", "run_every"} & document["jobs"][name].keys()
                if not bounded and second.jobs[name].cores.value > job.cores.value:
                    pinned = copy.deepcopy(easier)
                    pinned["jobs"][name]["cores"] = job.cores.value
                    _, as_few = sized(pinned)
                    assert as_few is None or total_cost(as_few).value > total_cost(second).value


def a_pin_changes_nothing(document: Document) -> None:
    made = PlansMade()
    _, first = sized(document, made)
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
        _, second = sized(changed, made)
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


def pins_below_the_work_are_refused(document: Document) -> None:
    """No change of a file is planned that leaves a job fewer cores than its work keeps busy, so a plan must refuse each."""
    made = PlansMade()
    for name in document["jobs"]:
        for pins in ({"cores": 1}, {"cores": 3}, {"cores": 10}, {"max_workers": 2}, {"max_workers": 4}):
            pinned = copy.deepcopy(document)
            pinned["jobs"][name] |= pins
            environment = Environment.model_validate(pinned)
            if pins_leave_too_few_cores(environment, name):
                assert sized(pinned, made)[1] is None


def cores_that_are_not_sized_would_not_be_chosen(document: Document) -> None:
    """Workers that cost more than others whatever memory they need are left out of the search, which changes no plan."""
    _, found = sized(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_plan, "least_workers_usd", lambda *_: 0.0)
        _, whole = sized(document)
    assert (found is None) == (whole is None)
    if found is not None and whole is not None:
        assert plan_as_plain_data(found) == plan_as_plain_data(whole)


def no_plan_costs_less_than_its_bound(document: Document) -> None:
    """A period whose bound is above what another costs is never planned, so a bound that is too high would hide the cheapest."""
    for period in (None, "5m", "30m"):
        changed = copy.deepcopy(document)
        for job in changed["jobs"].values() if period else ():
            job |= {"run": "bounded", "run_every": period}
        try:
            environment, found = sized(changed)
        except ValueError:
            continue  # a job that must run all the time
        if found is None:
            continue
        environment = environment_as_planned(environment, found)
        demands, problems = query_demands_and_findings(environment, tuple(environment.jobs))
        if problems:
            continue
        planner = JobPlanner(environment, demands, price_table_of_region(found.region), PlansMade())
        for name, job in found.jobs.items():
            assert least_job_usd(planner, name) <= sum(line.usd for line in job.cost) + 1e-6
        paid = [
            line.usd
            for each in (found.streams, found.clusters)
            for part in each.values()
            for line in part.cost
        ]
        assert least_streams_usd(planner, demands) <= sum(paid) + 1e-6


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
    environment, found = sized(document, simulated=True)
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
        readers = json.dumps(document["jobs"]).count(f'"source": "{stream}"')
        queries[query] = PlainQuery(
            rate=rate,
            partitions=partitions,
            limit=limit,
            spread=planned.repartition is not None,
            shard_bytes=sizes[traffic["record_size"]] * readers if kinesis else 0.0,
            alone=readers == 1,
            **common,
        )
        if "table" in asked:
            landed[asked["table"]] = (query, rate)
    return queries
