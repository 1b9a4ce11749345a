"""Simulated Glue and EMR Serverless whose runs are real runs of local Spark."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from millrace.lifecycle.account.deployed_environment import LaunchDocument, split_s3_url
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.child_processes import locked_sandbox_without_left_programs
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import LocalJob, SandboxSpark, delete_local_catalog
from millrace.sandbox.programs.toolchain import ROOT
from tests.integration.lifecycle.simulated_engines import Engines, Run, serving


@dataclass
class RealRuns(Engines):
    """Glue and EMR Serverless; ``spark`` is set when their LocalStack is there."""

    spark: SandboxSpark | None = None
    jobs: dict[str, LocalJob] = field(default_factory=dict)
    applications: dict[str, str] = field(default_factory=dict)
    """Of each run on EMR Serverless."""
    glue_document: Callable[[str], str] | None = None
    """Where the launch document of a Glue job lies, by the job's name."""

    def submit(self, run: str, url: str, name: str) -> None:
        """Start what a run stands for."""
        assert self.spark is not None
        bucket, key = split_s3_url(url)
        body = self.spark.stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        self.jobs[run] = self.spark.submit(LaunchDocument(url, json.loads(body)), name)

    def glue(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        answer = super().glue(action, given)
        if action == "StartJobRun":
            assert self.glue_document is not None, "nobody said where its launch document is"
            self.submit(
                answer["JobRunId"], self.glue_document(str(given["JobName"])), f"played-{answer['JobRunId']}"
            )
        if action == "BatchStopJobRun":
            for run in given["JobRunIds"]:
                self.jobs[run].process.signal_group(signal.SIGTERM)
        return answer

    def emr(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        answer = super().emr(method, path, query, given)
        if method == "DELETE":
            grace = int(query.get("shutdownGracePeriodInSeconds", "0"))
            self.jobs[answer["jobRunId"]].process.signal_group(signal.SIGTERM if grace else signal.SIGKILL)
        return answer

    def _emr_start(self, application: str, given: dict[str, Any]) -> dict[str, Any]:
        before = set(self.runs)
        answer = super()._emr_start(application, given)
        run = answer["jobRunId"]
        if run not in before:
            arguments = given["jobDriver"]["sparkSubmit"]["entryPointArguments"]
            self.applications[run] = application
            self.submit(run, arguments[arguments.index("--launch-document") + 1], f"played-{run}")
        return answer

    def _show(self, run: Run, states: dict[str, str]) -> str:
        job = self.jobs.get(run.id)
        if job is not None and job.process.is_alive and run.looks_left is not None:
            run.looks_left = 2  # seen ending until it has ended
        elif job is not None and not job.process.is_alive:
            run.crashed = run.looks_left is None
            run.looks_left = 0
        return super()._show(run, states)

    def end(self) -> None:
        """End all runs."""
        for job in self.jobs.values():
            job.process.kill()


@contextmanager
def beside_localstack(engines: RealRuns) -> Iterator[LocalStack]:
    """Start a LocalStack whose state machines call these engines; ends all runs at last."""
    script = ROOT / "tests" / "integration" / "lifecycle" / "localstack_forwarder.py"
    with ExitStack() as ending:
        ending.enter_context(locked_sandbox_without_left_programs())
        delete_local_catalog()
        ending.enter_context(serving(engines))
        settings = {"ENGINES_URL": engines.url}
        stack = ending.enter_context(localstack.running_localstack(settings=settings, script=script))
        engines.spark = SandboxSpark(stack=stack, kafka="")
        ending.callback(engines.end)
        yield stack
