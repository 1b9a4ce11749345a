"""Names and conditions that limit the statements of commands to one environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import DefaultStackSynthesizer

from millrace.config.aws.iam_statements import TAGGED, Grant, allow
from millrace.config.aws.regions import kms_via_service_names
from millrace.config.aws.resource_names import Names
from millrace.config.engines import KINDS


@dataclass(frozen=True)
class PermissionScope:
    """One environment, as policies name it.

    Parameters
    ----------
    tables
        ``database.table`` of each table that the jobs' settings name.
    """

    names: Names
    tables: Sequence[str]

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of the environment's jobs."""
        return tuple(self.names.environment.jobs)

    @property
    def checkpoint_folders(self) -> tuple[str, ...]:
        """Folders of the jobs' checkpoints in their bucket."""
        return tuple(self.names.checkpoint_folder(job) for job in self.job_names)

    @property
    def job_names_by_engine(self) -> dict[str, list[str]]:
        """Names of the jobs of each engine that has any."""
        jobs = self.names.environment.jobs
        jobs_by_engine = {kind: [name for name, job in jobs.items() if job.engine == kind] for kind in KINDS}
        return {kind: names for kind, names in jobs_by_engine.items() if names}

    def bootstrap_resource_name(self, pattern: str) -> str:
        """Return a name of the bootstrap from its pattern in CDK's synthesizer."""
        environment = self.names.environment
        for key, value in {
            "AWS::Partition": self.names.aws_partition,
            "AWS::AccountId": self.names.account,
            "AWS::Region": environment.region,
            "Qualifier": environment.governance.qualifier or DefaultStackSynthesizer.DEFAULT_QUALIFIER,
        }.items():
            pattern = pattern.replace(f"${{{key}}}", value)
        return pattern

    def condition_own_tags(self) -> dict[str, Any]:
        """Return the condition that limits a statement to resources with the environment's tags (``infra/stacks/base.py``)."""
        environment = self.names.environment
        return {
            "StringEquals": {
                "aws:ResourceTag/millrace:project": environment.project,
                "aws:ResourceTag/millrace:environment": environment.name,
            }
        }

    def condition_via_service(self, service: str) -> dict[str, Any]:
        """Return the condition that limits a key to its use through one service."""
        via = kms_via_service_names(service, self.names.environment.region)
        return {"StringEquals": {"kms:ViaService": via}}

    def key_grants(self, sid: str, actions: list[str], service: str, data_class: str) -> list[Grant]:
        """Allow a data class's key through a service: the company's own key, else the one with the environment's tags."""
        own = getattr(self.names.environment.storage.keys, data_class)
        via = self.condition_via_service(service)
        if own is not None:
            return [allow(f"{sid}Given", actions, [own], via)]
        both = {"StringEquals": {**via["StringEquals"], **self.condition_own_tags()["StringEquals"]}}
        return [allow(sid, actions, [self.names.arn("kms", "key/*")], both, why=TAGGED)]

    def s3_key_grants(self, verb: str, actions: list[str], data_class: str) -> list[Grant]:
        """Allow the use of a data class's key through S3; the statement's name starts with ``verb``."""
        own = getattr(self.names.environment.storage.keys, data_class) is not None
        return self.key_grants(f"{verb}{data_class.title() if own else ''}Files", actions, "s3", data_class)
