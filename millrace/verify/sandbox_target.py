"""Sandbox as a target of verifications: LocalStack, a Kafka broker where necessary, local Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.config import Environment, Names
from millrace.lifecycle.account.kafka_access import Settings
from millrace.sandbox import localstack_deployment
from millrace.sandbox.kill_and_restart_jobs import DrillError
from millrace.sandbox.local_runs import LocalJobRunner
from millrace.sandbox.programs import kafka_broker, localstack
from millrace.sandbox.programs.child_processes import locked_sandbox_without_left_programs
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, delete_local_catalog
from millrace.sizing.plan_model import Plan
from millrace.verify.environment_copy import VerificationCopy
from millrace.verify.expected_and_actual_cost import BilledRun, billed_quantities
from millrace.verify.target_base import ExpectedStepSeconds, VerificationTarget

EXPECTED = ExpectedStepSeconds(deploy=40, start=15, recover=15, reshard=2, remove=15)
"""Measured on two cores."""


@dataclass(kw_only=True)
class SandboxTarget(LocalJobRunner, VerificationTarget):
    """The running sandbox.

    Attributes
    ----------
    plan
        Plan of the copy, for the workers that its runs would have.
    """

    plan: Plan
    paid: bool = False
    _clients: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The place, for people."""
        return f"the sandbox ({self.spark.stack.endpoint}, local Spark)"

    def client(self, service: str) -> Any:
        """Return a boto3 client of LocalStack, which is made once: this takes longer than most requests."""
        if service not in self._clients:
            self._clients[service] = self.spark.stack.client(service)
        return self._clients[service]

    def deploy(self, copy: VerificationCopy, assembly: Path) -> None:
        """Deploy to LocalStack."""
        localstack_deployment.deploy_to_localstack(self.spark.stack, assembly, copy.names.account, copy.tags)

    def kafka_settings(self, names: Names, cluster: str) -> Settings:
        """Return the settings of the broker."""
        assert self.spark.kafka, f"{names.prefix} has {cluster}, so a broker was started"
        return {"bootstrap.servers": self.spark.kafka}

    def end_all_runs(self, _prefix: str, _jobs: Mapping[str, Mapping[str, str]]) -> None:
        """Kill all runs, and drop the tables, whose catalog no stack deletes."""
        self.kill_all()
        delete_local_catalog()

    def billed_runs(self, names: Names, job: str) -> list[BilledRun]:
        """Return the runs, with the quantities that AWS would bill for the same seconds."""
        settings, workers = names.environment.jobs[job], self.plan.jobs[job].max_workers.value
        return [
            BilledRun(job, str(number), run.seconds, billed_quantities(settings, workers, run.seconds))
            for number, run in enumerate(self.by_job.get(job, ()), start=1)
        ]


def sandbox_cluster_sections(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the clusters of an environment in LocalStack: one broker replaces each, whatever its kind."""
    return {name: {"kind": "msk", "disposable": True} for name in environment.kafka}


@contextmanager
def open_sandbox_target(copy: VerificationCopy, plan: Plan) -> Iterator[SandboxTarget]:
    """Start the servers that a copy needs, and stop them at the end.

    Raises
    ------
    SandboxError
        A server did not start, or another sandbox is running.
    """
    if copy.names.account != localstack.ACCOUNT:
        raise DrillError(
            f"the copy of the environment is for account {copy.names.account}, but the sandbox uses "
            f"account {localstack.ACCOUNT}"
        )
    with ExitStack() as stack:
        stack.enter_context(locked_sandbox_without_left_programs())
        delete_local_catalog()
        local = stack.enter_context(localstack.running_localstack(copy.environment.region))
        broker = (
            stack.enter_context(kafka_broker.running_broker()).bootstrap
            if copy.kafka_cluster is not None
            else ""
        )
        spark = SandboxSpark(stack=local, kafka=broker)
        sandbox = SandboxTarget(spark=spark, plan=plan, prefix=f"{copy.environment.name}-")
        # A removal that failed early has not stopped the runs: no driver outlives its servers.
        stack.callback(sandbox.end_all_runs, copy.names.prefix, {})
        yield sandbox
