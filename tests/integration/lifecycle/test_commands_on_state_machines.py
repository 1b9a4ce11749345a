"""The command line against the real state machines on LocalStack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.lifecycle.conftest import Machines
from tests.integration.lifecycle.engine_responses import CASES, GLUE

ROOT = Path(__file__).resolve().parents[3]
STACK = "flights-local-job-departures"


@pytest.fixture
def case(machines: Machines) -> Iterator[object]:
    """Deploy a job's stack whose output names a machine, with the answers of one case."""
    cloudformation = machines.stack.client("cloudformation")

    def deploy(name: str) -> None:
        (group,) = {case.group for case in CASES if (case.job, case.name) == (GLUE, name)}
        body = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {"StateMachineArn": {"Value": f"{machines.arns[GLUE, group]}#{name}"}},
        }
        cloudformation.create_stack(StackName=STACK, TemplateBody=json.dumps(body))
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 20}
        )

    yield deploy
    cloudformation.delete_stack(StackName=STACK)
    cloudformation.get_waiter("stack_delete_complete").wait(
        StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )


def millrace(machines: Machines, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    environment |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": machines.stack.endpoint,
    }
    return subprocess.run(
        [sys.executable, "-m", "millrace", *arguments, "--env", "local", GLUE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.slow
def test_status_for_people_and_for_scripts(machines: Machines, case: object) -> None:
    case("status-running")  # type: ignore[operator]
    done = millrace(machines, "status")
    assert (done.returncode, done.stderr) == (0, "departures: looking at its runs\n")
    assert done.stdout == "departures: status: desired state: running; run run is RUNNING\n"
    answer = json.loads(millrace(machines, "status", "--json").stdout)
    assert (answer["run"], answer["state"], answer["desired_state"]) == ("run", "RUNNING", "running")
    assert ":execution:departures-asked-running:" in answer["execution"]


@pytest.mark.slow
def test_a_second_start_says_that_it_runs_already(machines: Machines, case: object) -> None:
    case("start-when-running")  # type: ignore[operator]
    done = millrace(machines, "start")
    assert done.returncode == 0
    assert done.stdout == "departures: already-running: run run is RUNNING already\n"
    assert "departures: setting the desired state to running" in done.stderr


@pytest.mark.slow
def test_a_refusal_of_the_engine_is_status_1(machines: Machines, case: object) -> None:
    case("start-denied")  # type: ignore[operator]
    done = millrace(machines, "start")
    assert (done.returncode, done.stdout) == (1, "")
    assert "departures: Glue.AccessDeniedException: no" in done.stderr
    assert "Traceback" not in done.stderr
