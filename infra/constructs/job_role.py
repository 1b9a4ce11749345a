"""The role of one job, which the engine assumes for that job of this account only."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct


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
    statements
        What the job may do.
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
        statements: list[iam.PolicyStatement],
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
        self.policy = iam.Policy(self, "Policy", statements=statements, roles=[self])
