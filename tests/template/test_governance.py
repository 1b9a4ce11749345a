"""Tags, boundaries and other rules of ``governance`` are on every resource."""

from __future__ import annotations

import json

import pytest

from millrace.config import load
from millrace.config.network_storage_governance_observability import Governance
from tests.template.conftest import ROOT, Synthesis, Synthesise

BOUNDARY = "arn:aws:iam::111122223333:policy/StreamingBoundary"
RULES = Governance(
    permissions_boundary=BOUNDARY, role_path="/streaming/", name_prefix="acme", qualifier="acme1"
)


@pytest.fixture(scope="module")
def governed(synthesise: Synthesise) -> Synthesis:
    return synthesise(load("dev", root=ROOT).model_copy(update={"governance": RULES}))


def test_every_role_has_its_boundary_and_path(governed: Synthesis) -> None:
    roles = governed.resources("AWS::IAM::Role")
    assert len(roles) >= 10
    for path, role in roles.items():
        assert role["Properties"]["PermissionsBoundary"] == BOUNDARY, path
        assert role["Properties"]["Path"] == "/streaming/", path


def test_without_rules_roles_have_neither(dev: Synthesis) -> None:
    for path, role in dev.resources("AWS::IAM::Role").items():
        assert not {"PermissionsBoundary", "Path"} & role["Properties"].keys(), path


NAMES = {
    "AWS::S3::Bucket": "BucketName",
    "AWS::Kinesis::Stream": "Name",
    "AWS::MSK::Cluster": "ClusterName",
    "AWS::Glue::Job": "Name",
    "AWS::EMRServerless::Application": "Name",
    "AWS::SNS::Topic": "TopicName",
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::ECR::Repository": "RepositoryName",
}


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_begins_with_the_prefix(governed: Synthesis, kind: str) -> None:
    result = governed.resources(kind)
    assert result
    for path, resource in result.items():
        name = resource["Properties"].get(NAMES[kind])
        assert name is None or name.startswith("acme-flights-dev"), (path, name)
    assert all(stack.startswith("acme-flights-dev-") for stack in stacks(governed))


def stacks(found: Synthesis) -> list[str]:
    return [n for n, artifact in found.manifest.items() if artifact["type"] == "aws:cloudformation:stack"]


def test_the_bootstrap_stack_is_found_by_its_qualifier(governed: Synthesis) -> None:
    for name in stacks(governed):
        properties = governed.manifest[name]["properties"]
        assert "cdk-acme1-deploy-role" in properties["assumeRoleArn"], name
        assert properties["bootstrapStackVersionSsmParameter"] == "/cdk-bootstrap/acme1/version"
    for document in governed.documents.values():
        assert document["archive"].startswith("s3://cdk-acme1-assets-")
    assert "hnb659fds" not in json.dumps(governed.templates)


def test_tags_are_on_all_that_takes_them(governed: Synthesis) -> None:
    for kind in (
        "AWS::S3::Bucket",
        "AWS::KMS::Key",
        "AWS::IAM::Role",
        "AWS::ECS::Service",
        "AWS::SNS::Topic",
    ):
        for path, resource in governed.resources(kind).items():
            tags = {tag["Key"]: tag["Value"] for tag in resource["Properties"]["Tags"]}
            assert tags.items() >= governed.environment.tags.items(), path


def test_a_given_role_writes_the_flow_logs(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    role = "arn:aws:iam::111122223333:role/flow-logs"
    network = environment.network.model_copy(update={"flow_logs_role": role})
    result = synthesise(environment.model_copy(update={"network": network}))
    assert result.the("AWS::EC2::FlowLog", "network")["DeliverLogsPermissionArn"] == role
    assert result.resources("AWS::IAM::Role", "network") == {}
