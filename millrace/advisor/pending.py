"""Jobs, stages and runs of queries while their events are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millrace.advisor.history import (
    TASK,
    Batch,
    SparkJob,
    Stage,
)


@dataclass
class PendingJob:
    """A job of Spark while its stages come in."""

    id: int
    submitted: float
    properties: Mapping[str, str]
    site: str
    completed: float | None = None
    succeeded: bool | None = None
    stages: list[Stage] = field(default_factory=list)


@dataclass
class PendingStage:
    """A stage attempt while its tasks come in, each as a packed row."""

    job: int | None
    rows: bytearray = field(default_factory=bytearray)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class PendingRun:
    """One run of a query."""

    id: str
    name: str | None = None
    started: float | None = None
    ended: float | None = None
    failure: str | None = None
    batches: dict[int, Batch] = field(default_factory=dict)


def task_table(rows: bytes | bytearray) -> Any:
    """Tasks of a stage out of their packed rows, as an array of :data:`millrace.advisor.history.TASK`."""
    return np.frombuffer(bytes(rows), TASK)


def spark_job(job: PendingJob, run: str | None, batch: int | None) -> SparkJob:
    """Finish a job.

    Parameters
    ----------
    job
        With all its stages.
    run, batch
        Of a query; None for another job.
    """
    execution = job.properties.get("spark.sql.execution.id")
    return SparkJob(
        job.id,
        int(execution) if execution is not None and execution.isdecimal() else None,
        run,
        batch,
        job.submitted,
        job.completed,
        job.succeeded,
        tuple(job.stages),
        job.site,
    )


def engine_of(properties: Mapping[str, str]) -> str:
    """Tell where an application ran by its Spark properties: ``glue``, ``emr``, ``sandbox`` or ``spark``."""
    if any(key.startswith("spark.glue.") for key in properties):
        return "glue"
    if any(key.startswith("spark.emr-serverless.") for key in properties):
        return "emr"
    return "sandbox" if properties.get("spark.master", "").startswith("local") else "spark"
