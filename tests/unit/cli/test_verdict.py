"""Verdicts of plan, simulation and advice follow from their results, and the suggested command works."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from millrace.advisor.advise import advise
from millrace.advisor.findings import Change, Effect, Finding
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.forecasts.what_if import twin_of_application
from millrace.cli.plan.plan_and_validate import simulated_plan_with_warnings
from millrace.cli.plan.report.plan_risks import SimulatedPlan
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
    Verdict,
    risks_largest_first,
    verdict_panel,
)
from millrace.cli.watch.advise_verdict import advice_verdict
from millrace.cli.watch.advised_changes_with_forecasts import forecast_changes
from millrace.config import Environment, environment_names, load
from millrace.config.document.edit_yaml_text import set_value
from millrace.sizing import plan, total_cost
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
from tests.unit.cli.test_command_output import ROOT, in_terminal, millrace
from tests.unit.docs.test_documented_commands import parse_millrace
from tests.unit.sizing.conftest import Loader, from_text, text
from tests.unit.sizing.test_shared_cores import reference

__all__ = ["from_text"]


@pytest.fixture(scope="module", params=environment_names(ROOT))
def found(request) -> SimulatedPlan:
    environment = load(request.param, root=ROOT)
    return simulated_plan_with_warnings(environment, plan(environment))


def kinds(verdict: Verdict) -> dict[str, Risk]:
    return {each.kind: each for each in verdict.risks}


def test_every_risk_concerns_what_the_plan_has_and_its_dollars_are_a_part_of_the_bill(
    found: SimulatedPlan,
) -> None:
    verdict = plan_verdict(found)
    assert verdict.usd_month == pytest.approx(total_cost(found.plan).value)
    assert verdict.risks == risks_largest_first(verdict.risks)
    for risk in verdict.risks:
        assert risk.usd_month is not None
        assert 0 < risk.usd_month <= verdict.usd_month + 0.01
        for each in risk.concerns:
            if each != "total":
                section, name = each.split(".")[:2]
                assert name in getattr(found.plan, section)
    assumed = sum(line.usd for line in found.bill_lines() if line.assumed)
    assert kinds(verdict)["assumed-rates"].usd_month == pytest.approx(assumed)
    assert dollars(assumed) in kinds(verdict)["assumed-rates"].words
    parse_millrace(shlex.split(verdict.command)[1:])


def test_the_next_command_runs(tmp_path: Path) -> None:
    """``prod`` is kept; with the scaling of a job pinned it is at risk, and the pin is named."""
    kept = load("prod", root=ROOT)
    assert plan_verdict(simulated_plan_with_warnings(kept, plan(kept)), "prod").sla.state == "kept"
    file = tmp_path / "pinned.yaml"
    pinned = set_value(
        (ROOT / "environments/prod.yaml").read_text(), ("jobs", "departures", "scaling"), "auto"
    )
    file.write_text(pinned)
    environment = load(file, root=ROOT)
    verdict = plan_verdict(simulated_plan_with_warnings(environment, plan(environment)), str(file))
    assert verdict.risks[0].kind == "late-at-rise"
    assert "jobs.departures.scaling is pinned" in verdict.risks[0].words
    assert verdict.sla.state == "at risk"
    program, *arguments = shlex.split(verdict.command)
    assert program == "millrace"
    done = millrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["verdict"]
    assert said["sla"]["state"] == "missed", "it shows what the verdict says"
    assert said["risks"][0]["concerns"][0].startswith("jobs.departures.queries.")
    parse_millrace(shlex.split(said["next"]["command"])[1:])
    assert said["next"]["command"].endswith(" --fixed")


def test_nothing_is_told_of_what_is_well(from_text: Loader) -> None:
    """A measured stream with room, that says its peak: no warning is left, and what to do next is to deploy."""
    yaml = text(rate="900", sla="60s", per_core="9000", stream="shards: 3", job="").replace(
        "record_size: 100B,", "record_size: 100B, peak_factor: 1,"
    )
    environment = from_text(yaml)
    well = plan_verdict(simulated_plan_with_warnings(environment, plan(environment)))
    assert well.sla.state == "kept"
    assert well.sla.share == 1.0
    assert {each.severity for each in well.risks} <= {"note"}
    guessed = from_text(yaml.replace("basis: measured", "basis: assumed"))
    assert "assumed-rates" in kinds(plan_verdict(simulated_plan_with_warnings(guessed, plan(guessed))))


@pytest.mark.parametrize(
    ("jobs", "more", "severity"), [(6, "", "breach"), (6, ", fan_out: true", None), (2, "", None)]
)
def test_a_shard_answers_so_many_calls_of_all_readers(
    from_text: Loader, jobs: int, more: str, severity: str | None
) -> None:
    """At a trigger of half a second six jobs call twelve times a second, and Kinesis answers five (its quotas)."""
    job = "latency: 1s, rate: {records_per_second_per_core: 5000, batch_overhead: 0.2s, basis: measured}"
    yaml = "project: shop\nstreams: {ticks: {kind: kinesis, traffic: {records_per_second: 100, record_size: 500B}}}\njobs:\n"
    for n in range(jobs):
        land = f"{{kind: land, source: ticks, table: t{n}, schema: pipelines/clicks/schemas/click.ddl{more}}}"
        yaml += f"  job-{n}: {{engine: glue, {job}, queries: {{land-{n}: {land}}}}}\n"
    environment = from_text(yaml)
    found = kinds(plan_verdict(simulated_plan_with_warnings(environment, plan(environment))))
    assert (found["throttled-reads"].severity if "throttled-reads" in found else None) == severity


def test_brokers_without_tls_and_a_plan_above_its_limit_are_risks(from_text: Loader) -> None:
    yaml = text(rate="900", sla="60s", per_core="9000", stream="shards: 3", job="")
    kafka = "kafka: {office: {kind: external, bootstrap_servers: 'b.example.com:9092', authentication: {kind: KIND}}}\n"

    def found(more: str) -> dict[str, Risk]:
        environment = from_text(yaml + more)
        return kinds(plan_verdict(simulated_plan_with_warnings(environment, plan(environment))))

    open_brokers = found(kafka.replace("KIND", "none"))["kafka-without-tls"]
    assert (open_brokers.severity, "cluster office" in open_brokers.words) == ("warning", True)
    assert "kafka-without-tls" not in found(kafka.replace("KIND", "tls"))
    costs = total_cost(plan(from_text(yaml))).value
    assert found(f"governance: {{max_month: {costs - 1}}}\n")["over-limit"].severity == "breach"
    assert "over-limit" not in found(f"governance: {{max_month: {costs + 1}}}\n")


def test_writes_that_no_line_of_the_bill_has_are_a_risk_with_their_number(from_text: Loader) -> None:
    """A DynamoDB table's write requests may cost more than all the rest."""
    sink = "      status: {kind: derive, source: clicks_landed, sink: {kind: SINK}, dead_letters: letters}\n"
    for of_sink, told in (
        (
            "dynamodb, table: pages",
            ["no line of the bill has the DynamoDB write requests of status: up to 2.63 billion a month"],
        ),
        ("iceberg, table: pages", []),
    ):
        line = sink.replace("SINK", of_sink)
        line = line if told else line.replace(", dead_letters: letters", "")
        environment = from_text(text(rate="1000", sla="120s", more=line))
        risks = plan_verdict(simulated_plan_with_warnings(environment, plan(environment))).risks
        assert [risk.words for risk in risks if risk.kind == "unpriced-writes"] == told


def test_the_verdict_names_a_busy_driver() -> None:
    for seconds, busy in ((60, True), (600, False)):
        document = reference("changes-of-40-tables", latency=f"{seconds * 1000}ms")
        environment = Environment.model_validate(document)
        risk = kinds(plan_verdict(simulated_plan_with_warnings(environment, plan(environment)))).get(
            "driver-limit"
        )
        assert (risk is not None) is busy
        if risk is not None:
            assert "driver" in risk.words
            assert risk.concerns == ("jobs.changes",)


def test_a_plan_that_the_simulator_contradicts_is_a_breach(from_text: Loader) -> None:
    environment = from_text(text(rate="990", size="1KiB", sla="60s", per_core="100000"))
    seen = simulated_plan_with_warnings(environment, plan(environment))
    (played,) = seen.played
    assert plan_verdict(seen).sla.state == "kept"
    late = SimulatedPlan(environment, seen.plan, [replace(played, within=0.93412)])
    verdict = plan_verdict(late)
    assert (verdict.sla.state, verdict.sla.share) == ("missed", 0.93412)
    assert verdict.risks[0].kind == "late-at-peak"
    assert verdict.risks[0].severity == "breach"
    assert "93%" in verdict.risks[0].words
    assert verdict.command.startswith("millrace simulate --env advice --job clicks")
    slow = replace(played, catch_up=math.inf, waiting=5.0)
    never = plan_verdict(SimulatedPlan(environment, seen.plan, [slow]))
    assert (never.sla.state, kinds(never)["slow-catch-up"].severity) == ("at risk", "breach")
    assert "catch-up-contradicted" not in kinds(never)
    waits = plan_verdict(SimulatedPlan(environment, seen.plan, [replace(played, waiting=1_234_567.0)]))
    assert "1.23 million records" in kinds(waits)["catch-up-contradicted"].words


@pytest.mark.parametrize(("rate", "state"), [("23500", "kept"), ("23900", "at risk")])
def test_a_backlog_that_a_day_does_not_drain_is_a_risk(from_text: Loader, rate: str, state: str) -> None:
    """Batches of 24,000 records, of which 23,900 have arrived meanwhile: ten minutes of outage take 40 hours, unless the plan may add a core."""
    pinned, free = (from_text(text(rate=rate, job=f"worker: G.1X{more}")) for more in ("\n    cores: 32", ""))
    found = plan_verdict(simulated_plan_with_warnings(pinned, plan(pinned)))
    assert found.sla.state == state
    assert ("within a day: jobs.clicks.cores is pinned" in found.sla.words) == (state == "at risk")
    assert plan_verdict(simulated_plan_with_warnings(free, plan(free))).sla.state == "kept"


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
