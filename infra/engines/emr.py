"""EMR Serverless as a deployed engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millrace.config.aws.iam_statements import TAGGED, Grant, allow
from millrace.config.engines import Job
from millrace.config.engines.emr import EmrJob
from millrace.sizing.plan_model import JobPlan
from millrace.sizing.prices_and_limits import service_limits

from .base import DeployedEngine

if TYPE_CHECKING:
    from ..environment_permission_scope import PermissionScope

_RUNS = "The id of a run is known when it has begun"

_EMR_ICEBERG_JAR = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
"""A jar that a release ships without putting it on the class path (EMR Serverless user guide)."""

_BACKLOG = f"{service_limits()['scaling.emr.backlog_timeout_seconds']:g}s"
"""Time that tasks wait before Spark asks for executors, which the simulator takes, too."""

_OVERHEAD_SHARE = 0.10
_OVERHEAD_LEAST_MIB = 384
"""Memory that Spark asks for beside the heap: 10 %, at least 384 MiB, out of the worker's memory."""


class DeployedEmr(DeployedEngine):
    """Differences of a job on EMR Serverless from one on another engine."""

    stack = "millrace.infra.stacks.emr_job:EmrJobStack"

    def engine_spark_settings(self, job: Job, plan: JobPlan, *, jars: tuple[str, ...]) -> dict[str, str]:
        """Return the settings for Python, jars, sizes and dynamic allocation."""
        assert isinstance(job, EmrJob), plan.name
        # EMR Serverless rolls event logs by itself, and Spark's own settings for it break the upload
        # on emr-7 releases: none of spark.eventLog.* is set here.
        heap = f"{heap_mib_of_worker(plan.memory_gib)}m"
        disk = f"{plan.disk_gib}g"
        scaling = plan.scaling
        assert scaling.allocation_ratio is not None, f"{plan.name}: no dynamic allocation in the plan"
        assert scaling.idle_timeout_seconds is not None, plan.name
        assert scaling.shuffle_timeout_seconds is not None, plan.name
        return {
            # The images of emr-7 have Python 3.9, too, and documents disagree on which one Spark takes. The names are those
            # of "Using custom images" and "Using Python libraries" of the EMR Serverless user guide.
            "spark.pyspark.python": job.python,
            "spark.pyspark.driver.python": job.python,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": job.python,
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": job.python,
            "spark.executorEnv.PYSPARK_PYTHON": job.python,
            # Workers prove to each other that they are of one run, by certificates of their own (EMR Serverless user guide,
            # "Inter-worker encryption"); without it, whoever reaches a port speaks to Spark.
            "spark.ssl.internode.enabled": "true",
            "spark.jars": ",".join((_EMR_ICEBERG_JAR, *jars)),
            "spark.driver.cores": str(plan.vcpu),
            "spark.driver.memory": heap,
            "spark.emr-serverless.driver.disk": disk,
            "spark.executor.cores": str(plan.vcpu),
            "spark.executor.memory": heap,
            "spark.emr-serverless.executor.disk": disk,
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.minExecutors": str(scaling.min_executors.value),
            # A start finds the backlog of the stop: begin with all executors, and release those that are idle.
            "spark.dynamicAllocation.initialExecutors": str(scaling.initial_executors.value),
            "spark.dynamicAllocation.maxExecutors": str(plan.executors.value),
            "spark.dynamicAllocation.executorAllocationRatio": f"{scaling.allocation_ratio.value:g}",
            # Both are Spark's defaults; from emr-spark-8.2.0 on a scaling profile writes what a job leaves out (EMR Serverless user
            # guide, "Using Scaling Profiles", November 2026).
            "spark.dynamicAllocation.schedulerBacklogTimeout": _BACKLOG,
            "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": _BACKLOG,
            "spark.dynamicAllocation.executorIdleTimeout": f"{scaling.idle_timeout_seconds.value}s",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.timeout": f"{scaling.shuffle_timeout_seconds.value}s",
        }

    def worker_settings(self, plan: JobPlan) -> dict[str, Any]:
        """Return the size of the workers."""
        return {
            "vcpu": plan.vcpu,
            "memory": format_gigabytes(plan.memory_gib),
            "disk": format_gigabytes(plan.disk_gib),
        }

    def engine_launch_keys(self, job: Job) -> dict[str, Any]:
        """Return the number of retries of a run per hour."""
        assert isinstance(job, EmrJob), "a job of this engine"
        return {"retries_per_hour": job.retries_per_hour}

    def grants_to_prepare_for_deployment(self, scope: PermissionScope) -> list[Grant]:
        """Return the grant to stop an application, which accepts changes only when it is stopped."""
        return [
            allow(
                "StopApplications",
                ["emr-serverless:GetApplication", "emr-serverless:StopApplication"],
                [scope.names.arn("emr-serverless", "/applications/*")],
                scope.condition_own_tags(),
                why=TAGGED,
            )
        ]

    def grants_to_watch_runs(self, scope: PermissionScope, jobs: Sequence[str]) -> list[Grant]:
        """Return the grant to read runs."""
        runs = scope.names.arn("emr-serverless", "/applications/*/jobruns/*")
        return [allow("WatchEmrRuns", ["emr-serverless:GetJobRun"], [runs], why=_RUNS)]


def format_gigabytes(gib: int) -> str:
    """Write a size in the format of EMR Serverless: ``16 GB`` (of 1,024³ bytes)."""
    return f"{gib:g} GB"


def heap_mib_of_worker(memory_gib: int) -> int:
    """Return the heap that fits in a worker beside its overhead, in MiB.

    Parameters
    ----------
    memory_gib
        Memory of the worker.

    Returns
    -------
    int
        The largest heap ``h`` with ``h + max(384, 0.1·h)`` within the worker.
    """
    total = memory_gib * 1024
    heap = int(total / (1 + _OVERHEAD_SHARE))
    return min(heap, total - _OVERHEAD_LEAST_MIB)
