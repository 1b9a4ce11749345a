"""Log groups with encryption and a retention of three months."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from millrace.config.model import Environment

from ..removal_policies import is_disposable, removal_policy


class EncryptedLogGroup(logs.LogGroup):
    """A log group with a customer-managed key, kept for three months.

    It is a resource of its own: a log group that a service creates at its first line never expires.

    Parameters
    ----------
    stays
        Whether it holds data that outlives its stack, as flow logs do. The groups of jobs go with their stacks: a group
        that stays has the name that the job's next deployment needs.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        name: str,
        key: kms.IKey,
        stays: bool = False,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            log_group_name=name,
            encryption_key=key,
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=removal_policy(environment, disposable=is_disposable(environment, "logs"))
            if stays
            else RemovalPolicy.DESTROY,
        )
