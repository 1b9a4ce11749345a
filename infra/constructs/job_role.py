"""Role of one job, which the engine can assume for that job of this account only."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from millrace.config.aws.iam_statements import Grant
from millrace.config.base import grouped

from ..accept_finding import accept_finding_at_construct
from ..errors import InfrastructureError
from ..permissions.split_policies import (
    ATTACHED,
    INLINE,
    policy_length,
    split_into_policies,
    statement_length,
)


class JobRole(iam.Role):
    """A role with the given statements and nothing else.

    The statements are one inline policy. Above IAM's limit for that, with many tables, they are managed policies of
    the stack.

    Parameters
    ----------
    service
        The engine, such as ``glue.amazonaws.com``.
    account
        The account on whose behalf the engine must act.
    source_arn
        Pattern of the resource for which the engine must act.
    grants
        What the job may do; each wildcard is acknowledged with its grant's reason.
    description
        One sentence for the console.

    Attributes
    ----------
    policies
        The policies with the statements; the role is of no use before they exist.

    Raises
    ------
    InfrastructureError
        The statements are more than a role can have.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        account: str,
        source_arn: str,
        grants: Sequence[Grant],
        description: str,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=description,
            assumed_by=iam.ServicePrincipal(
                service,
                conditions={
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {"aws:SourceArn": source_arn},
                },
            ),
        )
        self.policies = self._add_policies_of_grants(grants, description)

    def _add_policies_of_grants(
        self, grants: Sequence[Grant], description: str
    ) -> tuple[iam.Policy | iam.ManagedPolicy, ...]:
        stack = Stack.of(self)

        def grant_length(grant: Grant) -> int:
            statement = {
                "Action": _one_or_all(grant.actions),
                "Resource": _one_or_all(grant.resources),
                "Effect": grant.effect,
                "Sid": grant.sid,
                **({"Condition": dict(grant.conditions)} if grant.conditions else {}),
            }
            # As CDK writes it, but with one call into Node at most, and none where there is nothing to fill in.
            unresolved = "Token[" in json.dumps(statement)
            return statement_length(stack.resolve(statement) if unresolved else statement)

        if policy_length(grants, grant_length) <= INLINE:
            inside = iam.Policy(
                self, "Policy", statements=list(map(to_policy_statement, grants)), roles=[self]
            )
            _accept_findings_of_grants(inside, grants)
            return (inside,)
        parts = split_into_policies(grants, grant_length)
        if len(parts) > ATTACHED:
            raise InfrastructureError(
                f"{description}: its permissions need {len(parts)} policies, but IAM allows a role "
                f"{ATTACHED}: move some of its queries to another job, or name an existing role in `role`"
            )
        policies = []
        for number, part in enumerate(parts, start=1):
            policy = iam.ManagedPolicy(
                self,
                f"Policy{number}",
                # Without the number of parts: a changed description replaces a policy.
                description=f"{description}, part {number}",
                statements=list(map(to_policy_statement, part)),
                roles=[self],
            )
            _accept_findings_of_grants(policy, part)
            policies.append(policy)
        return tuple(policies)


def _one_or_all(texts: Sequence[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else list(texts)


def _accept_findings_of_grants(policy: Construct, grants: Sequence[Grant]) -> None:
    reasons = grouped(
        (resource, grant.why)
        for grant in grants
        if grant.why is not None
        for resource in grant.resources_with_wildcard
    )
    for resource, why in reasons.items():
        accept_finding_at_construct(
            policy, f"AwsSolutions-IAM5[Resource::{resource}]", "; ".join(dict.fromkeys(why))
        )


def to_policy_statement(grant: Grant) -> iam.PolicyStatement:
    """Write a grant as a statement of a CDK policy."""
    return iam.PolicyStatement(
        sid=grant.sid,
        effect=iam.Effect[grant.effect.upper()],
        actions=list(grant.actions),
        resources=list(grant.resources),
        conditions=dict(grant.conditions),
    )
