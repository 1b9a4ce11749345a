"""Base of the places where a verification deploys and runs jobs: an AWS account, or the sandbox; only what differs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.account.kafka_access import Settings
from millrace.sandbox.kill_and_restart_jobs import JobRunner
from millrace.verify.environment_copy import VerificationCopy
from millrace.verify.expected_and_actual_cost import BilledRun


@dataclass(frozen=True)
class ExpectedStepSeconds:
    """Expected seconds of parts, measured or guessed, for an estimate."""

    deploy: float
    start: float
    recover: float
    reshard: float
    remove: float


class VerificationTarget(JobRunner):
    """A place where environments are deployed and their jobs run."""

    paid: bool
    """Whether runs in this place are billed."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The place, for people."""

    @abstractmethod
    def client(self, service: str) -> Any:
        """Return a boto3 client of a service."""

    def check_can_deploy(self, _copy: VerificationCopy) -> None:
        """Check before the deployment that everything can be created."""

    @abstractmethod
    def deploy(self, copy: VerificationCopy, assembly: Path) -> None:
        """Deploy the stacks of an assembly."""

    @abstractmethod
    def kafka_settings(self, names: Names, cluster: str) -> Settings:
        """Return the settings of librdkafka for a cluster."""

    @abstractmethod
    def end_all_runs(self, prefix: str, jobs: Mapping[str, Mapping[str, str]]) -> None:
        """End every run of an environment, and prevent new ones.

        Parameters
        ----------
        prefix
            Prefix of all names of the environment.
        jobs
            Types and physical ids of the existing resources of each job's stack, by the job's logical name.
        """

    @abstractmethod
    def billed_runs(self, names: Names, job: str) -> list[BilledRun]:
        """Return all runs of a job, with their billed quantities."""
