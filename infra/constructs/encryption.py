"""Customer-managed keys, one per class of data."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from millrace.config.aws.regions import endpoint_domain_of_region
from millrace.config.model import Environment
from millrace.sizing.costs.endpoints_or_nat_gateways import created_kms_keys_with_contents

from ..removal_policies import removal_policy


def existing_or_new_encryption_key(
    scope: Construct,
    construct_id: str,
    *,
    environment: Environment,
    data_class: str,
    disposable: bool,
) -> kms.IKey:
    """Return the key of a class of data: the customer's own where one is given, else a new one.

    A new key rotates yearly, and is kept when its stack is deleted, unless all that it encrypts may be deleted with it.

    Parameters
    ----------
    environment
        Its ``storage.keys`` names the customer's keys.
    data_class
        One of ``data``, ``logs``, ``streams``, ``kafka``, ``alerts``.
    disposable
        Whether all data that it encrypts is marked so: without the key the data is lost.
    """
    own = getattr(environment.storage.keys, data_class)
    if own is not None:
        return kms.Key.from_key_arn(scope, construct_id, own)
    return kms.Key(
        scope,
        construct_id,
        description=f"{environment.project} {environment.name}: {created_kms_keys_with_contents(environment)[data_class]}",
        enable_key_rotation=True,
        removal_policy=removal_policy(environment, disposable=disposable),
    )


def allow_cloudwatch_log_groups(key: kms.IKey, *, prefix: str) -> None:
    """Let CloudWatch Logs use a key for the log groups of this account whose name begins with a prefix.

    Without this statement a log group that names the key cannot be made (CloudWatch Logs
    user guide, "Encrypt log data using AWS KMS").
    """
    stack = Stack.of(key)
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="CloudWatchLogs",
            principals=[
                iam.ServicePrincipal(f"logs.{stack.region}.{endpoint_domain_of_region(stack.region)}")
            ],
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
