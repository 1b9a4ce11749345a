"""Alarms, dashboards, subscriptions and a Prometheus workspace of an environment."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_aps as aps
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from millrace.config.names import Names
from millrace.sizing.model import Plan

from ..assets import text_asset
from ..constructs.alarms import add_alarms, alarm_name
from ..constructs.logs import EncryptedLogGroup
from ..dashboards import boards, cloudwatch_body, grafana, to_text
from ..data_removal import is_disposable, removal_policy
from ..panels import sections
from .base import EnvironmentStack


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
        by_job = settings.alarms == "by-job"
        add_alarms(
            self,
            names,
            [each for each in plan.alarms if not (by_job and each.of_job)],
            topic=alerts.topic_arn,
        )
        for address in settings.notify:
            sns.Subscription(
                self, f"To-{address}", topic=alerts, protocol=sns.SubscriptionProtocol.EMAIL, endpoint=address
            )
        self.remote_write_url: str | None = None
        self.workspace_arn: str | None = None
        if settings.prometheus:
            self._workspace(logs_key)
        shown = sections(names, plan)
        region = names.environment.region
        arns = tuple(names.arn("cloudwatch", f"alarm:{alarm_name(names, alarm)}") for alarm in plan.alarms)
        for number, part in enumerate(boards(shown, len(arns)), 1):
            ending = "" if number == 1 else f"-{number}"
            body = cloudwatch_body(part, region, arns if number == 1 else ())
            cloudwatch.CfnDashboard(
                self,
                f"Dashboard{ending}",
                dashboard_name=f"{names.prefix}{ending}",
                dashboard_body=self.to_json_string(body),
            )
        board = grafana(shown, title=names.prefix, uid=names.prefix[:40], region=region)
        CfnOutput(
            self,
            "GrafanaDashboard",
            value=text_asset(self, "GrafanaJson", "grafana.json", to_text(board)),
            description="JSON to import into Grafana; see docs/metrics.md",
        )

    def _workspace(self, logs_key: kms.IKey) -> None:
        names = self.names
        kept = names.environment.observability.prometheus_retention
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
                retention_period_in_days=kept.days
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
        self.keep_exported(workspace.attr_workspace_id, workspace.attr_prometheus_endpoint)
        CfnOutput(self, "PrometheusWorkspace", value=workspace.attr_workspace_id)
