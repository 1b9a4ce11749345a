"""AWS Glue as a deployed engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.engines import Job
from millrace.sizing.plan_model import JobPlan

from ..errors import InfrastructureError
from .base import DeployedEngine

if TYPE_CHECKING:
    from ..environment_permission_scope import PermissionScope


class DeployedGlue(DeployedEngine):
    """Differences of a job on Glue from one on another engine."""

    stack = "millrace.infra.stacks.glue_job:GlueJobStack"

    def engine_spark_settings(self, job: Job, plan: JobPlan, *, jars: tuple[str, ...]) -> dict[str, str]:
        """Return the settings for event logs in pieces.

        Glue writes the event log of an endless job to --spark-event-logs-path; rolled files keep each piece small
        enough to be uploaded and read while the job runs.
        """
        return {"spark.eventLog.rolling.enabled": "true", "spark.eventLog.rolling.maxFileSize": "64m"}

    def raise_if_spark_settings_refused(self, job: str, settings: Mapping[str, str]) -> None:
        """Refuse settings with blanks: Glue takes all settings as one line."""
        for name, value in settings.items():
            if any(character.isspace() for character in name + value):
                raise InfrastructureError(
                    f"jobs.{job}.spark.{name}: {value!r} has a space, and Glue reads all Spark "
                    "settings from one line, separated by spaces; write a value without spaces"
                )

    def grants_to_watch_runs(self, scope: PermissionScope, jobs: Sequence[str]) -> list[Grant]:
        """Return the grant to read runs."""
        named = [scope.names.arn("glue", f"job/{scope.names.job(name)}") for name in jobs]
        return [allow("WatchGlueRuns", ["glue:GetJobRun"], named)]


def join_for_glue_conf(settings: dict[str, str]) -> str:
    """Join settings in the format of Glue's ``--conf``: ``a=1 --conf b=2``."""
    return " --conf ".join(f"{name}={value}" for name, value in settings.items())
