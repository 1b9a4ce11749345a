"""A job that was stopped for a one-off run is started again, or its stop is reported."""

from __future__ import annotations

import pytest

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.jobs import state_machine
from millrace.lifecycle.jobs.state_machine import EndedRun, run_job_once
from tests.unit.lifecycle.test_jobs_after_deployment import JOB, Deployed, throttled


@pytest.mark.parametrize("end", [throttled("DescribeExecution"), KeyboardInterrupt()])
def test_a_stop_that_cannot_be_watched_leaves_no_job_stopped(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    deployed, runs = Deployed(aws, desired_state="running", ends={f"stop {JOB}": end}), list[object]()
    monkeypatch.setattr(state_machine, "_wait_for_run", lambda *given: runs.append(given))
    with pytest.raises((AwsError, KeyboardInterrupt)):
        run_job_once(deployed.place, JOB, [], progress=lambda _: None)
    assert (deployed.verbs, deployed.desired_state, runs) == (["stop", "start"], "running", [])


def test_a_job_that_stands_still_after_the_run_is_told_with_what_starts_it(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployed(aws, desired_state="running", ends={f"start {JOB}": throttled("StartExecution")})
    monkeypatch.setattr(state_machine, "_wait_for_run", lambda *_: EndedRun("r", "SUCCEEDED", ""))
    with pytest.raises(AwsError, match=r"clicks is stopped.*`millrace start --env minimal clicks`"):
        run_job_once(deployed.place, JOB, [], progress=lambda _: None)
