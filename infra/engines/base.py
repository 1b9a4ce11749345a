"""What ``infra`` asks of every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.config.engines import Job
from millrace.config.grants import Grant
from millrace.sizing.model import JobPlan

if TYPE_CHECKING:
    from ..command_scope import Scope


class Engine:
    """An engine as it is deployed.

    Attributes
    ----------
    stack
        ``module:Class`` of its job stacks, a :class:`infra.stacks.job_base.JobStack`.
    """

    stack: ClassVar[str] = "millrace.infra.stacks.job_base:JobStack"

    def spark(self, job: Job, plan: JobPlan, *, jars: tuple[str, ...]) -> dict[str, str]:
        """Spark settings that it wants."""
        return {}

    def check_spark(self, job: str, settings: Mapping[str, str]) -> None:
        """Look at all settings of a job.

        Raises
        ------
        InfrastructureError
            One cannot be passed on.
        """

    def workers(self, plan: JobPlan) -> dict[str, Any]:
        """What a launch document says of the workers beside their type and number."""
        return {}

    def launch(self, job: Job) -> dict[str, Any]:
        """Other keys of its own in a launch document."""
        return {}

    def changes(self, scope: Scope) -> list[Grant]:
        """What a deployment does to its resources first."""
        return []

    def runs(self, scope: Scope, jobs: Sequence[str]) -> list[Grant]:
        """What a command does that starts a run of one of these jobs itself."""
        return []
