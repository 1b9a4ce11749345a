"""Executions of a job's state machine: start and watch.

The machines decide (``docs/design/run.md#state-machine``); this module calls and watches them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.account.outputs_and_launch_documents import (
    NotDeployedError,
    ignoring_not_found_errors,
    read_stack_outputs,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

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
        arn = read_stack_outputs(aws.client("cloudformation"), stack).get("StateMachineArn")
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
