"""Jobs that run in turns: what they cost, that their SLA holds at the slow end, and where it does not pay."""

from __future__ import annotations

import pytest

from millrace.config import ConfigurationError
from millrace.sizing import Plan, plan
from millrace.sizing.moves import find_moves
from millrace.sizing.planning import total
from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.expected_cost import expected_usd, largest_monthly_cost
from millrace.sizing.simulation.plan_scenario import scenario
from millrace.sizing.simulation.run import simulate
from tests.unit.sizing.conftest import DERIVE, Loader, text

LOW = {"rate": "50", "size": "500B", "per_core": "5000", "overhead": "3s", "job": ""}


def turns(minutes: int, **changes: str) -> str:
    return text(**{**LOW, "job": f"run_every: {minutes}m", **changes})


@pytest.mark.parametrize("more", ["", DERIVE])
def test_a_run_is_billed_from_its_ready_workers_to_its_end(from_text: Loader, more: str) -> None:
    job = plan(from_text(turns(10, sla="15m", more=more))).jobs["clicks"]
    # A batch takes its 3 s and the records of ten minutes, at best on the whole core; the rest of a run, a minute, is assumed.
    took = [query.batch_seconds.value for query in job.queries.values()]
    assert min(took) >= 3 + 50 * 600 / 5000
    seconds = 60 + sum(took)
    assert job.run is not None
    assert job.run.seconds.value == pytest.approx(seconds, abs=0.1)
    worker = {"G.1X": 0.44, "G.025X": 0.11}[job.worker]
    (line,) = (line for line in job.cost if line.name == "workers")
    assert line.usd == pytest.approx(2 * worker * 730 * 6 * seconds / 3600, rel=0.01)
    assert "4,380 runs of" in line.why
    assert job.worker == "G.1X", "G.025X is for streaming jobs only"


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
    busy = [total(planned("20000", job)).value for job in (in_turns, always)]
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
        played = simulate(scenario(environment, found, "clicks", peak, seed=seed))
        for name, query in found.jobs["clicks"].queries.items():
            assert played.queries[name].ages.oldest <= query.latency_seconds.value
            assert played.queries[name].in_time(query.latency_seconds.value, seconds) == 1.0
    # One after the other, and no more is expected than what the plan counts at most.
    run = found.jobs["clicks"].run
    assert run is not None
    assert played.mean_executors / found.jobs["clicks"].executors.value <= run.share * 1.02
    assert (
        expected_usd(environment, found, found.jobs["clicks"]).value
        <= largest_monthly_cost(found.jobs["clicks"]) * 1.02
    )


def test_the_longest_period_is_told_and_is_one(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan(from_text(turns(14, sla="15m")))
    (problem,) = refused.value.problems
    assert problem.key == "jobs.clicks.run_every"
    assert problem.allowed.startswith("between 183s and 717s"), (
        "a start of 3 min and a batch's 3 s on each side"
    )
    assert plan(from_text(turns(11, sla="15m"))).jobs["clicks"].run is not None
    with pytest.raises(ConfigurationError) as refused:
        plan(from_text(turns(5, sla="6m")))
    (problem,) = refused.value.problems
    assert (problem.key, problem.allowed.split()[:3]) == ("jobs.clicks.latency", ["more", "than", "483s"])


def test_a_move_of_ten_minutes_or_more_names_runs_and_costs_what_they_are_planned_for(
    from_text: Loader,
) -> None:
    def runs(sla: str) -> list[tuple[object, float]]:
        environment = from_text(text(**{**LOW, "sla": sla}))
        moves = find_moves(environment, plan(environment), lambda *_: True)
        return [(move.new, move.usd) for move in moves if move.key == "jobs.clicks.run_every"]

    ((new, usd),) = runs("15m")
    assert new == "10m"
    assert usd == pytest.approx(total(plan(from_text(turns(10, sla="15m")))).value)
    assert runs("9m") == []
