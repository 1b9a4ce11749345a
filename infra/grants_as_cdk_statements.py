"""Grants as statements of CDK's policies."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from millrace.config.aws.iam_statements import Grant


def to_policy_statement(grant: Grant) -> iam.PolicyStatement:
    """Write a grant as a statement of a CDK policy."""
    return iam.PolicyStatement(
        sid=grant.sid,
        effect=iam.Effect[grant.effect.upper()],
        actions=list(grant.actions),
        resources=list(grant.resources),
        conditions=dict(grant.conditions),
    )
