"""All stacks of environment ``dev`` deploy to LocalStack, and the created resources have the expected properties.

In dev's own account: LocalStack takes an access key of twelve digits for the account's
number. What it leaves out or only pretends is a test of its own, so that nothing here
proves more than it does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pytest
from botocore.exceptions import ClientError
from localstack_client.session import Session

from millrace.config import Names, load
from millrace.config.aws.resource_names import Bucket
from millrace.config.model import KinesisStream
from millrace.sandbox.localstack_deployment import deploy_to_localstack
from millrace.sandbox.programs import cdk, localstack
from millrace.sandbox.programs.child_processes import RUN
from millrace.sizing import Plan, plan
from tests.integration.test_local_environment_stacks import PRETENDED

pytestmark = pytest.mark.slow

PRETENDED_HERE = PRETENDED | {
    "AWS::APS::Workspace",
    "AWS::CloudWatch::Dashboard",
    "AWS::ECR::PullThroughCacheRule",
    "AWS::ECS::Cluster",
    "AWS::ECS::Service",
    "AWS::ECS::TaskDefinition",
    "AWS::ElasticLoadBalancingV2::Listener",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::ElasticLoadBalancingV2::TargetGroup",
}


@dataclass(frozen=True)
class InAccount(localstack.LocalStack):
    """A LocalStack as one account sees it."""

    account: str = localstack.ACCOUNT

    def environment_variables(self) -> dict[str, str]:
        credentials = {"AWS_ACCESS_KEY_ID": self.account, "AWS_SECRET_ACCESS_KEY": "test"}
        # cdklocal drops credentials that are not named there.
        return super().environment_variables() | credentials | {"AWS_ENVAR_ALLOWLIST": ",".join(credentials)}


@dataclass(frozen=True)
class Deployed:
    """What is there."""

    names: Names
    plan: Plan
    session: Session

    def client(self, service: str) -> Any:
        return self.session.client(service, region_name=self.names.environment.region)

    @property
    def vpc(self) -> str:
        name = {"Name": "tag:Name", "Values": [f"{self.names.stack('network')}/Vpc"]}
        (result,) = self.client("ec2").describe_vpcs(Filters=[name])["Vpcs"]
        return str(result["VpcId"])

    def of_vpc(self, call: str, key: str) -> list[dict[str, Any]]:
        """What ``ec2`` tells of our VPC."""
        answer = getattr(self.client("ec2"), call)(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])
        return list(answer[key])

    def roles(self) -> dict[str, dict[str, Any]]:
        """Roles of the environment's stacks, by name."""
        pages = self.client("iam").get_paginator("list_roles").paginate()
        return {
            role["RoleName"]: role
            for page in pages
            for role in page["Roles"]
            if role["RoleName"].startswith(self.names.prefix)
        }

    def statements(self, role: str) -> list[dict[str, Any]]:
        """What a role allows."""
        iam = self.client("iam")
        return [
            statement
            for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]
            for statement in iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"][
                "Statement"
            ]
        ]


@pytest.fixture(scope="module")
def dev() -> Iterator[Deployed]:
    environment = load("dev")
    assert environment.account is not None
    names = Names(environment, environment.account)
    assembly = RUN / "cdk-dev.out"
    with localstack.running_localstack(name="localstack-dev") as stack:
        own = InAccount(stack.endpoint, stack.region, stack.process, account=names.account)
        cdk.synthesise_assembly("dev", assembly, localstack.ACCOUNT)
        deploy_to_localstack(own, assembly, names.account)
        host = urlparse(stack.endpoint).netloc
        session = Session(aws_access_key_id=names.account, localstack_host=host)
        yield Deployed(names, plan(environment), session)


def test_every_stack_is_there(dev: Deployed) -> None:
    stacks = dev.client("cloudformation").describe_stacks()["Stacks"]
    parts = ["network", "storage", "streams", "kafka", "lifecycle", "observability"]
    parts += ["history-image", "history"]
    parts += [f"job-{job}" for job in dev.names.environment.jobs]
    assert {stack["StackName"]: stack["StackStatus"] for stack in stacks} == {
        "CDKToolkit": "CREATE_COMPLETE",
        **{dev.names.stack(part): "CREATE_COMPLETE" for part in parts},
    }
    assert {stack["StackId"].split(":")[4] for stack in stacks} == {dev.names.account}


def test_exactly_these_types_are_only_pretended(dev: Deployed) -> None:
    cloudformation = dev.client("cloudformation")
    events = [
        event
        for stack in cloudformation.describe_stacks()["Stacks"]
        for event in cloudformation.describe_stack_events(StackName=stack["StackName"])["StackEvents"]
    ]
    assert {
        e["ResourceType"] for e in events if "fallback" in e.get("ResourceStatusReason", "")
    } == PRETENDED_HERE


def test_streams_have_their_mode_shards_and_retention(dev: Deployed) -> None:
    kinesis = dev.client("kinesis")
    owned = {
        dev.names.stream(name): (dev.plan.streams[name].partitions.value, stream)
        for name, stream in dev.names.environment.streams.items()
        if isinstance(stream, KinesisStream) and stream.existing is None
    }
    assert owned
    assert set(kinesis.list_streams()["StreamNames"]) == set(owned)
    for name, (shards, settings) in owned.items():
        response = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        assert response["StreamModeDetails"] == {"StreamMode": settings.mode.upper().replace("-", "_")}
        assert response["OpenShardCount"] == shards
        assert response["RetentionPeriodHours"] == settings.retention.total_seconds() / 3600
        assert response["StreamARN"].split(":")[4] == dev.names.account


def test_keys_rotate_and_are_this_accounts(dev: Deployed) -> None:
    kms = dev.client("kms")
    described = [kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"] for key in kms.list_keys()["Keys"]]
    ours = [key for key in described if key["Description"].startswith("flights dev: ")]
    assert len(ours) == len(described) == 5
    for key in ours:
        assert kms.get_key_rotation_status(KeyId=key["KeyId"])["KeyRotationEnabled"], key["Description"]
        policy = json.loads(kms.get_key_policy(KeyId=key["KeyId"], PolicyName="default")["Policy"])
        owners = [s["Principal"]["AWS"] for s in policy["Statement"] if "AWS" in s["Principal"]]
        assert owners == [f"arn:aws:iam::{dev.names.account}:root"]


@pytest.mark.parametrize("kind", ["lake", "checkpoints", "dead-letters", "event-logs", "access-logs"])
def test_buckets_are_closed_and_refuse_plain_http(dev: Deployed, kind: Bucket) -> None:
    s3, bucket = dev.client("s3"), dev.names.bucket(kind)
    assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
    (owner,) = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert owner == {"ObjectOwnership": "BucketOwnerEnforced"}
    statements = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    denied = [s["Condition"] for s in statements if s["Effect"] == "Deny" and s["Action"] == "s3:*"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied
    versions = s3.get_bucket_versioning(Bucket=bucket).get("Status")
    assert versions == ("Enabled" if kind in ("lake", "dead-letters") else None)


def test_roles_are_trusted_to_services_and_hold_named_actions(dev: Deployed) -> None:
    roles = dev.roles()
    jobs = dev.names.environment.jobs
    assert len(roles) > 3 * len(jobs)
    for name, role in roles.items():
        (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert set(trust["Principal"]) == {"Service"}
        attached = dev.client("iam").list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        assert attached == [], name
        statements = dev.statements(name)
        assert statements, name
        for statement in statements:
            assert not [action for action in listed(statement["Action"]) if "*" in action], (name, statement)


def test_a_job_writes_its_own_checkpoints_and_passes_its_own_role(dev: Deployed) -> None:
    for job, settings in dev.names.environment.jobs.items():
        own = {name for name in dev.roles() if name.startswith(dev.names.stack(f"job-{job}"))}
        statements = [statement for name in own for statement in dev.statements(name)]
        written = [
            resource
            for statement in statements
            if statement["Effect"] == "Allow" and "s3:PutObject" in listed(statement["Action"])
            for resource in listed(statement["Resource"])
            if dev.names.bucket("checkpoints") in resource
        ]
        assert written == [f"arn:aws:s3:::{dev.names.bucket('checkpoints')}/{job}/*"]
        passed = [s for s in statements if "iam:PassRole" in listed(s["Action"])]
        assert len(passed) == (settings.engine == "emr")
        for statement in passed:
            assert statement["Resource"].rsplit("/", 1)[1] in own
            assert statement["Condition"] == {
                "StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}
            }


def test_the_vpc_is_private(dev: Deployed) -> None:
    ec2 = dev.client("ec2")
    subnets = dev.of_vpc("describe_subnets", "Subnets")
    zones = {subnet["AvailabilityZone"] for subnet in subnets}
    assert len(subnets) == len(zones) == dev.names.environment.zone_count
    assert not any(subnet["MapPublicIpOnLaunch"] for subnet in subnets)
    assert ec2.describe_internet_gateways()["InternetGateways"] == []
    assert ec2.describe_nat_gateways()["NatGateways"] == []
    assert ec2.describe_addresses()["Addresses"] == []
    gateways = {
        route.get("GatewayId", "")
        for table in dev.of_vpc("describe_route_tables", "RouteTables")
        for route in table["Routes"]
    }
    assert all(gateway == "local" or gateway.startswith("vpce-") for gateway in gateways)


def test_endpoints_are_those_of_the_plan_and_serve_this_account(dev: Deployed) -> None:
    endpoints = dev.of_vpc("describe_vpc_endpoints", "VpcEndpoints")
    region = dev.names.environment.region
    services = {e["ServiceName"].removeprefix(f"com.amazonaws.{region}."): e for e in endpoints}
    assert dev.plan.network.egress.value == "endpoints"
    assert services.keys() == {"s3", *dev.plan.network.services}
    subnets = {subnet["SubnetId"] for subnet in dev.of_vpc("describe_subnets", "Subnets")}
    for name, endpoint in services.items():
        statement = json.loads(endpoint["PolicyDocument"])["Statement"][0]
        assert statement["Condition"]["StringEquals"]["aws:PrincipalAccount"] == dev.names.account, name
        if endpoint["VpcEndpointType"] == "Interface":
            assert endpoint["PrivateDnsEnabled"], name
            assert set(endpoint["SubnetIds"]) == subnets, name


def test_alarms_have_the_plans_thresholds_and_tell_the_topic(dev: Deployed) -> None:
    pages = dev.client("cloudwatch").get_paginator("describe_alarms").paginate()
    result = {alarm["AlarmName"]: alarm for page in pages for alarm in page["MetricAlarms"]}
    planned = {f"{dev.names.prefix}/{alarm.name}": alarm for alarm in dev.plan.alarms}
    assert planned.keys() <= result.keys()
    (topic,) = [topic["TopicArn"] for topic in dev.client("sns").list_topics()["Topics"]]
    for name, alarm in planned.items():
        there = result[name]
        assert (there["Threshold"], there["Period"]) == (alarm.threshold, alarm.period), name
        assert (there["EvaluationPeriods"], there["DatapointsToAlarm"]) == (alarm.of, alarm.periods), name
        assert there["TreatMissingData"] == alarm.missing, name
        assert {d["Name"]: d["Value"] for d in there["Dimensions"]} == dict(alarm.dimensions), name
    assert {action for alarm in result.values() for action in alarm["AlarmActions"]} == {topic}


def test_alerts_are_encrypted_and_refuse_plain_http(dev: Deployed) -> None:
    sns = dev.client("sns")
    (topic,) = sns.list_topics()["Topics"]
    attributes = sns.get_topic_attributes(TopicArn=topic["TopicArn"])["Attributes"]
    key = dev.client("kms").describe_key(KeyId=attributes["KmsMasterKeyId"])["KeyMetadata"]
    assert key["Description"] == "flights dev: alerts, state machines"
    denied = [s for s in json.loads(attributes["Policy"])["Statement"] if s["Effect"] == "Deny"]
    assert [s["Condition"] for s in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_each_job_has_a_state_machine_that_logs_and_that_its_ends_wake(dev: Deployed) -> None:
    machines, events = dev.client("stepfunctions"), dev.client("events")
    arns = [machine["stateMachineArn"] for machine in machines.list_state_machines()["stateMachines"]]
    woken = {
        target["Arn"]
        for rule in events.list_rules()["Rules"]
        for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    }
    for job in dev.names.environment.jobs:
        (arn,) = [arn for arn in arns if f":{dev.names.stack(f'job-{job}')}-" in arn]
        machine = machines.describe_state_machine(stateMachineArn=arn)
        assert machine["loggingConfiguration"]["level"] == "ALL"
        assert json.loads(machine["definition"])["StartAt"]
        assert machine["roleArn"].split("/")[1] in dev.roles()
        assert arn in woken


def test_what_localstack_leaves_out(dev: Deployed) -> None:
    """Why these are checked in the templates; when one of them fails, look at it here instead."""
    s3, lake = dev.client("s3"), dev.names.bucket("lake")
    (rule,) = s3.get_bucket_encryption(Bucket=lake)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket=lake)
    (stream,) = dev.client("kinesis").list_streams()["StreamNames"]
    summary = dev.client("kinesis").describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    assert summary["EncryptionType"] == "NONE"
    groups = dev.client("logs").describe_log_groups()["logGroups"]
    assert groups
    assert not any("kmsKeyId" in group or "retentionInDays" in group for group in groups)


def listed(item: Any) -> list[Any]:
    """Undo IAM's habit of writing a list of one as its item."""
    return item if isinstance(item, list) else [item]
