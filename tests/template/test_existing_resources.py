"""Existing resources are referenced; no template deletes or changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from millrace.config import load
from millrace.config.model import Environment, MskCluster
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_security import listed

OTHER = "999988887777"
KEY = "arn:aws:kms:us-east-1:444455556666:key/1234abcd-12ab-34cd-56ef-12345678900"
SINK = "company-notices"
"""A stream that a query's sink names."""

EXISTING: dict[str, Any] = {
    "vpc": "vpc-0123456789abcdef0",
    "subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
    "buckets": {
        "lake": "company-lake",
        "checkpoints": "company-checkpoints",
        "event-logs": "company-event-logs",
        "dead-letters": "company-dead-letters",
        "access-logs": "company-access-logs",
    },
    "keys": {
        name: f"{KEY}{number}" for number, name in enumerate(("data", "logs", "alerts", "streams", "kafka"))
    },
    "stream": f"arn:aws:kinesis:us-east-1:{OTHER}:stream/shop-clickstream",
    "read_role": f"arn:aws:iam::{OTHER}:role/clickstream-readers",
    "cluster": "arn:aws:kafka:us-east-1:444455556666:cluster/company/abcd1234-1",
    "role": "arn:aws:iam::444455556666:role/streaming/company-flights",
    "database": "company_streaming",
    "table": "s3://company-reference/airlines",
}


def everything_exists(environment: Environment) -> Environment:
    """Production with all that can be somebody else's being so."""
    assert environment.value_locations.tree is not None
    plain = environment.value_locations.tree.to_json()
    del plain["extends"]
    plain["history"] = {"clients": ["10.0.0.0/8"]}
    plain["network"] = {
        "vpc": EXISTING["vpc"],
        "subnets": EXISTING["subnets"],
        "zones": dict(zip(EXISTING["subnets"], ("us-east-1a", "us-east-1b"), strict=True)),
    }
    plain["storage"] = {
        "buckets": EXISTING["buckets"], "keys": EXISTING["keys"], "database": EXISTING["database"]
    }  # fmt: skip
    plain["removal"] = "destroy"
    plain["tables"] = {
        "airlines": {
            "database": "reference",
            "table": "carriers",
            "location": EXISTING["table"],
            "key": KEY + "9",
        }
    }
    plain["kafka"] = {"operations": {"kind": "msk", "existing": EXISTING["cluster"]}}
    for name, stream in plain["streams"].items():
        if stream["kind"] == "kafka":
            stream |= {"existing": True, "partitions": 12}
        else:
            stream |= {"existing": f"company-{name}", "shards": 64}
            for key in ("mode", "shard_level_metrics"):
                stream.pop(key, None)
    plain["streams"]["clicks"] |= {"existing": EXISTING["stream"], "read_role": EXISTING["read_role"]}
    plain["streams"]["departures"]["existing_key"] = KEY + "8"
    plain["streams"]["notices"] = {
        "kind": "kinesis", "existing": SINK, "shards": 2,
        "traffic": {"records_per_second": 10, "record_size": "500B"},
    }  # fmt: skip
    queries = plain["jobs"]["departures"]["queries"]
    queries["notify"] = queries["enrich-departures"] | {"sink": {"kind": "kinesis", "stream": "notices"}}
    plain["jobs"]["flights"]["role"] = EXISTING["role"]
    plain["jobs"]["ground"]["role"] = EXISTING["role"]
    return Environment.model_validate_json(json.dumps({"name": "prod", **plain}))


@pytest.fixture(scope="module")
def existing(synthesise: Synthesise) -> Synthesis:
    return synthesise(everything_exists(load("prod", root=ROOT)))


def names(value: Any = EXISTING) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for each in value.values() if isinstance(value, dict) else value:
            yield from names(each)


def resources(found: Synthesis) -> Iterator[tuple[str, dict[str, Any]]]:
    for part, template in found.templates.items():
        for logical, resource in template["Resources"].items():
            yield f"{part}/{logical}", resource


def test_nothing_that_exists_is_a_resource(existing: Synthesis) -> None:
    kinds = {resource["Type"] for _, resource in resources(existing)}
    owned = {
        "AWS::EC2::VPC",
        "AWS::EC2::Subnet",
        "AWS::EC2::RouteTable",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::FlowLog",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
        "AWS::KMS::Key",
        "AWS::Kinesis::Stream",
        "AWS::Kinesis::StreamConsumer",
        "AWS::MSK::Cluster",
        "AWS::MSK::Configuration",
        "AWS::MSK::Topic",
        "AWS::Glue::Database",
        "AWS::Glue::Table",
    }
    assert not kinds & owned
    assert not [kind for kind in kinds if kind.startswith(("Custom::", "AWS::Lambda::"))]


MENTIONS = {
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::EC2::SecurityGroup",
    "AWS::ECS::Service",
    "AWS::ECS::TaskDefinition",
    "AWS::EMRServerless::Application",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::ElasticLoadBalancingV2::TargetGroup",
    "AWS::Events::Rule",
    "AWS::Glue::Connection",
    "AWS::Glue::Job",
    "AWS::Glue::SecurityConfiguration",
    "AWS::IAM::Policy",
    "AWS::Logs::LogGroup",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    "AWS::StepFunctions::StateMachine",
}
"""Kinds of our own resources that may name what exists: to read, to stand in, to encrypt with, to watch."""

IDENTITY = ("Name", "BucketName", "StreamName", "ClusterName", "RoleName", "KeyId", "TopicName", "TableName")
"""Properties by which a resource says what it is, and so what it would change."""


def test_what_exists_is_only_mentioned(existing: Synthesis) -> None:
    for path, resource in resources(existing):
        text = json.dumps(resource)
        mentioned = [name for name in names() if name in text]
        if mentioned:
            assert resource["Type"] in MENTIONS, (path, mentioned)
        for key in IDENTITY:
            assert resource.get("Properties", {}).get(key) not in set(names()), path
    everywhere = json.dumps(existing.templates)
    read = {"vpc", "cluster", "role"}
    for key in read:
        assert EXISTING[key].rsplit("/", 1)[-1] in everywhere, f"{key} is used"


def test_no_statement_of_ours_may_change_what_exists_but_what_a_sink_names(existing: Synthesis) -> None:
    reading = ("Get", "List", "Describe", "Read", "Connect", "Subscribe", "AssumeRole", "Decrypt")
    theirs = (
        "company-departures",
        "company-positions",
        "cluster/company",
        "company-reference",
        "reference/carriers",
        SINK,
    )
    seen, changing = set(), set()
    for part, statement in existing.statements():
        text = json.dumps(statement["Resource"])
        hit = [name for name in theirs if name in text]
        if hit and statement["Effect"] == "Allow":
            seen |= set(hit)
            for action in listed(statement["Action"]):
                if not action.split(":")[1].startswith(reading):
                    changing.add((part, action, *hit))
    assert seen == set(theirs)
    assert changing == {("job-departures", "kinesis:PutRecords", SINK)}


def test_the_bucket_keeps_a_given_role_from_what_a_rollback_deploys(
    existing: Synthesis, synthesise: Synthesise
) -> None:
    """Where the bucket is made here; nothing is added to the role itself, or to a bucket that exists."""

    def refused(found: Synthesis) -> list[dict[str, Any]]:
        return [
            statement
            for policy in found.resources("AWS::S3::BucketPolicy", "storage").values()
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if statement.get("Sid") == "NeverVersions"
        ]

    assert refused(existing) == []
    storage = existing.environment.storage.model_copy(update={"buckets": {}})
    (statement,) = refused(synthesise(existing.environment.model_copy(update={"storage": storage})))
    assert statement["Effect"] == "Deny"
    assert {"s3:PutObject", "s3:DeleteObject"} <= set(statement["Action"])
    assert json.dumps(statement["Resource"]).endswith('"/_versions/*"]]}')
    assert EXISTING["role"] in json.dumps(statement["Condition"]["ArnEquals"]["aws:PrincipalArn"])


def test_a_given_role_gets_no_policy_and_no_role_is_made(existing: Synthesis) -> None:
    for job in ("flights", "ground"):
        roles = existing.resources("AWS::IAM::Role", f"job-{job}")
        assert not [path for path in roles if "Lifecycle" not in path]
        for policy in existing.resources("AWS::IAM::Policy", f"job-{job}").values():
            assert EXISTING["role"] not in json.dumps(policy["Properties"]["Roles"])
    assert existing.the("AWS::Glue::Job", "job-ground")["Role"] == EXISTING["role"]


def test_the_reading_role_is_in_the_policy_of_a_role_of_ours(synthesise: Synthesise) -> None:
    environment = everything_exists(load("prod", root=ROOT))
    ground = environment.jobs["ground"].model_copy(update={"role": None})
    result = synthesise(environment.model_copy(update={"jobs": {"ground": ground}}))
    (statement,) = [s for _, s in result.statements() if s["Action"] == "sts:AssumeRole"]
    assert statement["Resource"] == EXISTING["read_role"]
    assert EXISTING["stream"] not in json.dumps([s for _, s in result.statements() if s is not statement])


def test_streams_with_unknown_keys_are_read_and_written_through_kinesis(existing: Synthesis) -> None:
    """A stream that exists may be encrypted with a key that the file does not name."""
    unknown = {
        (part, statement["Sid"]): (statement["Action"], statement["Condition"]["StringEquals"])
        for part, statement in existing.statements()
        if statement["Sid"] in ("DecryptExistingStreams", "EncryptExistingStreams")
        and statement["Resource"] == "arn:aws:kms:us-east-1:444455556666:key/*"
    }
    through = {"kms:ViaService": "kinesis.us-east-1.amazonaws.com"}
    written = {"kms:ViaService": ["kinesis.us-east-1.amazonaws.com"]}
    assert unknown["job-departures", "EncryptExistingStreams"] == (
        ["kms:Decrypt", "kms:GenerateDataKey"], written,
    )  # fmt: skip
    read = {part for part, sid in unknown if sid == "DecryptExistingStreams"}
    assert all(unknown[part, "DecryptExistingStreams"] == ("kms:Decrypt", through) for part in read)


def test_the_rule_packs_find_nothing(existing: Synthesis) -> None:
    assert existing.findings == []


def test_zones_of_given_subnets_reach_glue(existing: Synthesis) -> None:
    connections = existing.resources("AWS::Glue::Connection", "job-departures").values()
    zones = [
        c["Properties"]["ConnectionInput"]["PhysicalConnectionRequirements"]["AvailabilityZone"]
        for c in connections
    ]
    assert zones == ["us-east-1a", "us-east-1b"]


@pytest.mark.slow
def test_a_topic_of_ours_may_stand_on_a_cluster_that_is_not(synthesise: Synthesise) -> None:
    environment = load("prod", root=ROOT)
    cluster = MskCluster(kind="msk", existing=EXISTING["cluster"])
    result = synthesise(environment.model_copy(update={"kafka": {"operations": cluster}}))
    kinds = {resource["Type"] for resource in result.templates["kafka"]["Resources"].values()}
    assert kinds == {"AWS::MSK::Topic"}
    for topic in result.resources("AWS::MSK::Topic").values():
        assert topic["Properties"]["ClusterArn"] == EXISTING["cluster"]
        assert topic["DeletionPolicy"] == "RetainExceptOnCreate"
    connect = [s for part, s in result.statements() if "kafka-cluster:Connect" in listed(s["Action"])]
    assert {s["Resource"] for s in connect} == {EXISTING["cluster"]}
