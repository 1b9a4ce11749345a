"""Calls of the state machines are valid in botocore's models: names, casing, required members, enumerations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

from tests.template.conftest import Synthesis

LOCALSTACKS = {"SSM.ParameterNotFoundException"}
"""Errors as the sandbox's stand-in names them, which are caught beside AWS's own."""

_RESOURCE = re.compile(r"arn:aws[a-z-]*:states:::(?:aws-sdk:)?(\w+):(\w+)")


@cache
def services() -> Mapping[str, ServiceModel]:
    """By the name that Step Functions gives them: the service's id in small letters, without blanks ("Supported AWS SDK
    service integrations" of its developer guide)."""
    session = botocore.session.get_session()
    wanted = ("cloudwatch", "emr-serverless", "glue", "s3", "sns", "ssm")
    models = [session.get_service_model(name) for name in wanted]
    return {model.service_id.replace(" ", "").lower(): model for model in models}


def pascal(name: str) -> str:
    """Members are written so in a state machine, whatever the API's own casing is (the same page)."""
    return name[0].upper() + name[1:]


def problems(shape: Shape, given: Any, where: str) -> Iterator[str]:
    if isinstance(given, str) and given.startswith("{%"):
        return  # an expression: computed when the machine runs
    if isinstance(shape, StructureShape):
        if not isinstance(given, dict):
            yield f"{where}: {given!r} is no structure"
            return
        members = {pascal(name): member for name, member in shape.members.items()}
        needed = {
            pascal(n) for n in shape.required_members if not shape.members[n].metadata.get("idempotencyToken")
        }
        for name in given.keys() - members.keys():
            yield f"{where}: there is no {name}; there are {', '.join(sorted(members))}"
        for name in needed - given.keys():
            yield f"{where}: {name} is required"
        for name in given.keys() & members.keys():
            yield from problems(members[name], given[name], f"{where}.{name}")
    elif isinstance(shape, ListShape):
        for number, each in enumerate(given if isinstance(given, list) else [given]):
            yield from problems(shape.member, each, f"{where}[{number}]")
    elif isinstance(shape, MapShape):
        for name, each in given.items():
            yield from problems(shape.value, each, f"{where}[{name}]")
    elif isinstance(shape, StringShape):
        if not isinstance(given, str):
            yield f"{where}: {given!r} is no text"
        elif shape.enum and given not in shape.enum:
            yield f"{where}: {given} is none of {', '.join(shape.enum)}"
    elif shape.type_name in ("integer", "long") and not (
        isinstance(given, int) and not isinstance(given, bool)
    ):
        yield f"{where}: {given!r} is no whole number"
    elif shape.type_name == "boolean" and not isinstance(given, bool):
        yield f"{where}: {given!r} is neither true nor false"


def exceptions(model: ServiceModel) -> set[str]:
    """Errors of a service as a machine catches them: the service's id in words that begin large, and the SDK's exception."""
    prefix = "".join(w if not w.isupper() else w.capitalize() for w in model.service_id.split())
    return {f"{prefix}.{shape.name.removesuffix('Exception')}Exception" for shape in model.error_shapes}


def definition(resource: dict[str, Any]) -> dict[str, Any]:
    """A machine's definition; what only CloudFormation knows is an expression here."""
    held = resource["Properties"]["DefinitionString"]
    text = (
        held
        if isinstance(held, str)
        else "".join(
            part if isinstance(part, str) else "{% of CloudFormation %}" for part in held["Fn::Join"][1]
        )
    )
    result: dict[str, Any] = json.loads(text)
    return result


def states(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if "Type" in tree:
            yield tree
        for each in tree.values():
            yield from states(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from states(each)


def of(synthesis: Synthesis) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, resource in synthesis.resources("AWS::StepFunctions::StateMachine").items():
        for state in states(definition(resource)):
            yield path, state


def wrong(synthesis: Synthesis) -> Iterator[str]:
    for path, state in of(synthesis):
        if state["Type"] != "Task":
            continue
        matched = _RESOURCE.fullmatch(state["Resource"])
        if matched is None or matched[1] not in services():
            yield f"{path}: {state['Resource']} is no integration that is known here"
            continue
        model = services()[matched[1]]
        operations = {name[0].lower() + name[1:]: name for name in model.operation_names}
        if matched[2] not in operations:
            yield f"{path}: {matched[1]} has no {matched[2]}"
            continue
        shape = model.operation_model(operations[matched[2]]).input_shape
        assert shape is not None
        yield from problems(shape, state.get("Arguments", {}), f"{path} {matched[2]}")
        rules = [*state.get("Retry", ()), *state.get("Catch", ())]
        for name in (each for rule in rules for each in rule["ErrorEquals"]):
            known = {each for one in services().values() for each in exceptions(one)} | LOCALSTACKS
            if not name.startswith("States.") and name not in known:
                yield f"{path} {matched[2]}: no service here throws {name}"


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_every_integration_is_what_the_service_takes(
    environment: str, request: pytest.FixtureRequest
) -> None:
    synthesis: Synthesis = request.getfixturevalue(environment)
    assert sum(state["Type"] == "Task" for _, state in of(synthesis)) > 10, "too few to show anything"
    assert not (result := list(wrong(synthesis))), "\n".join(result)


def test_a_wrong_call_is_told() -> None:
    shape = services()["emrserverless"].operation_model("StartJobRun").input_shape
    assert shape is not None
    given = {"applicationId": "a", "ExecutionRoleArn": "r", "Mode": "STREAM", "ExecutionTimeoutMinutes": "5"}
    told = sorted(problems(shape, given, "start"))
    assert [each.split(";")[0].split(" is none")[0] for each in told] == [
        "start.ExecutionTimeoutMinutes: '5' is no whole number",
        "start.Mode: STREAM",
        "start: ApplicationId is required",
        "start: there is no applicationId",
    ]
    assert "EmrServerless.ConflictException" in exceptions(services()["emrserverless"])
    assert "Ssm.ParameterNotFoundException" in exceptions(services()["ssm"])
