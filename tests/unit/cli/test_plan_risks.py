"""Risks of plans follow from plan and simulation, and the suggested command works."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.cli.plan.plan_and_validate import plan_keeps_all_slas, simulated_plan_with_warnings
from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.shared.verdict import (
    Risk,
    Verdict,
    risks_largest_first,
)
from millrace.config import Environment, environment_names, load
from millrace.config.document.edit_yaml_text import set_value
from millrace.sizing import plan, total_cost
from millrace.sizing.readable_numbers import (
    dollars,
)
from tests.unit.cli.test_command_output import ROOT, millrace
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


def readers(number: int, sla: str, more: str = "") -> str:
    """Jobs that land one stream of a shard, with 0.2 s of fixed cost a batch."""
    job = (
        f"latency: {sla}, rate: {{records_per_second_per_core: 5000, batch_overhead: 0.2s, basis: measured}}"
    )
    yaml = "project: shop\nstreams: {ticks: {kind: kinesis, mode: provisioned, traffic: {records_per_second: 100, record_size: 500B}}}\njobs:\n"
    for n in range(number):
        land = f"{{kind: land, source: ticks, table: t{n}, schema: pipelines/clicks/schemas/click.ddl{more}}}"
        yaml += f"  job-{n}: {{engine: glue, {job}, queries: {{land-{n}: {land}}}}}\n"
    return yaml


@pytest.mark.parametrize(
    ("jobs", "sla", "more", "severity"),
    [
        pytest.param(6, "1s", "", "breach", id="one batch in 1.2 s each is too late"),
        pytest.param(6, "1s", ", fan_out: true", None, id="consumers of their own"),
        pytest.param(2, "1s", "", None, id="few readers"),
        pytest.param(6, "2s", "", None, id="longer triggers than half of the SLA"),
        pytest.param(10, "3s", "", None, id="triggers of 2 s"),
        pytest.param(4, "10s", ", trigger: 500ms", "warning", id="pinned, but in time"),
    ],
)
def test_a_shard_answers_so_many_calls_of_all_readers(
    from_text: Loader, jobs: int, sla: str, more: str, severity: str | None
) -> None:
    """At a trigger of half a second six jobs call twelve times a second, and Kinesis answers five (its quotas)."""
    environment = from_text(readers(jobs, sla, more))
    found = plan_verdict(simulated_plan_with_warnings(environment, sized := plan(environment)))
    throttled = kinds(found).get("throttled-reads")
    assert (throttled.severity if throttled is not None else None) == severity
    assert found.sla.state == ("missed" if severity == "breach" else "kept")
    if severity is None and "fan_out" not in more:
        triggers = [
            each.trigger_seconds.value for job in sized.jobs.values() for each in job.queries.values()
        ]
        assert sum(1 / each for each in triggers) <= 5


def test_changes_that_end_refused_reads_are_plans_that_keep_the_sla(from_text: Loader) -> None:
    verdict = plan_verdict(
        simulated_plan_with_warnings(from_text(readers(6, "1s")), plan(from_text(readers(6, "1s"))))
    )
    words = kinds(verdict)["throttled-reads"].words
    assert "`fan_out: true` of land-0, land-1 and land-2 would keep every SLA" in words
    assert "`latency: 1500ms` of job-0, job-1, job-2 and 3 more would keep every SLA" in words
    yaml = readers(6, "1s")
    for number in range(3):
        yaml = yaml.replace(f"table: t{number},", f"table: t{number}, fan_out: true,")
    for tried in (yaml, readers(6, "1500ms")):
        environment = from_text(tried)
        assert plan_keeps_all_slas(environment, plan(environment))


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
