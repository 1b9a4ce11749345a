"""Shared resources of all jobs' state machines: a topic for alerts and the key of both."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from millrace.config.aws.resource_names import Names

from ..constructs.encryption import existing_or_new_encryption_key
from ..constructs.logged_encrypted_state_machine import allow_delivery_of_execution_logs
from ..removal_policies import is_disposable
from .base import EnvironmentStack


class StateMachineResourcesStack(EnvironmentStack):
    """The topic for alerts that need a person, and a key.

    Attributes
    ----------
    key
        Encrypts the topic's messages and the data of the state machines' executions.
    alerts
        The topic; people subscribe to it themselves.
    """

    def __init__(self, scope: Construct, *, names: Names) -> None:
        super().__init__(
            scope,
            names=names,
            part="lifecycle",
            # The subscribers are recorded nowhere else.
            stateful=True,
            description=f"Alerts of {names.prefix}",
        )
        self.key = existing_or_new_encryption_key(
            self,
            "Key",
            environment=names.environment,
            data_class="alerts",
            disposable=is_disposable(names.environment, "logs"),
        )
        account = {"StringEquals": {"aws:SourceAccount": names.account}}
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                # CloudWatch user guide, "Alarms and encrypted topics".
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions=account,
            )
        )
        allow_delivery_of_execution_logs(self.key, account=names.account)
        self.alerts = sns.Topic(
            self,
            "Alerts",
            topic_name=f"{names.prefix}-alerts",
            display_name=f"Alerts of {names.prefix}",
            master_key=self.key,
            enforce_ssl=True,
        )
        self.alerts.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.alerts.topic_arn],
                conditions=account,
            )
        )
        self.export_permanently(self.key.key_arn, self.alerts.topic_arn)
        CfnOutput(self, "AlertsTopicArn", value=self.alerts.topic_arn)
