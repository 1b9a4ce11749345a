"""A small environment with jobs on each engine, deployed to LocalStack, and the command line on it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from millrace.config import Names
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.sandbox.programs.localstack import LocalStack

ROOT = Path(__file__).resolve().parents[3]

GLUE, EMR = "clicks", "orders"
GLUE_KAFKA = "refunds"
"""A second one on Glue, whose topic can be read again and again."""

AGE_SECONDS, SLOWEST_SECONDS = 3, 100
"""Of records at their commit, and of a batch: what the jobs of these tests tell."""

ENVIRONMENT = """
project: shop
removal: destroy
network: {availability_zones: 2}
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 100, record_size: 500B}
  orders:
    kind: kafka
    cluster: theirs
    topic: orders
    partitions: 2
    traffic: {records_per_second: 100, record_size: 500B}
kafka:
  theirs: {kind: external, bootstrap_servers: "broker.example:9092", authentication: none}
jobs:
  clicks:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
        trigger: 10s
  orders:
    engine: emr
    architecture: x86_64
    rate: {records_per_second_per_core: 5000}
    queries:
      land-orders:
        kind: land
        source: orders
        table: orders_landed
        schema: pipelines/clicks/schemas/click.ddl
        trigger: 10s
  refunds:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land-refunds:
        kind: land
        source: orders
        table: refunds_landed
        schema: pipelines/clicks/schemas/click.ddl
        trigger: 10s
"""


@dataclass(frozen=True)
class Shop:
    """The deployed environment, and what was said on the way."""

    file: Path
    stack: LocalStack
    names: Names
    before: subprocess.CompletedProcess[str]
    first: subprocess.CompletedProcess[str]

    def millrace(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return millrace(self.stack, verb, "--env", str(self.file), *arguments)

    @property
    def aws(self) -> DeployedEnvironment:
        return DeployedEnvironment(self.names, self.stack.client)

    def alarms(self, job: str) -> dict[str, bool]:
        """Alarms of a job, and whether they act."""
        pages = self.stack.client("cloudwatch").get_paginator("describe_alarms").paginate()
        return {
            alarm["AlarmName"]: alarm["ActionsEnabled"]
            for page in pages
            for alarm in page["MetricAlarms"]
            if alarm["AlarmName"].startswith(f"{self.names.prefix}/job/{job}/")
        }


def millrace(stack: LocalStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace", *arguments],
        cwd=ROOT,
        env=stack.environment_variables(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
