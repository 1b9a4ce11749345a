"""The role of one job, which the engine assumes for that job of this account only."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.findings import acknowledge
from infra.permissions import Grant


class JobRole(iam.Role):
    """A role with the given statements and nothing else.

    Parameters
    ----------
    scope, construct_id
        Where it stands.
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
        self.policy = iam.Policy(
            self, "Policy", statements=[grant.statement() for grant in grants], roles=[self]
        )
        self._acknowledge(grants)

    def _acknowledge(self, grants: Sequence[Grant]) -> None:
        reasons: dict[str, list[str]] = {}
        for grant in grants:
            if grant.why is not None:
                for resource in grant.wildcards:
                    reasons.setdefault(resource, []).append(grant.why)
        for resource, why in reasons.items():
            acknowledge(
                self.policy, f"AwsSolutions-IAM5[Resource::{resource}]", "; ".join(dict.fromkeys(why))
            )
