"""Interface that ``infra`` expects of every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.config.aws.iam_statements import Grant
from millrace.config.engines import Job
from millrace.sizing.plan_model import JobPlan

if TYPE_CHECKING:
    from ..environment_permission_scope import PermissionScope


class DeployedEngine:
    """An engine as it is deployed.

    Attributes
    ----------
    stack
        ``module:Class`` of its job stacks, a :class:`infra.stacks.job_base.JobStack`.
    """

    stack: ClassVar[str] = "millrace.infra.stacks.job_base:JobStack"

    def engine_spark_settings(self, job: Job, plan: JobPlan, *, jars: tuple[str, ...]) -> dict[str, str]:
        """Return the Spark settings of the engine."""
        return {}

    def raise_if_spark_settings_refused(self, job: str, settings: Mapping[str, str]) -> None:
        """Check all Spark settings of a job.

        Raises
        ------
        InfrastructureError
            A setting cannot be passed to the engine.
        """

    def worker_settings(self, plan: JobPlan) -> dict[str, Any]:
        """Return what a launch document says about the workers beside their type and number."""
        return {}

    def engine_launch_keys(self, job: Job) -> dict[str, Any]:
        """Return the engine's other keys of a launch document."""
        return {}

    def grants_to_prepare_for_deployment(self, scope: PermissionScope) -> list[Grant]:
        """Return the grants for the changes that a deployment first makes to the engine's resources."""
        return []

    def grants_to_watch_runs(self, scope: PermissionScope, jobs: Sequence[str]) -> list[Grant]:
        """Return the grants of a command that watches a single run of one of these jobs."""
        return []
