"""Alarms, dashboards, subscriptions and a Prometheus workspace of an environment."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnOutput
from aws_cdk import aws_aps as aps
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.sizing.alarms.alarm_stacks import alarms_divided_into_stacks
from millrace.sizing.plan_model import Plan

from ..cloudwatch_and_grafana_dashboards import (
    cloudwatch_dashboard_body,
    grafana_dashboard,
    split_into_dashboards,
)
from ..constructs.alarms import add_alarms, alarm_name
from ..constructs.log_groups import EncryptedLogGroup
from ..dashboard_sections import dashboard_sections
from ..launch.job_assets import add_text_asset
from ..removal_policies import is_disposable, removal_policy
from .base import EnvironmentStack

_MOST_BOARDS = 2
"""Most dashboards beside a stack's alarms: one has some 230 kB, and a template 1 MB (CloudFormation quotas)."""


class ObservabilityStack(EnvironmentStack):
    """Everything that shows the health of the environment.

    Alarms refer to jobs and streams by their derived names. So this stack needs none of their
    stacks, and a job can be added or removed without a change of another's alarms.

    Attributes
    ----------
    remote_write_url
        URL for Prometheus samples (remote write); ``None`` without a workspace.
    workspace_arn
        The workspace, or ``None``.
    all_stacks
        This stack, and the numbered ones for the alarms and dashboards that it cannot hold.
    """

    def __init__(
        self, scope: Construct, *, names: Names, plan: Plan, alerts: sns.ITopic, logs_key: kms.IKey
    ) -> None:
        super().__init__(
            scope,
            names=names,
            part="observability",
            stateful=False,
            description=f"Alarms and dashboards of {names.prefix}",
        )
        settings = names.environment.observability
        shown = dashboard_sections(names, plan)
        parts = split_into_dashboards(shown, len(plan.alarms))
        shares = alarms_divided_into_stacks(names.environment, plan.alarms)
        apart = len(parts) > _MOST_BOARDS
        stacks: list[EnvironmentStack] = [self]
        for number in range(2, 1 + max(len(shares), len(parts) if apart else 1)):
            stacks.append(_add_alarm_stack(scope, names, number, after=stacks))
        for stack, alarms in zip(stacks, shares, strict=False):
            add_alarms(stack, names, alarms, topic=alerts.topic_arn)
        self.all_stacks = tuple(stacks)
        for address in settings.notify:
            sns.Subscription(
                self, f"To-{address}", topic=alerts, protocol=sns.SubscriptionProtocol.EMAIL, endpoint=address
            )
        for channel in settings.channels:
            self._add_chat_channel(channel, alerts.topic_arn)
        self.remote_write_url: str | None = None
        self.workspace_arn: str | None = None
        if settings.prometheus:
            self._add_prometheus_workspace(logs_key)
        region = names.environment.region
        arns = tuple(names.arn("cloudwatch", f"alarm:{alarm_name(names, alarm)}") for alarm in plan.alarms)
        for number, part in enumerate(parts, 1):
            ending = "" if number == 1 else f"-{number}"
            body = cloudwatch_dashboard_body(part, region, arns if number == 1 else ())
            holder = stacks[number - 1] if apart else self
            cloudwatch.CfnDashboard(
                holder,
                f"Dashboard{ending}",
                dashboard_name=f"{names.prefix}{ending}",
                dashboard_body=holder.to_json_string(body),
            )
        board = grafana_dashboard(shown, title=names.prefix, uid=names.prefix[:40], region=region)
        CfnOutput(
            self,
            "GrafanaDashboard",
            value=add_text_asset(
                self, "GrafanaJson", "grafana.json", json.dumps(board, indent=2, sort_keys=True) + "\n"
            ),
            description="JSON to import into Grafana; see docs/metrics.md",
        )

    def _add_chat_channel(self, channel: str, topic: str) -> None:
        kind, place, *team, number = re.split("[:/]", channel)
        properties: dict[str, Any] = {
            "configuration_name": re.sub(r"[^\w-]", "-", f"{self.names.prefix}-{number}")[:128],
            "iam_role_arn": self.names.environment.observability.channel_role,
            # The default lets a channel's members do all that the role may.
            "guardrail_policies": [f"arn:{self.partition}:iam::aws:policy/CloudWatchReadOnlyAccess"],
            "sns_topic_arns": [topic],
        }
        if kind == "slack":
            chatbot.CfnSlackChannelConfiguration(
                self, f"To-{channel}", slack_workspace_id=place, slack_channel_id=number, **properties
            )
        else:
            chatbot.CfnMicrosoftTeamsChannelConfiguration(
                self,
                f"To-{channel}",
                team_id=place,
                teams_tenant_id=team[0],
                teams_channel_id=number,
                **properties,
            )

    def _add_prometheus_workspace(self, logs_key: kms.IKey) -> None:
        names = self.names
        retention = names.environment.observability.prometheus_retention
        group = EncryptedLogGroup(
            self,
            "WorkspaceLogs",
            environment=names.environment,
            name=f"/aws/vendedlogs/prometheus/{names.prefix}",
            key=logs_key,
        )
        workspace = aps.CfnWorkspace(
            self,
            "Workspace",
            alias=names.prefix,
            kms_key_arn=logs_key.key_arn,
            logging_configuration=aps.CfnWorkspace.LoggingConfigurationProperty(
                log_group_arn=group.log_group_arn
            ),
            workspace_configuration=aps.CfnWorkspace.WorkspaceConfigurationProperty(
                retention_period_in_days=retention.days
            ),
        )
        workspace.apply_removal_policy(
            removal_policy(names.environment, disposable=is_disposable(names.environment, "logs"))
        )
        region = names.environment.region
        self.workspace_arn = (
            f"arn:{self.partition}:aps:{region}:{names.account}:workspace/{workspace.attr_workspace_id}"
        )
        self.remote_write_url = f"{workspace.attr_prometheus_endpoint}api/v1/remote_write"
        self.export_permanently(workspace.attr_workspace_id, workspace.attr_prometheus_endpoint)
        CfnOutput(self, "PrometheusWorkspace", value=workspace.attr_workspace_id)


def _add_alarm_stack(
    scope: Construct, names: Names, number: int, *, after: Sequence[EnvironmentStack]
) -> EnvironmentStack:
    stack = EnvironmentStack(
        scope,
        names=names,
        part=f"observability-{number}",
        stateful=False,
        description=f"More alarms and dashboards of {names.prefix}",
    )
    for each in after:
        stack.add_stack_dependency(each, reason="an alarm leaves one stack before it is made in another")
    return stack
