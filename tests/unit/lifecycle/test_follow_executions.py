"""Executions of Step Functions that appear late and in pages are followed to their end."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.jobs import state_machine
from millrace.lifecycle.jobs.state_machine import execute_verb

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:clicks"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:clicks:1"
AT = "2026-11-01T00:00:00Z"
HISTORY: dict[str, Any] = {
    "events": [
        {
            "id": 1,
            "timestamp": AT,
            "type": "PassStateEntered",
            "stateEnteredEventDetails": {"name": "ListRuns"},
        }
    ]
}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """A stub of Step Functions that has just begun an execution."""
    monkeypatch.setattr(state_machine, "find_state_machine_arn", lambda *_: MACHINE)
    make: Any = boto3.client
    stub = Stubber(make("stepfunctions", region_name="us-east-1"))
    stub.add_response("start_execution", {"executionArn": EXECUTION, "startDate": AT})
    stub.activate()
    return stub


def _described(stub: Stubber, status: str, **more: str) -> None:
    answer = {
        "executionArn": EXECUTION,
        "stateMachineArn": MACHINE,
        "startDate": AT,
        "status": status,
        **more,
    }
    stub.add_response("describe_execution", answer)
    stub.add_response("get_execution_history", HISTORY, {"executionArn": EXECUTION, "maxResults": 1000})


def test_an_execution_that_is_not_yet_in_every_answer_is_waited_for(
    aws: DeployedEnvironment, states: Stubber
) -> None:
    """DescribeExecution is eventually consistent (API reference); DataBiosphere/azul#880 met an end without its output."""
    states.add_client_error("describe_execution", "ExecutionDoesNotExist", "Execution Does Not Exist")
    _described(states, "RUNNING")
    _described(states, "SUCCEEDED")
    _described(states, "SUCCEEDED", output=json.dumps({"outcome": "running", "message": "it runs"}))
    here, said = DeployedEnvironment(aws.names, lambda _: states.client), list[str]()
    result = execute_verb(here, "clicks", "start", progress=said.append, poll_seconds=0)
    assert (result.ok, result.outcome, said) == (True, "running", ["looking at its runs"])
    states.assert_no_pending_responses()


def test_an_execution_that_never_appears_is_told(
    aws: DeployedEnvironment, states: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_machine, "_SETTLE_SECONDS", 0.0)
    states.add_client_error("describe_execution", "ExecutionDoesNotExist", "Execution Does Not Exist")
    with pytest.raises(AwsError, match="Execution Does Not Exist"):
        execute_verb(
            DeployedEnvironment(aws.names, lambda _: states.client),
            "clicks",
            "start",
            progress=lambda _: None,
        )
