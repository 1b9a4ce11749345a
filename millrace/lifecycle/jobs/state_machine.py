"""Executions of a job's state machine: start and watch.

The machines decide (``docs/design/run.md#state-machine``); this module calls and watches them. One run with arguments of its
own serves a backfill or a replay of dead letters. Glue lets a job have one run at a time, and the capacity of an EMR Serverless
application is planned for one. So the job is stopped first, and started again after the run, however it ended: its streams
still hold the records that arrived in the meantime.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from millrace.config.aws.pagination import list_all
from millrace.config.engines import ended_run_states
from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    NotDeployedError,
    ignoring_not_found_errors,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.jobs.logs import logged_events

Verb = Literal["start", "stop", "drain", "status", "once"]

_POLL_SECONDS = 1.0

_SETTLE_SECONDS = 30.0
"""Longest time until a new execution is in every answer: DescribeExecution "is eventually consistent" (API reference)."""

_PAGE = {"PageSize": 1000}
"""Most events of one GetExecutionHistory, which may be called some 20 times a second (developer guide, "Service quotas")."""

PHRASES = {
    "WantRunning": "setting the desired state to running",
    "WantStopped": "setting the desired state to stopped",
    "ListRuns": "looking at its runs",
    "StartRun": "starting a run",
    "WaitForStart": "waiting until the run has started",
    "SwitchOffAlarms": "switching off its no-data alarms",
    "SwitchOnAlarms": "switching on its no-data alarms",
    "Measure": "measuring the slowest batch of the last hours",
    "KeepDesiredState": "keeping the desired state running",
    "StopRun": "asking the run to end",
    "WaitForEnd": "waiting until the run has ended",
    "Revoked": "the job was stopped in the meantime: stopping the new run",
}
"""Texts for people when the machine enters a state; other states are not shown."""


@dataclass(frozen=True)
class ExecutionResult:
    """Answer of a state machine.

    Attributes
    ----------
    ok
        Whether it succeeded.
    outcome
        Its outcome, such as ``running``, ``already-running``, ``stopped``, ``status``; else an error's name.
    message
        For people.
    answer
        The complete answer, for scripts.
    """

    job: str
    ok: bool
    outcome: str
    message: str
    answer: dict[str, Any]


def find_state_machine_arn(aws: DeployedEnvironment, job: str) -> str:
    """Find a job's state machine.

    Raises
    ------
    NotDeployedError
        The job's stack is not deployed, or was by a version without state machines.
    AwsError
        AWS refused the request.
    """
    stack = aws.names.stack(f"job-{job}")
    with translating_aws_errors(f"cannot read stack {stack}"):
        arn = aws.job_outputs(job).get("StateMachineArn")
    if arn is None:
        raise NotDeployedError(
            f"stack {stack} was deployed by a version of Millrace without state machines; deploy it again "
            f"(`millrace deploy --env {aws.names.environment.name}`)"
        )
    return arn


def execute_verb(
    aws: DeployedEnvironment,
    job: str,
    verb: Verb,
    *,
    progress: Callable[[str], None],
    grace_seconds: int | None = None,
    reason: str = "asked for on the command line",
    arguments: Sequence[tuple[str, str]] = (),
    poll_seconds: float = _POLL_SECONDS,
) -> ExecutionResult:
    """Run a verb and return its outcome.

    Parameters
    ----------
    progress
        Called with a phrase whenever something new happens.
    grace_seconds
        For ``stop`` and ``drain`` on EMR Serverless, 15 to 1800; by default the machine measures it.
    arguments
        For ``once``: names and values for the entry script; the machine checks them.
    poll_seconds
        Seconds between two looks at the execution.

    Raises
    ------
    NotDeployedError
        There is no such machine.
    AwsError
        AWS refused a call.
    """
    arn = find_state_machine_arn(aws, job)
    client = aws.client("stepfunctions")
    request: dict[str, Any] = {"verb": verb, "reason": reason}
    if grace_seconds is not None:
        request["grace_seconds"] = grace_seconds
    if arguments:
        request["arguments"] = [{"name": name, "value": value} for name, value in arguments]
    with translating_aws_errors(f"cannot start the state machine of {job}"):
        execution = client.start_execution(stateMachineArn=arn, input=json.dumps(request))["executionArn"]
    settled = time.monotonic() + _SETTLE_SECONDS
    with translating_aws_errors(f"cannot read the execution of the state machine of {job}"):
        seen = 0
        while True:
            with ignoring_not_found_errors(
                *(("ExecutionDoesNotExist",) if time.monotonic() < settled else ())
            ):
                result = client.describe_execution(executionArn=execution)
                request = {"executionArn": execution, "PaginationConfig": _PAGE}
                history = list_all(client, "get_execution_history", "events", **request)
                for event in (event for event in history if event["id"] > seen):
                    phrase = PHRASES.get(event.get("stateEnteredEventDetails", {}).get("name"))
                    if phrase is not None:
                        progress(phrase)
                    seen = event["id"]
                # The output may follow the state (DataBiosphere/azul#880).
                if result["status"] != "RUNNING" and (result["status"] != "SUCCEEDED" or "output" in result):
                    return _execution_result(job, execution, result)
            time.sleep(poll_seconds)


def execute_verb_for_answer(
    aws: DeployedEnvironment,
    job: str,
    verb: Verb,
    *,
    progress: Callable[[str], None],
    reason: str,
    arguments: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Run a verb as one step of a longer command, and return its complete answer; the parameters are those of :func:`execute_verb`.

    Raises
    ------
    NotDeployedError
        There is no such machine.
    AwsError
        AWS refused a call, or the machine did not succeed.
    """
    done = execute_verb(
        aws,
        job,
        verb,
        progress=lambda phrase: progress(f"{job}: {phrase}"),
        reason=reason,
        arguments=arguments,
    )
    if not done.ok:
        raise AwsError(
            f"{verb} of {job} failed: {done.outcome}: {done.message}; `millrace status --env "
            f"{aws.names.environment.name} {job}` shows the job's state"
        )
    return done.answer


def _execution_result(job: str, execution: str, description: dict[str, Any]) -> ExecutionResult:
    if description["status"] == "SUCCEEDED":
        answer = {**json.loads(description["output"]), "execution": execution}
        return ExecutionResult(job, True, str(answer["outcome"]), str(answer["message"]), answer)
    error = description.get("error") or description["status"]
    cause = description.get("cause") or f"the execution {execution} ended as {description['status']}"
    answer = {"outcome": error, "message": cause, "execution": execution}
    return ExecutionResult(job, False, str(error), str(cause), answer)


POLL_SECONDS = 10.0

PATIENCE_SECONDS = 60.0
"""Usual longest delay of a line from a run to CloudWatch Logs."""

_run_verb = partial(execute_verb_for_answer, reason="a run once")


@dataclass(frozen=True)
class EndedRun:
    """End of a run.

    Attributes
    ----------
    detail
        The engine's message about a failed run.
    """

    run: str
    state: str
    detail: str

    @property
    def succeeded(self) -> bool:
        """True if the entry script ended with status 0."""
        return self.state in ended_run_states.SUCCEEDED


def run_job_once(
    aws: DeployedEnvironment,
    job: str,
    arguments: Sequence[tuple[str, str]],
    *,
    progress: Callable[[str], None],
    poll_seconds: float = POLL_SECONDS,
) -> EndedRun:
    """Run a job once, instead of its continuous run.

    Parameters
    ----------
    job
        Its logical name.
    arguments
        Names and values for the entry script (``docs/launch-document.md``); a switch has an empty value.
    progress
        Called with a line whenever something new happens.
    poll_seconds
        Seconds between two looks at the run.

    Raises
    ------
    NotDeployedError
        The job is not deployed, or by a version that cannot do this.
    AwsError
        AWS refused, or the job did not stop or start; the message has its state.
    """
    was_to_run = _run_verb(aws, job, "status", progress=progress)["desired_state"] == "running"
    try:
        if was_to_run:
            # Also if it fails: a stop first sets the desired state to stopped.
            _run_verb(aws, job, "stop", progress=progress)
        run = _run_verb(aws, job, "once", progress=progress, arguments=arguments)["run"]
        ended = _wait_for_run(aws, job, run, progress, poll_seconds)
    finally:
        if was_to_run:
            _restart_continuous_run(aws, job, progress)
    return ended


def _restart_continuous_run(aws: DeployedEnvironment, job: str, progress: Callable[[str], None]) -> None:
    try:
        _run_verb(aws, job, "start", progress=progress)
    except (AwsError, NotDeployedError) as error:
        raise AwsError(
            f"{job} is stopped, because it could not be started again ({error}); start it with `millrace "
            f"start --env {aws.names.environment.name} {job}`"
        ) from error


def wait_for_logged_result(
    aws: DeployedEnvironment,
    job: str,
    since: datetime,
    event: str,
    query: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> dict[str, Any] | None:
    """Return the result that a run logged at its end.

    Parameters
    ----------
    since
        Time of the request for the run, UTC.
    event
        ``replayed`` or ``backfilled`` (``docs/launch-document.md``).
    query
        The query of the run.
    patience_seconds
        Longest wait for the line.
    poll_seconds
        Seconds between two looks.

    Returns
    -------
    dict or None
        That event; None where the log does not have it in time, or cannot be read.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            told_of = [each for each in logged_events(aws, job, since, event) if each.get("query") == query]
        except AwsError:
            return None  # the run succeeded; a caller without access to its log gets no result
        if told_of:
            return told_of[-1]
        if time.monotonic() > until:
            return None
        time.sleep(poll_seconds)


def _wait_for_run(
    aws: DeployedEnvironment, job: str, run: str, progress: Callable[[str], None], poll_seconds: float
) -> EndedRun:
    """Wait for the end of a run."""
    with translating_aws_errors(f"cannot read stack {aws.names.stack(f'job-{job}')}"):
        application = aws.job_outputs(job).get("ApplicationId")
    progress(f"run {run} has begun")
    while True:
        with translating_aws_errors(f"cannot read run {run}"):
            if application is None:
                seen = aws.client("glue").get_job_run(JobName=aws.names.job(job), RunId=run)["JobRun"]
                state, detail = seen["JobRunState"], seen.get("ErrorMessage", "")
            else:
                emr = aws.client("emr-serverless")
                seen = emr.get_job_run(applicationId=application, jobRunId=run)["jobRun"]
                state, detail = seen["state"], seen.get("stateDetails", "")
        if state in ended_run_states.ALL:
            return EndedRun(run, state, str(detail))
        time.sleep(poll_seconds)
