"""Roles, network and the cdk-nag rule packs."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from millrace.config import load
from millrace.config.model import GlueJob, KafkaTopic
from millrace.config.network_storage_governance_observability import Network
from millrace.config.queries import OneStreamQueryBase
from tests.template.conftest import ROOT, Synthesis, Synthesise


def listed(value: Any) -> list[Any]:
    """Undo CloudFormation's habit of writing a list of one as its item."""
    return value if isinstance(value, list) else [value]


def test_the_rule_packs_find_nothing(each: Synthesis) -> None:
    assert each.findings == []


def test_a_wildcard_without_a_reason_stops_the_synthesis(
    synthesise: Synthesise, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("millrace.infra.permissions.job_permissions.FILES", None)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        synthesise(load("minimal", root=ROOT))


def test_there_is_no_lambda_function_and_no_custom_resource(each: Synthesis) -> None:
    kinds = {r["Type"] for template in each.templates.values() for r in template["Resources"].values()}
    assert not [
        kind
        for kind in kinds
        if kind.startswith(("AWS::Lambda::", "Custom::", "AWS::CloudFormation::Custom"))
    ]


def test_no_role_has_a_managed_policy(each: Synthesis) -> None:
    roles = each.resources("AWS::IAM::Role")
    assert len(roles) > len(each.environment.jobs)
    for path, role in roles.items():
        assert "ManagedPolicyArns" not in role["Properties"], path


def test_no_statement_of_a_job_allows_a_whole_service(each: Synthesis) -> None:
    for part, statement in each.statements():
        if part.startswith("job-"):
            assert not [action for action in listed(statement["Action"]) if "*" in action], statement


ON_EVERYTHING = {
    "cloudwatch:GetMetricData",
    "cloudwatch:PutMetricData",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcEndpoints",
    "kafka:GetBootstrapBrokers",
    "kafka:ListClustersV2",
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
"""Actions for which IAM knows no resource."""


def test_only_what_knows_no_resource_is_allowed_on_everything(each: Synthesis) -> None:
    for part, statement in each.statements():
        if part.startswith("job-") and "*" in listed(statement["Resource"]):
            assert set(listed(statement["Action"])) <= ON_EVERYTHING, statement


def test_no_job_changes_what_stands_in_a_log(each: Synthesis) -> None:
    """The record of an erasure is in the job's log: no role of a job may delete, shorten or hide it."""
    writes = {"logs:AssociateKmsKey", "logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"}
    for part, statement in each.statements():
        if part.startswith("job-") and statement["Effect"] == "Allow":
            used = {a for a in listed(statement["Action"]) if a.startswith("logs:")}
            assert {a for a in used if not a.startswith(("logs:Describe", "logs:Get", "logs:List"))} <= (
                writes | ON_EVERYTHING
            ), (part, statement)


def test_no_job_writes_what_a_rollback_deploys(each: Synthesis) -> None:
    """An explicit refusal: CloudFormation deploys a kept template with the rights of the bootstrap."""
    for job in each.environment.jobs:
        place = each.names.versions_url(job).replace("s3://", "arn:aws:s3:::") + "/1.json"
        parameter = each.names.arn("ssm", f"parameter{each.names.versions_parameter(job)}")
        for own in each.environment.jobs:
            told = {
                (action, statement["Effect"])
                for part, statement in each.statements()
                if part == f"job-{own}"
                for action in listed(statement["Action"])
                for resource in listed(statement["Resource"])
                if isinstance(resource, str)
                and (fnmatchcase(place, resource) or fnmatchcase(parameter, resource))
            }
            assert {
                ("s3:PutObject", "Deny"),
                ("s3:DeleteObject", "Deny"),
                ("ssm:PutParameter", "Deny"),
            } <= told
            on_all = {(action, "Allow") for action in ON_EVERYTHING}
            assert {each for each in told if each[1] == "Allow"} <= on_all


def test_engines_assume_roles_for_this_account_only(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        statements = [
            statement
            for role in each.resources("AWS::IAM::Role", f"job-{name}").values()
            for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        ]
        for statement in statements:
            assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": each.names.account}
            assert "aws:SourceArn" in statement["Condition"]["ArnLike"]
        service = "glue.amazonaws.com" if isinstance(job, GlueJob) else "emr-serverless.amazonaws.com"
        assert {statement["Principal"]["Service"] for statement in statements} == {
            service,
            "states.amazonaws.com",
            "events.amazonaws.com",
        }


def test_a_job_reads_its_own_sources_and_tables_only(prod: Synthesis) -> None:
    text = str([s for part, s in prod.statements() if part == "job-departures"])
    assert prod.names.stream("departures") in text
    assert "departures_landed" in text
    for foreign in ("positions", "baggage", "bookings", "flights_landed", "kafka"):
        assert foreign not in text


def test_reference_tables_cannot_be_written(prod: Synthesis) -> None:
    for part, statement in prod.statements():
        if part == "job-departures" and "airlines" in str(statement["Resource"]):
            assert statement["Action"] in ("glue:GetTable", "s3:GetObject", "s3:ListBucket"), statement


def test_workers_reach_those_of_their_own_job_and_https_and_nothing_comes_in(prod: Synthesis) -> None:
    groups = prod.resources("AWS::EC2::SecurityGroup", "network")
    workers = next(g["Properties"] for path, g in groups.items() if "/Workers" in path)
    assert "SecurityGroupIngress" not in workers
    assert {(rule["FromPort"], rule["CidrIp"]) for rule in workers["SecurityGroupEgress"]} == {
        (443, "0.0.0.0/0"),
        (9098, "0.0.0.0/0"),
    }
    within = set()
    for path, rule in prod.resources("AWS::EC2::SecurityGroupIngress").items():
        assert "CidrIp" not in rule["Properties"]
        if rule["Properties"]["SourceSecurityGroupId"] == rule["Properties"]["GroupId"]:
            within.add(path.split("/")[0])
        else:
            assert (rule["Properties"]["FromPort"], rule["Properties"]["ToPort"]) in {
                (443, 443),
                (9098, 9098),
            }
    assert within == {f"job-{job}" for job in prod.documents}
    for job in prod.documents:
        ((path, group),) = prod.resources("AWS::EC2::SecurityGroup", f"job-{job}").items()
        own = {"Fn::GetAtt": [path.split("/")[1], "GroupId"]}
        assert "SecurityGroupIngress" not in group["Properties"]
        rules = prod.resources("AWS::EC2::SecurityGroupEgress", f"job-{job}").values()
        assert [rule["Properties"]["DestinationSecurityGroupId"] for rule in rules] == [own]
        connections = prod.resources("AWS::Glue::Connection", f"job-{job}").values()
        used = [
            c["Properties"]["ConnectionInput"]["PhysicalConnectionRequirements"]["SecurityGroupIdList"]
            for c in connections
        ]
        applications = prod.resources("AWS::EMRServerless::Application", f"job-{job}").values()
        used += [a["Properties"]["NetworkConfiguration"]["SecurityGroupIds"] for a in applications]
        for shared, mine in used:
            assert "Workers" in json.dumps(shared)
            assert mine == own
        assert used, job


def test_workers_on_emr_know_each_other_by_certificates(each: Synthesis) -> None:
    for job, document in each.documents.items():
        expected = "true" if document["engine"] == "emr" else None
        assert document["spark"].get("spark.ssl.internode.enabled") == expected, job


def test_no_bucket_of_somebody_else_is_read_through_the_endpoint(each: Synthesis) -> None:
    """A name that ends with a wildcard is anybody's: names of buckets are free for all accounts."""
    checked = 0
    for path, endpoint in each.resources("AWS::EC2::VPCEndpoint", "network").items():
        for statement in endpoint["Properties"]["PolicyDocument"]["Statement"]:
            condition = statement.get("Condition", {}).get("StringEquals", {})
            if endpoint["Properties"]["VpcEndpointType"] != "Gateway" or "aws:ResourceAccount" in condition:
                continue
            for resource in listed(statement["Resource"]):
                bucket = json.dumps(resource).split(":::")[-1].split("/")[0] if resource != "*" else "*"
                assert "*" not in bucket or "dynamodb:*" in listed(statement["Action"]), (path, resource)
                checked += 1
    assert bool(checked) == ("network" in each.templates)


def test_a_dns_firewall_lets_named_domains_through_alone(prod: Synthesis, synthesise: Synthesise) -> None:
    assert prod.resources("AWS::Route53Resolver::FirewallRuleGroup") == {}
    assert not [line for line in prod.plan.shared if line.name.startswith("DNS")]
    environment = load("minimal", root=ROOT)
    network = Network(allowed_domains=("*.example.com",))
    result = synthesise(environment.model_copy(update={"network": network}))
    lists = {
        path.split("/")[1]: r["Properties"]["Domains"]
        for path, r in result.resources("AWS::Route53Resolver::FirewallDomainList").items()
    }
    rules = result.the("AWS::Route53Resolver::FirewallRuleGroup", "network")["FirewallRules"]
    rules.sort(key=lambda rule: rule["Priority"])
    first, last = (lists[rule["FirewallDomainListId"]["Fn::GetAtt"][0]] for rule in rules)
    assert [rule["Action"] for rule in rules] == ["ALLOW", "BLOCK"]
    assert last == ["*"]
    assert {"*.amazonaws.com", "*.example.com"} <= set(first)
    assert "*" not in first

    def resolves(name: str) -> bool:
        return any(name == each or (each[0] == "*" and name.endswith(each[1:])) for each in first)

    region = environment.region
    called = {"kinesis-streams": "kinesis", "monitoring": "monitoring"}
    for service in result.plan.network.services:
        assert resolves(f"{called.get(service, service)}.{region}.amazonaws.com")
    assert not resolves("c2VjcmV0.attacker.example.net")
    tied = result.the("AWS::Route53Resolver::FirewallRuleGroupAssociation", "network")
    (vpc,) = result.resources("AWS::EC2::VPC")
    assert tied["VpcId"] == {"Ref": vpc.split("/")[1]}
    assert [line.name for line in result.plan.shared if line.name.startswith("DNS")] == [
        "DNS queries",
        "DNS domains",
    ]
    assert result.findings == []


def test_the_vpc_has_no_way_out(each: Synthesis) -> None:
    for kind in ("AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::EIP"):
        assert each.resources(kind) == {}
    if each.plan.network.egress.value == "none":
        assert each.resources("AWS::EC2::VPC") == {}
        return
    subnets = each.resources("AWS::EC2::Subnet", "network")
    assert len(subnets) == each.environment.zone_count
    assert not any(subnet["Properties"]["MapPublicIpOnLaunch"] for subnet in subnets.values())
    assert len(each.resources("AWS::EC2::FlowLog", "network")) == 1


def test_only_services_that_jobs_call_have_endpoints(prod: Synthesis, synthesise: Synthesise) -> None:
    def services(found: Synthesis) -> set[str]:
        endpoints = found.resources("AWS::EC2::VPCEndpoint", "network").values()
        assert sum(e["Properties"]["VpcEndpointType"] == "Gateway" for e in endpoints) == 1
        interfaces = [e["Properties"] for e in endpoints if e["Properties"]["VpcEndpointType"] == "Interface"]
        return {properties["ServiceName"].rsplit(".", 1)[1] for properties in interfaces}

    everywhere = {"logs", "monitoring", "kms", "sts", "glue", "kinesis-streams"}
    assert services(prod) == everywhere | {"kafka"}
    environment = load("minimal", root=ROOT)
    inside = environment.network.model_copy(update={"egress": "endpoints"})
    assert services(synthesise(environment.model_copy(update={"network": inside}))) == everywhere


def test_endpoints_serve_this_account_only(prod: Synthesis) -> None:
    for path, endpoint in prod.resources("AWS::EC2::VPCEndpoint").items():
        first = endpoint["Properties"]["PolicyDocument"]["Statement"][0]
        assert first["Condition"]["StringEquals"]["aws:PrincipalAccount"] == prod.names.account, path


@pytest.mark.slow
def test_a_vpc_of_ones_own_is_left_as_it_is(synthesise: Synthesise) -> None:
    network = Network(
        vpc="vpc-0123456789abcdef0", subnets=("subnet-0123456789abcdef0", "subnet-0123456789abcdef1")
    )
    result = synthesise(load("prod", root=ROOT).model_copy(update={"network": network}))
    kinds = {r["Type"] for r in result.templates["network"]["Resources"].values()}
    assert kinds <= {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
    }
    application = result.the("AWS::EMRServerless::Application", "job-flights")
    assert application["NetworkConfiguration"]["SubnetIds"] == list(network.subnets)


def test_a_job_writes_below_its_own_prefixes_only(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        tables = [table for query in job.queries.values() for table in query.created_tables_by_place.values()]
        if any(
            isinstance(each.environment.streams[query.source], KafkaTopic)
            for query in job.queries.values()
            if isinstance(query, OneStreamQueryBase)
        ):
            # What a benchmark of the job makes and drops.
            tables += [f"{table}_benchmark" for table in tables]
        written = {
            resource
            for part, statement in each.statements()
            if part == f"job-{name}"
            and statement["Effect"] == "Allow"
            and "s3:PutObject" in listed(statement["Action"])
            for resource in listed(statement["Resource"])
        }
        lake, database = each.names.bucket("lake"), each.names.database
        assert written == {
            f"arn:aws:s3:::{each.names.bucket('checkpoints')}/{name}/*",
            f"arn:aws:s3:::{each.names.bucket('event-logs')}/{job.engine}/{name}/*",
            *(f"arn:aws:s3:::{lake}/warehouse/{database}.db/{table}/*" for table in tables),
            f"arn:aws:s3:::{lake}/warehouse/{database}.db/_erasures/{name}/*",
        }
