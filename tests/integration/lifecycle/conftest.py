"""The state machines of environment ``dev``, as they are synthesised, on LocalStack.

LocalStack has no Glue and no EMR Serverless: the answers of those two are given by its
own file of mocked integrations, one set for each case. SSM and SNS are LocalStack's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.deployment import build
from millrace.config import Names, load
from millrace.sandbox import localstack
from millrace.sandbox.localstack import LocalStack
from millrace.sizing import plan
from tests.integration.lifecycle.cases import CASES, JOBS, Case

ROOT = Path(__file__).resolve().parents[3]
APPLICATION = "00fapplication"


@dataclass(frozen=True)
class Done:
    """An execution that has ended, or was left after a while.

    Attributes
    ----------
    path
        Names of the states in the order in which they were entered.
    calls
        Parameters of the calls, by ``service:action``, each in order.
    """

    status: str
    output: dict[str, Any]
    error: str
    cause: str
    path: list[str]
    calls: dict[str, list[dict[str, Any]]]
    history: list[dict[str, Any]] = field(repr=False)

    def variable(self, state: str, name: str) -> Any:
        """What a state assigned to a variable the first time it was left."""
        for event in self.history:
            left = event.get("stateExitedEventDetails", {})
            if left.get("name") == state and name in left.get("assignedVariables", {}):
                return json.loads(left["assignedVariables"][name])
        raise AssertionError(f"{state} assigned no {name}")


@dataclass(frozen=True)
class Machines:
    """The deployed machines."""

    stack: LocalStack
    arns: dict[str, str]
    names: Names
    topic: str
    documents: dict[str, str]

    def parameter(self, job: str) -> str:
        return f"/{self.names.prefix}/jobs/{job}/wish"

    def wish(self, job: str, value: str | None) -> None:
        ssm = self.stack.client("ssm")
        if value is None:
            ssm.delete_parameters(Names=[self.parameter(job)])
        else:
            ssm.put_parameter(Name=self.parameter(job), Value=value, Type="String", Overwrite=True)

    def wanted(self, job: str) -> str:
        found = self.stack.client("ssm").get_parameter(Name=self.parameter(job))
        return str(found["Parameter"]["Value"])

    def run(self, case: Case, *, until: Callable[[Done], bool] | None = None, seconds: float = 60) -> Done:
        """Execute a case; with ``until``, leave as soon as it holds and stop the execution."""
        client = self.stack.client("stepfunctions")
        if case.wish != "unchanged":
            self.wish(case.job, case.wish)
        execution = client.start_execution(
            stateMachineArn=f"{self.arns[case.job]}#{case.name}", input=json.dumps(case.input)
        )["executionArn"]
        deadline = time.monotonic() + seconds
        while client.describe_execution(executionArn=execution)["status"] == "RUNNING":
            if until is not None and until(done := self._look(client, execution)):
                client.stop_execution(executionArn=execution)
                return done
            if time.monotonic() > deadline:
                path = self._look(client, execution).path
                raise AssertionError(f"still at {path[-3:]} after {seconds} s")
            time.sleep(0.2)
        return self._look(client, execution)

    @staticmethod
    def _look(client: Any, execution: str) -> Done:
        found = client.describe_execution(executionArn=execution)
        pages = client.get_paginator("get_execution_history").paginate(executionArn=execution)
        history = [event for page in pages for event in page["events"]]
        calls: dict[str, list[dict[str, Any]]] = {}
        for event in history:
            call = event.get("taskScheduledEventDetails")
            if call is not None:
                name = f"{call['resourceType'].removeprefix('aws-sdk:')}:{call['resource']}"
                calls.setdefault(name, []).append(json.loads(call["parameters"]))
        return Done(
            status=found["status"],
            output=json.loads(found.get("output") or "{}"),
            error=found.get("error", ""),
            cause=found.get("cause", ""),
            path=[e["stateEnteredEventDetails"]["name"] for e in history if "stateEnteredEventDetails" in e],
            calls=calls,
            history=history,
        )


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("lifecycle")
    mocks = folder / "mocks.json"
    mocks.write_text(json.dumps(mock_file()))
    environment = load("dev", root=ROOT)
    names = Names(environment, environment.account or localstack.ACCOUNT)
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(outdir=str(folder / "out"), context=context, analytics_reporting=False)
    build(app, names=names, plan=plan(environment), root=ROOT)
    app.synth()
    with localstack.running(name="localstack-lifecycle", settings={"SFN_MOCK_CONFIG": str(mocks)}) as stack:
        topic = stack.client("sns").create_topic(Name="alerts")["TopicArn"]
        arns, documents = {}, {}
        for job in JOBS:
            template = json.loads((folder / "out" / f"{names.stack(f'job-{job}')}.template.json").read_text())
            (machine,) = (
                resource["Properties"]
                for resource in template["Resources"].values()
                if resource["Type"] == "AWS::StepFunctions::StateMachine"
            )
            arns[job] = stack.client("stepfunctions").create_state_machine(
                name=job,
                definition=localized(resolve(machine["DefinitionString"], topic)),
                roleArn=f"arn:aws:iam::{localstack.ACCOUNT}:role/machine",
            )["stateMachineArn"]
            documents[job] = template["Outputs"]["LaunchDocument"]["Value"]
        yield Machines(stack, arns, names, topic, documents)


def resolve(value: Any, topic: str) -> str:
    """Do what CloudFormation does with the functions in a definition."""
    if isinstance(value, str):
        return value
    ((function, given),) = value.items()
    if function == "Fn::Join":
        return str(given[0]).join(resolve(part, topic) for part in given[1])
    name = given if isinstance(given, str) else ".".join(given)
    if "Alerts" in name:
        return topic
    if name == "Application.ApplicationId":
        return APPLICATION
    return f"arn:aws:iam::{localstack.ACCOUNT}:role/{name}"


def localized(definition: str) -> str:
    """Name services as LocalStack does, which asks boto for them; AWS writes them without a hyphen."""
    return definition.replace(":aws-sdk:emrserverless:", ":aws-sdk:emr-serverless:").replace(
        ":aws-sdk:cloudwatchlogs:", ":aws-sdk:logs:"
    )


def mock_file() -> dict[str, Any]:
    """Write the cases' answers the way LocalStack reads them."""
    responses: dict[str, Any] = {}
    machines: dict[str, Any] = {job: {"TestCases": {}} for job in JOBS}
    for case in CASES:
        used = {}
        for state, answers in case.answers.items():
            used[state] = f"{case.job}-{case.name}-{state}"
            responses[used[state]] = {str(number): answer for number, answer in enumerate(answers)}
        machines[case.job]["TestCases"][case.name] = used
    return {"StateMachines": machines, "MockedResponses": responses}
