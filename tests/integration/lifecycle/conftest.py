"""The state machines of environment ``dev``, as they are synthesised, on LocalStack.

LocalStack has no Glue and no EMR Serverless. What is to happen only here and there is given
by its own file of mocked integrations, one set for each case; whole stories are played by
the two engines of ``simulated_engines.py``. SSM, SNS and CloudWatch are LocalStack's.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from millrace.config import Environment, Names, load
from millrace.infra.environment_stacks import build_stacks
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sizing import Plan, plan
from millrace.sizing.alarms.alarms import alarm_names_silenced_by_stop
from millrace.sizing.alarms.reported_metrics import metric_namespace
from tests.integration.lifecycle import deployed_shop as shop_module
from tests.integration.lifecycle.engine_responses import (
    BOUNDED,
    BOUNDED_CASES,
    CASES,
    EMR,
    JOBS,
    SLOWEST_SECONDS,
    Case,
)
from tests.integration.lifecycle.simulated_engines import Engines, serving

ROOT = Path(__file__).resolve().parents[3]
APPLICATION = "00fapplication"
AT_ONCE = 6
"""Executions at a time: they wait more than they compute."""


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
    """The machines as they are deployed, one for each group of cases, with a parameter of its own."""

    stack: LocalStack
    arns: dict[tuple[str, str], str]
    names: Names
    topic: str
    documents: dict[str, str]
    together: dict[tuple[str, str], Future[Done]] = field(default_factory=dict)

    def parameter(self, job: str, group: str) -> str:
        return f"{wish_of(self.names, job)}/{group}"

    def desired_state(self, job: str, group: str, value: str | None) -> None:
        ssm = self.stack.client("ssm")
        if value is None:
            ssm.delete_parameters(Names=[self.parameter(job, group)])
        else:
            ssm.put_parameter(Name=self.parameter(job, group), Value=value, Type="String", Overwrite=True)

    def wanted(self, job: str, group: str) -> str:
        result = self.stack.client("ssm").get_parameter(Name=self.parameter(job, group))
        return str(result["Parameter"]["Value"])

    def run(self, case: Case, *, until: Callable[[Done], bool] | None = None, seconds: float = 120) -> Done:
        """Execute a case; with ``until``, leave as soon as it holds and stop the execution."""
        client = self.stack.client("stepfunctions")
        execution = client.start_execution(
            stateMachineArn=f"{self.arns[case.job, case.group]}#{case.name}", input=json.dumps(case.input)
        )["executionArn"]
        deadline = time.monotonic() + seconds
        while client.describe_execution(executionArn=execution)["status"] == "RUNNING":
            if until is not None and until(done := self._look(client, execution)):
                client.stop_execution(executionArn=execution)
                return done
            if time.monotonic() > deadline:
                path = self._look(client, execution).path
                raise AssertionError(f"still at {path[-3:]} after {seconds} s")
            time.sleep(0.5)
        return self._look(client, execution)

    @staticmethod
    def _look(client: Any, execution: str) -> Done:
        response = client.describe_execution(executionArn=execution)
        pages = client.get_paginator("get_execution_history").paginate(executionArn=execution)
        history = [event for page in pages for event in page["events"]]
        calls: dict[str, list[dict[str, Any]]] = {}
        for event in history:
            call = event.get("taskScheduledEventDetails")
            if call is not None:
                name = f"{call['resourceType'].removeprefix('aws-sdk:')}:{call['resource']}"
                calls.setdefault(name, []).append(json.loads(call["parameters"]))
        return Done(
            status=response["status"],
            output=json.loads(response.get("output") or "{}"),
            error=response.get("error", ""),
            cause=response.get("cause", ""),
            path=[e["stateEnteredEventDetails"]["name"] for e in history if "stateEnteredEventDetails" in e],
            calls=calls,
            history=history,
        )


@pytest.fixture(scope="package")
def engines() -> Iterator[Engines]:
    with serving(Engines()) as both:
        yield both


@pytest.fixture(scope="package")
def stack(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """One LocalStack for all of this folder: with the cases' answers, and with the two engines."""
    mocks = tmp_path_factory.mktemp("lifecycle") / "mocks.json"
    mocks.write_text(json.dumps(mock_file()))
    with localstack.running_localstack(
        name="localstack-lifecycle",
        settings={"SFN_MOCK_CONFIG": str(mocks), "ENGINES_URL": engines.url},
        script=Path(__file__).with_name("localstack_forwarder.py"),
    ) as running:
        yield running


@pytest.fixture(scope="package")
def machines(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    result = created(stack, tmp_path_factory.mktemp("machines"), load("dev", root=ROOT), CASES)
    make_alarms(stack, result.names, plan(result.names.environment))
    make_metrics(stack, result.names)
    pool = ThreadPoolExecutor(AT_ONCE)
    for case in CASES:
        if not case.by_hand:
            result.together[case.job, case.name] = pool.submit(result.run, case)
    yield result
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="package")
def bounded_machines(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Machines of jobs with bounded runs."""
    folder = tmp_path_factory.mktemp("bounded")
    file = folder / "bounded.yaml"
    file.write_text(BOUNDED)
    return created(stack, folder / "out", load(str(file), root=ROOT), BOUNDED_CASES)


def created(stack: LocalStack, folder: Path, environment: Environment, cases: Sequence[Case]) -> Machines:
    """Create the machines of the jobs of some cases, with what is wanted before each."""
    names, planned = Names(environment, environment.account or localstack.ACCOUNT), plan(environment)
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(outdir=str(folder), context=context, analytics_reporting=False)
    build_stacks(app, names=names, plan=planned, root=ROOT)
    app.synth()
    topic = stack.client("sns").create_topic(Name="alerts")["TopicArn"]
    arns, documents = {}, {}
    for job in dict.fromkeys(case.job for case in cases):
        template = json.loads((folder / f"{names.stack(f'job-{job}')}.template.json").read_text())
        (machine,) = (
            resource["Properties"]
            for resource in template["Resources"].values()
            if resource["Type"] == "AWS::StepFunctions::StateMachine"
        )
        definition = resolve(machine["DefinitionString"], topic)
        assert f'"{wish_of(names, job)}"' in definition
        for group in {case.group for case in cases if case.job == job}:
            own = definition.replace(f'"{wish_of(names, job)}"', f'"{wish_of(names, job)}/{group}"')
            arns[job, group] = stack.client("stepfunctions").create_state_machine(
                name=f"{job}-{group}",
                definition=own,
                roleArn=f"arn:aws:iam::{localstack.ACCOUNT}:role/machine",
            )["stateMachineArn"]
        documents[job] = template["Outputs"]["LaunchDocument"]["Value"]
    result = Machines(stack, arns, names, topic, documents)
    for case in cases:
        result.desired_state(case.job, case.group, case.desired_state)
    return result


@pytest.fixture(scope="package")
def shop(
    stack: LocalStack, engines: Engines, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[shop_module.Shop]:
    """The small environment, deployed twice: to an account that is not bootstrapped, and to one that is."""
    file = tmp_path_factory.mktemp("shop") / "shop.yaml"
    file.write_text(shop_module.ENVIRONMENT)
    names = Names(load(str(file), root=ROOT), localstack.ACCOUNT)

    def play(job: str) -> None:
        """Write what docs/metrics.md promises: a slow batch of before, and a trigger of the next minute."""
        now = time.time()
        minute = math.ceil(now / 60) * 60
        own = [
            query
            for name, settings in load(str(file), root=ROOT).jobs.items()
            for query in settings.queries
            if names.job(name) == job
        ]
        if not own:
            return  # of another environment
        (query,) = own
        dimensions = [{"Name": "job", "Value": job}, {"Name": "query", "Value": query}]
        values = {
            "Triggers": (minute, 1),
            "RecordAge": (minute, shop_module.AGE_SECONDS),
            "BatchDuration": (now - 60, shop_module.SLOWEST_SECONDS),
        }
        stack.client("cloudwatch").put_metric_data(
            Namespace=metric_namespace(job),
            MetricData=[
                {
                    "MetricName": name,
                    "Dimensions": dimensions,
                    "Timestamp": datetime.fromtimestamp(moment, UTC),
                    "Value": value,
                }
                for name, (moment, value) in values.items()
            ],
        )

    engines.plays = play
    before = shop_module.millrace(stack, "deploy", "--env", str(file), "--yes")
    bootstrap = ["cdklocal", "bootstrap", f"aws://{localstack.ACCOUNT}/{stack.region}"]
    subprocess.run(
        bootstrap, cwd=file.parent, env=stack.environment_variables(), check=True, capture_output=True
    )
    first = shop_module.millrace(stack, "deploy", "--env", str(file), "--yes")
    yield shop_module.Shop(file, stack, names, before, first)
    engines.plays = lambda _: None


def wish_of(names: Names, job: str) -> str:
    """The parameter of the deployed machine."""
    return f"/{names.prefix}/jobs/{job}/wish"


def make_alarms(stack: LocalStack, names: Names, planned: Plan) -> None:
    """Make the alarms whose actions the machines switch."""
    for job in JOBS:
        for alarm in alarm_names_silenced_by_stop(planned.alarms, job):
            stack.client("cloudwatch").put_metric_alarm(
                AlarmName=f"{names.prefix}/{alarm}",
                Namespace=metric_namespace(names.job(job)),
                MetricName="Triggers",
                Statistic="Sum",
                Period=3600,
                EvaluationPeriods=1,
                Threshold=1,
                ComparisonOperator="LessThanThreshold",
            )


def make_metrics(stack: LocalStack, names: Names) -> None:
    """Tell of batches: the slowest in the hours that count, and a slower one before."""
    now = datetime.now(UTC)
    for query, seconds, hours in (("land-flights", SLOWEST_SECONDS, 3), ("land-flights", 900, 9)):
        stack.client("cloudwatch").put_metric_data(
            Namespace=metric_namespace(names.job(EMR)),
            MetricData=[
                {
                    "MetricName": "BatchDuration",
                    "Dimensions": [
                        {"Name": "job", "Value": names.job(EMR)},
                        {"Name": "query", "Value": query},
                    ],
                    "Timestamp": now - timedelta(hours=hours),
                    "Value": seconds,
                    "Unit": "Seconds",
                }
            ],
        )


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


def mock_file() -> dict[str, Any]:
    """Write the cases' answers the way LocalStack reads them."""
    responses: dict[str, Any] = {}
    machines: dict[str, Any] = {}
    for case in (*CASES, *BOUNDED_CASES):
        used = {}
        for state, answers in case.answers.items():
            used[state] = f"{case.job}-{case.name}-{state}"
            responses[used[state]] = {str(number): answer for number, answer in enumerate(answers)}
        cases = machines.setdefault(f"{case.job}-{case.group}", {"TestCases": {}})["TestCases"]
        cases[case.name] = used
    return {"StateMachines": machines, "MockedResponses": responses}
