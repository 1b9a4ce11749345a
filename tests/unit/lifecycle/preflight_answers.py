"""An account's answers to preflight, validated against botocore's own models of the services."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.preflight import account_checks as preflight_account
from millrace.lifecycle.preflight import policies_state_machines_drift as preflight_templates
from millrace.lifecycle.preflight.run_preflight_checks import PreflightAccount, PreflightRow, run_all_checks
from millrace.sizing import plan

ACCOUNT = "444455556666"
ROOT = Path(__file__).parents[3]
ENVIRONMENT = """\
project: shop
account: "444455556666"
region: us-east-1
{network}storage: {{lake_formation: tables, buckets: {{lake: acme-lake}}}}
kafka:
  own: {{kind: msk, version: 3.9.x.kraft}}
  theirs: {{kind: msk, existing: "arn:aws:kafka:us-east-1:444455556666:cluster/acme/1234abcd-12ab-34cd-56ef-1234567890ab-1"}}
streams:
  orders: {{kind: kinesis, traffic: {{records_per_second: 3000, record_size: 300B}}}}
  clicks: {{kind: kinesis, existing: acme-clicks, shards: 2, traffic: {{records_per_second: 100, record_size: 300B}}}}
  scans: {{kind: kafka, cluster: own, traffic: {{records_per_second: 100, record_size: 300B}}}}
jobs:
  orders:
    engine: glue
    queries:
      land-orders: {{kind: land, source: orders, table: orders_landed, schema: pipelines/clicks/schemas/click.ddl}}
      land-clicks: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
  scans:
    engine: emr
    queries:
      land-scans: {{kind: land, source: scans, table: scans_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""
NEW = "network: {egress: nat}\n"
ENDPOINTS = ""
GIVEN = (
    "network: {vpc: vpc-0a1b2c3d4e5f60718, subnets: [subnet-0a1b2c3d4e5f60718, subnet-0b1b2c3d4e5f60719]}\n"
)
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
}
TEMPLATES: dict[str, Any] = {
    "shop-prod-job-orders": {
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {"Policies": [{"PolicyName": "x", "PolicyDocument": POLICY}]},
            },
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "DefinitionString": {
                        "Fn::Join": ["", ['{"Resource": "arn:', {"Ref": "AWS::Partition"}, ':states:::x"}']]
                    }
                },
            },
        }
    }
}


def denied(operation: str) -> ClientError:
    return ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "it")


def subnet(name: str, **more: Any) -> dict[str, Any]:
    result = {"SubnetId": name, "VpcId": "vpc-0a1b2c3d4e5f60718", "AvailabilityZoneId": "use1-az1"}
    return {**result, "AvailableIpAddressCount": 4000, **more}


ROUTE = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}
ZONES = [{"ZoneId": f"use1-az{n}", "State": "available"} for n in (1, 2, 4)]
GOOD: dict[str, Any] = {
    "GetParameter": {"Parameter": {"Value": "28"}},
    "GetBucketEncryption": {
        "ServerSideEncryptionConfiguration": {
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        }
    },
    "ListStacks": {"StackSummaries": []},
    "GetTemplate": {"TemplateBody": '{"Resources": {}}'},
    "DescribeLimits": {"ShardLimit": 20000, "OpenShardCount": 10, "OnDemandStreamCount": 0, "OnDemandStreamCountLimit": 50},
    "GetServiceQuota": {"Quota": {"Value": 1000.0}},
    "ListClustersV2": {"ClusterInfoList": []},
    "DescribeVpcs": {"Vpcs": [{"VpcId": "vpc-1"}]},
    "DescribeAddresses": {"Addresses": []},
    "DescribeAlarms": {"MetricAlarms": []},
    "DescribeAvailabilityZones": {"AvailabilityZones": ZONES},
    "DescribeSubnets": {"Subnets": [subnet("subnet-0a1b2c3d4e5f60718"), subnet("subnet-0b1b2c3d4e5f60719")]},
    "DescribeRouteTables": {"RouteTables": [{"Associations": [{"Main": True}], "Routes": [ROUTE]}]},
    "DescribeVpcEndpoints": {"VpcEndpoints": []},
    "ListKafkaVersions": {"KafkaVersions": [{"Version": "3.9.x.kraft", "Status": "ACTIVE"}]},
    "HeadBucket": lambda given: {} if given["Bucket"] == "acme-lake" else error("404"),
    "GetBucketPolicy": error("NoSuchBucketPolicy"),
    "DescribeStreamSummary": lambda given: (
        {
            "StreamDescriptionSummary": {
                "StreamName": "acme-clicks", "StreamARN": "arn", "StreamStatus": "ACTIVE", "RetentionPeriodHours": 24,
                "StreamCreationTimestamp": 0, "EnhancedMonitoring": [], "OpenShardCount": 2,
            }
        }
        if given["StreamName"] == "acme-clicks"
        else error("ResourceNotFoundException")
    ),
    "DescribeClusterV2": {"ClusterInfo": {"State": "ACTIVE"}},
    "GetDataLakeSettings": {
        "DataLakeSettings": {
            "DataLakeAdmins": [
                {"DataLakePrincipalIdentifier": f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-us-east-1"}
            ]
        }
    },
    "GetAccountSummary": {"SummaryMap": {"Roles": 10, "RolesQuota": 1000}},
    "ValidateStateMachineDefinition": {"result": "OK", "diagnostics": []},
    "ValidatePolicy": {"findings": []},
    "DetectStackDrift": {"StackDriftDetectionId": "1"},
    "DescribeStackDriftDetectionStatus": {
        "StackId": "s", "StackDriftDetectionId": "1", "DetectionStatus": "DETECTION_COMPLETE", "Timestamp": 0,
    },
    "DescribeStackResourceDrifts": {"StackResourceDrifts": []},
}  # fmt: skip
FINDING = {
    "findingDetails": "no such action", "findingType": "ERROR", "issueCode": "X", "learnMoreLink": "l", "locations": [],
}  # fmt: skip
STACK = {"StackName": "shop-prod-streams", "CreationTime": 0}
KEY = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "arn:aws:kms:us-east-1:444455556666:key/1"}


class Answers:
    """Takes the place of botocore's own method: a validated answer, or an error, by operation."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = {**copy.copy(GOOD), **given}
        self.asked: set[str] = set()

    def call(self, client: Any, operation: str, params: dict[str, Any]) -> Any:
        model = client.meta.service_model.operation_model(operation)
        self.asked.add(operation)
        result = self.given[operation]
        if callable(result):
            result = result(params)
        for what, shape in ((params, model.input_shape), (result, model.output_shape)):
            if shape is not None and not isinstance(what, Exception):
                errors = ParamValidator().validate(what, shape)
                assert not errors.has_errors(), (operation, errors.generate_report())
        if isinstance(result, Exception):
            raise result
        return result


@cache
def client_of(service: str) -> Any:
    """A service's client, which all tests share: what it answers is set on its class."""
    make: Any = boto3.client
    return make(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


CHECKS = {**preflight_account.CHECKS, **preflight_templates.CHECKS}


def account_of(network: str, folder: Path) -> PreflightAccount:
    file = folder / "prod.yaml"
    file.write_text(ENVIRONMENT.format(network=network))
    environment = load(file, ROOT)
    return PreflightAccount(
        DeployedEnvironment(Names(environment, ACCOUNT), client_of), plan(environment), TEMPLATES
    )


def rows(
    given: dict[str, Any],
    network: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    drift: bool = False,
) -> tuple[dict[str, PreflightRow], Answers]:
    answers = Answers(given)
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *asked: answers.call(*asked))
    checks = {**CHECKS, **({"drift": preflight_templates.check_drift} if drift else {})}
    return {each.subject: each for each in run_all_checks(account_of(network, tmp_path), checks)}, answers
