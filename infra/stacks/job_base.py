"""Base of the stacks of all jobs: files, launch document, log group, permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from millrace.config.aws.iam_statements import Grant
from millrace.config.aws.resource_names import Names
from millrace.sizing.plan_model import JobPlan

from ..constructs.job_role import JobRole
from ..constructs.log_groups import EncryptedLogGroup
from ..constructs.state_machine_definition import EngineCalls
from ..launch.job_assets import add_job_file_assets, add_text_asset
from ..launch.launch_document import launch_document
from ..permissions.job_permissions import JobPermissions
from .base import EnvironmentStack
from .network import NetworkStack
from .observability import ObservabilityStack
from .storage import StorageStack


@dataclass(frozen=True)
class SharedStacks:
    """The shared stacks that jobs use; without a network where nothing needs a VPC."""

    storage: StorageStack
    network: NetworkStack | None
    observability: ObservabilityStack
    streams_key: kms.IKey | None


@dataclass(frozen=True)
class RunCallsForStateMachine:
    """An engine's way to start, stop and report runs of a job, for its state machine.

    Attributes
    ----------
    calls
        API calls of the engine.
    grants
        Permissions that the calls need.
    ended
        Pattern of the event at the end of a run.
    acknowledged
        Findings of the rule pack that they cause, each with the reason.
    """

    calls: EngineCalls
    grants: Sequence[Grant]
    ended: Mapping[str, Any]
    acknowledged: Mapping[str, str] = field(default_factory=dict)


class JobStack(EnvironmentStack):
    """One job's stack, without the engine's own resources.

    Attributes
    ----------
    document
        The launch document, from which the engine's resources are rendered.
    document_url
        Its URL; the stack's output ``LaunchDocument``.
    network
        Network of its workers; None for a job outside of any VPC.
    groups
        Security groups of the job's workers: that of all jobs, and the job's own; none outside of a VPC.
    log_group_name
        Log group of the job's lines.
    role
        The role that the engine assumes to run the job.
    """

    role: iam.IRole

    def __init__(
        self, scope: Construct, *, names: Names, plan: JobPlan, foundation: SharedStacks, root: Path
    ) -> None:
        super().__init__(
            scope,
            names=names,
            part=f"job-{plan.name}",
            stateful=False,
            description=f"Job {plan.name} of {names.prefix}",
        )
        environment = names.environment
        self.foundation, self.plan = foundation, plan
        files = add_job_file_assets(self, environment=environment, job=environment.jobs[plan.name], root=root)
        self.document: dict[str, Any] = launch_document(environment, plan, names, files)
        self.document_url = add_text_asset(
            self,
            "LaunchDocumentAsset",
            f"{names.job(plan.name)}.json",
            json.dumps(self.document, indent=2) + "\n",
        )
        self.network = None if plan.network.value == "none" else foundation.network
        self.groups: tuple[ec2.ISecurityGroup, ...] = ()
        if self.network is not None:
            self.groups = (self.network.workers, self._add_job_worker_security_group(self.network))
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
            data_key=foundation.storage.data_key.key_arn,
            logs_key=foundation.storage.logs_key.key_arn,
            streams_key=None if foundation.streams_key is None else foundation.streams_key.key_arn,
            assets=self.document_url.removeprefix("s3://").rpartition("/")[0],
            log_group=self.log_group_name,
            workspace=foundation.observability.workspace_arn
            if environment.jobs[plan.name].remote_writes
            else None,
        )
        Tags.of(self).add("millrace:job", plan.name)
        CfnOutput(
            self,
            "LaunchDocument",
            value=self.document_url,
            description="What starts this job; see docs/launch-document.md",
        )

    def engine_run_calls(self) -> RunCallsForStateMachine | None:
        """Return the engine's way to run the job; None for an engine that starts no runs: the job has no state machine then."""
        return None

    def _add_job_worker_security_group(self, network: NetworkStack) -> ec2.SecurityGroup:
        """Make the group inside which the job's workers reach each other; Glue requires one of a connection's groups to be so."""
        group = ec2.SecurityGroup(
            self,
            "Group",
            vpc=network.vpc,
            description=f"Workers of job {self.plan.name} of {self.names.prefix}",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(group, ec2.Port.all_tcp(), "Spark between driver and executors")
        group.add_egress_rule(group, ec2.Port.all_tcp(), "Spark between driver and executors")
        return group

    def _own_or_existing_role(self, **given: Any) -> iam.IRole:
        """Return the job's role: the existing one that the file names, else a new one with only its grants."""
        arn = self.names.environment.jobs[self.plan.name].role
        if arn is not None:
            return iam.Role.from_role_arn(self, "Role", arn, mutable=False)
        return JobRole(
            self,
            "Role",
            account=self.names.account,
            description=f"Job {self.plan.name} of {self.names.prefix}",
            **given,
        )
