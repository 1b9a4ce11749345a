"""The launch document: one JSON object per job that says how to start it.

Its keys are described in ``docs/launch-document.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment
from millrace.etl.launch import typed_json
from millrace.sizing.plan_model import JobPlan

from .. import engines
from .job_spark_settings import spark_settings
from .launch_settings import job_settings

VERSION = 1


@dataclass(frozen=True)
class AssetUrls:
    """URLs of a job's files.

    Attributes
    ----------
    entry_script
        ``etl/main.py``.
    archive
        The zip with ``etl/`` and ``pipelines/`` at its root.
    jars
        JVM jars that the job's engine lacks.
    """

    entry_script: str
    archive: str
    jars: tuple[str, ...] = ()


def launch_document(environment: Environment, plan: JobPlan, names: Names, urls: AssetUrls) -> dict[str, Any]:
    """Write a job's launch document.

    Parameters
    ----------
    urls
        URLs of the job's files.

    Returns
    -------
    dict
        JSON; the same input gives an equal document.

    Raises
    ------
    InfrastructureError
        A Spark setting that the engine cannot take.
    """
    job = environment.jobs[plan.name]
    engine = engines.deployed_engine(job.engine)
    document = {
        "version": VERSION,
        "environment": environment.name,
        "region": environment.region,
        "job": plan.name,
        "name": names.job(plan.name),
        "engine": job.engine,
        "engine_version": job.version,
        "entry_script": urls.entry_script,
        "archive": urls.archive,
        "jars": list(urls.jars),
        "arguments": [],
        "spark": spark_settings(environment, job, plan, names),
        "workers": {"type": plan.worker, "max": plan.max_workers.value} | engine.worker_settings(plan),
        "event_logs": f"s3://{names.bucket('event-logs')}/{event_log_prefix(plan)}/",
        "settings": typed_json.to_json_value(job_settings(environment, plan, names)),
    }
    return document | engine.engine_launch_keys(job)


def event_log_prefix(plan: JobPlan) -> str:
    """Return the prefix of a job's event logs inside their bucket, without slashes around it."""
    return f"{plan.engine}/{plan.name}"
