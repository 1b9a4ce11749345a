"""A project with the shop's pipelines, synthesised by the CDK app and deployed to LocalStack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from millrace.config import Environment, Names, load
from millrace.sandbox.localstack_deployment import Sandbox, deploy_to_localstack
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.localstack import ACCOUNT, LocalStack
from millrace.sandbox.programs.toolchain import ROOT, program_variables

NAME = "shop"
PARTITIONS = 3
TOPICS = ("orders", "shipments")

ENVIRONMENT = f"""\
project: faults
region: us-east-1
account: "{ACCOUNT}"
removal: destroy
network: {{cidr: 10.42.0.0/16, availability_zones: 2}}
storage:
  disposable: [lake, checkpoints, event-logs, dead-letters, access-logs, database, logs]
kafka:
  main: {{kind: msk, brokers: 2, disposable: true}}
streams:
  orders: &topic
    kind: kafka
    cluster: main
    partitions: {PARTITIONS}
    disposable: true
    traffic: {{records_per_second: 100, record_size: 150B}}
  shipments: *topic
  payments:
    kind: kinesis
    disposable: true
    traffic: {{records_per_second: 100, record_size: 150B}}
jobs:
  direct: # a topic into a table, without a landing table
    engine: emr
    latency: 30s
    rate: &rate {{records_per_second_per_core: 5000}}
    queries:
      tax:
        kind: direct
        source: orders
        schema: pipelines/shop/order.ddl
        transform: pipelines.shop.transforms:with_tax
        sink: {{kind: iceberg, table: taxed}}
        dead_letters: taxed_letters
        trigger: 1s
        records_per_batch: 400
  routed: # two topics, read once, into a table and into files
    engine: emr
    latency: 30s
    rate: *rate
    queries:
      boards:
        kind: direct-route
        dead_letters: boards_letters
        routes:
          orders:
            source: orders
            schema: pipelines/shop/order.ddl
            transform: pipelines.shop.transforms:with_tax
            sink: {{kind: iceberg, table: boards_taxed}}
          shipments:
            source: shipments
            schema: pipelines/shop/order.ddl
            sink: {{kind: parquet, table: shipped}}
        trigger: 1s
        records_per_batch: 600
  stateful: # sums by window, and the first order of each purchase
    engine: emr
    latency: 30s
    rate: *rate
    queries:
      land-orders: &land
        kind: land
        source: orders
        schema: pipelines/shop/order.ddl
        table: orders_landed
        trigger: 1s
        records_per_batch: 400
      sold:
        kind: derive
        source: orders_landed
        transform: pipelines.shop.transforms:sold
        state: {{watermark: &mark {{time: at, delay: 2h}}, key: [since, item]}}
        sink: {{kind: iceberg, table: sold}}
        trigger: 1s
      first-orders:
        kind: derive
        source: orders_landed
        state: {{watermark: *mark, distinct: [purchase]}}
        sink: {{kind: iceberg, table: first_orders}}
        trigger: 1s
  joined: # what Kafka brings with what Kinesis brings
    engine: glue
    latency: 30s
    rate: *rate
    queries:
      land-shipments:
        <<: *land
        source: shipments
        table: shipments_landed
      land-payments:
        <<: *land
        source: payments
        schema: pipelines/shop/payment.ddl
        table: payments_landed
        # A backlog at once: a shard that has half of it would fall behind split ones by more than the watermark keeps.
        records_per_batch: 8000
      settled:
        kind: derive
        source: shipments_landed
        transform: pipelines.shop.transforms:settled
        state: {{watermark: *mark, join: {{source: payments_landed, watermark: *mark}}}}
        sink: {{kind: iceberg, table: settled}}
        trigger: 1s
"""


def write(folder: Path, text: str = ENVIRONMENT) -> Environment:
    """Make the project: ours but for its environment and its pipelines.

    Raises
    ------
    ConfigurationError
        The environment does not fit.
    """
    prepare(folder)
    (folder / "environments" / f"{NAME}.yaml").write_text(text)
    return load(NAME, root=folder)


def prepare(folder: Path) -> None:
    """Make the project without an environment."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "environments").mkdir(parents=True)
    for name in ("etl", ".millrace"):
        (folder / name).symlink_to(ROOT / name)
    shop = folder / "pipelines" / "shop"
    shop.mkdir(parents=True)
    (folder / "pipelines" / "__init__.py").touch()
    for file in (Path(__file__).parent / "shop").iterdir():
        if file.suffix == ".ddl" or file.name in ("__init__.py", "transforms.py"):
            shutil.copy(file, shop)


def deployed(home: Path, stack: LocalStack, broker: KafkaBroker, text: str = ENVIRONMENT) -> Sandbox:
    """Write and deploy the project, and make the topics that LocalStack only pretends to make.

    Raises
    ------
    SandboxError
        It was not synthesised or not deployed.
    """
    write(home / "project", text)
    for topic in TOPICS:
        broker.create_topic(topic, PARTITIONS)
    return bring(home, stack, broker)


def bring(home: Path, stack: LocalStack, broker: KafkaBroker) -> Sandbox:
    """Deploy the project below a folder as it stands.

    Raises
    ------
    SandboxError
        It was not synthesised or not deployed.
    """
    environment = load(NAME, root=home / "project")
    assembly = home / "cdk.out"
    synthesise(home / "project", assembly)
    deploy_to_localstack(stack, assembly, ACCOUNT)
    return Sandbox(environment, Names(environment, ACCOUNT), stack, broker)


def synthesise(project: Path, assembly: Path) -> None:
    """Synthesise the project; what was in the assembly goes."""
    shutil.rmtree(assembly, ignore_errors=True)
    command = [sys.executable, "-m", "tests.faults.synthesise_shop", str(project), str(assembly)]
    run(command, ROOT, program_variables())


def millrace(project: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    """Run the command in a project as a person would; return what it prints, and show what it says beside that."""
    variables = {**(environment or program_variables()), "COLUMNS": "160"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = run([sys.executable, "-m", "millrace", *words], project, variables)
    sys.stdout.write(done.stderr)
    return done.stdout


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run a program to its end.

    Raises
    ------
    SandboxError
        It failed; holds the end of what it said.
    """
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SandboxError(f"{' '.join(command[:4])}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done
