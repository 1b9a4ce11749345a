"""Customer-managed keys, one per class of data."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.removal import removal_policy
from millrace.config.model import Environment


class DataKey(kms.Key):
    """A key with yearly rotation that outlives its stack unless the environment is disposable."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment, holds: str) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"{environment.project} {environment.name}: {holds}",
            enable_key_rotation=True,
            removal_policy=removal_policy(environment),
        )


def allow_log_groups(key: kms.Key, *, prefix: str) -> None:
    """Let CloudWatch Logs use a key for the log groups of this account whose name begins with a prefix.

    Without this statement a log group that names the key cannot be made (CloudWatch Logs
    user guide, "Encrypt log data using AWS KMS").
    """
    stack = Stack.of(key)
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="CloudWatchLogs",
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
            actions=[
                "kms:Encrypt",
                "kms:Decrypt",
                "kms:ReEncrypt*",
                "kms:GenerateDataKey*",
                "kms:DescribeKey",
            ],
            resources=["*"],
            conditions={
                "ArnLike": {
                    "kms:EncryptionContext:aws:logs:arn": (
                        f"arn:{stack.partition}:logs:{stack.region}:{stack.account}:log-group:{prefix}*"
                    )
                }
            },
        )
    )
