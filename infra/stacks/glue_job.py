"""One Glue job: a streaming job, or one that runs in turns."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from textwrap import shorten

from aws_cdk import CfnOutput, RemovalPolicy
from aws_cdk import aws_glue as glue
from aws_cdk import aws_s3 as s3
from constructs import Construct

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.aws.resource_names import Names
from millrace.config.engines.glue import GlueJob
from millrace.sizing.plan_model import JobPlan

from ..accept_finding import accept_finding_at_construct
from ..constructs.job_role import JobRole
from ..constructs.log_groups import EncryptedLogGroup
from ..constructs.state_machine_engine_calls import glue_engine_calls
from ..engines.glue import join_for_glue_conf
from ..launch.launch_document import event_log_prefix
from ..permissions.job_permissions import glue_network_grants
from .job_base import JobStack, RunCallsForStateMachine, SharedStacks

_LONGEST = 2048
"""Most characters of a job's description (botocore's model of Glue, ``CreateJob``)."""


class GlueJobStack(JobStack):
    """A Glue job without the harmful defaults of CDK's construct.

    The construct would take Glue 4.0, ten workers of one type and no auto scaling.
    """

    def __init__(
        self, scope: Construct, *, names: Names, plan: JobPlan, foundation: SharedStacks, root: Path
    ) -> None:
        super().__init__(scope, names=names, plan=plan, foundation=foundation, root=root)
        settings = names.environment.jobs[plan.name]
        assert isinstance(settings, GlueJob)
        storage = foundation.storage
        connections = self._add_network_connections()
        self.role = self._own_or_existing_role(
            service="glue.amazonaws.com",
            source_arn=f"arn:{self.partition}:glue:{self.region}:{names.account}:*",
            grants=[*self.permissions.grants(), *self._network_grants(names, connections)],
        )
        workers = self.document["workers"]
        # AWS bills streaming jobs by the hour (Glue developer guide, "Streaming ETL jobs", November 2026), and others by the second.
        kind = glue.PySparkStreamingJob if plan.run is None else glue.PySparkEtlJob
        job = kind(
            self,
            "Job",
            job_name=names.job(plan.name),
            description=shorten(f"Queries {', '.join(plan.queries)}", _LONGEST, placeholder=" ..."),
            # All permissions are in one place; the construct would add wider ones.
            role=self.role.without_policy_updates() if isinstance(self.role, JobRole) else self.role,
            script=_code_from_url(self, "Script", self.document["entry_script"]),
            extra_jars=[
                _code_from_url(self, f"Jar{number}", url)
                for number, url in enumerate(self.document["jars"], start=1)
            ]
            or None,
            extra_python_files=[_code_from_url(self, "PythonFiles", self.document["archive"])],
            glue_version=glue.GlueVersion[
                f"V{settings.nearest_listed_version(settings.version).replace('.', '_')}"
            ],
            worker_configuration=glue.WorkerConfiguration(
                worker_type=glue.WorkerType[workers["type"].replace(".", "_")],
                number_of_workers=workers["max"],
            ),
            # Two runs on one checkpoint destroy it.
            max_concurrent_runs=1,
            max_retries=settings.retries,
            connections=list(connections) or None,
            security_configuration=self._add_security_configuration_and_log_groups(names, plan),
            continuous_logging=glue.ContinuousLoggingProps(
                enabled=True, log_group=self.log_group, quiet=True
            ),
            enable_metrics=True,
            enable_observability_metrics=True,
            spark_ui=glue.SparkUIProps(bucket=storage.event_logs, prefix=f"/{event_log_prefix(plan)}"),
            default_arguments={
                "--launch-document": self.document_url,
                "--conf": join_for_glue_conf(self.document["spark"]),
                "--datalake-formats": "iceberg",
                **({"--enable-auto-scaling": "true"} if not plan.scaling.fixed else {}),
                # The layout that a self-hosted history server reads.
                "--enable-spark-ui-legacy-path": "true",
                # Standard output, which holds the metrics: from Glue 5.0 on it goes to PREFIX/…/output; by default it goes
                # to a group of all jobs, to which this one may not write.
                "--custom-logGroup-prefix": self.log_group_name,
            },
        )
        # Not a property of the construct. Without a window Glue restarts the job every seven days at an hour
        # of its choice. The timeout stays blank unless it is set: a timeout ends the run.
        resource = job.node.default_child
        assert isinstance(resource, glue.CfnJob)
        resource.glue_version = settings.version
        resource.maintenance_window = settings.maintenance_window if plan.run is None else None
        # Who may start a run would otherwise choose its script, files and jars, and with them what the role does. The argument
        # takes precedence over the script of the job's command (Glue developer guide, "Using job parameters").
        resource.non_overridable_arguments = {
            **resource.default_arguments,
            "--scriptLocation": self.document["entry_script"],
        }
        resource.default_arguments = None
        if settings.timeout is not None:
            resource.timeout = settings.timeout // timedelta(minutes=1)
        if isinstance(self.role, JobRole):
            resource.node.add_dependency(*self.role.policies)
        CfnOutput(self, "JobName", value=names.job(plan.name))
        CfnOutput(self, "RoleArn", value=self.role.role_arn)

    def engine_run_calls(self) -> RunCallsForStateMachine:
        """Return the calls, grants and events of the job's runs; one runs at a time."""
        name = self.names.job(self.plan.name)
        restarts = self.names.environment.jobs[self.plan.name].restarts_per_hour
        return RunCallsForStateMachine(
            glue_engine_calls(name, self.plan.scheduled_starts_per_hour + restarts),
            [
                allow(
                    "RunJob",
                    ["glue:BatchStopJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"],
                    [self.names.arn("glue", f"job/{name}")],
                )
            ],
            {
                "source": ["aws.glue"],
                "detail-type": ["Glue Job State Change"],
                "detail": {"jobName": [name], "state": ["SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED"]},
            },
        )

    def _add_network_connections(self) -> tuple[glue.Connection, ...]:
        # One for each zone: Glue takes the next when a zone has no addresses left or is down.
        connections = tuple(
            glue.Connection(
                self,
                f"Connection{number}",
                type=glue.ConnectionType.NETWORK,
                description="Private subnets of the environment",
                network=glue.ConnectionNetwork.subnet(subnet),
                security_groups=list(self.groups),
            )
            for number, subnet in enumerate(self.network.subnets if self.network else (), start=1)
        )
        for connection in connections:
            accept_finding_at_construct(
                connection,
                "CloudFormation-Validate::W3010",
                "The zone of a subnet that exists already, as the environment's file gives it",
            )
        return connections

    def _add_security_configuration_and_log_groups(
        self, names: Names, plan: JobPlan
    ) -> glue.SecurityConfiguration:
        """Make the job's security configuration, and the log groups whose names contain its name.

        It cannot be changed: CloudFormation creates a new one before it removes the old one. So the name
        contains a digest of the content.
        """
        storage = self.foundation.storage
        keys = self.resolve([storage.data_key.key_arn, storage.logs_key.key_arn])
        digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:8]
        name = f"{names.job(plan.name)}-{digest}"
        made = glue.SecurityConfiguration(
            self,
            "Security",
            security_configuration_name=name,
            s3_encryption=glue.S3Encryption.kms(storage.data_key),
            cloud_watch_encryption=glue.CloudWatchEncryption.kms(storage.logs_key),
            job_bookmarks_encryption=glue.JobBookmarksEncryption.client_side_kms(storage.data_key),
        )
        # The construct would keep it, and the job's next deployment would find its name in use.
        made.apply_removal_policy(RemovalPolicy.DESTROY)
        for kind in ("output", "error"):
            # Log groups that Glue creates itself never expire ("Logging for AWS Glue jobs" of its developer guide has
            # the names).
            EncryptedLogGroup(
                self,
                f"Logs{kind.title()}",
                environment=names.environment,
                name=f"{self.log_group_name}/{name}/{self.role.role_name}/{kind}",
                key=storage.logs_key,
            )
        return made

    def _network_grants(self, names: Names, connections: tuple[glue.Connection, ...]) -> list[Grant]:
        if self.network is None:
            return []
        return [
            allow(
                "Connections",
                ["glue:GetConnection"],
                [
                    f"arn:{self.partition}:glue:{self.region}:{self.account}:catalog",
                    *(connection.connection_arn for connection in connections),
                ],
            ),
            *glue_network_grants(
                names,
                subnet_ids=[subnet.subnet_id for subnet in self.network.subnets],
                security_group_ids=[group.security_group_id for group in self.groups],
            ),
        ]


def _code_from_url(scope: Construct, construct_id: str, url: str) -> glue.Code:
    bucket, key = url.removeprefix("s3://").split("/", 1)
    return glue.Code.from_bucket(s3.Bucket.from_bucket_name(scope, f"{construct_id}Bucket", bucket), key)
