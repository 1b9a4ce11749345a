"""Jobs, stages and runs of queries while their events are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millrace.advisor.logs.application_history_model import TASK, Batch, InitialRdd, Stage

MOST_CORES = 100_000
"""Maximum number of task slots of an executor: no machine has more."""

MOST_TASKS = 10_000_000
"""Maximum number of tasks of a stage; Spark's driver breaks long before."""

JOB_PROPERTIES = (
    "spark.sql.execution.id",
    "spark.jobGroup.id",
    "sql.streaming.queryId",
    "streaming.sql.batchId",
)


@dataclass
class PendingJob:
    """A Spark job while its stages are read."""

    id: int
    submitted: float
    properties: Mapping[str, str]
    site: str
    running: bool = True
    stages: list[Stage] = field(default_factory=list)


@dataclass
class PendingStage:
    """A stage attempt while its tasks are read, each as a packed row."""

    job: int | None
    partitions: int
    rows: bytearray = field(default_factory=bytearray)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    scans: tuple[InitialRdd, ...] = ()
    adaptive: bool = False


@dataclass
class PendingQueryRun:
    """One run of a query."""

    id: str
    name: str | None = None
    started: float | None = None
    ended: float | None = None
    failure: str | None = None
    batches: dict[int, Batch] = field(default_factory=dict)
    unread_before_last: int = 0


def task_array(rows: bytes | bytearray) -> Any:
    """Return the packed rows of a stage's tasks as an array of :data:`millrace.advisor.logs.application_history_model.TASK`."""
    return np.frombuffer(bytes(rows), TASK)


def tasks_ordered_by_executor(jobs: Iterable[PendingJob]) -> Any:
    """Return all tasks of some jobs, as :func:`task_array`, in the order of their executors."""
    tables = [stage.tasks.table for job in jobs for stage in job.stages]
    tasks = np.concatenate([*tables, task_array(b"")])
    return tasks[np.argsort(tasks["executor"], kind="stable")]


def engine_of_properties(properties: Mapping[str, str]) -> str:
    """Return where an application ran by its Spark properties: ``glue``, ``emr``, ``local`` or ``spark``."""
    if any(key.startswith("spark.glue.") for key in properties):
        return "glue"
    if any(key.startswith("spark.emr-serverless.") for key in properties):
        return "emr"
    return "local" if properties.get("spark.master", "").startswith("local") else "spark"
