"""Each row of preflight: answers that fail it, and a missing permission, which makes it unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient

from millrace.config import load
from millrace.infra.constructs.alarms import alarm_name
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.preflight import account_checks as preflight_account
from millrace.lifecycle.preflight import policies_state_machines_drift as preflight_templates
from millrace.lifecycle.preflight.run_preflight_checks import PreflightAccount, run_all_checks
from millrace.sizing import plan
from tests.unit.lifecycle import preflight_answers
from tests.unit.lifecycle.preflight_answers import (
    ACCOUNT,
    CHECKS,
    ENDPOINTS,
    ENVIRONMENT,
    FINDING,
    GIVEN,
    GOOD,
    KEY,
    NEW,
    ROOT,
    ROUTE,
    STACK,
    TEMPLATES,
    ZONES,
    Answers,
    account_of,
    denied,
    error,
    rows,
    subnet,
)

FAILING: list[tuple[str, str, dict[str, Any]]] = [
    ("bootstrap", NEW, {"GetParameter": error("ParameterNotFound")}),
    ("bootstrap", NEW, {"GetParameter": {"Parameter": {"Value": "5"}}}),
    (
        "bootstrap key",
        NEW,
        {
            "GetBucketEncryption": {
                "ServerSideEncryptionConfiguration": {"Rules": [{"ApplyServerSideEncryptionByDefault": KEY}]}
            }
        },
    ),
    (
        "stack shop-prod-streams",
        NEW,
        {"ListStacks": {"StackSummaries": [{**STACK, "StackStatus": "UPDATE_ROLLBACK_FAILED"}]}},
    ),
    (
        "stack shop-prod-streams",
        NEW,
        {"ListStacks": {"StackSummaries": [{**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}]}},
    ),
    ("quota: Kinesis shards", NEW, {"DescribeLimits": {**GOOD["DescribeLimits"], "ShardLimit": 11}}),
    *(
        (subject, network, {"GetServiceQuota": {"Quota": {"Value": 0.0}}})
        for subject, network in (
            ("quota: Glue DPUs, without other jobs", NEW),
            ("quota: Glue runs, without other jobs", NEW),
            ("quota: EMR Serverless vCPUs, without other jobs", NEW),
            ("quota: MSK brokers", NEW),
            ("quota: VPCs", NEW),
            ("quota: Elastic IPs", NEW),
            ("quota: VPC endpoints", ENDPOINTS),
        )
    ),
    ("zones", NEW, {"DescribeAvailabilityZones": {"AvailabilityZones": ZONES[:2]}}),
    (
        "zones of EMR Serverless",
        NEW,
        {"DescribeAvailabilityZones": {"AvailabilityZones": [{"ZoneId": "use1-az3", "State": "available"}, *ZONES]}},
    ),
    (
        "subnets",
        GIVEN,
        {"DescribeSubnets": {"Subnets": [subnet("subnet-0a1b2c3d4e5f60718", VpcId="vpc-2")]}},
    ),
    (
        "addresses of subnets",
        GIVEN,
        {"DescribeSubnets": {"Subnets": [subnet("subnet-0a1b2c3d4e5f60718", AvailableIpAddressCount=1)]}},
    ),
    (
        "routes of subnet-0a1b2c3d4e5f60718",
        GIVEN,
        {
            "DescribeRouteTables": {
                "RouteTables": [
                    {"Associations": [{"Main": True}], "Routes": [{**ROUTE, "GatewayId": "igw-1"}]}
                ]
            }
        },
    ),
    (
        "version of own",
        NEW,
        {"ListKafkaVersions": {"KafkaVersions": [{"Version": "3.9.x.kraft", "Status": "DEPRECATED"}]}},
    ),
    ("bucket acme-lake", NEW, {"HeadBucket": error("404")}),
    (f"bucket shop-prod-checkpoints-{ACCOUNT}-us-east-1", NEW, {"HeadBucket": error("403")}),
    ("stream acme-clicks", NEW, {"DescribeStreamSummary": error("ResourceNotFoundException")}),
    ("cluster theirs", NEW, {"DescribeClusterV2": error("NotFoundException")}),
    ("cluster theirs", NEW, {"DescribeClusterV2": {"ClusterInfo": {"State": "DELETING"}}}),
    ("Lake Formation", NEW, {"GetDataLakeSettings": {"DataLakeSettings": {"DataLakeAdmins": []}}}),
    ("quota: roles", NEW, {"GetAccountSummary": {"SummaryMap": {"Roles": 1000, "RolesQuota": 1000}}}),
    (
        "state machine shop-prod-job-orders/Machine",
        NEW,
        {
            "ValidateStateMachineDefinition": {
                "result": "FAIL",
                "diagnostics": [{"severity": "ERROR", "code": "X", "message": "no state"}],
            }
        },
    ),
    (
        "VPC conditions of bucket acme-lake",
        ENDPOINTS,
        {"GetBucketPolicy": {"Policy": '{"Condition": {"StringNotEquals": {"aws:sourceVpce": "vpce-1"}}}'}},
    ),
    ("policy shop-prod-job-orders/Role", NEW, {"ValidatePolicy": {"findings": [FINDING]}}),
]  # fmt: skip


@pytest.mark.parametrize("network", [NEW, ENDPOINTS, GIVEN])
def test_an_account_that_is_ready_is(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = rows({}, network, tmp_path, monkeypatch)
    assert {each.subject: each for each in result.values() if each.verdict != "ok"} == {}
    # What is only deployed later costs nothing to ask, and every row has words.
    assert all(each.found for each in result.values())


@pytest.mark.parametrize(
    ("subject", "network", "given"), FAILING, ids=lambda each: each if isinstance(each, str) else ""
)
def test_each_row_can_fail_and_says_what_to_do(
    subject: str, network: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = rows(given, network, tmp_path, monkeypatch)
    assert result[subject].verdict == "failed", result
    assert result[subject].verdict == "failed"
    assert result[subject].remedy or subject.startswith(("state machine", "policy"))


def test_each_question_has_a_case_that_fails_and_one_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, unknown = set(), set()
    accounts = {network: account_of(network, tmp_path) for network in (NEW, ENDPOINTS, GIVEN)}
    none = {operation: denied(operation) for operation in GOOD}
    for network, given in [(n, g) for _, n, g in FAILING] + [(network, none) for network in accounts]:
        answers = Answers(given)
        monkeypatch.setattr(BaseClient, "_make_api_call", lambda *asked, to=answers: to.call(*asked))
        for name, check in CHECKS.items():
            asked = run_all_checks(
                PreflightAccount(accounts[network].aws, accounts[network].plan, TEMPLATES), {name: check}
            )
            if given is none:
                assert all((each.subject, each.verdict) == (name, "not known") for each in asked), asked
                unknown |= {name} if asked else set()
            elif any(row.verdict == "failed" for row in asked):
                refused.add(name)
    assert unknown == set(CHECKS)
    # No operation tells an account's quota of alarms, so more than usual is a warning.
    assert refused == set(CHECKS) - {"quota: alarms"}


def test_a_row_of_each_question_is_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question without a failing case is one that nobody tried."""
    asked = set().union(
        *(rows({}, network, tmp_path, monkeypatch)[1].asked for network in (NEW, ENDPOINTS, GIVEN))
    )
    changed = {operation for _, _, given in FAILING for operation in given}
    # They say how much is in use, which the quota's own case counts; that of alarms is no more than a warning.
    used = {"ListClustersV2", "DescribeVpcs", "DescribeAddresses", "DescribeVpcEndpoints", "DescribeAlarms"}
    assert asked - changed == used


@pytest.mark.parametrize("operation", sorted(GOOD))
def test_a_missing_permission_makes_rows_unknown_and_stops_no_other(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = [
        {**STACK, "StackName": f"shop-prod-{part}", "StackStatus": "UPDATE_COMPLETE"}
        for part in ("network", "streams")
    ]
    drift = "Drift" in operation
    deployed = {"ListStacks": {"StackSummaries": stacks}} if drift or operation == "GetTemplate" else {}
    for network in (NEW, ENDPOINTS, GIVEN):
        given = {**deployed, operation: denied(operation)}
        result, answers = rows(given, network, tmp_path, monkeypatch, drift=drift)
        unknown = [each for each in result.values() if each.verdict == "not known"]
        assert not any(row.verdict == "failed" for row in result.values())
        if operation in answers.asked:
            assert {each.found for each in unknown} == {f"AccessDeniedException at {operation}"}, result
            assert len(unknown) < len(result)
            return
    raise AssertionError(f"{operation} is never asked")


def encrypted(key: str) -> dict[str, Any]:
    rule = {"ApplyServerSideEncryptionByDefault": {**KEY, "KMSMasterKeyID": key}}
    return {"GetBucketEncryption": {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}}


OWN_KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.mark.parametrize(
    ("subject", "verdict", "network", "given"),
    [
        (
            "quota: alarms",
            "warning",
            NEW,
            {"DescribeAlarms": {"MetricAlarms": [{"AlarmName": f"other-{n}"} for n in range(9000)]}},
        ),
        *(
            ("cluster theirs", "warning", NEW, {"DescribeClusterV2": {"ClusterInfo": {"State": state}}})
            for state in ("HEALING", "MAINTENANCE", "REBOOTING_BROKER", "UPDATING")
        ),
        ("bucket acme-lake", "not known", NEW, {"HeadBucket": error("403")}),
        (
            "bootstrap key",
            "ok",
            f"governance: {{bootstrap_key: 'arn:aws:kms:us-east-1:{ACCOUNT}:key/{OWN_KEY}'}}\n",
            encrypted(OWN_KEY),
        ),
    ],
)
def test_what_may_go_well_is_not_refused(
    subject: str,
    verdict: str,
    network: str,
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A raised quota, brokers at work, a bucket of another account, a key that the bucket names by its id."""
    result, _ = rows(given, network, tmp_path, monkeypatch)
    assert result[subject].verdict == verdict, result[subject]


def test_a_key_that_the_file_lacks_is_named_by_its_arn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = rows(encrypted(OWN_KEY), NEW, tmp_path, monkeypatch)[0]["bootstrap key"]
    assert f"arn:aws:kms:us-east-1:{ACCOUNT}:key/{OWN_KEY}" in row.remedy


def test_endpoints_of_china_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: set[str] = set()
    closed = {"DescribeRouteTables": {"RouteTables": [{"Associations": [{"Main": True}], "Routes": []}]}}
    for prefix in ("com.amazonaws", "cn.com.amazonaws"):
        reached = [
            {"ServiceName": f"{prefix}.us-east-1.{each}"} for each in ("s3", *plan_services(GIVEN, tmp_path))
        ]
        given = {**closed, "DescribeVpcEndpoints": {"VpcEndpoints": reached}}
        result, _ = rows(given, GIVEN, tmp_path, monkeypatch)
        named.add(result["routes of subnet-0a1b2c3d4e5f60718"].found)
    assert named == {"endpoints"}


def plan_services(network: str, folder: Path) -> tuple[str, ...]:
    file = folder / "prod.yaml"
    file.write_text(ENVIRONMENT.format(network=network))
    return tuple(plan(load(file, ROOT)).network.services)


def network_template(*kinds: str) -> dict[str, Any]:
    resources = {f"Resource{number}": {"Type": kind} for number, kind in enumerate(kinds)}
    return {"TemplateBody": json.dumps({"Resources": resources})}


@pytest.mark.parametrize(
    ("kinds", "needed"),
    [
        (("AWS::EC2::VPC", "AWS::EC2::VPCEndpoint"), {"quota: Elastic IPs": "3 more and 5 in use of 5"}),
        (
            ("AWS::EC2::VPC", "AWS::EC2::EIP", "AWS::EC2::EIP"),
            {"quota: Elastic IPs": "1 more and 5 in use of 5"},
        ),
        (
            ("AWS::EC2::SecurityGroup",),
            {"quota: Elastic IPs": "3 more and 5 in use of 5", "quota: VPCs": "1 more and 5 in use of 5"},
        ),
    ],
)
def test_a_deployed_network_needs_what_it_does_not_have_yet(
    kinds: tuple[str, ...], needed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had endpoints until now, gateways in fewer zones, or a VPC of others."""
    stack = {**STACK, "StackName": "shop-prod-network", "StackStatus": "UPDATE_COMPLETE"}
    given = {
        "ListStacks": {"StackSummaries": [stack]},
        "GetTemplate": network_template(*kinds),
        "GetServiceQuota": {"Quota": {"Value": 5.0}},
        "DescribeAddresses": {"Addresses": [{}] * 5},
        "DescribeVpcs": {"Vpcs": [{}] * 5},
    }
    result, _ = rows(given, NEW, tmp_path, monkeypatch)
    asked = {
        subject: each for subject, each in result.items() if subject in ("quota: Elastic IPs", "quota: VPCs")
    }
    assert {subject: each.found for subject, each in asked.items()} == needed
    assert {each.verdict for each in asked.values()} == {"failed"}


def test_alarms_of_another_environment_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ``prod2`` and ``prod-2`` are not of ``prod``, which counts its own once."""
    account = account_of(NEW, tmp_path)
    own = [alarm_name(account.aws.names, each) for each in account.plan.alarms]
    names = [*(f"shop-prod{part}/{n}" for part in ("2", "-2") for n in range(2000)), *own]
    given = {"DescribeAlarms": {"MetricAlarms": [{"AlarmName": name} for name in names]}}
    row = rows(given, NEW, tmp_path, monkeypatch)[0]["quota: alarms"]
    assert row.found == f"{len(own)} more and 4,000 in use of 5,000"


def test_what_is_deployed_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards, VPC and buckets of the deployed environment are in use already."""
    stacks = [
        {**STACK, "StackName": f"shop-prod-{part}", "StackStatus": "CREATE_COMPLETE"}
        for part in ("streams", "network", "storage")
    ]
    summary = GOOD["DescribeStreamSummary"]({"StreamName": "acme-clicks"})
    given = {
        "ListStacks": {"StackSummaries": stacks},
        "GetTemplate": network_template("AWS::EC2::VPC", *["AWS::EC2::EIP"] * 3),
        "DescribeLimits": {**GOOD["DescribeLimits"], "ShardLimit": 10},
        "DescribeStreamSummary": {
            "StreamDescriptionSummary": {**summary["StreamDescriptionSummary"], "OpenShardCount": 50}
        },
    }
    result, _ = rows(given, NEW, tmp_path, monkeypatch)
    assert result["quota: Kinesis shards"].verdict == "warning"  # all ten are in use, and no more are needed
    assert (
        not {"quota: VPCs", "quota: Elastic IPs", f"bucket shop-prod-checkpoints-{ACCOUNT}-us-east-1"}
        & result.keys()
    )


def test_names_that_exist_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left by an earlier deployment, which kept its data: the next one imports them."""
    summary = GOOD["DescribeStreamSummary"]({"StreamName": "acme-clicks"})
    result, _ = rows({"HeadBucket": {}, "DescribeStreamSummary": summary}, NEW, tmp_path, monkeypatch)
    shown = {name for name, each in result.items() if each.verdict == "warning"}
    assert {"stream shop-prod-orders", f"bucket shop-prod-checkpoints-{ACCOUNT}-us-east-1"} <= shown


def test_what_stayed_under_a_key_that_no_stack_has_is_imported_with_that_key_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation imports no key, so jobs would get the right to a new one."""
    key = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/{OWN_KEY}"
    summary = GOOD["DescribeStreamSummary"]({"StreamName": "acme-clicks"})["StreamDescriptionSummary"]
    given = {
        "HeadBucket": {},
        "DescribeStreamSummary": {"StreamDescriptionSummary": {**summary, "KeyId": key}},
        **encrypted(OWN_KEY),
    }
    buckets = {"checkpoints": "data", "dead-letters": "data", "event-logs": "logs"}
    subjects = {f"bucket shop-prod-{kind}-{ACCOUNT}-us-east-1": each for kind, each in buckets.items()}
    subjects["stream shop-prod-orders"] = "streams"
    result, _ = rows(given, NEW, tmp_path, monkeypatch)
    for subject, data_class in subjects.items():
        assert result[subject].verdict == "failed"
        assert f"write storage.keys.{data_class}: {key}" in result[subject].remedy
    named = ", ".join(f"{each}: '{key}'" for each in ("data", "logs", "streams"))
    with_keys = ENVIRONMENT.replace("lake: acme-lake}}", f"lake: acme-lake}}}}, keys: {{{{{named}}}}}")
    monkeypatch.setattr(preflight_answers, "ENVIRONMENT", with_keys)
    result, _ = rows(given, NEW, tmp_path, monkeypatch)
    assert {result[subject].verdict for subject in subjects} == {"warning"}


def test_a_cluster_that_stayed_is_declared_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = f"arn:aws:kafka:us-east-1:{ACCOUNT}:cluster/shop-prod-own/1234abcd-12ab-34cd-56ef-1234567890ab-2"
    clusters = {"ListClustersV2": {"ClusterInfoList": [{"ClusterName": "shop-prod-own", "ClusterArn": arn}]}}
    result, _ = rows(clusters, NEW, tmp_path, monkeypatch)
    assert result["cluster own"].verdict == "failed"
    assert f"write kafka.own.existing: {arn}" in result["cluster own"].remedy
    deployed = [{**STACK, "StackName": "shop-prod-kafka", "StackStatus": "CREATE_COMPLETE"}]
    result, _ = rows({**clusters, "ListStacks": {"StackSummaries": deployed}}, NEW, tmp_path, monkeypatch)
    assert "cluster own" not in result
    assert rows({}, NEW, tmp_path, monkeypatch)[0]["cluster own"].verdict == "ok"


def test_a_quota_that_nobody_raised_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "GetServiceQuota": error("NoSuchResourceException"),
        "GetAWSDefaultServiceQuota": {"Quota": {"Value": 0.0}},
    }
    result, _ = rows(given, NEW, tmp_path, monkeypatch)
    row = result["quota: EMR Serverless vCPUs, without other jobs"]
    assert row.verdict == "failed"
    assert "--service-code emr-serverless --quota-code L-D05C8A75" in row.command


def test_drift_names_what_somebody_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    difference = {
        "StackId": "s", "LogicalResourceId": "Orders", "ResourceType": "AWS::Kinesis::Stream", "Timestamp": 0,
        "StackResourceDriftStatus": "MODIFIED",
        "PropertyDifferences": [
            {"PropertyPath": "/ShardCount", "ExpectedValue": "1", "ActualValue": "2", "DifferenceType": "NOT_EQUAL"}
        ],
    }  # fmt: skip
    given = {
        "ListStacks": {"StackSummaries": [{**STACK, "StackStatus": "UPDATE_COMPLETE"}]},
        "DescribeStackResourceDrifts": {"StackResourceDrifts": [difference]},
    }
    row = rows(given, NEW, tmp_path, monkeypatch, drift=True)[0]["drift of shop-prod-streams"]
    assert (row.verdict, row.found) == ("warning", "Orders: modified /ShardCount")


def test_definitions_are_json_for_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def valid(given: dict[str, Any]) -> dict[str, Any]:
        said.append(given["definition"])
        return dict(GOOD["ValidateStateMachineDefinition"])

    rows({"ValidateStateMachineDefinition": valid}, NEW, tmp_path, monkeypatch)
    assert [json.loads(each) for each in said] == [{"Resource": "arn:aws:states:::x"}]


def test_servers_that_answer_like_aws_are_asked(aws: DeployedEnvironment) -> None:
    """Moto lacks some operations: those rows are not known, and no question ends the others."""
    account = PreflightAccount(aws, plan(aws.names.environment), {})
    result = run_all_checks(account, {**preflight_account.CHECKS, **preflight_templates.CHECKS})
    verdicts = {each.subject: each.verdict for each in result}
    assert verdicts["bootstrap"] == "failed"
    assert verdicts["quota: Kinesis shards"] == verdicts["stacks"] == verdicts["quota: roles"] == "ok"
    assert "zones" not in verdicts, "nothing there needs a VPC"
    aws.client("kinesis").create_stream(StreamName=aws.names.stream("clicks"), ShardCount=1)
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="28", Type="String")
    again = {each.subject: each.verdict for each in run_all_checks(account, preflight_account.CHECKS)}
    assert again[f"stream {aws.names.stream('clicks')}"] == "warning"
    assert again["bootstrap"] == "ok"
