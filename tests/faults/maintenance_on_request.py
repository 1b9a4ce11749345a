"""Makes a job run its maintenance whenever a file requests it; imported first by the entry script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.etl.job import maintenance_schedule
from millrace.etl.job.maintenance_schedule import MaintenanceTask
from millrace.etl.maintenance import table_maintenance
from millrace.etl.record.job_run_context import JobRun

ASKS = "MILLRACE_ASKS_FOR_CHORES"
"""Names the file; it goes when all chores are done."""


@dataclass(frozen=True)
class ChoresOnRequest:
    """All chores of a job, one after the other."""

    chores: Sequence[MaintenanceTask]
    name: str = "all"
    every: timedelta = timedelta(milliseconds=200)

    def __call__(self, spark: SparkSession) -> None:
        """Do them where they are asked for."""
        asks = Path(os.environ[ASKS])
        if asks.exists():
            for chore in self.chores:
                chore(spark)
            asks.unlink()


_of = maintenance_schedule.maintenance_tasks


def _on_request(run: JobRun) -> tuple[ChoresOnRequest, ...]:
    return (ChoresOnRequest(_of(run)),)


maintenance_schedule.maintenance_tasks = _on_request  # type: ignore[assignment]
maintenance_schedule.MaintenanceThread = partial(maintenance_schedule.MaintenanceThread, first=timedelta(0))  # type: ignore[misc,assignment]  # at once
table_maintenance.FEWEST_SNAPSHOTS = 2
