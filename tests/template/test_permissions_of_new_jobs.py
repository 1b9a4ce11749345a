"""A job like its neighbours widens no permission; one right of another kind does."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from millrace.config import Names
from millrace.config.model import Environment
from millrace.lifecycle.changes.deployment_changes import StackChange, compare_templates
from millrace.lifecycle.changes.permission_changes import (
    DeployedPermissionKinds,
    permission_kinds_of_new_job,
    permission_lines,
)
from tests.template.cloudformation_rules import Template
from tests.template.test_export_changes import Change, full, synthesised
from tests.template.write_deploy_data import new_rights, swapped

ACCOUNT = "111122223333"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/limits"


def environment(*changes: Change) -> Environment:
    plain = full()
    plain["governance"] = {"permissions_boundary": BOUNDARY}
    for change in changes:
        change(plain)
    return Environment.model_validate({"name": "dev", **plain})


@functools.cache
def deployed() -> dict[str, Template]:
    """Everything but one of two jobs that are alike."""
    return synthesised(environment(lambda plain: plain["jobs"].pop("last")))


@functools.cache
def with_the_new_job() -> dict[str, Template]:
    return synthesised(environment())


@functools.cache
def without(engine: str) -> dict[str, Template]:
    """Everything but the jobs of an engine."""

    def others(plain: dict[str, Any]) -> None:
        plain["jobs"] = {name: each for name, each in plain["jobs"].items() if each["engine"] != engine}

    return synthesised(environment(others))


def compared(
    new: dict[str, Template], *changes: Change, old: dict[str, Template] | None = None
) -> list[StackChange]:
    old = old or deployed()
    rights = DeployedPermissionKinds(Names(environment(*changes), ACCOUNT), old)
    return [compare_templates(stack, old.get(stack), template, rights) for stack, template in new.items()]


def wider(new: dict[str, Template], *changes: Change, old: dict[str, Template] | None = None) -> list[str]:
    return [
        f"{each.stack}: {line}"
        for each in compared(new, *changes, old=old)
        for line in each.wider_permission_lines
    ]


def renamed(plain: dict[str, Any]) -> None:
    plain["jobs"]["late"] = plain["jobs"].pop("last")
    plain["jobs"]["night"] = plain["jobs"].pop("departures") | {"renamed_from": "departures"}


def with_more_tables(plain: dict[str, Any]) -> None:
    queries = plain["jobs"]["departures"]["queries"]
    (derive,) = [query for query in queries.values() if query["kind"] == "derive"]
    queries["more"] = copy.deepcopy(derive)
    queries["more"]["sink"]["table"] = "more"


ORDINARY: dict[str, Change] = {
    "a job": lambda _: None,
    "jobs of other names": renamed,
    "more tables": with_more_tables,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDINARY)
def test_a_job_like_its_neighbours_needs_no_word_more(name: str) -> None:
    new = synthesised(environment(ORDINARY[name]))
    assert any(each.permissions for each in compared(new))
    assert wider(new, ORDINARY[name]) == []


@pytest.mark.parametrize("engine", [pytest.param("emr", marks=pytest.mark.slow), "glue"])
def test_the_first_job_of_an_engine_needs_no_word_more(engine: str) -> None:
    assert wider(with_the_new_job(), old=without(engine)) == []


def test_the_kinds_of_new_jobs_are_those_of_the_templates() -> None:
    assert permission_kinds_of_new_job() == new_rights(), "make lock writes them"


def test_a_deployed_job_that_gets_the_rights_of_another_engine_is_told() -> None:
    """Its role is there, so it can do more than before."""
    told = wider(synthesised(environment(swapped)), swapped, old=without("emr"))
    assert any("job-departures: + AWS::IAM::Role" in line and "emr-serverless" in line for line in told)
    assert not any("job-flights" in line for line in told)


def statements(template: Template) -> Iterator[tuple[str, Any]]:
    """Yield the statements that allow something, to be changed in place, with their resource."""
    for name, resource in template["Resources"].items():
        for key in ("PolicyDocument", "AssumeRolePolicyDocument"):
            for statement in resource.get("Properties", {}).get(key, {}).get("Statement", ()):
                if statement["Effect"] == "Allow":
                    yield name, statement


def wide(statement: dict[str, Any], job: str) -> Iterator[dict[str, Any]]:
    """Yield what gives more than a statement, each with one thing of another kind."""
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    service = actions[0].partition(":")[0]
    yield {"Action": "*"}
    yield {"Action": [*actions, f"{service}:*"]}
    yield {"Action": [*actions, "iam:AttachRolePolicy"]}
    if "Condition" in statement:
        yield {"Condition": None}
    if "Resource" not in statement:
        yield {"Principal": {"AWS": "*"}}
        yield {"Principal": {"AWS": "arn:aws:iam::999999999999:root"}}
        return
    resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
    if resources != ["*"]:
        yield {"Resource": "*"}
    for resource in resources:
        if isinstance(resource, str) and resource != "*":
            for old, new in (
                ("flights-dev", "flights-prod"),
                ("flights_dev", "payroll"),
                (ACCOUNT, "999999999999"),
                (job, "departures"),
                ("-checkpoints-", "-lake-"),
            ):
                # Tables, streams and topics of the environment are the environment's.
                if old in resource and not (old == "last" and "warehouse" in resource):
                    yield {"Resource": resource.replace(old, new)}
            if resource.endswith("/*"):
                yield {"Resource": resource.rpartition("/")[0].rpartition("/")[0] + "/*"}


@pytest.mark.parametrize(
    ("job", "engine"), [("last", None), pytest.param("flights", "emr", marks=pytest.mark.slow)]
)
def test_each_right_of_another_kind_is_told(job: str, engine: str | None) -> None:
    """In a job like another, and in the first of an engine."""
    new = with_the_new_job()
    stack = next(name for name in new if name.endswith(f"-job-{job}"))
    rights = DeployedPermissionKinds(Names(environment(), ACCOUNT), without(engine) if engine else deployed())
    tried, missed = 0, []
    for place, (_, statement) in enumerate(statements(new[stack])):
        for change in wide(statement, job):
            template = copy.deepcopy(new[stack])
            edited = [each for _, each in statements(template)][place]
            edited.update(change)
            if edited.get("Condition", 0) is None:
                del edited["Condition"]
            tried += 1
            if not compare_templates(stack, None, template, rights).wider_permission_lines:
                missed.append(f"{json.dumps(statement)} with {change}")
    assert (tried > 100, missed) == (True, [])


@pytest.mark.parametrize(
    "change",
    [
        lambda role: role.update(ManagedPolicyArns=["arn:aws:iam::aws:policy/AdministratorAccess"]),
        lambda role: role.pop("PermissionsBoundary"),
        lambda role: role.update(PermissionsBoundary=f"{BOUNDARY}-none"),
        lambda role: role.update(
            Policies=[{"PolicyDocument": {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}}]
        ),
    ],
)
def test_a_role_of_another_kind_is_told(change: Any) -> None:
    new = copy.deepcopy(with_the_new_job())
    stack = next(name for name in new if name.endswith("-job-last"))
    roles = [each for each in new[stack]["Resources"].values() if each["Type"] == "AWS::IAM::Role"]
    change(roles[0]["Properties"])
    assert wider(new) != []


@pytest.mark.slow
def test_a_job_that_runs_as_somebody_else_is_told() -> None:
    """Each role is the template's own; the one that is named instead has rights that no template says."""
    role = f"arn:aws:iam::{ACCOUNT}:role/admin"
    new = synthesised(environment(lambda plain: plain["jobs"]["departures"].update(role=role)))
    assert any(role in line and "runs as" in line for line in wider(new))


def test_a_policy_that_another_role_gets_is_told() -> None:
    new = copy.deepcopy(with_the_new_job())
    stack = next(name for name in new if name.endswith("-job-last"))
    resources = new[stack]["Resources"]
    (job,) = [each for each in resources.values() if each["Type"] == "AWS::Glue::Job"]
    role = job["Properties"]["Role"]["Fn::GetAtt"][0]
    for policy in resources.values():
        roles = policy.get("Properties", {}).get("Roles", [])
        if policy["Type"] == "AWS::IAM::Policy" and {"Ref": role} not in roles:
            roles.append({"Ref": role})
    assert any("glue:StartJobRun" in line and role in line for line in wider(new))


def test_lines_say_whose_they_are() -> None:
    for template in with_the_new_job().values():
        assert all(line.startswith("AWS::") and ": " in line for line in permission_lines(template))
