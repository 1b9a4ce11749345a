"""One EMR Serverless application and the role that its job runs take."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from aws_cdk import CfnOutput
from aws_cdk import aws_emrserverless as emr
from constructs import Construct

from infra.launch import gigabytes
from infra.stacks.job import Foundation, JobStack
from infra.stacks.observability import ObservabilityStack
from millrace.config.model import EmrJob
from millrace.config.names import Names
from millrace.sizing.model import JobPlan


class EmrJobStack(JobStack):
    """An application that is large enough for its one job and no larger.

    A job run is no CloudFormation resource, and a started application refuses most
    updates: what may change from one deployment to the next is in the launch document.
    """

    def __init__(
        self, scope: Construct, *, names: Names, plan: JobPlan, foundation: Foundation, root: Path
    ) -> None:
        super().__init__(scope, names=names, plan=plan, foundation=foundation, root=root)
        settings = names.environment.jobs[plan.name]
        assert isinstance(settings, EmrJob)
        network, storage = foundation.network, foundation.storage
        workers = self.document["workers"]["max"]
        application = emr.CfnApplication(
            self,
            "Application",
            name=names.job(plan.name),
            type="Spark",
            release_label=settings.version,
            architecture=plan.architecture.upper(),
            image_configuration=None
            if settings.image is None
            else emr.CfnApplication.ImageConfigurationInputProperty(image_uri=settings.image),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{plan.vcpu * workers} vCPU",
                memory=gigabytes(plan.memory_gib * workers * 1024**3),
                disk=gigabytes(plan.disk_gib * workers * 1024**3),
            ),
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=settings.idle_stop // timedelta(minutes=1)
            ),
            # All of them: EMR Serverless starts a run in another zone when one is away.
            network_configuration=emr.CfnApplication.NetworkConfigurationProperty(
                subnet_ids=[subnet.subnet_id for subnet in network.subnets],
                security_group_ids=[network.workers.security_group_id],
            ),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                s3_monitoring_configuration=emr.CfnApplication.S3MonitoringConfigurationProperty(
                    log_uri=self.document["event_logs"], encryption_key_arn=storage.logs_key.key_arn
                ),
                cloud_watch_logging_configuration=emr.CfnApplication.CloudWatchLoggingConfigurationProperty(
                    enabled=True,
                    log_group_name=self.log_group.log_group_name,
                    encryption_key_arn=storage.logs_key.key_arn,
                ),
                prometheus_monitoring_configuration=_remote_write(foundation.observability),
                # AWS would keep a second copy of all logs on its side.
                managed_persistence_monitoring_configuration=(
                    emr.CfnApplication.ManagedPersistenceMonitoringConfigurationProperty(enabled=False)
                ),
            ),
        )
        self.application_id = application.attr_application_id
        self.role = self._take_role(
            names,
            plan.name,
            service="emr-serverless.amazonaws.com",
            source_arn=(
                f"arn:{self.partition}:emr-serverless:{self.region}:{names.account}:"
                f"/applications/{application.attr_application_id}"
            ),
            grants=self.permissions.grants(),
        )
        CfnOutput(self, "ApplicationId", value=application.attr_application_id)
        CfnOutput(self, "RoleArn", value=self.role.role_arn)


def _remote_write(
    observability: ObservabilityStack,
) -> emr.CfnApplication.PrometheusMonitoringConfigurationProperty | None:
    if observability.remote_write_url is None:
        return None
    return emr.CfnApplication.PrometheusMonitoringConfigurationProperty(
        remote_write_url=observability.remote_write_url
    )
