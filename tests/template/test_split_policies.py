"""Permissions beyond the limit of an inline policy go into managed policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from aws_cdk import App, Stack

from millrace.config import Environment, load
from millrace.config.aws.iam_statements import Grant, allow, allow_listing_prefixes
from millrace.infra.constructs.job_role import JobRole, to_policy_statement
from millrace.infra.errors import InfrastructureError
from millrace.infra.permissions.split_policies import (
    ATTACHED,
    INLINE,
    MANAGED,
    split_into_policies,
    statement_length,
)
from tests.template.conftest import ROOT, Resource, Synthesis, Synthesise
from tests.template.test_security import listed

STREAMS = [f"measurements-of-plant-{number:02}" for number in range(20)]
LONGEST_ARN = "arn:aws:aps:ap-southeast-1:111122223333:workspace/ws-12345678-1234-1234-1234-123456789012"


def many_streams(environment: Environment) -> Environment:
    """Environment dev with a job that reads twenty topics into tables, and each table into another."""
    assert environment.value_locations.tree is not None
    plain = environment.value_locations.tree.to_json()
    plain.pop("extends", None)
    plain.pop("history", None)
    plain["governance"] = {"role_path": "/streaming/"}
    topic = {**plain["streams"]["flights"], "traffic": {"records_per_second": 10, "record_size": "400B"}}
    plain["streams"] = dict.fromkeys(STREAMS, topic)
    land, derive = (plain["jobs"]["flights"]["queries"][name] for name in ("land-flights", "flights-weather"))
    land.pop("kafka")
    queries = {}
    for name in STREAMS:
        table = name.replace("-", "_")
        queries[f"land-{name}"] = land | {"source": name, "table": f"{table}_landed"}
        sink = {"kind": "iceberg", "table": f"{table}_hourly"}
        queries[f"derive-{name}"] = derive | {"source": f"{table}_landed", "sink": sink}
    plain["jobs"] = {"flights": plain["jobs"]["flights"] | {"queries": queries}}
    return Environment.model_validate_json(json.dumps({"name": "dev", **plain}))


@pytest.fixture(scope="module")
def many(synthesise: Synthesise) -> Synthesis:
    return synthesise(many_streams(load("dev", root=ROOT)))


def filled(value: Any) -> Any:
    """What CloudFormation fills in, by something as long as the longest of it."""
    if isinstance(value, dict):
        if "Fn::Join" in value:
            separator, parts = value["Fn::Join"]
            return separator.join(filled(part) for part in parts)
        if any(key == "Ref" or key.startswith("Fn::") for key in value):
            return LONGEST_ARN
        return {key: filled(each) for key, each in value.items()}
    return [filled(each) for each in value] if isinstance(value, list) else value


def length(policy: Resource) -> int:
    return len(json.dumps(filled(policy["Properties"]["PolicyDocument"]), separators=(",", ":")))


def of_roles(found: Synthesis, kind: str) -> dict[str, list[Resource]]:
    roles: dict[str, list[Resource]] = {}
    for path, policy in found.resources(kind).items():
        for role in policy["Properties"]["Roles"]:
            roles.setdefault(f"{path.split('/')[0]}/{role['Ref']}", []).append(policy)
    return roles


def test_every_policy_is_one_that_iam_takes(many: Synthesis, dev: Synthesis) -> None:
    for result in (many, dev):
        for role, policies in of_roles(result, "AWS::IAM::Policy").items():
            assert sum(length(policy) for policy in policies) <= INLINE, role
    beside = of_roles(many, "AWS::IAM::ManagedPolicy")
    ((role, policies),) = beside.items()
    assert role.startswith("job-flights/")
    assert 1 < len(policies) <= ATTACHED
    assert all(length(policy) <= MANAGED for policy in policies)
    assert {policy["Properties"]["Path"] for policy in policies} == {"/streaming/"}, "as their role"
    for policy in policies:
        sids = [statement["Sid"] for statement in policy["Properties"]["PolicyDocument"]["Statement"]]
        assert len(sids) == len(set(sids))
    assert many.findings == []
    # Who fits inside, as all did that are deployed, stays there.
    assert of_roles(dev, "AWS::IAM::ManagedPolicy") == {}


def test_nothing_is_lost_between_policies(many: Synthesis) -> None:
    tables = {f"{n.replace('-', '_')}_{end}" for n in STREAMS for end in ("landed", "hourly")}
    lake, database = many.names.bucket("lake"), many.names.database
    for action, places in (
        ("glue:UpdateTable", {f"table/{database}/{table}" for table in tables}),
        ("glue:DeleteTable", {f"table/{database}/{table}_benchmark" for table in tables}),
        ("s3:PutObject", {f"{lake}/warehouse/{database}.db/{table}/*" for table in tables}),
        ("kafka-cluster:ReadData", {f"/{stream}" for stream in STREAMS}),
    ):
        allowed = [
            r
            for part, s in many.statements()
            if part == "job-flights" and action in listed(s["Action"])
            for r in listed(s["Resource"])
        ]
        for place in places:
            assert sum(resource.endswith(place) for resource in allowed) == 1, (action, place)
    prefixes = {
        prefix
        for part, s in many.statements()
        if part == "job-flights" and "s3:ListBucket" in listed(s["Action"])
        for prefix in listed(s["Condition"]["StringLike"]["s3:prefix"])
    }
    assert {f"warehouse/{database}.db/{table}{end}" for table in tables for end in ("", "/*")} <= prefixes


def permissions(grants: Sequence[Grant]) -> Iterator[tuple[str, str, str]]:
    for grant in grants:
        for action in grant.actions:
            for resource in grant.resources:
                for prefix in grant.conditions.get("StringLike", {}).get("s3:prefix", [""]):
                    yield action, resource, prefix


def role_of(grants: Sequence[Grant]) -> JobRole:
    return JobRole(
        Stack(App(), "Stack"),
        "Role",
        service="glue.amazonaws.com",
        account="111122223333",
        source_arn="arn:aws:glue:us-east-1:111122223333:*",
        grants=grants,
        description="Job wide of shop-dev",
    )


def test_more_than_a_role_can_have_is_one_message() -> None:
    tables = [f"arn:aws:glue:us-east-1:111122223333:table/shop/{number:060}" for number in range(560)]
    assert len(role_of([allow("Read", ["glue:GetTable"], tables[:450])]).policies) <= ATTACHED
    with pytest.raises(
        InfrastructureError, match=r"^Job wide of shop-dev: .* policies, but IAM .* 10: .*job"
    ):
        role_of([allow("Read", ["glue:GetTable"], tables)])


def test_a_statement_that_is_too_long_becomes_several() -> None:
    prefixes = [f"warehouse/shop.db/{number:060}" for number in range(90)]
    grants = [
        allow("First", ["s3:GetObject"], [f"arn:aws:s3:::lake/{prefix}/*" for prefix in prefixes]),
        allow_listing_prefixes("Second", "arn:aws:s3:::lake", prefixes),
        allow("Third", ["sns:Publish"], ["*"]),
    ]
    parts = split_into_policies(
        grants, lambda grant: statement_length(to_policy_statement(grant).to_statement_json())
    )
    assert sorted(permissions([piece for part in parts for piece in part])) == sorted(permissions(grants))
    assert all(
        sum(statement_length(to_policy_statement(grant).to_statement_json()) for grant in part) <= MANAGED
        for part in parts
    )
