"""Engines that are played, whose runs are real ones: local Spark, from the launch document that a start names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from millrace.lifecycle.deployed import LaunchDocument, split_url
from millrace.sandbox.spark import Job, SandboxSpark
from tests.integration.lifecycle.engines import Engines, Run


@dataclass
class RealRuns(Engines):
    """Glue and EMR Serverless; ``spark`` is set when their LocalStack is there."""

    spark: SandboxSpark | None = None
    jobs: dict[str, Job] = field(default_factory=dict)

    def submit(self, run: str, url: str, name: str) -> None:
        """Start what a run stands for."""
        assert self.spark is not None
        bucket, key = split_url(url)
        body = self.spark.stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        self.jobs[run] = self.spark.submit(LaunchDocument(url, json.loads(body)), name)

    def _show(self, run: Run, states: dict[str, str]) -> str:
        job = self.jobs.get(run.id)
        if job is not None and job.process.alive and run.looks_left is not None:
            run.looks_left = 2  # seen ending until it has ended
        elif job is not None and not job.process.alive:
            run.crashed = run.looks_left is None
            run.looks_left = 0
        return super()._show(run, states)

    def end(self) -> None:
        """End all runs."""
        for job in self.jobs.values():
            job.process.kill()
