"""What the stacks of all jobs share: files, launch document, log group, permissions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.assets import JobFiles, asset_url, document_asset, job_files
from infra.constructs.job_role import JobRole
from infra.constructs.logs import EncryptedLogGroup
from infra.launch import launch_document
from infra.permissions import JobPermissions, Keys
from infra.stacks.base import EnvironmentStack
from infra.stacks.network import NetworkStack
from infra.stacks.observability import ObservabilityStack
from infra.stacks.storage import StorageStack
from millrace.config.names import Names
from millrace.sizing.model import JobPlan


@dataclass(frozen=True)
class Foundation:
    """The stateful stacks on which jobs stand."""

    storage: StorageStack
    network: NetworkStack
    observability: ObservabilityStack
    streams_key: kms.IKey | None


class JobStack(EnvironmentStack):
    """One job's stack, without the engine's own resources.

    Attributes
    ----------
    document
        The launch document, from which the engine's resources are rendered.
    document_url
        Where it will lie; the stack's output ``LaunchDocument``.
    log_group_name
        Where the job's lines go.
    role
        What the engine assumes to run the job.
    """

    role: iam.IRole

    def __init__(
        self, scope: Construct, *, names: Names, plan: JobPlan, foundation: Foundation, root: Path
    ) -> None:
        super().__init__(
            scope,
            names=names,
            part=f"job-{plan.name}",
            stateful=False,
            description=f"Job {plan.name} of {names.prefix}",
        )
        environment = names.environment
        self.foundation = foundation
        self.files: JobFiles = job_files(
            self, environment=environment, job=environment.jobs[plan.name], root=root
        )
        self.document: dict[str, Any] = launch_document(environment, plan, names, self.files.urls)
        launch = document_asset(self, names.job(plan.name), self.document)
        self.document_url = asset_url(launch)
        self.log_group_name = f"/{names.prefix}/jobs/{plan.name}"
        self.log_group = EncryptedLogGroup(
            self,
            "Logs",
            environment=environment,
            name=self.log_group_name,
            key=foundation.storage.logs_key,
        )
        self.permissions = JobPermissions(
            names=names,
            plan=plan,
            keys=Keys(
                data=foundation.storage.data_key.key_arn,
                logs=foundation.storage.logs_key.key_arn,
                streams=None if foundation.streams_key is None else foundation.streams_key.key_arn,
            ),
            assets=self.document_url.removeprefix("s3://").rpartition("/")[0],
            log_group=self.log_group_name,
            workspace=foundation.observability.workspace_arn if plan.engine == "emr" else None,
        )
        Tags.of(self).add("millrace:job", plan.name)
        CfnOutput(
            self,
            "LaunchDocument",
            value=self.document_url,
            description="What starts this job; see docs/launch-document.md",
        )

    def _take_role(self, names: Names, job: str, **given: Any) -> iam.IRole:
        """Return the job's role: the existing one that the file names, else one with just its grants."""
        arn = names.environment.jobs[job].role
        if arn is not None:
            return iam.Role.from_role_arn(self, "Role", arn, mutable=False)
        return JobRole(
            self, "Role", account=names.account, description=f"Job {job} of {names.prefix}", **given
        )
