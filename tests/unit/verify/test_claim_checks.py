"""Each check of a claim: true, false and undecided, on answers that botocore's models allow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from millrace.config import load
from millrace.config.aws.kafka_versions import STANDARD
from millrace.verify.account import account_checks, check_claims, deployment_checks
from millrace.verify.account.check_input_and_answer import Check, ClaimContext, UndeterminedError
from millrace.verify.account.claims import read_claims
from tests.unit.verify.stubbed_account import (
    ACCOUNT,
    NOW,
    ROOT,
    Answers,
    Refused,
    absent,
    question,
    resources,
    stack,
    table,
)

POLICY = {"deployer.json": {"Version": "2012-10-17", "Statement": []}}
MACHINE = f"arn:aws:states:us-east-1:{ACCOUNT}:stateMachine:m"
EXECUTION = f"arn:aws:states:us-east-1:{ACCOUNT}:execution:m:e"
DEPLOYED = {"DescribeStacks": stack(ApplicationId="00f", StateMachineArn=MACHINE)}


class Answer(NamedTuple):
    """What a check says: true, false, or None where it raises that it cannot tell."""

    holds: bool | None
    seen: str


def answer_of(check: Check, context: ClaimContext) -> Answer:
    try:
        told = check(context)
    except UndeterminedError as error:
        return Answer(None, str(error))
    return Answer(told.holds, told.seen)


def found(*findings: tuple[str, str]) -> Answers:
    told = [
        {"findingType": kind, "issueCode": code, "findingDetails": "", "learnMoreLink": "", "locations": []}
        for kind, code in findings
    ]
    return {"accessanalyzer": {"ValidatePolicy": {"findings": told}}}


def versions(*active: str) -> Answers:
    given = [{"Version": each, "Status": "ACTIVE"} for each in active]
    return {
        "kafka": {
            "ListKafkaVersions": {"KafkaVersions": [*given, {"Version": "2.8.1", "Status": "DEPRECATED"}]}
        }
    }


def types(**said: list[str]) -> Answers:
    def answer(params: Mapping[str, str]) -> Any:
        kind = params["TypeName"]
        if kind == said.get("lacking"):
            return Refused("TypeNotFoundException")
        schema = {
            "properties": dict.fromkeys(account_checks.RESOURCE_TYPES[kind]),
            "createOnlyProperties": [f"/properties/{each}" for each in said.get("only", ())],
        }
        return {"Schema": json.dumps(schema)}

    return {"cloudformation": {"DescribeType": answer}}


def services(*names: str) -> Answers:
    return {
        "ec2": {
            "DescribeVpcEndpointServices": {"ServiceNames": [f"com.amazonaws.us-east-1.{n}" for n in names]}
        }
    }


@pytest.mark.parametrize(
    ("check", "answers", "holds", "seen"),
    [
        (account_checks.check_people_policies, found(), True, "1 policies"),
        (account_checks.check_people_policies, found(("SUGGESTION", "EMPTY_ARRAY_ACTION")), True, "1 policies"),
        (account_checks.check_people_policies, found(("ERROR", "INVALID_ACTION")), False, "ERROR INVALID_ACTION"),
        (account_checks.check_msk_versions, versions(*STANDARD), True, ""),
        (account_checks.check_msk_versions, versions(*STANDARD[1:]), False, f"not active: {STANDARD[0]}"),
        (account_checks.check_endpoint_services, services("logs", "kafka"), True, "2 services"),
        (account_checks.check_endpoint_services, services("logs", "kafkaconnect"), False, "not there: kafka"),
        (account_checks.check_resource_types, types(), True, "4 types"),
        (account_checks.check_resource_types, types(lacking="AWS::MSK::Topic"), False, "AWS::MSK::Topic is not there"),  # type: ignore[arg-type]
        (account_checks.check_replacing_topic_properties, types(only=["ClusterArn", "TopicName", "ReplicationFactor"]), True, ""),
        (account_checks.check_replacing_topic_properties, types(only=["ClusterArn", "TopicName", "PartitionCount"]), False, "PartitionCount"),
        (account_checks.check_replacing_topic_properties, types(lacking="AWS::MSK::Topic"), None, "is not there"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_account_is_asked(check: Any, answers: Answers, holds: bool | None, seen: str) -> None:
    answer = answer_of(check, question(answers, policies=POLICY, services=("logs", "kafka")))
    assert answer.holds is holds
    assert seen in answer.seen


def test_nobody_writes_policies_without_an_account() -> None:
    assert answer_of(account_checks.check_people_policies, question({})).holds is None


TOKEN = "https://public.ecr.aws/token/?service=public.ecr.aws&scope=repository:emr-serverless/spark/emr-7.13.0:pull"
MANIFEST = "https://public.ecr.aws/v2/emr-serverless/spark/emr-7.13.0/manifests/latest"


@pytest.mark.parametrize(("body", "holds"), [(b'{"manifests": []}', True), (b'{"errors": []}', False)])
def test_the_gallery_is_asked_for_the_image(body: bytes, holds: bool) -> None:
    asked = question({}, pages={TOKEN: b'{"token": "t"}', MANIFEST: body})
    assert account_checks.check_history_image_tag(asked).holds is holds


def priced(usd: str) -> Answers:
    """Every product at one price, in the only shape that fits some of them."""

    def answer(params: Mapping[str, Any]) -> dict[str, Any]:
        usage = next(f["Value"] for f in params["Filters"] if f["Field"] == "usagetype")
        product = {
            "product": {"attributes": {"usagetype": usage}},
            "terms": {
                "OnDemand": {
                    "a": {
                        "priceDimensions": {
                            "b": {
                                "unit": "DPU-Hour",
                                "beginRange": "0",
                                "endRange": "Inf",
                                "pricePerUnit": {"USD": usd},
                            }
                        }
                    }
                }
            },
        }
        return {"PriceList": [json.dumps(product)]}

    return {"pricing": {"GetProducts": answer}}


@pytest.mark.parametrize(("usd", "holds"), [("0.308", True), ("0.60", False)])
def test_unconfirmed_prices_are_compared(usd: str, holds: bool) -> None:
    asked = question(priced(usd))
    assert asked.required_prices_by_name["glue.6.0.dpu_hour"].usd == 0.308
    answered = {"glue.6.0.dpu_hour"}
    for name in asked.price_list_renewal.stayed:
        answered.discard(name)
    assert answered, "the answer has not the shape of a price"
    answer = account_checks.check_unconfirmed_prices(asked)
    assert answer.holds in (holds, False)
    assert ("glue.6.0.dpu_hour: 0.308 here, 0.6 there" in answer.seen) is not holds
    assert account_checks.check_price_products(asked).holds is False


def test_prices_of_another_region_are_not_compared() -> None:
    environment = load("dev", root=ROOT).model_copy(update={"region": "eu-west-1"})
    assert answer_of(account_checks.check_unconfirmed_prices, question({}, environment)).holds is None


# ---- what is deployed ----

RUN = {
    "JobRunState": "STOPPED",
    "ExecutionTime": 400,
    "GlueVersion": "5.1",
    "WorkerType": "G.1X",
    "Id": "jr_1",
}


def glue(**more: Any) -> dict[str, Any]:
    return {"GetJobRuns": {"JobRuns": [RUN]}, "GetJob": {"Job": {"Name": "j"}}, **more}


def emr(seconds: int = 40, **more: Any) -> Answers:
    run = {
        "applicationId": "00f", "jobRunId": "r", "arn": "a" * 60, "createdBy": "arn:aws:iam::111122223333:role/x", "createdAt": NOW,
        "updatedAt": NOW, "executionRole": "arn:aws:iam::111122223333:role/x", "state": "CANCELLED",
        "stateDetails": "s", "releaseLabel": "emr-7.13.0", "jobDriver": {"sparkSubmit": {"entryPoint": "main.py"}}, "totalExecutionDurationSeconds": 300,
        "startedAt": NOW + timedelta(seconds=seconds),
    }  # fmt: skip
    listed = {
        k: run[k]
        for k in ("applicationId", "arn", "createdBy", "createdAt", "updatedAt", "executionRole", "state")
    }
    application = {
        "applicationId": "00f", "arn": "a" * 60, "releaseLabel": "emr-7.13.0", "type": "SPARK", "state": "STARTED",
        "createdAt": NOW, "updatedAt": NOW, "networkConfiguration": {"subnetIds": ["subnet-1"]},
    }  # fmt: skip
    return {
        "cloudformation": DEPLOYED,
        "emr-serverless": {
            "ListJobRuns": {
                "jobRuns": [{**listed, "id": "r", "stateDetails": "s", "releaseLabel": "emr-7.13.0"}]
            },
            "GetJobRun": {"jobRun": run},
            "GetApplication": {"application": application},
        },
        **more,
    }


def zones(*ids: str) -> dict[str, Any]:
    return {"DescribeSubnets": {"Subnets": [{"AvailabilityZoneId": each} for each in ids]}}


def groups(written: str | None) -> dict[str, Any]:
    def listed(params: Mapping[str, str]) -> dict[str, Any]:
        group = params["logGroupNamePrefix"]
        return {"logGroups": [{"logGroupName": f"{group}{written}"}] if written is not None else []}

    return {"DescribeLogGroups": listed, "DescribeLogStreams": {"logStreams": [{"logStreamName": "s"}]}}


def machine(verb: str, reason: str, *left: str) -> dict[str, Any]:
    execution = {
        "executionArn": EXECUTION,
        "stateMachineArn": MACHINE,
        "name": "e",
        "status": "SUCCEEDED",
        "startDate": NOW,
    }
    events = [
        {"timestamp": NOW, "type": "TaskStateExited", "id": n, "stateExitedEventDetails": {"name": s}}
        for n, s in enumerate(left, 2)
    ]
    begun = {"input": json.dumps({"verb": verb, "reason": reason})}
    first = {"timestamp": NOW, "type": "ExecutionStarted", "id": 1, "executionStartedEventDetails": begun}
    return {
        "ListExecutions": {"executions": [execution]},
        "GetExecutionHistory": {"events": [first, *events]},
    }


def roles(name: str) -> Answers:
    """A role of each job's stack, with a name that CloudFormation made of the stack's where ``name`` has a place for it."""

    def listed(params: Mapping[str, str]) -> dict[str, Any]:
        return resources(("AWS::IAM::Role", name.format(params["StackName"][:20])))

    return {
        "cloudformation": DEPLOYED | {"ListStackResources": listed},
        "iam": {
            "ListRolePolicies": {"PolicyNames": ["p"]},
            "GetRolePolicy": {"RoleName": name, "PolicyName": "p", "PolicyDocument": "{}"},
        },
    }


WROTE = {"engine-version": "3.5.6-amzn-0", "iceberg-version": "Apache Iceberg 1.10.0 (commit 2114bf6)"}
CLUSTER = {
    "ClusterArn": "arn",
    "ClusterName": "flights-dev-main",
    "Provisioned": {
        "NumberOfBrokerNodes": 3,
        "BrokerNodeGroupInfo": {"InstanceType": "kafka.m7g.large", "ClientSubnets": ["subnet-1"]},
    },
}


@pytest.mark.parametrize(
    ("check", "answers", "holds", "seen"),
    [
        ("check_glue_jobs_started", {"glue": glue()}, True, "Glue 5.1 G.1X"),
        ("check_glue_jobs_started", {"glue": glue(GetJobRuns={"JobRuns": [{**RUN, "JobRunState": "FAILED"}]})}, None, "no run"),
        ("check_glue_job_without_timeout", {"glue": glue()}, True, "jobs"),
        ("check_glue_job_without_timeout", {"glue": glue(GetJob={"Job": {"Name": "j", "Timeout": 2880}})}, False, "2880 minutes"),
        ("check_glue_log_group_names", {"glue": glue(), "logs": groups("/flights-dev-x/role/error")}, True, "GROUP/NAME/NAME/error"),
        ("check_glue_log_group_names", {"glue": glue(), "logs": groups("")}, False, "GROUP"),
        ("check_glue_log_group_names", {"glue": glue(), "logs": groups(None)}, False, "no log group"),
        ("check_glue_log_group_names", {"glue": glue(GetJobRuns={"JobRuns": []}), "logs": groups(None)}, None, "no run"),
        ("check_emr_jobs_started", emr(), True, "emr-7.13.0"),
        ("check_emr_start_time", emr(40), True, "40 s"),
        ("check_emr_start_time", emr(94), False, "94 s"),
        ("check_emr_zones", emr(ec2=zones("use1-az1", "use1-az2")), True, "use1-az1, use1-az2"),
        ("check_emr_zones", emr(ec2=zones("use1-az3")), False, "use1-az3"),
        ("check_msk_zones", {"kafka": {"ListClustersV2": {"ClusterInfoList": [CLUSTER]}}, "ec2": zones("use1-az1")}, True, "use1-az1"),
        ("check_msk_zones", {"kafka": {"ListClustersV2": {"ClusterInfoList": [CLUSTER]}}, "ec2": zones("use1-az3")}, False, "use1-az3"),
        ("check_msk_zones", {"kafka": {"ListClustersV2": {"ClusterInfoList": []}}}, None, "no such cluster"),
        ("check_msk_brokers", {"kafka": {"ListClustersV2": {"ClusterInfoList": [CLUSTER]}, "GetBootstrapBrokers": {"BootstrapBrokerStringSaslIam": "b:9098"}}}, True, "iam"),
        ("check_role_policies", roles("r") | found(), True, "policies"),
        ("check_role_policies", roles("r") | found(("SECURITY_WARNING", "PASS_ROLE_WITH_STAR_IN_RESOURCE")), False, "PASS_ROLE"),
        ("check_emr_run_was_stopped", {"cloudformation": DEPLOYED, "stepfunctions": machine("stop", "x", "StopRun")}, True, "1 runs"),
        ("check_emr_run_was_stopped", {"cloudformation": DEPLOYED, "stepfunctions": machine("start", "x", "StartRun")}, None, "no run"),
        ("check_restarts_by_rule", {"cloudformation": DEPLOYED, "stepfunctions": machine("restart", "run r ended as FAILED", "StartRun")}, True, "by an event"),
        ("check_restarts_by_rule", {"cloudformation": DEPLOYED, "stepfunctions": machine("restart", "x", "Settle")}, None, "no run"),
        ("check_job_metrics", {"cloudwatch": {"ListMetrics": {"Metrics": [{"MetricName": "BatchDuration"}]}}}, True, "1 names"),
        ("check_job_metrics", {"cloudwatch": {"ListMetrics": {"Metrics": []}}}, None, "no metric"),
        ("check_event_log_copies", {"s3": {"ListObjectsV2": {"KeyCount": 3}}}, True, "3 copies"),
        ("check_event_log_copies", {"s3": {"ListObjectsV2": {"KeyCount": 0}}}, None, "no event log"),
        ("check_start_without_checkpoint", table(WROTE), True, "tables were landed"),
        ("check_write_with_lake_formation", table(WROTE), None, "is off"),
    ],
)  # fmt: skip
def test_what_is_deployed_is_asked(check: str, answers: Answers, holds: bool | None, seen: str) -> None:
    answer = answer_of(getattr(deployment_checks, check), question(answers))
    assert answer.holds is holds, answer
    assert seen in answer.seen


@pytest.mark.parametrize(
    ("wrote", "holds"),
    [
        (WROTE, True),
        (WROTE | {"engine-version": "3.5.4"}, False),
        (WROTE | {"iceberg-version": "Apache Iceberg 1.9.2 (commit 1)"}, False),
        ({}, None),
    ],
)
def test_versions_are_those_of_the_documents(wrote: dict[str, str], holds: bool | None) -> None:
    assert (
        answer_of(deployment_checks.check_snapshot_writer_versions, question(table(wrote), "minimal")).holds
        is holds
    )


def test_the_history_server_runs() -> None:
    services = resources(("AWS::ECS::Cluster", "c"), ("AWS::ECS::Service", "s"))
    for running in (1, 0):
        answers = {
            "cloudformation": DEPLOYED | {"ListStackResources": services},
            "ecs": {"DescribeServices": {"services": [{"runningCount": running}]}},
        }
        assert answer_of(deployment_checks.check_history_server, question(answers)).holds is (running == 1)


# ---- all of them ----


def test_every_check_of_an_account_that_refuses_everything_says_what_was_refused() -> None:
    told = check_claims.check_claims(question({}, policies=POLICY, services=("logs",)))
    assert [each.id for each in told] == list(read_claims())
    assert {each.verdict for each in told} == {"undetermined"}
    asked = [each for each in told if read_claims()[each.id].check]
    named = [each for each in asked if "AccessDeniedException at " in each.why]
    others = {each.id: each.why for each in asked if each not in named}
    assert set(others) == {"history-image-tag", "lake-formation"}
    assert "OSError" in others["history-image-tag"]


def test_nothing_is_said_of_what_is_not_deployed() -> None:
    told = check_claims.check_claims(question({"cloudformation": {"DescribeStacks": absent}}))
    why = {each.id: each.why for each in told}
    assert "nothing of it is deployed" in why["role-policies"]
    assert "nothing of it is deployed" in why["emr-runs"]


def test_an_answer_of_another_shape_ends_nothing() -> None:
    told = check_claims.check_claims(question({"glue": {"GetJobRuns": {"JobRuns": [{}]}}}))
    assert next(each for each in told if each.id == "glue-runs").why == "an unexpected response: KeyError"


def test_the_report_names_nothing_of_the_account() -> None:
    asked = question(roles("flights-Role-x") | found(), policies=POLICY)
    told = (
        *check_claims.check_claims(asked),
        check_claims.ClaimAnswer(
            "x",
            "refuted",
            check_claims.text_without_account_names(f"at {MACHINE}, {ACCOUNT}, flights-dev-x", asked.names),
        ),
    )
    text = check_claims.claims_report(told, version="1.0", region="us-east-1", read="2026-11-23")
    for name in (ACCOUNT, asked.names.prefix, "arn:", *asked.names.environment.jobs):
        assert name not in text.replace("docs/unproved.md", ""), name
    assert (
        text.splitlines()[5]
        == f"millrace 1.0, us-east-1, 2026-11-23: {check_claims.verdict_counts_text(told)}"
    )
    assert "refuted (" in text
    assert check_claims.answers_document(told)["claims"][-1] == {
        "id": "x",
        "verdict": "refuted",
        "why": "at ARN, ACCOUNT, PREFIX-x",
    }
