"""One EMR Serverless application, and the role of its job runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from aws_cdk import CfnOutput
from aws_cdk import aws_emrserverless as emr
from constructs import Construct

from millrace.config.aws.iam_statements import NO_NARROWER, allow
from millrace.config.aws.resource_names import Names
from millrace.config.engines import ended_run_states
from millrace.config.engines.emr import EmrJob
from millrace.sizing.plan_model import JobPlan

from ..constructs.state_machine_engine_calls import emr_engine_calls
from ..engines.emr import format_gigabytes
from .job_base import JobStack, RunCallsForStateMachine, SharedStacks


class EmrJobStack(JobStack):
    """An application that is large enough for its one job and no larger.

    A job run is not a CloudFormation resource, and a started application refuses most
    updates: everything that may change between deployments is in the launch document.
    """

    def __init__(
        self, scope: Construct, *, names: Names, plan: JobPlan, foundation: SharedStacks, root: Path
    ) -> None:
        super().__init__(scope, names=names, plan=plan, foundation=foundation, root=root)
        settings = names.environment.jobs[plan.name]
        assert isinstance(settings, EmrJob)
        network, storage = self.network, foundation.storage
        assert network is not None, "EMR Serverless reaches Kinesis and CloudWatch's metrics in a VPC only"
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
                memory=format_gigabytes(plan.memory_gib * workers),
                disk=format_gigabytes(plan.disk_gib * workers),
            ),
            # Workers that are ready are billed between bounded runs, too.
            initial_capacity=_preinitialized_workers(plan)
            if plan.scaling.fixed and plan.run is None
            else None,
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=settings.idle_stop // timedelta(minutes=1)
            ),
            # All subnets: EMR Serverless starts a run in another zone when one is down.
            network_configuration=emr.CfnApplication.NetworkConfigurationProperty(
                subnet_ids=[subnet.subnet_id for subnet in network.subnets],
                security_group_ids=[group.security_group_id for group in self.groups],
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
                prometheus_monitoring_configuration=None
                if foundation.observability.remote_write_url is None
                else emr.CfnApplication.PrometheusMonitoringConfigurationProperty(
                    remote_write_url=foundation.observability.remote_write_url
                ),
                # AWS would keep a second copy of all logs.
                managed_persistence_monitoring_configuration=(
                    emr.CfnApplication.ManagedPersistenceMonitoringConfigurationProperty(enabled=False)
                ),
            ),
        )
        self.application_id = application.attr_application_id
        self.role = self._own_or_existing_role(
            service="emr-serverless.amazonaws.com",
            source_arn=(
                f"arn:{self.partition}:emr-serverless:{self.region}:{names.account}:"
                f"/applications/{application.attr_application_id}"
            ),
            grants=self.permissions.grants(),
        )
        CfnOutput(self, "ApplicationId", value=application.attr_application_id)
        CfnOutput(self, "RoleArn", value=self.role.role_arn)

    def engine_run_calls(self) -> RunCallsForStateMachine:
        """Return the calls, grants and events of the application's runs."""
        application = self.names.arn("emr-serverless", f"/applications/{self.application_id}")
        # Only CloudFormation knows the application's id; the rule pack writes it like this.
        written = self.names.arn("emr-serverless", "/applications/<Application.ApplicationId>")
        return RunCallsForStateMachine(
            emr_engine_calls(
                application_id=self.application_id,
                role_arn=self.role.role_arn,
                name=self.names.job(self.plan.name),
                document=self.document,
                document_url=self.document_url,
                queries=list(self.plan.queries),
            ),
            [
                allow(
                    "StartRuns", ["emr-serverless:ListJobRuns", "emr-serverless:StartJobRun"], [application]
                ),
                allow(
                    "WatchRuns",
                    ["emr-serverless:CancelJobRun", "emr-serverless:GetJobRun"],
                    [f"{application}/jobruns/*"],
                ),
                allow(
                    "PassJobRole",
                    ["iam:PassRole"],
                    [self.role.role_arn],
                    {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
                ),
                allow("MeasureBatches", ["cloudwatch:GetMetricData"], ["*"], why=NO_NARROWER),
            ],
            {
                "source": ["aws.emr-serverless"],
                "detail-type": ["EMR Serverless Job Run State Change"],
                "detail": {
                    "applicationId": [self.application_id],
                    "state": list(ended_run_states.EMR_SERVERLESS),
                },
            },
            {
                f"AwsSolutions-IAM5[Resource::{written}/jobruns/*]": "The id of a run is known when it has begun"
            },
        )


def _preinitialized_workers(
    plan: JobPlan,
) -> list[emr.CfnApplication.InitialCapacityConfigKeyValuePairProperty]:
    """Return the workers that are ready before a run asks for them, and again as soon as a run has ended."""
    worker = emr.CfnApplication.WorkerConfigurationProperty(
        cpu=f"{plan.vcpu} vCPU",
        memory=format_gigabytes(plan.memory_gib),
        disk=format_gigabytes(plan.disk_gib),
    )
    return [
        emr.CfnApplication.InitialCapacityConfigKeyValuePairProperty(
            key=kind,
            value=emr.CfnApplication.InitialCapacityConfigProperty(
                worker_count=number, worker_configuration=worker
            ),
        )
        for kind, number in (("Driver", 1), ("Executor", plan.executors.value))
    ]
