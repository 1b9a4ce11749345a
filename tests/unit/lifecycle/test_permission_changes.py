"""Wider permissions of a deployment are listed, for each kind of resource."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from millrace.cli.plan.report import permission_diff_between_versions
from millrace.cli.run.changes_report import exit_if_permissions_widen
from millrace.config import load
from millrace.lifecycle.changes.compare_with_deployed import DeploymentChanges
from millrace.lifecycle.changes.deployment_changes import StackChange, compare_templates
from millrace.lifecycle.changes.permission_changes import widening_lines

ADMIN = "arn:aws:iam::aws:policy/AdministratorAccess"
TEMPLATE: dict[str, Any] = {
    "Resources": {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "PermissionsBoundary": "arn:aws:iam::111122223333:policy/limits",
                "AssumeRolePolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "glue.amazonaws.com"},
                            "Action": "sts:AssumeRole",
                            "Condition": {"StringEquals": {"aws:SourceAccount": "111122223333"}},
                        }
                    ]
                },
            },
        },
        "Policy": {
            "Type": "AWS::IAM::Policy",
            "Properties": {
                "PolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Action": ["s3:GetObject", "s3:PutObject"],
                            "Resource": ["a/*", "b/*"],
                        },
                        {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "a/_versions/*"},
                    ]
                }
            },
        },
        "Key": {
            "Type": "AWS::KMS::Key",
            "Properties": {
                "KeyPolicy": {
                    "Statement": [
                        {"Effect": "Allow", "Principal": {"AWS": "root"}, "Action": "kms:*", "Resource": "*"}
                    ]
                }
            },
        },
        "Bucket": {
            "Type": "AWS::S3::BucketPolicy",
            "Properties": {
                "PolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Deny",
                            "Principal": "*",
                            "Action": "s3:*",
                            "Resource": "*",
                            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                        }
                    ]
                }
            },
        },
    }
}


def role(template: Any) -> Any:
    return template["Resources"]["Role"]["Properties"]


def first(template: Any, name: str, key: str = "PolicyDocument") -> Any:
    return template["Resources"][name]["Properties"][key]["Statement"]


WIDER: dict[str, Callable[[Any], Any]] = {
    "a managed policy": lambda t: role(t).update(ManagedPolicyArns=[ADMIN]),
    "no boundary": lambda t: role(t).pop("PermissionsBoundary"),
    "another boundary": lambda t: role(t).update(PermissionsBoundary="wide"),
    "a policy inside": lambda t: role(t).update(
        Policies=[{"PolicyDocument": {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}}]
    ),
    "a trust": lambda t: first(t, "Role", "AssumeRolePolicyDocument").append(
        {"Effect": "Allow", "Principal": {"AWS": "999999999999"}, "Action": "sts:AssumeRole"}
    ),
    "a trust without its condition": lambda t: first(t, "Role", "AssumeRolePolicyDocument")[0].pop(
        "Condition"
    ),
    "an action": lambda t: first(t, "Policy")[0]["Action"].append("s3:DeleteObject"),
    "a resource": lambda t: first(t, "Policy")[0]["Resource"].append("c/*"),
    "all actions but one": lambda t: first(t, "Policy").append(
        {"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}
    ),
    "no refusal": lambda t: first(t, "Policy").pop(),
    "a narrower refusal": lambda t: first(t, "Policy")[1].update(Resource="a/_versions/x"),
    "a key for somebody": lambda t: first(t, "Key", "KeyPolicy")[0].update(Principal="*"),
    "a bucket without TLS": lambda t: first(t, "Bucket").pop(),
    "a role that somebody else wrote": lambda t: t["Resources"].update(
        Job={"Type": "AWS::Glue::Job", "Properties": {"Role": "arn:aws:iam::111122223333:role/admin"}}
    ),
    "a role of its own": lambda t: t["Resources"].update(
        Door={"Type": "AWS::IAM::Role", "Properties": {"ManagedPolicyArns": [ADMIN]}}
    ),
}
NARROWER: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda _: None,
    "a resource less": lambda t: first(t, "Policy")[0]["Resource"].pop(),
    "a statement less": lambda t: first(t, "Policy").pop(0),
    "one more refusal": lambda t: first(t, "Policy").append(
        {"Effect": "Deny", "Action": "*", "Resource": "*"}
    ),
    "no trust": lambda t: first(t, "Role", "AssumeRolePolicyDocument").clear(),
}


def changed(change: Callable[[Any], Any]) -> StackChange:
    new = copy.deepcopy(TEMPLATE)
    change(new)
    return compare_templates("shop-prod-job-orders", TEMPLATE, new)


@pytest.mark.parametrize("name", WIDER)
def test_what_gives_more_is_told_and_refused_where_nobody_looks(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = DeploymentChanges((changed(WIDER[name]),), (), {})
    assert widening_lines(result.stacks[0].permissions)
    with pytest.raises(typer.Exit) as ended:
        exit_if_permissions_widen("deploy", result, yes=True, wider=False)
    assert ended.value.exit_code == 2
    assert "shop-prod-job-orders: " in (said := capsys.readouterr().err)
    assert "--yes --wider" in said
    exit_if_permissions_widen("deploy", result, yes=True, wider=True)
    exit_if_permissions_widen("deploy", result, yes=False, wider=False)


@pytest.mark.parametrize("name", NARROWER)
def test_what_gives_less_is_deployed(name: str) -> None:
    result = changed(NARROWER[name])
    assert widening_lines(result.permissions) == []
    exit_if_permissions_widen("deploy", DeploymentChanges((result,), (), {}), yes=True, wider=False)


def test_the_first_deployment_widens_nothing_and_a_new_stack_beside_others_does() -> None:
    new = compare_templates("shop-prod-job-new", None, TEMPLATE)
    exit_if_permissions_widen("deploy", DeploymentChanges((new,), (), {}), yes=True, wider=False)
    with pytest.raises(typer.Exit):
        exit_if_permissions_widen(
            "deploy", DeploymentChanges((new, changed(lambda _: None)), (), {}), yes=True, wider=False
        )


def test_refusals_of_a_role_that_goes_widen_nothing_unless_another_role_comes() -> None:
    old = copy.deepcopy(TEMPLATE)
    old["Resources"]["Policy"]["Properties"]["Roles"] = [{"Ref": "Role"}]
    kept = {name: each for name, each in old["Resources"].items() if name not in ("Role", "Policy")}
    gone = compare_templates("shop-prod-job-orders", old, {"Resources": kept})
    assert any("Deny" in line for line in gone.permissions)
    assert gone.wider_permission_lines == []
    other = {"Type": "AWS::IAM::Role", "Properties": {}}
    instead = compare_templates("shop-prod-job-orders", old, {"Resources": {**kept, "Other": other}})
    assert any("Deny" in line for line in instead.wider_permission_lines)
    one_left = compare_templates(
        "shop-prod-job-orders", old, {"Resources": {**kept, "Role": old["Resources"]["Role"]}}
    )
    assert any("Deny" in line for line in one_left.wider_permission_lines)


def test_what_ends_data_is_told_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    def topic(name: str) -> dict[str, Any]:
        return {"Type": "AWS::MSK::Topic", "DeletionPolicy": "Delete", "Properties": {"TopicName": name}}

    workspace = {"Type": "AWS::APS::Workspace", "DeletionPolicy": "Delete", "Properties": {"Alias": "shop"}}
    before = {"shop": {"Resources": {"Topic": topic("clicks"), "Workspace": workspace}}}
    before["shop-kafka"] = {
        "Resources": {
            "Main": {
                "Type": "AWS::MSK::Cluster",
                "DeletionPolicy": "Retain",
                "Properties": {"ClusterName": "main"},
            }
        }
    }
    after = {"shop": {"Resources": {"Topic": topic("visits")}}}
    monkeypatch.setattr(permission_diff_between_versions, "synthesize_templates", lambda *_: after)
    lines = permission_diff_between_versions.template_change_lines(load("minimal"), before, Path())
    assert lines == [
        "~ shop: AWS::MSK::Topic Topic: TopicName (is replaced; its data is deleted)",
        "- shop: AWS::APS::Workspace shop (is deleted with its data)",
        "- shop-kafka: AWS::MSK::Cluster main (stays and is paid for; CloudFormation no longer knows it)",
    ]
