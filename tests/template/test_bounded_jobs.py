"""Jobs with bounded runs in the templates: schedule, end of a run, and no cost between runs."""

from __future__ import annotations

from typing import Any

import pytest
from cfnlint import api as cfn_lint

from millrace.config import load
from millrace.sizing.alarms.alarms import alarm_names_silenced_by_stop
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_state_machines import definition

FILE = """\
project: turns
account: "111122223333"
streams:
  glue-clicks: &clicks {kind: kinesis, traffic: {records_per_second: 50, peak_factor: 2, record_size: 500B, basis: measured}}
  emr-clicks: *clicks
jobs:
"""
JOB = """\
  on-{0}:
    engine: {0}
    latency: 15m
    {1}
    scaling: fixed
    restarts_per_hour: 20
    rate: {{records_per_second_per_core: 5000, batch_overhead: 3s, basis: measured}}
    queries:
      land-{0}: {{kind: land, source: {0}-clicks, table: {0}_landed, schema: pipelines/flights/schemas/flight.ddl}}
      out-{0}: {{kind: derive, source: {0}_landed, sink: {{kind: iceberg, table: {0}_out}}}}
"""
JOBS = ("on-glue", "on-emr")


@pytest.fixture(scope="module")
def turns(synthesise: Synthesise, tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    file = tmp_path_factory.mktemp("turns") / "turns.yaml"
    file.write_text(FILE + JOB.format("glue", "run_every: 10m") + JOB.format("emr", "run: auto"))
    return synthesise(load(str(file), root=ROOT))


@pytest.mark.parametrize("job", JOBS)
def test_a_schedule_starts_runs_and_an_expected_end_says_that_it_was_one(turns: Synthesis, job: str) -> None:
    rules = [rule["Properties"] for rule in turns.resources("AWS::Events::Rule", f"job-{job}").values()]
    schedule, ended = sorted(rules, key=lambda rule: "EventPattern" in rule)
    assert schedule["ScheduleExpression"] == "rate(10 minutes)"
    template = ended["Targets"][0]["InputTransformer"]["InputTemplate"]
    assert template == '{"verb": "restart", "reason": "run <run> ended as <state>", "ended": "<state>"}'
    states = definition(turns, job)["States"]
    (due,) = (rule["Condition"] for rule in states["Decide"]["Choices"] if rule["Next"] == "NotDue")
    succeeded = {"on-glue": "SUCCEEDED", "on-emr": "SUCCESS"}[job]
    assert succeeded in ended["EventPattern"]["detail"]["state"]
    assert f"$ended = '{succeeded}'" in due
    assert "< 585000" in due, "a run that took longer than its period is followed at once"
    # Before a second run beside a going one, and after the desired state.
    order = [rule["Next"] for rule in states["Decide"]["Choices"]]
    assert (
        order.index("KeepAlarmsOff")
        < order.index("KeepAlarmsOn")
        < order.index("NotDue")
        < order.index("StartRun")
    )
    assert succeeded in states["Started"]["Choices"][0]["Condition"], (
        "a short run may have ended before anybody looks"
    )
    # Six of the schedule, and as many more as the file allows.
    (often,) = (rule["Condition"] for rule in states["Decide"]["Choices"] if rule["Next"] == "TooOften")
    assert "$recent >= 26" in often


def test_a_run_of_glue_is_of_the_type_that_is_billed_by_the_second(turns: Synthesis) -> None:
    job = turns.the("AWS::Glue::Job", "job-on-glue")
    assert job["Command"]["Name"] == "glueetl"
    assert job["WorkerType"] == "G.1X"
    assert "MaintenanceWindow" not in job
    assert job["ExecutionProperty"]["MaxConcurrentRuns"] == 1
    assert definition(turns, "on-glue")["States"]["ListRuns"]["Arguments"]["MaxResults"] >= 26


def test_a_run_of_emr_is_a_batch_and_no_worker_waits_for_it(turns: Synthesis) -> None:
    call = definition(turns, "on-emr")["States"]["StartRun"]["Arguments"]
    assert (call["Mode"], call["RetryPolicy"]) == ("BATCH", {"MaxAttempts": 1})
    assert "InitialCapacity" not in turns.the("AWS::EMRServerless::Application", "job-on-emr")


@pytest.mark.parametrize("job", JOBS)
def test_one_alarm_tells_of_a_run_that_did_not_start(turns: Synthesis, job: str) -> None:
    assert turns.documents[job]["settings"]["run_every_seconds"] == 600
    mine = {alarm.runbook_heading: alarm for alarm in turns.plan.alarms if alarm.subject == f"job/{job}"}
    assert "no-batch" not in mine
    run = turns.plan.jobs[job].run
    assert run is not None
    seconds = 600 + run.start_seconds.value + run.longest_seconds.value
    assert mine["no-run"].period * mine["no-run"].of >= seconds
    assert mine["no-run"].period * mine["no-run"].of < seconds + 60
    assert alarm_names_silenced_by_stop(turns.plan.alarms, job) == (mine["no-run"].name,)
    assert mine["restarts"].threshold >= 6 + 1
    assert mine["record-age"].threshold in (900, 840)


def test_the_rule_packs_and_the_linter_find_nothing(turns: Synthesis) -> None:
    assert turns.findings == []
    for job in JOBS:
        (file,) = turns.folder.glob(f"*job-{job}.template.json")
        result: Any = cfn_lint.lint_file(file)
        assert [str(match) for match in result if match.rule.severity == "error"] == []
