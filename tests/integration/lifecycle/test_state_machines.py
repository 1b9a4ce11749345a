"""Every way through the state machines of both engines, executed as they are deployed."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.integration.lifecycle.cases import CASES, EMR, GLUE, JOBS
from tests.integration.lifecycle.conftest import APPLICATION, Done, Machines

START = {GLUE: "glue:startJobRun", EMR: "emr-serverless:startJobRun"}
STOP = {GLUE: "glue:batchStopJobRun", EMR: "emr-serverless:cancelJobRun"}
LIST = {GLUE: "glue:getJobRuns", EMR: "emr-serverless:listJobRuns"}

pytestmark = pytest.mark.parametrize("job", JOBS)


def execute(machines: Machines, job: str, name: str, **more: Any) -> Done:
    (case,) = (case for case in CASES if (case.job, case.name) == (job, name))
    return machines.run(case, **more)


def outcome(done: Done) -> str:
    assert done.status == "SUCCEEDED", (done.error, done.cause, done.path)
    return str(done.output["outcome"])


def test_status_tells_wish_and_run(machines: Machines, job: str) -> None:
    done = execute(machines, job, "status-never-asked")
    assert outcome(done) == "status"
    assert (done.output["wish"], done.output["state"], done.output["starts_last_hour"]) == (
        "stopped",
        "NONE",
        0,
    )
    done = execute(machines, job, "status-running")
    assert done.output["message"] == "wanted: running; run run is RUNNING"
    assert (done.output["run"], done.output["job"]) == ("run", machines.names.job(job))


def test_an_unknown_verb_changes_nothing(machines: Machines, job: str) -> None:
    done = execute(machines, job, "unknown-verb")
    assert (done.status, done.error, done.calls) == ("FAILED", "Millrace.UnknownVerb", {})
    assert "start, stop, drain, status, restart" in done.cause


def test_start_begins_a_run_and_waits_until_it_is_running(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start")
    assert outcome(done) == "running"
    assert done.output["run"] == "new"
    assert machines.wanted(job) == "running"
    # The wish is written before anything begins, and read again after it has begun.
    assert done.path.index("WantRunning") < done.path.index("StartRun") < done.path.index("Confirm")
    assert len(done.calls[START[job]]) == 1


def test_a_start_beside_a_running_run_is_none(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-when-running")
    assert outcome(done) == "already-running"
    assert done.output["message"] == "run run is RUNNING already"
    assert START[job] not in done.calls
    assert machines.wanted(job) == "running"


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
    if job == EMR:
        tokens = {call["ClientToken"] for call in done.calls[START[job]]}
        again = execute(machines, job, "start")
        assert tokens == {call["ClientToken"] for call in again.calls[START[job]]}
        after = execute(machines, job, "start-too-often-by-hand")
        (token,) = (call["ClientToken"] for call in after.calls[START[job]])
        assert token.endswith("-run0")
        assert token not in tokens
        assert len(token) <= 64


def test_what_passes_is_tried_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-throttled")
    assert outcome(done) == "running"
    assert len(done.calls[START[job]]) == 3


def test_a_run_that_ends_at_once_is_told_with_its_reason(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-ends-at-once")
    assert (done.status, done.error) == ("FAILED", "Millrace.EndedAtOnce")
    assert "FAILED: no such bucket" in done.cause


def test_a_start_is_not_waited_for_without_end(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-never-runs")
    assert (done.status, done.error) == ("FAILED", "Millrace.NoStart")
    assert "SCHEDULED" in done.cause


def test_what_is_denied_is_not_tried_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "start-denied")
    assert done.status == "FAILED"
    assert done.error.endswith("AccessDeniedException")
    assert len(done.calls[START[job]]) == 1
    assert "Alert" not in done.path


def test_a_stop_of_nothing_says_so_and_is_remembered(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop-when-stopped")
    assert outcome(done) == "stopped"
    assert STOP[job] not in done.calls
    assert machines.wanted(job) == "stopped"


def test_a_stop_never_says_stopped_while_a_run_is_left(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop")
    assert (done.status, done.error) == ("FAILED", "Millrace.NoEnd")
    assert "run run is still RUNNING" in done.cause
    # What nobody asks for again is written down before the run is asked to end.
    assert machines.wanted(job) == "stopped"
    assert done.path.index("WantStopped") < done.path.index("StopRun")
    first = done.calls[STOP[job]][0]
    if job == GLUE:
        assert first == {"JobName": machines.names.job(job), "JobRunIds": ["run"]}
    else:
        # Slowest batch 200 s: half as long again, and 15 s.
        assert first == {
            "ApplicationId": APPLICATION,
            "JobRunId": "run",
            "ShutdownGracePeriodInSeconds": 315,
        }
        (query,) = done.calls["logs:startQuery"]
        assert query["EndTime"] - query["StartTime"] == 3600


def test_a_run_that_is_ending_is_not_asked_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "stop-while-ending")
    assert STOP[job] not in done.calls
    assert "WaitForEnd" in done.path


def test_a_drain_gives_the_longest_grace(machines: Machines, job: str) -> None:
    done = execute(machines, job, "drain")
    assert "Measure" not in done.path
    if job == EMR:
        assert done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == 1800


@pytest.mark.parametrize("name", ["restart-not-wanted", "restart-never-asked"])
def test_what_nobody_wants_is_not_started_again(machines: Machines, job: str, name: str) -> None:
    done = execute(machines, job, name)
    assert outcome(done) == "not-wanted"
    assert START[job] not in done.calls


def test_a_late_event_beside_a_running_run_starts_nothing(machines: Machines, job: str) -> None:
    assert outcome(execute(machines, job, "restart-when-running")) == "already-running"


def test_after_an_end_that_nobody_asked_for_it_is_started_again(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart")
    assert outcome(done) == "running"
    # The fifth start within an hour: what began 61 minutes ago counts no more.
    assert done.output["starts_last_hour"] == 4
    assert done.output["reason"] == "run old ended as FAILED"


def test_a_crash_loop_ends_with_an_alert(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart-too-often")
    assert (done.status, done.error) == ("FAILED", "Millrace.TooOften")
    assert "5 runs began within the hour, 5 are allowed" in done.cause
    assert START[job] not in done.calls
    (alert,) = done.calls["sns:publish"]
    assert alert["TopicArn"] == machines.topic
    assert machines.names.job(job) in alert["Subject"]
    assert "Began with: run0 ended" in alert["Message"]
    # A person may try nevertheless.
    assert outcome(execute(machines, job, "start-too-often-by-hand")) == "running"


def test_a_restart_that_is_refused_ends_with_an_alert(machines: Machines, job: str) -> None:
    done = execute(machines, job, "restart-denied")
    assert done.status == "FAILED"
    assert done.path[-3:] == ["Report", "Alert", "Failed"]
    assert "bad" in done.calls["sns:publish"][0]["Message"]


def test_a_stop_during_a_restart_wins(machines: Machines, job: str) -> None:
    timer = threading.Timer(2.5, machines.wish, (job, "stopped"))
    timer.start()
    done = execute(machines, job, "restart-overtaken-by-stop")
    timer.join()
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
    assert call["Mode"] == "STREAMING"
    assert call["RetryPolicy"] == {"MaxFailedAttemptsPerHour": 5}
    submit = call["JobDriver"]["SparkSubmit"]
    assert submit["EntryPointArguments"][-2:] == ["--launch-document", machines.documents[job]]
    assert json.dumps(call).count("spark.submit.pyFiles=s3://") == 1


def test_emr_only(machines: Machines, job: str) -> None:
    if job == GLUE:
        done = execute(machines, job, "status-running")
        assert done.calls[LIST[job]] == [{"JobName": machines.names.job(job), "MaxResults": 20}]
        return
    done = execute(machines, job, "stop-with-grace")
    assert done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == 1800
    assert "Measure" not in done.path
    done = execute(machines, job, "stop-unmeasured")
    assert "NoMeasure" in done.path
    assert (
        done.calls[STOP[job]][0]["ShutdownGracePeriodInSeconds"] == done.variable("NoMeasure", "grace") >= 15
    )
    done = execute(machines, job, "stop-ended-meanwhile")
    assert done.path[done.path.index("StopRun") + 1] == "WaitForEnd"
    done = execute(machines, job, "many-pages", until=lambda now: len(now.calls.get(LIST[job], ())) >= 3)
    first, second = done.calls[LIST[job]][:2]
    assert first == {"ApplicationId": APPLICATION, "MaxResults": 50}
    assert second == {**first, "NextToken": "page2"}
