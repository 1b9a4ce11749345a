"""Base of all state machines: logged, traced, encrypted, with a role of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from millrace.config.aws.iam_statements import NO_NARROWER, Grant, allow
from millrace.config.aws.resource_names import Names

from .job_role import JobRole
from .log_groups import EncryptedLogGroup

_DATA_KEY_REUSE_SECONDS = 300


class LoggedEncryptedStateMachine(Construct):
    """A state machine that logs everything, is traced, and encrypts its data with a key of the environment.

    Parameters
    ----------
    log_name
        Last part of the log group's name.
    kind
        ``STANDARD``, or ``EXPRESS`` for many short executions.
    definition
        In Amazon States Language; may hold tokens.
    grants
        What it may do, apart from logging, tracing and its key.
    key
        Encrypts definition and executions; its policy must let log delivery read them
        (:func:`allow_delivery_of_execution_logs`).
    logs_key
        Encrypts the log group.
    purpose
        Describes the role.

    Attributes
    ----------
    machine, role
        The resource and its role.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        log_name: str,
        kind: Literal["STANDARD", "EXPRESS"],
        definition: Mapping[str, Any],
        grants: Sequence[Grant],
        key: kms.IKey,
        logs_key: kms.IKey,
        purpose: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._names, self._key = names, key
        group = EncryptedLogGroup(
            self,
            "Logs",
            environment=names.environment,
            # The prefix keeps the account's log delivery policy from growing past its limit.
            name=f"/aws/vendedlogs/states/{names.prefix}/{log_name}",
            key=logs_key,
        )
        self.role = JobRole(
            self,
            "Role",
            service="states.amazonaws.com",
            account=names.account,
            source_arn=names.arn("states", "stateMachine:*"),
            description=purpose,
            grants=[
                *grants,
                _key_use_grant(key),
                # Step Functions developer guide, "Using CloudWatch Logs to log execution history".
                allow(
                    "DeliverLogs",
                    [
                        "logs:CreateLogDelivery",
                        "logs:DeleteLogDelivery",
                        "logs:DescribeLogGroups",
                        "logs:DescribeResourcePolicies",
                        "logs:GetLogDelivery",
                        "logs:ListLogDeliveries",
                        "logs:PutResourcePolicy",
                        "logs:UpdateLogDelivery",
                    ],
                    ["*"],
                    why=NO_NARROWER,
                ),
                allow(
                    "Trace",
                    [
                        "xray:GetSamplingRules",
                        "xray:GetSamplingTargets",
                        "xray:PutTelemetryRecords",
                        "xray:PutTraceSegments",
                    ],
                    ["*"],
                    why=NO_NARROWER,
                ),
            ],
        )
        self.machine = sfn.CfnStateMachine(
            self,
            "Resource",
            state_machine_type=kind,
            definition_string=Stack.of(self).to_json_string(
                _with_partition_in_arns(definition, names.aws_partition)
            ),
            role_arn=self.role.role_arn,
            logging_configuration=sfn.CfnStateMachine.LoggingConfigurationProperty(
                level="ALL",
                include_execution_data=True,
                destinations=[
                    sfn.CfnStateMachine.LogDestinationProperty(
                        cloud_watch_logs_log_group=sfn.CfnStateMachine.CloudWatchLogsLogGroupProperty(
                            log_group_arn=group.log_group_arn
                        )
                    )
                ],
            ),
            tracing_configuration=sfn.CfnStateMachine.TracingConfigurationProperty(enabled=True),
            encryption_configuration=sfn.CfnStateMachine.EncryptionConfigurationProperty(
                type="CUSTOMER_MANAGED_KMS_KEY",
                kms_key_id=key.key_arn,
                kms_data_key_reuse_period_seconds=_DATA_KEY_REUSE_SECONDS,
            ),
        )
        # A machine that is created before its role's policy has no access to its log group.
        self.machine.node.add_dependency(*self.role.policies)

    def add_starter_role(self, purpose: str) -> JobRole:
        """Make the role with which event rules start the machine."""
        return JobRole(
            self,
            "RuleRole",
            service="events.amazonaws.com",
            account=self._names.account,
            source_arn=self._names.arn("events", "rule/*"),
            description=purpose,
            grants=[
                allow("StartExecution", ["states:StartExecution"], [self.machine.attr_arn]),
                # Whoever starts an encrypted machine needs its key (developer guide, "Data at rest encryption").
                _key_use_grant(self._key),
            ],
        )

    def rule_target(self, starter: JobRole, **given: Any) -> events.CfnRule.TargetProperty:
        """Write the machine as a rule's target; ``given`` is its input."""
        return events.CfnRule.TargetProperty(
            id="StateMachine", arn=self.machine.attr_arn, role_arn=starter.role_arn, **given
        )


def allow_delivery_of_execution_logs(key: kms.IKey, *, account: str) -> None:
    """Let CloudWatch deliver the logs of executions that are encrypted with a key.

    Source: Step Functions developer guide, "Data at rest encryption", on encrypted log delivery.
    """
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="ExecutionLogs",
            principals=[iam.ServicePrincipal("delivery.logs.amazonaws.com")],
            actions=["kms:Decrypt"],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": account}},
        )
    )


def _with_partition_in_arns(definition: Mapping[str, Any], partition: str) -> Any:
    """Return a definition with the integrations of a partition; they are written as in ``aws``."""
    return json.loads(json.dumps(definition).replace('"arn:aws:states:', f'"arn:{partition}:states:'))


def _key_use_grant(key: kms.IKey) -> Grant:
    return allow("Encrypt", ["kms:Decrypt", "kms:GenerateDataKey"], [key.key_arn])
