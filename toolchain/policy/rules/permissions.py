"""Roles, their policies, and policies of resources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolchain.policy.rules._policy import (
    Fault,
    PolicyRule,
    Resource,
    allowed,
    condition_keys,
    listed,
    principals,
    properties,
    refers_to,
)

WITHOUT_RESOURCES = {
    "cloudwatch:GetMetricData",
    "cloudwatch:PutMetricData",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcEndpoints",
    "ecr:GetAuthorizationToken",
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
"""Actions for which IAM knows no resource (Service Authorization Reference)."""

EVERY_ONE = re.compile(
    r"(?:cluster|database|group|job|key|log-group|parameter|role|secret|stateMachine|stream|table|topic)[/:]\*"
)
"""What an ARN ends in that means all streams, tables, … of an account."""

OF_CALLER = {
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceorgid",
    "aws:principalaccount",
    "aws:principalorgid",
    "kms:calleraccount",
    "kms:encryptioncontext:aws:logs:arn",
}
"""Conditions that tie a service's call to an account."""


def _documents(found: Resource) -> Iterator[tuple[list[str | int], Any]]:
    """Give the identity policies that a role, user, group or policy resource holds."""
    if "PolicyDocument" in found.body.get("Properties", {}):
        yield properties("PolicyDocument"), found.value("PolicyDocument")
    for index, inline in enumerate(listed(found.value("Policies"))):
        yield [*properties("Policies"), index], inline.get("PolicyDocument")


IDENTITIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role", "AWS::IAM::RolePolicy")


class TrustIsTied(PolicyRule):
    """Without it a service acts for anybody who names the role: the confused deputy."""

    id = "E9601"
    shortdesc = "A role is assumed by services for this account only"
    description = "Every trusted principal is a service, with aws:SourceAccount or aws:SourceArn as condition"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html"
    kinds = ("AWS::IAM::Role",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read the trust policy."""
        for index, statement in allowed(found.value("AssumeRolePolicyDocument")):
            path = properties("AssumeRolePolicyDocument")
            if principals(statement, "AWS") or principals(statement, "Federated"):
                yield path, f"statement {index} trusts others than services"
            keys = condition_keys(statement)
            if "aws:sourceaccount" not in keys:
                yield path, f"statement {index} asks for no aws:SourceAccount"


class PassRoleIsExact(PolicyRule):
    """Whoever may pass any role has the permissions of all."""

    id = "E9602"
    shortdesc = "iam:PassRole names one role and the service that takes it"
    description = "No wildcard in the resource; iam:PassedToService as condition"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html"
    kinds = IDENTITIES

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read every statement that passes a role."""
        for path, document in _documents(found):
            for index, statement in allowed(document):
                if "iam:PassRole" not in listed(statement.get("Action")):
                    continue
                if any("*" in str(place) for place in listed(statement.get("Resource"))):
                    yield path, f"statement {index} passes more than one role"
                if "iam:passedtoservice" not in condition_keys(statement):
                    yield path, f"statement {index} asks for no iam:PassedToService"


class ActionsAreNamed(PolicyRule):
    """Checkov refuses ``*`` alone."""

    id = "E9603"
    shortdesc = "A role's actions are named"
    description = "No wildcard in an action, no NotAction, no NotResource"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html"
    kinds = IDENTITIES

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read every statement."""
        for path, document in _documents(found):
            for index, statement in allowed(document):
                wide = [action for action in listed(statement.get("Action")) if "*" in action]
                if wide:
                    yield path, f"statement {index} allows {', '.join(wide)}"
                for key in sorted({"NotAction", "NotResource"} & statement.keys()):
                    yield path, f"statement {index} has {key}"


class ResourcesAreNamed(PolicyRule):
    """Checkov refuses ``*`` for all actions together only."""

    id = "E9604"
    shortdesc = "A role's resources are named"
    description = "`*`, or all of a service, only for actions for which IAM knows no resource"
    source_url = "https://docs.aws.amazon.com/service-authorization/latest/reference/reference.html"
    kinds = IDENTITIES

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read every statement."""
        for path, document in _documents(found):
            for index, statement in allowed(document):
                places = [p for p in listed(statement.get("Resource")) if isinstance(p, str)]
                actions = set(listed(statement.get("Action"))) - WITHOUT_RESOURCES
                # A key of others is not known by name, only the service that uses it.
                via = actions == {"kms:Decrypt"} and "kms:viaservice" in condition_keys(statement)
                whole = [place for place in places if self._is_whole(place) and not via]
                if whole and actions:
                    yield path, f"statement {index} allows {', '.join(sorted(actions))} on {', '.join(whole)}"
                metrics = "cloudwatch:PutMetricData" in listed(statement.get("Action"))
                if metrics and "cloudwatch:namespace" not in condition_keys(statement):
                    yield path, f"statement {index} writes metrics of any namespace"

    @staticmethod
    def _is_whole(arn: str) -> bool:
        # The sixth part of an ARN is what its service calls the resource.
        service, _, name = arn.partition(":::") if ":::" in arn else ("", "", arn.split(":", 5)[-1])
        if name in ("*", "*/*") or EVERY_ONE.fullmatch(name):
            return True
        # A bucket is shared by jobs, that of the bootstrap by the whole account: each has prefixes of its own.
        bucket, _, key = name.partition("/")
        return service.endswith(":s3") and ("*" in bucket or key == "*")


class PoliciesAreOurs(PolicyRule):
    """A managed policy of AWS grows without anybody here reading it."""

    id = "E9605"
    shortdesc = "Roles have policies of their own, and nobody has a password or an access key"
    description = "No managed policies of AWS; no users, groups or access keys"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_managed-vs-inline.html"
    kinds = ("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group", "AWS::IAM::AccessKey")

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check what is there."""
        if found.kind != "AWS::IAM::Role":
            yield [], f"a {found.kind}"
        if found.value("ManagedPolicyArns"):
            yield properties("ManagedPolicyArns"), "a managed policy"


class ResourcePoliciesNameTheAccount(PolicyRule):
    """Checkov reads key policies for a wildcard and nothing else."""

    id = "E9606"
    shortdesc = "A resource's policy lets in this account only"
    description = "Services and everybody need a condition that ties the call to an account"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html"
    kinds = (
        "AWS::KMS::Key",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
        "AWS::Kinesis::ResourcePolicy",
        "AWS::MSK::ClusterPolicy",
        "AWS::Logs::ResourcePolicy",
    )

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read every statement that lets in a service or everybody."""
        key = next(
            (k for k in ("KeyPolicy", "ResourcePolicy", "Policy") if found.value(k) is not None),
            "PolicyDocument",
        )
        for index, statement in allowed(found.value(key)):
            open_to = [
                *principals(statement, "Service"),
                *(who for who in principals(statement, "AWS") if who == "*"),
            ]
            if open_to and not OF_CALLER & condition_keys(statement):
                yield properties(key), f"statement {index} lets in {', '.join(map(str, open_to))} for anybody"


class JobsWriteNoVersion(PolicyRule):
    """CloudFormation deploys a kept version with the rights of the bootstrap: who writes one is an administrator."""

    id = "E9607"
    shortdesc = "A job's role is refused what a rollback deploys"
    description = "Explicit Deny to write deployed versions and the parameters with their digests"
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_AccessPolicyLanguage_Interplay.html"
    kinds = ("AWS::IAM::Role",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read the policies of a role that an engine assumes."""
        trusted = [
            service
            for _, statement in allowed(found.value("AssumeRolePolicyDocument"))
            for service in principals(statement, "Service")
        ]
        if not {"glue.amazonaws.com", "emr-serverless.amazonaws.com"} & set(trusted):
            return
        refused = {
            (action, str(place).rpartition("/jobs/" if action.startswith("ssm:") else "/_versions")[2])
            for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
            for policy in found.others(kind)
            if refers_to(policy.value("Roles"), found.name)
            for statement in listed(policy.value("PolicyDocument", "Statement"))
            if statement.get("Effect") == "Deny" and not statement.get("Condition")
            for action in listed(statement.get("Action"))
            for place in listed(statement.get("Resource"))
        }
        for action, end in (
            ("s3:PutObject", "/*"),
            ("s3:DeleteObject", "/*"),
            ("ssm:PutParameter", "*/versions"),
        ):
            if (action, end) not in refused:
                yield properties("AssumeRolePolicyDocument"), f"no Deny of {action} on the deployed versions"


class NothingRunsAtDeployment(PolicyRule):
    """A custom resource is a program with permissions that nobody watches."""

    id = "E9701"
    shortdesc = "There is no Lambda function and no custom resource"
    description = "State machines call services directly, and CloudFormation makes all resources itself"

    def selects(self, kind: str) -> bool:
        """Custom resources have any name behind their prefix."""
        return kind.startswith(("AWS::Lambda::", "Custom::", "AWS::CloudFormation::CustomResource"))

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Refuse it."""
        yield [], f"a {found.kind}"
