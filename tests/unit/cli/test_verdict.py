"""Verdicts of simulations and advice follow from their results, and numbers are as people read them."""

from __future__ import annotations

import io
import math
import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Change, Effect, Finding
from millrace.advisor.forecasts.what_if import twin_of_application
from millrace.cli.plan.plan_and_validate import simulated_plan_with_warnings
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.plan.report.simulate_verdict import (
    age_of_oldest_waiting_record,
    longest_late_length_and_start,
    simulation_verdict,
)
from millrace.cli.shared.verdict import (
    SEVERITIES,
    Risk,
    SlaState,
    risks_largest_first,
    verdict_panel,
)
from millrace.cli.watch.advise_verdict import advice_verdict
from millrace.cli.watch.advised_changes_with_forecasts import forecast_changes
from millrace.config import load
from millrace.sizing import plan
from millrace.sizing.readable_numbers import (
    count,
    dollars,
    duration_text,
    format_bytes,
    format_number,
    join_names,
    percent,
)
from millrace.sizing.simulation import Arrivals, Outage, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, streams_of_job
from tests.unit.advisor.event_logs_with_known_costs import Truth, history
from tests.unit.cli.test_command_output import ROOT, in_terminal
from tests.unit.cli.test_plan_risks import kinds
from tests.unit.docs.test_documented_commands import parse_millrace
from tests.unit.sizing.conftest import from_text

__all__ = ["from_text"]


@given(
    some.lists(
        some.builds(
            Risk,
            some.just("x"),
            some.sampled_from(SEVERITIES),
            some.just(""),
            some.just(()),
            some.none() | some.floats(0, 1e9),
        )
    )
)
def test_risks_are_ranked_by_severity_and_then_by_dollars(risks: list[Risk]) -> None:
    order = [
        (SEVERITIES.index(each.severity), -(each.usd_month or 0.0)) for each in risks_largest_first(risks)
    ]
    assert order == sorted(order)
    assert len(order) == len(risks)


def played(outage: float = 0.0):
    environment = load(str(ROOT / "docs" / "examples" / "spiky.yaml"), ROOT)
    sized = plan(environment)
    arrivals = {
        name: Arrivals.constant(9000, 2400 + outage / 2) for name in streams_of_job(environment, "on-glue")
    }
    away = [Outage(1200, outage)] if outage else []
    return (
        environment,
        sized,
        simulate(scenario_of_job(environment, sized, "on-glue", arrivals, fixed=True, outages=away)),
    )


def test_records_that_wait_too_long_are_late_though_nobody_committed_them() -> None:
    """The job never comes back: of committed records all are in time, and the SLA is missed anyway."""
    environment, sized, result = played(outage=10_000)
    query = result.queries["land-glue"]
    assert query.ages.share_within(60) == 1.0
    assert age_of_oldest_waiting_record(query, result.seconds) == pytest.approx(
        result.seconds - 1200, abs=120
    )
    late = query.arrivals.arrived_before(result.seconds - 60) - query.committed
    assert query.share_in_time(60, result.seconds) == pytest.approx(
        query.committed / (query.committed + late)
    )
    verdict = simulation_verdict(
        environment, sized, {"on-glue": result}, env="e", repeat_command="again", fixed=False
    )
    assert verdict.sla.state == "missed"
    assert verdict.command == "again --fixed"
    assert kinds(verdict)["silent-backlog"].severity == "breach"
    calm = simulation_verdict(
        *played()[:2], {"on-glue": played()[2]}, env="e", repeat_command="again", fixed=True
    )
    assert calm.sla.state == "kept"
    assert "silent-backlog" not in kinds(calm)
    assert "late" not in kinds(calm)


def test_the_longest_spell_of_late_batches() -> None:
    _, _, result = played(outage=300)
    query = result.queries["land-glue"]
    spell, begin = longest_late_length_and_start(query, 60)
    late = query.ends[query.oldest_age_by_batch > 60]
    assert begin + spell == pytest.approx(late.max())
    assert begin <= late.min()
    assert longest_late_length_and_start(query, math.inf) == (0.0, 0.0)


def test_advice_opens_with_what_it_found() -> None:
    short = Truth(swing=0.4, seed=1, name="short", limit=3000, rate=900.0, trigger=4.0, seconds=240.0)
    advice = advise(history([short]))
    assert advice.findings
    unknown = advice_verdict(advice, source="LOG")
    assert unknown.sla.state == "unknown"
    assert unknown.usd_month is None
    assert {each.kind for each in unknown.risks} == {each.kind for each in advice.findings}
    assert unknown.risks[0].severity == "breach"
    parse_millrace(shlex.split(unknown.command)[1:])
    assert " --what-if " in unknown.command


def test_a_foreign_job_is_told_what_the_advice_saves() -> None:
    well = Truth(name="well", rate=500.0, seed=2, seconds=240.0)
    fewer = Change("argument", "Glue job orders", "--number-of-workers", 4, 2)
    idle = Finding("idle-cores", None, "", (), (), (fewer,), Effect("batch duration", "s", 0, 0, 0), 30.0)

    def words(truth: Truth, *findings: Finding) -> str:
        advice = replace(advise(history([truth])), findings=findings)
        ran = twin_of_application(advice.history, 0.44).forecast_what_if((), 3)
        return advice_verdict(advice, AdvisedJob("Glue job orders", 100.0, {}, "glue"), ran).cost_words

    assert words(well, idle) == "for all its machines; $30.00 less with --number-of-workers=2"
    assert words(well, replace(idle, dollars_a_month=None)) == words(well) == "for all its machines"
    # Not while a backlog grows, or may.
    assert (
        words(replace(well, limit=3000), idle) == words(replace(SILENT, seconds=240.0), idle) == words(well)
    )


class Promised(AdvisedJob):
    """Somebody said how old records may be."""

    seconds = 0.0

    def latency_limit_seconds(self, query: object) -> float:
        del query
        return self.seconds


@pytest.mark.parametrize(("factor", "state"), [(1.1, "kept"), (1.0, "at risk"), (0.9, "missed")])
def test_ages_out_of_a_log_are_held_against_the_sla(
    factor: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = advise(history([Truth(name="well", rate=500.0, seed=2, seconds=240.0)]))
    twin = twin_of_application(advice.history, 0.44)
    ran = twin.forecast_what_if(())
    assert ran.queries["well"].keeps_up
    oldest = ran.queries["well"].figures["oldest"]
    bound = {"kept": oldest.high, "at risk": (oldest.low + oldest.high) / 2, "missed": oldest.low}[state]
    monkeypatch.setattr(Promised, "seconds", bound * factor)
    assert advice_verdict(advice, Promised(), ran).sla.state == state
    short = advise(history([Truth(name="short", limit=3000, rate=900.0, trigger=4.0, seconds=240.0)]))
    behind = twin_of_application(short.history, 0.44)
    said = advice_verdict(short, Promised(), behind.forecast_what_if(())).sla
    assert (said.state, said.words) == (
        "missed",
        "the backlog of short grows, and with it the age of records",
    )


@pytest.mark.slow
def test_it_comes_first_in_a_terminal_and_is_narrow_enough() -> None:
    for columns in (80, 120):
        lines = [line.rstrip("\r") for line in in_terminal(columns, "plan", "--env", "prod").split("\n")]
        assert lines[0].startswith(" ─ VERDICT ")
        assert lines[1].startswith("  flights-prod  ")
        assert max(map(len, lines)) <= columns
        top = "\n".join(
            lines[: next(n for n, line in enumerate(lines) if n and re.fullmatch(" *─+ *", line))]
        )
        assert "✔ kept" in top
        assert "▲ warning" in top
        assert "\n  millrace bench bookings --env prod" in top, "in one piece"


def test_numbers_as_people_read_them() -> None:
    assert [format_number(each) for each in (1_234_567, 12_345, 999_999.9, 0.25, 3)] == [
        *("1.23 million", "12,345", "1 million", "0.25", "3")
    ]
    assert [format_bytes(each) for each in (512, 13_314_398_617, 1024**2 - 1, 5e15)] == [
        *("512 B", "12.4 GiB", "1 MiB", "4.44 PiB")
    ]
    assert [duration_text(each) for each in (200, 0.25, 4.25, 60, 7199.9, 7199, 90_000, math.inf)] == [
        *("3 min 20 s", "250 ms", "4.2 s", "1 min", "2 h", "1 h 59 min", "1 day 1 h", "forever")
    ]
    assert [dollars(each) for each in (1234.4, 12.4, 99.999)] == ["$1,234", "$12.40", "$100"]
    assert [percent(each) for each in (0.34, 0.99996, 1.0, 0.0004, 0.0)] == [
        "34%",
        "99.9%",
        "100%",
        "<0.1%",
        "0%",
    ]
    assert [
        count(n, noun) for n, noun in ((1, "shard"), (2, "shard"), (0, "query"), (2, "batch"), (1, "day"))
    ] == [*("1 shard", "2 shards", "0 queries", "2 batches", "1 day")]
    assert join_names("abcd") == "a, b, c and d"
    assert join_names("abcde") == "a, b, c and 2 more"


@given(some.floats(0, 1))
def test_a_share_that_is_not_all_is_never_told_as_all(share: float) -> None:
    assert (percent(share) == "100%") == (share == 1.0)
    assert (percent(share) == "0%") == (share == 0.0)


def test_a_path_is_quoted_in_the_command() -> None:
    environment = load("minimal", root=ROOT)
    words = shlex.split(
        plan_verdict(simulated_plan_with_warnings(environment, plan(environment)), "a b/my plan.yaml").command
    )
    assert words[words.index("--env") + 1] == "a b/my plan.yaml"


def test_the_command_stands_before_its_explanation_in_a_narrow_terminal() -> None:
    result = plan_verdict(
        simulated_plan_with_warnings(environment := load("prod", root=ROOT), plan(environment)), "prod"
    )
    console = Console(width=60, record=True, file=io.StringIO(), force_terminal=True)
    console.print(*verdict_panel(result, terminal=True))
    shown = console.export_text()
    assert shown.index(result.command) < shown.index(" ".join(result.why.split()[:4]))


SILENT = Truth(name="silent", limit=10_000, rate=1500.0, swing=0.0, offsets=False)
"""It takes 1,000 of 1,500 records a second, and its source reports neither."""


def sla_of(
    *truths: Truth, seconds: float, monkeypatch: pytest.MonkeyPatch, env: str | None = None
) -> SlaState:
    monkeypatch.setattr(Promised, "seconds", seconds)
    advice = advise(history(truths))
    told = forecast_changes(advice, Promised(), (), None)
    return advice_verdict(advice, Promised(), *told.forecasts[:1], env=env).sla


def test_an_sla_is_not_kept_where_nothing_tells_how_many_records_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = sla_of(SILENT, seconds=60.0, monkeypatch=monkeypatch)
    assert (said.state, said.words) == (
        "unknown",
        "batches of silent reach their limit, and its source does not report how many records wait",
    )
    # Records are at least as old as in the simulation.
    assert sla_of(SILENT, seconds=1.0, monkeypatch=monkeypatch).state == "missed"
    well = replace(SILENT, limit=None, swing=0.3)
    assert sla_of(well, seconds=60.0, monkeypatch=monkeypatch).state == "kept"


def test_an_sla_is_not_kept_by_some_of_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    well, short = Truth(name="well", rate=500.0), Truth(name="short", seconds=40.0)
    for truths in ([short], [well, short]):
        said = sla_of(*truths, seconds=60.0, monkeypatch=monkeypatch, env="prod")
        assert (said.state, said.words) == (
            "unknown",
            "batches of short are too few, or too far apart, to be simulated",
        )


def test_an_sla_that_is_missed_while_the_backlog_falls_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    drains = Truth(name="drains", limit=15_000, swing=0.0, waiting=300_000, per_record=1e-5, seconds=400.0)
    said = sla_of(drains, seconds=60.0, monkeypatch=monkeypatch)
    assert said.state == "missed"
    assert said.words.endswith(" of 1 min, while its backlog falls")


def test_an_environment_that_is_given_is_not_asked_for() -> None:
    advice = advise(history([Truth(seconds=40.0)]))
    assert advice_verdict(advice, env="prod").sla.words == "no SLA of its queries is in prod"


def test_runs_of_one_query_are_one_query() -> None:
    ran = history([Truth(limit=3000, rate=900.0)] * 2)
    said = advice_verdict(advise(ran))
    assert " batches of 1 query in " in said.subject
    assert [each.concerns for each in said.risks] == [("land",)] * len(said.risks)
    assert not [each for each in said.risks if "Also" in each.words]


@pytest.mark.parametrize(("limit", "severity"), [(15_000, "warning"), (10_000, "warning"), (5000, "breach")])
def test_a_limit_is_a_breach_only_while_the_backlog_grows(limit: int, severity: str) -> None:
    """1,000 records arrive each second of a trigger of ten, and 300,000 wait."""
    ran = history([Truth(limit=limit, swing=0.0, waiting=300_000, per_record=1e-5, seconds=400.0)])
    (risk,) = advice_verdict(advise(ran)).risks
    assert (risk.kind, risk.severity) == ("silent-backlog", severity)
