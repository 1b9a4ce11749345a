"""Runs of deployed jobs on local Spark."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from pyiceberg.catalog.sql import SqlCatalog

from millrace.config.aws.resource_names import Names
from millrace.sandbox.kill_and_restart_jobs import DrillError, DrillTimeLimits, JobRunner
from millrace.sandbox.programs.run_launch_document_locally import LocalJob, SandboxSpark

PATIENCE = DrillTimeLimits(start=400, end=30, recover=400, land=180, reshard=60, remove=240, vanish=10)

_GRACE_SECONDS = 60.0
_TERMINATED = (0, 128 + signal.SIGTERM)
"""Exit statuses of a JVM that was asked to end, after its shutdown hooks let the current batches finish."""


@dataclass(kw_only=True)
class LocalJobRunner(JobRunner):
    """Runs of the jobs of an environment that is deployed to LocalStack.

    Attributes
    ----------
    prefix
        Prefix of the names of runs.
    """

    spark: SandboxSpark
    prefix: str = ""
    patience: DrillTimeLimits = PATIENCE
    by_job: dict[str, list[LocalJob]] = field(default_factory=dict)

    def catalog(self, names: Names) -> SqlCatalog:
        """Open the catalog that replaces Glue's."""
        return self.spark.catalog(names.warehouse_url)

    def start(self, names: Names, job: str) -> None:
        """Start local Spark from the deployed launch document."""
        own = self.by_job.setdefault(job, [])
        document = self.spark.launch_document(names, job)
        own.append(self.spark.submit(document, f"{self.prefix}{job}-{len(own) + 1}"))

    restart_killed_job = start

    def kill_run(self, _names: Names, job: str) -> None:
        """Kill the run (kill -9)."""
        self.by_job[job][-1].kill()

    def why_ended(self, _names: Names, job: str) -> str | None:
        """Return the log's end of a driver that ended by itself."""
        run = self.by_job[job][-1]
        if run.ended is not None or run.process.is_alive:
            return None
        status = run.process.popen.returncode
        return f"its run ended by itself with status {status}:\n{run.process.last_log_lines(25)}"

    def progress_marker(self) -> str:
        """Return the length of the runs' logs, which grow from the start to the first commit and with each batch."""
        logs = (run.process.log for runs in self.by_job.values() for run in runs)
        return f"{sum(log.stat().st_size for log in logs)} bytes of logs"

    def stop(self, _names: Names, job: str) -> None:
        """Stop the run with SIGTERM, and time for the current batch.

        Raises
        ------
        DrillError
            It failed at its end, or had to be killed.
        """
        run = self.by_job[job][-1]
        status = run.process.stop(grace_seconds=_GRACE_SECONDS)
        run.ended = time.monotonic()
        if status not in _TERMINATED:
            raise DrillError(f"job {job} stopped with status {status}:\n{run.process.last_log_lines()}")

    def kill_all(self) -> None:
        """Kill all runs."""
        for run in (each for runs in self.by_job.values() for each in runs if each.ended is None):
            run.kill()
