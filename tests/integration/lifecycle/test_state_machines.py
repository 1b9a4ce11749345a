"""State machines of both engines, executed on LocalStack with every outcome."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from millrace.infra.constructs.state_machine_engine_calls import grace_seconds_from_plan
from millrace.sizing import plan
from tests.integration.lifecycle.conftest import APPLICATION, Done, Machines
from tests.integration.lifecycle.engine_responses import CASES, EMR, GLUE, JOBS, SLOWEST_SECONDS

START = {GLUE: "glue:startJobRun", EMR: "emrserverless:startJobRun"}
STOP = {GLUE: "glue:batchStopJobRun", EMR: "emrserverless:cancelJobRun"}
LIST = {GLUE: "glue:getJobRuns", EMR: "emrserverless:listJobRuns"}

pytestmark = pytest.mark.parametrize("job", JOBS)


ALARMS = {"on": "cloudwatch:enableAlarmActions", "off": "cloudwatch:disableAlarmActions"}


def execute(machines: Machines, job: str, name: str, **more: Any) -> Done:
    if (job, name) in machines.together:
        return machines.together[job, name].result()
    (case,) = (case for case in CASES if (case.job, case.name) == (job, name))
    return machines.run(case, **more)


def wished(done: Done) -> list[str]:
    """What the execution wrote down as wanted."""
    return [call["Value"] for call in done.calls.get("ssm:putParameter", ())]


def silenced(machines: Machines, job: str) -> list[str]:
    queries = machines.names.environment.jobs[job].queries
    return [f"{machines.names.prefix}/job/{job}/{query}/no-batch" for query in queries]


def outcome(done: Done) -> str:
    assert done.status == "SUCCEEDED", (done.error, done.cause, done.path)
    return str(done.output["outcome"])


def test_status_tells_wish_and_run(machines: Machines, job: str) -> None:
    done = execute(machines, job, "status-never-asked")
    assert outcome(done) == "status"
    assert (done.output["desired_state"], done.output["state"], done.output["starts_last_hour"]) == (
        "stopped",
        "NONE",
        0,
    )
    done = execute(machines, job, "status-running")
    assert done.output["message"] == "desired state: running; run run is RUNNING"
    assert (done.output["run"], done.output["job"]) == ("run", machines.names.job(job))


def test_an_unknown_verb_changes_nothing(machines: Machines, job: str) -> None:
    done = execute(machines, job, "unknown-verb")
    assert (done.status, done.error, done.calls) == ("FAILED", "Millrace.UnknownVerb", {})
    assert "start, stop, drain, status, restart" in done.cause


def test_start_begins_a_run_and_waits_until_it_is_running(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start")
    assert outcome(done) == "running"
    assert done.output["run"] == "new"
    assert wished(done) == ["running"]
    # The desired state is written before anything begins, and read again after it has begun.
    assert done.path.index("WantRunning") < done.path.index("StartRun") < done.path.index("Confirm")
    assert len(done.calls[START[job]]) == 1
    # Silence is an alarm again when the run is running, not while it gets there.
    assert done.calls[ALARMS["on"]] == [{"AlarmNames": silenced(machines, job)}]
    assert done.path.index("LookAtRun") < done.path.index("SwitchOnAlarms")
    assert done.output["alarms"] == "on"


def test_a_start_beside_a_running_run_is_none(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-when-running")
    assert outcome(done) == "already-running"
    assert done.output["message"] == "run run is RUNNING already"
    assert START[job] not in done.calls
    assert wished(done) == ["running"]
    assert done.output["alarms"] == "on"


def test_a_state_that_nobody_knows_counts_as_running(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-when-unknown")
    assert outcome(done) == "already-running"
    assert done.output["state"] == "HIBERNATING"


def test_a_start_waits_for_a_run_that_is_ending(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-while-ending")
    assert (done.status, done.error) == ("FAILED", "Millrace.NoEnd")
    assert START[job] not in done.calls
    assert len(done.calls[LIST[job]]) >= 2


def test_two_starts_at_once_give_one_run(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-beside-another")
    # Refused by the engine: it looks again until it sees the other one's run, here never.
    assert done.path.count("StartRun") == len(done.calls[START[job]]) >= 2
    assert done.path[done.path.index("StartRun") + 1] == "WaitForEnd"
    assert (done.status, done.error) == ("FAILED", "Millrace.NoEnd")
    assert done.cause.startswith("no run is listed, and yet no other can be started")
    if job == EMR:
        tokens = {call["ClientToken"] for call in done.calls[START[job]]}
        again = execute(machines, job, "start")
        assert tokens == {call["ClientToken"] for call in again.calls[START[job]]}
        # Of the newest run, however old, so that no hour has a last second; and of the application.
        assert tokens == {f"{APPLICATION}-old"}
        (call,) = execute(machines, job, "start-too-often-by-hand").calls[START[job]]
        assert call["ClientToken"] == f"{APPLICATION}-run0"
        (call,) = execute(machines, job, "start-ends-at-once").calls[START[job]]
        assert call["ClientToken"] == f"{APPLICATION}-first"


@pytest.mark.faults
def test_what_passes_is_tried_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-throttled")
    assert outcome(done) == "running"
    assert len(done.calls[START[job]]) == 3


@pytest.mark.faults
def test_a_run_that_ends_at_once_is_told_with_its_reason(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-ends-at-once")
    assert (done.status, done.error) == ("FAILED", "Millrace.EndedAtOnce")
    assert "FAILED: no such bucket" in done.cause


def test_a_start_is_not_waited_for_without_end(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-never-runs")
    assert (done.status, done.error) == ("FAILED", "Millrace.NoStart")
    assert "SCHEDULED" in done.cause


@pytest.mark.faults
def test_what_is_denied_is_not_tried_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-denied")
    assert done.status == "FAILED"
    # EMR Serverless has no error of its own for what is denied; what its model has is not tried again.
    assert done.error == (
        "Glue.AccessDeniedException" if job == GLUE else "EmrServerless.ValidationException"
    )
    assert len(done.calls[START[job]]) == 1
    assert "Alert" not in done.path


def test_a_stop_of_nothing_says_so_and_is_remembered(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop-when-stopped")
    assert outcome(done) == "stopped"
    assert STOP[job] not in done.calls
    assert wished(done) == ["stopped"]
    assert done.output["alarms"] == "off"


def test_a_stop_never_says_stopped_while_a_run_is_left(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop")
    assert (done.status, done.error) == ("FAILED", "Millrace.NoEnd")
    assert "run run is still RUNNING" in done.cause
    # What nobody asks for again is written down before the run is asked to end.
    assert wished(done) == ["stopped"]
    assert done.path.index("WantStopped") < done.path.index("StopRun")
    # Before the run ends and falls silent, exactly those alarms that would cry out.
    assert done.path.index("SwitchOffAlarms") < done.path.index("StopRun")
    assert done.calls[ALARMS["off"]] == [{"AlarmNames": silenced(machines, job)}]
    first = done.calls[STOP[job]][0]
    if job == GLUE:
        assert first == {"JobName": machines.names.job(job), "JobRunIds": ["run"]}
    else:
        # The slowest batch of the last hours took 200 s: half as long again, and 15 s.
        assert first == {
            "ApplicationId": APPLICATION,
            "JobRunId": "run",
            "ShutdownGracePeriodInSeconds": math.ceil(SLOWEST_SECONDS * 1.5) + 15,
        }
        asked = done.calls["cloudwatch:getMetricData"][0]
        dimensions = [
            {d["Name"]: d["Value"] for d in query["MetricStat"]["Metric"]["Dimensions"]}
            for query in asked["MetricDataQueries"]
        ]
        queries = machines.names.environment.jobs[job].queries
        assert dimensions == [{"job": machines.names.job(job), "query": query} for query in queries]


@pytest.mark.faults
@pytest.mark.slow
def test_alarms_that_cannot_be_reached_do_not_keep_a_job_from_stopping(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop-without-alarms")
    assert len(done.calls[ALARMS["off"]]) == 4
    assert done.calls[STOP[job]]


def test_a_run_that_is_ending_is_not_asked_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop-while-ending")
    assert STOP[job] not in done.calls
    assert "WaitForEnd" in done.path


def test_a_drain_gives_the_longest_grace(machines: Machines, job: str) -> None:
    done = execute(machines, job, "drain")
    assert ("Measure" in done.path) == (job == EMR)
    assert wished(done) == ["stopped"]
    if job == EMR:
        assert done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == 1800


@pytest.mark.parametrize("name", ["restart-not-wanted", "restart-never-asked"])
def test_what_nobody_wants_is_not_started_again(machines: Machines, job: str, name: str) -> None:
    done = execute(machines, job, name)
    assert outcome(done) == "not-wanted"
    assert START[job] not in done.calls
    # A deployment makes alarms with their actions on.
    assert done.calls[ALARMS["off"]] == [{"AlarmNames": silenced(machines, job)}]


def test_a_late_event_beside_a_running_run_starts_nothing(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart-when-running")
    assert outcome(done) == "already-running"
    assert done.output["alarms"] == "on"


def test_after_an_end_that_nobody_asked_for_it_is_started_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart")
    assert outcome(done) == "running"
    # The fifth start within an hour: what began 61 minutes ago counts no more.
    assert done.output["starts_last_hour"] == 4
    assert done.output["reason"] == "run old ended as FAILED"


@pytest.mark.faults
def test_a_crash_loop_ends_with_an_alert(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart-too-often")
    assert (done.status, done.error) == ("FAILED", "Millrace.TooOften")
    assert "started 5 times within an hour (limit 5)" in done.cause
    assert START[job] not in done.calls
    (alert,) = done.calls["sns:publish"]
    assert alert["TopicArn"] == machines.topic
    assert machines.names.job(job) in alert["Subject"]
    assert "Reason of the start: run0 ended" in alert["Message"]
    # A person may try nevertheless.
    assert outcome(execute(machines, job, "start-too-often-by-hand")) == "running"


@pytest.mark.faults
def test_a_restart_that_is_refused_ends_with_an_alert(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart-denied")
    assert done.status == "FAILED"
    assert done.path[-3:] == ["Report", "Alert", "Failed"]
    assert "bad" in done.calls["sns:publish"][0]["Message"]


def test_a_stop_during_a_restart_wins(machines: Machines, job: str) -> None:
    group = "restart-overtaken-by-stop"

    def starting(now: Done) -> bool:
        if "StartRun" in now.path and machines.wanted(job, group) == "running":
            machines.desired_state(job, group, "stopped")
        return False

    done = execute(machines, job, group, until=starting)
    assert "Revoked" in done.path, done.path
    # From there it goes the way of a stop.
    assert done.path[done.path.index("Revoked") + 1] == "Look"
    assert outcome(done) == "stopped"


def test_emr_runs_what_the_launch_document_says(machines: Machines, job: str) -> None:
    if job == GLUE:
        (call,) = execute(machines, job, "start").calls[START[job]]
        assert call == {"JobName": machines.names.job(job)}
        return
    (call,) = execute(machines, job, "start").calls[START[job]]
    assert (call["Mode"], call["ExecutionTimeoutMinutes"]) == ("STREAMING", 0)
    assert call["RetryPolicy"] == {"MaxFailedAttemptsPerHour": 5}
    submit = call["JobDriver"]["SparkSubmit"]
    assert submit["EntryPointArguments"][-2:] == ["--launch-document", machines.documents[job]]
    assert json.dumps(call).count("spark.submit.pyFiles=s3://") == 1
    assert "MonitoringConfiguration" not in json.dumps(call)


def test_emr_only(machines: Machines, job: str) -> None:
    if job == GLUE:
        done = execute(machines, job, "status-running")
        assert done.calls[LIST[job]] == [{"JobName": machines.names.job(job), "MaxResults": 20}]
        return
    done = execute(machines, job, "stop-with-grace")
    assert done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == 1800
    assert "Measure" not in done.path
    done = execute(machines, job, "stop-unmeasured")
    planned = grace_seconds_from_plan(
        plan(machines.names.environment).jobs[job],
        machines.names.environment.jobs[job].latency.total_seconds(),
    )
    assert done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == planned >= 15
    done = execute(machines, job, "drain-too-slow")
    assert (done.status, done.error) == ("FAILED", "Millrace.CannotDrain")
    assert "the slowest batch of the last hours took 1900.5 s" in done.cause
    assert STOP[job] not in done.calls
    # It runs on as if nobody had asked: wanted, and watched.
    assert wished(done) == ["stopped", "running"]
    assert [name for name in done.calls if "AlarmActions" in name] == [ALARMS["off"], ALARMS["on"]]
    done = execute(machines, job, "stop-ended-meanwhile")
    assert done.path[done.path.index("StopRun") + 1] == "WaitForEnd"
    done = execute(machines, job, "many-pages", until=lambda now: len(now.calls.get(LIST[job], ())) >= 3)
    first, second = done.calls[LIST[job]][:2]
    assert first == {"ApplicationId": APPLICATION, "MaxResults": 50}
    assert second == {**first, "NextToken": "page2"}
