"""Jobs with bounded runs: cost, SLA at the slow end, and loads for which they do not pay."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import Phase, given, settings

from millrace.config import ConfigurationError, Environment
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.sizing import Plan, plan
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.cost_saving_moves import find_moves
from millrace.sizing.planning import total_cost
from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.expected_cost import expected_usd_figure, largest_monthly_cost
from millrace.sizing.simulation.plan_scenario import scenario_of_job, traffic_by_stream
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from millrace.sizing.simulation.simulation_run import simulate
from tests.unit.sizing.conftest import DERIVE, Loader, text
from tests.unit.sizing.plan_relations import several, sized
from tests.unit.sizing.random_environments import Document, documents

LOW = {"rate": "50", "size": "500B", "per_core": "5000", "overhead": "3s", "job": ""}


def turns(minutes: int, **changes: str) -> str:
    return text(**{**LOW, "job": f"run_every: {minutes}m", **changes})


@pytest.mark.parametrize("more", ["", DERIVE])
def test_a_run_is_billed_from_its_ready_workers_to_its_end(from_text: Loader, more: str) -> None:
    job = plan(from_text(turns(10, sla="15m", more=more))).jobs["clicks"]
    # A batch takes its 3 s and the records of ten minutes, over four cores or as the shard hands them over; the rest, a minute, is assumed.
    assert job.run is not None
    seconds, each = job.run.seconds.value, len(job.queries)
    assert 60 + each * (3 + 50 * 600 / 5000 / 4) <= seconds <= 60.1 + each * (3 + 50 * 600 * 500 / 2**21)
    worker = {"G.1X": 0.44, "G.025X": 0.11}[job.worker]
    (line,) = (line for line in job.cost if line.name == "workers")
    assert line.usd == pytest.approx(2 * worker * 730 * 6 * seconds / 3600, rel=0.01)
    assert "4,380 runs of" in line.why
    assert job.worker == "G.1X", "G.025X is for streaming jobs only"


@pytest.mark.parametrize("minutes", [5, 60, 720, 1440])
def test_the_alarm_on_missing_runs_looks_back_as_long_as_it_says(from_text: Loader, minutes: int) -> None:
    found = plan(from_text(turns(minutes, sla=f"{2 * minutes}m", stream="retention: 7d")))
    (alarm,) = [each for each in found.alarms if each.runbook_heading == "no-run"]
    run = found.jobs["clicks"].run
    assert run is not None
    longest = run.every_seconds.value + run.start_seconds.value + run.longest_seconds.value
    assert longest <= alarm.period * alarm.of < longest + 3600 + 60


@pytest.mark.parametrize("engine", ["glue", "emr"])
@pytest.mark.parametrize(("minutes", "sla"), [(5, "10m"), (10, "15m"), (20, "25m")])
def test_low_loads_cost_much_less_and_busy_ones_gain_nothing(
    from_text: Loader, engine: str, minutes: int, sla: str
) -> None:
    def planned(rate: str, job: str) -> Plan:
        file = text(**{**LOW, "rate": rate, "sla": sla, "job": job}).replace(
            "engine: glue", f"engine: {engine}"
        )
        return plan(from_text(file))

    always, in_turns = "worker: G.1X" * (engine == "glue"), f"run_every: {minutes}m"
    low = [largest_monthly_cost(planned("50", job).jobs["clicks"]) for job in (in_turns, always)]
    assert 0.6 < 1 - low[0] / low[1] < 0.97
    # The shards must deliver the records of a period within a run.
    busy = [total_cost(planned("20000", job)).value for job in (in_turns, always)]
    assert busy[0] > 0.9 * busy[1]


@pytest.mark.parametrize("more", ["", DERIVE])
@pytest.mark.parametrize(
    ("rate", "minutes", "sla"),
    [("50", 10, "14m"), ("2000", 10, "15m"), ("9000", 5, "10m"), ("500", 10, "1h")],
)
def test_what_is_planned_keeps_its_sla_whatever_starts_are_drawn(
    from_text: Loader, rate: str, minutes: int, sla: str, more: str
) -> None:
    environment = from_text(turns(minutes, rate=rate, sla=sla, more=more))
    found = plan(environment)
    seconds = 40.0 * 60 * minutes
    peak = {"clicks": Arrivals.constant(float(rate), seconds)}
    for seed in range(5):
        played = simulate(scenario_of_job(environment, found, "clicks", peak, seed=seed))
        for name, query in found.jobs["clicks"].queries.items():
            assert played.queries[name].ages.oldest <= query.latency_seconds.value
            assert played.queries[name].share_in_time(query.latency_seconds.value, seconds) == 1.0
    # One after the other, and no more is expected than what the plan counts at most.
    run = found.jobs["clicks"].run
    assert run is not None
    assert played.mean_executors / found.jobs["clicks"].executors.value <= run.billed_share * 1.02
    assert (
        expected_usd_figure(environment, found, found.jobs["clicks"]).value
        <= largest_monthly_cost(found.jobs["clicks"]) * 1.02
    )


@pytest.mark.usefixtures("without_remedies")
@pytest.mark.parametrize(
    ("rate", "sla", "more"), [("500", "1h", ""), ("20000", "45m", DERIVE), ("20000", "2h", "")]
)
def test_no_other_number_of_workers_costs_less(from_text: Loader, rate: str, sla: str, more: str) -> None:
    """More executors share the driver, and each is billed for its start: neither the fewest nor the most cost the least."""

    made = PlansMade()

    def cost(file: str) -> float:
        return total_cost(plan(from_text(file), made, simulated=False)).value

    file = turns(30, rate=rate, sla=sla, more=more)
    pinned = [
        file.replace("run_every", f"max_workers: {number}\n    run_every")
        for number in (5, 6, 7, 9, 12, 13, 14, 17, 39)
    ]
    costs = []
    for each in pinned:
        with suppress(ConfigurationError):
            costs.append(cost(each))
    assert cost(file) <= min(costs) * (1 + 1e-9)


def test_the_longest_period_is_told_and_is_one(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan(from_text(turns(14, sla="15m")))
    (problem,) = refused.value.problems
    assert problem.key == "jobs.clicks.run_every"
    assert problem.allowed.startswith("between 5m and 11m"), (
        "a start of 3 min and a batch's 3 s on each side, in whole minutes"
    )
    assert plan(from_text(turns(11, sla="15m"))).jobs["clicks"].run is not None
    with pytest.raises(ConfigurationError) as refused:
        plan(from_text(turns(5, sla="6m")))
    (problem,) = refused.value.problems
    assert (problem.key, problem.allowed.split()[:3]) == ("jobs.clicks.latency", ["more", "than", "483s"])
    for latency in ("1m", "2m", "4m"):
        with pytest.raises(ConfigurationError) as refused:
            plan(from_text(turns(5, sla=latency)))
        (shorter,) = refused.value.problems
        assert shorter.allowed == problem.allowed, "no share of it is below zero"


def test_a_move_of_ten_minutes_or_more_names_runs_and_costs_what_they_are_planned_for(
    from_text: Loader,
) -> None:
    def runs(sla: str) -> list[tuple[object, float]]:
        environment = from_text(text(**{**LOW, "sla": sla}))
        moves = find_moves(environment, plan(environment), lambda *_: True)
        return [(move.new, move.usd) for move in moves if move.key == "jobs.clicks.run"]

    ((new, usd),) = runs("15m")
    assert new == "bounded"
    assert usd == pytest.approx(total_cost(plan(from_text(turns(10, sla="15m")))).value)
    assert runs("9m") == []


def usd(from_text: Loader, engine: str, job: str, **changes: str) -> float:
    """Dollars a month of a plan that keeps its SLA; infinity without one."""
    environment = from_text(
        text(**{**LOW, "job": job, **changes}).replace("engine: glue", f"engine: {engine}")
    )
    try:
        found = plan(environment)
    except ConfigurationError:
        return float("inf")
    return (
        total_cost(found).value
        if all(each.meets_sla for each in simulated_queries_of_plan(environment, found))
        else float("inf")
    )


@pytest.mark.usefixtures("without_remedies")
@pytest.mark.parametrize("engine", ["glue", "emr"])
@pytest.mark.parametrize("more", ["", DERIVE])
@pytest.mark.parametrize(
    ("rate", "sla"), [("50", "15m"), ("50", "1h"), ("2000", "25m"), ("20000", "15m"), ("50", "7m")]
)
def test_auto_is_the_cheapest_of_all_that_keep_the_sla(
    from_text: Loader, engine: str, more: str, rate: str, sla: str
) -> None:
    changes = {"rate": rate, "sla": sla, "more": more}
    always = usd(from_text, engine, "run: continuous", **changes)
    bounded = min(
        usd(from_text, engine, f"run_every: {each}m", **changes) for each in (5, 10, 15, 20, 30, 45)
    )
    assert usd(from_text, engine, "run: auto", **changes) == pytest.approx(min(always, bounded))
    if bounded < float("inf"):
        assert usd(from_text, engine, "run: bounded", **changes) == pytest.approx(bounded)
    if rate != "2000":
        assert (bounded < always) == (rate == "50" and sla != "7m")


def test_auto_leaves_a_deployed_job_as_it_runs_and_one_alone_that_cannot_run_so(from_text: Loader) -> None:
    def runs(job: str, text_: str, *deployed: bool) -> bool:
        sizes = DeployedSizes(in_turns=dict.fromkeys(["clicks"] * len(deployed), *deployed))
        return (
            plan(from_text(text_.replace("run: none", job)).with_deployed_sizes(sizes)).jobs["clicks"].run
            is not None
        )

    low, busy = (text(**{**LOW, "sla": "15m", "job": "run: none", "rate": rate}) for rate in ("50", "20000"))
    assert [runs("run: auto", low, *sizes) for sizes in ((), (True,), (False,))] == [True, True, False]
    assert [runs("run: auto", busy, *sizes) for sizes in ((), (True,), (False,))] == [False, True, False]
    for pin in ("worker: G.025X", "run: continuous", "run: auto\n    worker: G.025X"):
        assert not runs(pin, low)
    assert not runs(
        "run: auto", low.replace("    table: clicks_landed", "    table: clicks_landed\n        trigger: 1m")
    )


def test_no_period_is_told_where_bounded_is_asked_for(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError, match="latency is 7m; allowed: more than 483s"):
        plan(from_text(text(**{**LOW, "sla": "7m", "job": "run: bounded"})))
    with pytest.raises(ConfigurationError, match="run_every is 10m; allowed: nothing with `run: auto`"):
        from_text(text(**{**LOW, "sla": "15m", "job": "run: auto\n    run_every: 10m"}))


@pytest.mark.parametrize("run", ["auto", "bounded"])
def test_runs_are_chosen_of_a_job_that_writes_a_stream_of_the_file(from_text: Loader, run: str) -> None:
    yaml = text(job=f"run: {run}", sla="15m", query="") + (
        "      send: {kind: derive, source: clicks_landed, sink: {kind: kinesis, stream: out}, dead_letters: letters}\n"
    )
    yaml = yaml.replace(
        "streams:\n",
        "streams:\n  out: {kind: kinesis, traffic: {records_per_second: 1000, record_size: 500B, basis: measured}}\n",
    )
    assert plan(from_text(yaml)).jobs["clicks"].queries.keys() == {"land", "send"}


def run_seconds_planned_and_simulated(
    environment: Environment, found: Plan, name: str
) -> tuple[float, float]:
    """Seconds of a run at the average rate without its start: the plan's, and the mean of many that are simulated."""
    run = found.jobs[name].run
    assert run is not None
    every, runs = run.every_seconds.value, range(4, 38)
    arrivals = {
        stream: Arrivals.constant(traffic.records_per_second, 40 * every)
        for stream, traffic in traffic_by_stream(environment, name).items()
    }
    made = scenario_of_job(environment, found, name, arrivals)
    played, together = simulate(made), 0.0
    for stage in (0, 1):
        batches = [
            pair
            for query in made.queries
            if query.stage == stage
            for pair in zip(played.queries[query.name].starts, played.queries[query.name].ends, strict=True)
        ]
        for number in runs:
            within = [pair for pair in batches if number * every <= pair[0] < (number + 1) * every]
            if within:
                together += max(end for _, end in within) - min(start for start, _ in within)
    return run.seconds.value - 60, together / len(runs)


@settings(max_examples=15, phases=(Phase.explicit, Phase.generate))
@given(documents(rated=True))
def test_a_run_takes_as_long_as_it_is_simulated(document: Document) -> None:
    """Of several queries on one stream, and of those with a core for each task, a run was told to take up to twice as long."""
    for job in document["jobs"].values():
        job.pop("run", None)
        job["run_every"], job["latency"] = "20m", "2h"
    environment, found = sized(document)
    for name, job in {} if found is None else found.jobs.items():
        planned, simulated = run_seconds_planned_and_simulated(environment, found, name)
        # What is billed is at least a minute with the start, which is a minute.
        if job.run is not None and job.run.seconds.value > 61:
            assert 0.9 * simulated - 1 <= planned <= 1.2 * simulated + 1, name


def several_readers() -> Document:
    """Three readers of one stream, and two of what one of them lands."""
    rate = {"records_per_second_per_core": 3472, "batch_overhead": "2s", "basis": "measured"}
    traffic = {"records_per_second": 29_957.5, "peak_factor": 2, "record_size": "1200B"}
    document = several({"engine": "emr", "latency": "87m", "run_every": "30m", "rate": rate}, one=traffic)
    queries = document["jobs"]["job"]["queries"]
    for number in (1, 2):
        queries[f"land-{number}"] = {**queries["land-one"], "table": f"landed_{number}"}
        sink = {"kind": "iceberg", "table": f"derived_{number}"}
        queries[f"derive-{number}"] = {"kind": "derive", "source": "landed_one", "sink": sink}
    return document


def several_sizes() -> Document:
    """A large stream, a small one, and one with hardly a record."""
    rate = {"records_per_second_per_core": 11_737, "batch_overhead": "300ms", "basis": "measured"}
    document = several(
        {"engine": "emr", "latency": "30m", "run_every": "5m", "rate": rate},
        one={"records_per_second": 30_979.8, "peak_factor": 2, "record_size": "1KiB"},
        two={"records_per_second": 2_340.9, "record_size": "1KiB"},
        three={"records_per_second": 1.0, "peak_factor": 5, "record_size": "400B"},
    )
    for name in ("one", "two"):
        traffic = document["streams"][name]["traffic"]
        document["streams"][name] = {"kind": "kafka", "cluster": "main", "traffic": traffic}
    sink = {"kind": "iceberg", "table": "derived"}
    document["jobs"]["job"]["queries"]["derive"] = {"kind": "derive", "source": "landed_one", "sink": sink}
    return document | {"kafka": {"main": {"kind": "msk", "tier": "standard"}}}


@pytest.mark.parametrize("document", [several_readers(), several_sizes()], ids=["readers", "sizes"])
def test_a_run_whose_tasks_have_their_own_cores_takes_as_long_as_it_is_simulated(document: Document) -> None:
    """All batches were told to take as long as the slowest, and readers of one stream to read half of its shards at once."""
    environment, found = sized(document)
    assert found is not None
    planned, simulated = run_seconds_planned_and_simulated(environment, found, "job")
    assert planned == pytest.approx(simulated, rel=0.1)
