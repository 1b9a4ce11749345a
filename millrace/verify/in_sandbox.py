"""Sandbox as a target of verifications: LocalStack, a Kafka broker where necessary, local Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from millrace.config.model import Environment
from millrace.config.names import Names
from millrace.lifecycle.deployed import launch_document
from millrace.lifecycle.kafka_access import Settings
from millrace.sandbox import deployment, kafka, localstack
from millrace.sandbox.child_processes import only_one
from millrace.sandbox.spark import Job, SandboxSpark, forget_tables
from millrace.sizing.model import Plan
from millrace.verify.environment import VerificationCopy
from millrace.verify.verification_cost import Run, quantities
from millrace.verify.verification_target import ExpectedSeconds, Place, TimeLimits, VerifyError

_GRACE_SECONDS = 60.0

PATIENCE = TimeLimits(start=400, end=30, recover=400, land=180, reshard=60, remove=240, vanish=10)
EXPECTED = ExpectedSeconds(deploy=40, start=15, recover=15, reshard=2, remove=15)
"""Measured on two cores."""


@dataclass
class _Hosted:
    """A run of local Spark, with its start and end."""

    job: Job
    began: float
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (time.monotonic() if self.ended is None else self.ended) - self.began


@dataclass
class SandboxPlace(Place):
    """The running sandbox.

    Attributes
    ----------
    broker
        None without a topic.
    plan
        Plan of the copy, for the workers that its runs would have.
    """

    stack: localstack.LocalStack
    broker: kafka.Kafka | None
    plan: Plan
    patience: TimeLimits = PATIENCE
    paid: bool = False
    _runs: dict[str, list[_Hosted]] = field(default_factory=dict)
    _clients: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The place, for people."""
        return f"the sandbox ({self.stack.endpoint}, local Spark)"

    def client(self, service: str) -> Any:
        """Return a boto3 client of LocalStack, which is made once: this takes longer than most requests."""
        if service not in self._clients:
            self._clients[service] = self.stack.client(service)
        return self._clients[service]

    def deploy(self, copy: VerificationCopy, assembly: Path) -> None:
        """Deploy to LocalStack."""
        deployment.deploy(self.stack, assembly, copy.names.account, copy.tags)

    @property
    def spark(self) -> SandboxSpark:
        """Local Spark beside LocalStack."""
        return SandboxSpark(stack=self.stack, kafka=self.broker.bootstrap if self.broker else "")

    def catalog(self, names: Names) -> Catalog:
        """Open the catalog that replaces Glue's."""
        return self.spark.catalog(f"s3://{names.bucket('lake')}/warehouse")

    def kafka(self, names: Names, cluster: str) -> Settings:
        """Return the settings of the broker."""
        assert self.broker is not None, f"{names.prefix} has {cluster}, so a broker was started"
        return {"bootstrap.servers": self.broker.bootstrap}

    def start(self, names: Names, job: str) -> None:
        """Start local Spark from the deployed launch document."""
        document = launch_document(self.client("cloudformation"), self.client("s3"), names, job)
        own = self._runs.setdefault(job, [])
        run = self.spark.submit(document, f"{names.environment.name}-{job}-{len(own) + 1}")
        own.append(_Hosted(run, time.monotonic()))

    restart_killed_job = start

    def _live(self, job: str) -> _Hosted:
        return self._runs[job][-1]

    def kill_run(self, _names: Names, job: str) -> None:
        """Kill the run (kill -9)."""
        run = self._live(job)
        run.job.process.kill()
        run.ended = time.monotonic()

    def why_ended(self, _names: Names, job: str) -> str | None:
        """Return the log's end of a driver that ended by itself."""
        run = self._live(job)
        if run.ended is not None or run.job.process.alive:
            return None
        status = run.job.process.popen.returncode
        return f"its run ended by itself with status {status}:\n{run.job.process.tail(25)}"

    def stop(self, _names: Names, job: str) -> None:
        """Stop the run with SIGTERM, and time for the current batch."""
        if not self._runs.get(job):
            return
        run = self._live(job)
        run.job.process.stop(grace_seconds=_GRACE_SECONDS)
        run.ended = time.monotonic()

    def end_all_runs(self, _prefix: str, _jobs: Mapping[str, Mapping[str, str]]) -> None:
        """Kill all runs, and drop the tables, whose catalog no stack deletes."""
        for runs in self._runs.values():
            for run in runs:
                if run.ended is None:
                    run.job.process.kill()
                    run.ended = time.monotonic()
        forget_tables()

    def runs(self, names: Names, job: str) -> list[Run]:
        """Return the runs, with the quantities that AWS would bill for the same seconds."""
        settings, workers = names.environment.jobs[job], self.plan.jobs[job].max_workers.value
        return [
            Run(job, str(number), run.seconds, quantities(settings, workers, run.seconds))
            for number, run in enumerate(self._runs.get(job, ()), start=1)
        ]


def sandbox_clusters(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the clusters of an environment in LocalStack: one broker replaces each, whatever its kind."""
    return {name: {"kind": "msk", "disposable": True} for name in environment.kafka}


@contextmanager
def open_sandbox(copy: VerificationCopy, plan: Plan) -> Iterator[SandboxPlace]:
    """Start the servers that a copy needs, and stop them at the end.

    Raises
    ------
    SandboxError
        A server did not start, or another sandbox is running.
    """
    if copy.names.account != localstack.ACCOUNT:
        raise VerifyError(
            f"the copy is for account {copy.names.account}, but the sandbox is account {localstack.ACCOUNT}"
        )
    with ExitStack() as stack:
        stack.enter_context(only_one())
        forget_tables()
        local = stack.enter_context(localstack.running(copy.environment.region))
        broker = stack.enter_context(kafka.running()) if copy.kafka is not None else None
        sandbox = SandboxPlace(local, broker, plan)
        # A removal that failed early has not stopped the runs: no driver outlives its servers.
        stack.callback(sandbox.end_all_runs, copy.names.prefix, {})
        yield sandbox
