"""Schedule of table maintenance (compaction, expiry, clearing) beside a job's queries."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from ..launch.settings import LandSettings
from ..maintenance.table_maintenance import (
    Compaction,
    DeadLetterRetention,
    OrphanFileRemoval,
    SnapshotExpiry,
    TableTask,
)
from ..record import hadoop_files
from ..record.batch_accounts import EventReporter
from ..record.errors import describe_error
from ..record.job_run_context import JobRun
from ..repair.erase_in_running_job import ErasureTask

MaintenanceTask = TableTask | ErasureTask

FIRST = timedelta(minutes=10)
"""Delay after a job's start, which first has a backlog to process."""


@dataclass
class MaintenanceThread:
    """Runner of chores, one after the other, each at its own interval, from a while after a job's start.

    A failure is reported and the chore is tried again at its next time: a stream does not end for it.

    Parameters
    ----------
    chores
        Chores to run.
    report
        Gets an event for each failure.
    first
        Delay before the first chore.
    """

    spark: SparkSession
    chores: Sequence[MaintenanceTask]
    report: EventReporter
    first: timedelta = FIRST
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def start(self) -> None:
        """Start in a daemon thread."""
        if self.chores:
            threading.Thread(target=self._run_chores_until_stopped, name="chores", daemon=True).start()

    def stop(self) -> None:
        """End after the current chore; return at once."""
        self._stop.set()

    def _run_chores_until_stopped(self) -> None:
        begun = time.monotonic()
        # A chore with a shorter interval (somebody waits for it) starts after that interval.
        due = {n: begun + min(self.first, c.every).total_seconds() for n, c in enumerate(self.chores)}
        while not self._stop.wait(max(0.0, min(due.values()) - time.monotonic())):
            number = min(due, key=due.__getitem__)
            self._run_chore(self.chores[number])
            due[number] = time.monotonic() + self.chores[number].every.total_seconds()

    def run_due_chores(self, url: str, period: timedelta, stopping: threading.Event) -> None:
        """Run the chores whose interval has passed since the run that last did them, as a part of a bounded run.

        Parameters
        ----------
        url
            File with the time of each chore's last run.
        period
            Time between two runs: a chore is due in the run that is nearest to its interval.
        stopping
            Ends the work after the current chore.
        """
        try:
            done: dict[str, float] = json.loads(hadoop_files.read_text(self.spark, url))
        except (FileNotFoundError, ValueError):
            done = {}
        now = time.time()
        for chore in self.chores:
            if now - done.get(chore.task_name, 0.0) < (chore.every - period / 2).total_seconds():
                continue
            if stopping.is_set():
                return
            self._run_chore(chore)
            done[chore.task_name] = now
            hadoop_files.write_text(self.spark, url, json.dumps(done))

    def _run_chore(self, chore: MaintenanceTask) -> None:
        try:
            chore(self.spark)
        except (Py4JError, CapturedException, OSError) as error:
            if not self._stop.is_set():
                self.report.emit(
                    "chore_failed",
                    chore=chore.task_name,
                    error=describe_error(error),
                    error_class=type(error).__name__,
                )


def maintenance_tasks(run: JobRun) -> tuple[MaintenanceTask, ...]:
    """Return the chores of a job."""
    job, report = run.job, run.report
    tasks: list[MaintenanceTask] = [ErasureTask(job, report)]
    if job.dead_letters_kept_seconds is not None:
        keep = timedelta(seconds=job.dead_letters_kept_seconds)
        names = (q.table if isinstance(q, LandSettings) else q.dead_letters for q in job.queries)
        tables = (run.table(name) for name in dict.fromkeys(names) if name is not None)
        tasks += (DeadLetterRetention(table=table, keep=keep, report=report) for table in tables)
    upkeep = job.upkeep
    if upkeep is None:
        return tuple(tasks)
    # Retention first, expiry last: so the bytes of a deleted dead letter are removed as early as allowed.
    for kept_up in upkeep.tables:
        table = run.table(kept_up.table)
        tasks += (
            Compaction(table=table, file_size=upkeep.file_bytes, report=report),
            SnapshotExpiry(
                table=table,
                keep=timedelta(seconds=upkeep.snapshots_kept_seconds),
                readers=kept_up.readers,
                report=report,
            ),
            OrphanFileRemoval(
                table=table, older_than=timedelta(seconds=upkeep.orphans_kept_seconds), report=report
            ),
        )
    return tuple(tasks)
