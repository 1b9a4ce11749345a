"""Questions about the templates of a deployment: state machines, policies, roles, and drift of what is deployed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millrace.lifecycle.changes.deployment_changes import resources_of_type
from millrace.lifecycle.preflight.quotas import quota_row
from millrace.lifecycle.preflight.run_preflight_checks import Check, PreflightAccount, PreflightRow

_ID = "00000000-0000-0000-0000-000000000000"
_DRIFT_SECONDS = 600.0
_LOOK_SECONDS = 2.0
_ROLE = "AWS::IAM::Role"
_WITH_POLICY = (_ROLE, "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")


def check_state_machine_definitions(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Have Step Functions validate the definition of each state machine."""
    for place, resource in _resources_of_stacks(account, "AWS::StepFunctions::StateMachine"):
        if (definition := resource["Properties"].get("DefinitionString")) is None:
            continue
        result = account.client("stepfunctions").validate_state_machine_definition(
            definition=str(_resolve_functions(account, definition))
        )
        errors = [each for each in result["diagnostics"] if each["severity"] == "ERROR"]
        text = "; ".join(f"{each.get('location', '')} {each['message']}".strip() for each in errors)
        yield PreflightRow(f"state machine {place}", "failed" if errors else "ok", text or "valid")


def check_policies_by_access_analyzer(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Have Access Analyzer validate each policy of a role."""
    documents = {
        json.dumps(_resolve_functions(account, each["PolicyDocument"])): place
        for kind in _WITH_POLICY
        for place, resource in _resources_of_stacks(account, kind)
        for each in _holders_of_policy_documents(resource["Properties"])
    }
    if not documents:
        return

    def validation_errors(document: str) -> list[str]:
        request = {"policyDocument": document, "policyType": "IDENTITY_POLICY"}
        findings = account.list_items("accessanalyzer", "validate_policy", "findings", **request)
        return [each["findingDetails"] for each in findings if each["findingType"] == "ERROR"]

    with ThreadPoolExecutor(4) as pool:
        for place, findings in zip(documents.values(), pool.map(validation_errors, documents), strict=True):
            if findings:
                yield PreflightRow(f"policy {place}", "failed", "; ".join(findings))
    yield PreflightRow("policies", "ok", f"{len(documents)} validated")


def _holders_of_policy_documents(properties: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "PolicyDocument" in properties:
        yield properties
    yield from properties.get("Policies", ())


def check_role_quota(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the roles of new stacks fit."""
    summary = account.client("iam").get_account_summary()["SummaryMap"]
    new = {s: t for s, t in (account.templates or {}).items() if s not in account.stack_states}
    needed = sum(len(resources_of_type(template, _ROLE)) for template in new.values())
    command = (
        f"aws service-quotas request-service-quota-increase --service-code iam --quota-code L-FE177D64 "
        f"--desired-value {needed + summary['Roles']} --region us-east-1"
    )
    yield quota_row("quota: roles", needed, summary["Roles"], summary["RolesQuota"], command)


def check_drift(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Have CloudFormation compare each deployed stack with its resources."""
    client = account.client("cloudformation")
    for stack in account.stack_states:
        detection = client.detect_stack_drift(StackName=stack)["StackDriftDetectionId"]
        until = time.monotonic() + _DRIFT_SECONDS
        while True:
            status = client.describe_stack_drift_detection_status(StackDriftDetectionId=detection)
            if status["DetectionStatus"] != "DETECTION_IN_PROGRESS" or time.monotonic() > until:
                break
            time.sleep(_LOOK_SECONDS)
        if status["DetectionStatus"] != "DETECTION_COMPLETE":
            text = status.get("DetectionStatusReason", status["DetectionStatus"])
            yield PreflightRow(f"drift of {stack}", "not known", text)
            continue
        states = ["MODIFIED", "DELETED"]
        changed = client.describe_stack_resource_drifts(
            StackName=stack, StackResourceDriftStatusFilters=states
        )["StackResourceDrifts"]
        text = "; ".join(
            f"{each['LogicalResourceId']}: {each['StackResourceDriftStatus'].lower()}"
            + "".join(f" {part['PropertyPath']}" for part in each.get("PropertyDifferences", ()))
            for each in changed
        )
        remedy = "somebody changed it by hand: change it back, or write the change into the file"
        yield PreflightRow(
            f"drift of {stack}", "warning" if text else "ok", text or "none", remedy if text else ""
        )


def _resources_of_stacks(account: PreflightAccount, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return (
        (f"{stack}/{name}", resource)
        for stack, template in (account.templates or {}).items()
        for name, resource in resources_of_type(template, kind).items()
    )


def _resolve_functions(account: PreflightAccount, value: Any) -> Any:
    """Return a value of a template with the functions of CloudFormation replaced; only AWS knows ids, so those are made up."""
    names = account.aws.names
    if isinstance(value, list):
        return [_resolve_functions(account, each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"Fn::Join"}:
        separator, parts = value["Fn::Join"]
        return separator.join(str(_resolve_functions(account, each)) for each in parts)
    if value.keys() == {"Ref"}:
        known = {
            "Partition": names.aws_partition,
            "Region": names.environment.region,
            "AccountId": names.account,
        }
        known["URLSuffix"] = "amazonaws.com"
        return known.get(value["Ref"].removeprefix("AWS::"), value["Ref"])
    if value.keys() & {"Fn::GetAtt", "Fn::ImportValue", "Fn::Sub"}:
        return names.arn("kms", f"key/{_ID}")
    return {key: _resolve_functions(account, each) for key, each in value.items()}


CHECKS: Mapping[str, Check] = {
    "quota: roles": check_role_quota,
    "state machines": check_state_machine_definitions,
    "policies": check_policies_by_access_analyzer,
}
"""By the subject that is shown if the question could not be asked."""
