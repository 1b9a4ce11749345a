"""Deployment of an environment to LocalStack, with the CDK app that deploys it to AWS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from millrace.config import load
from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment
from millrace.lifecycle.account.deployed_environment import LaunchDocument
from millrace.sandbox.local_stand_in_environment import make_stand_in
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import cdk, kafka_broker, localstack
from millrace.sandbox.programs.child_processes import RUN, locked_sandbox_without_left_programs
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, delete_local_catalog
from millrace.sizing import plan as compute_plan


@dataclass(frozen=True)
class Sandbox:
    """A deployed environment and the servers it runs on."""

    environment: Environment
    names: Names
    stack: localstack.LocalStack
    kafka: kafka_broker.KafkaBroker

    @property
    def spark(self) -> SandboxSpark:
        """Local Spark with this sandbox's servers."""
        return SandboxSpark(stack=self.stack, kafka=self.kafka.bootstrap)

    def launch_document(self, job: str) -> LaunchDocument:
        """Read a job's launch document from the deployed stack."""
        return self.spark.launch_document(self.names, job)


def deploy_to_localstack(
    stack: localstack.LocalStack, assembly: Path, account: str, tags: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Bootstrap LocalStack and deploy every stack of an assembly, with tags.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        A stack did not deploy.
    """
    environment = stack.environment_variables()
    cdk.run_cdk(["bootstrap", f"aws://{account}/{stack.region}", "-a", str(assembly)], environment)
    cdk.deploy_stacks(assembly, environment=environment, tags=tags)


@contextmanager
def running_localstack_and_kafka(
    *, keep: bool = False
) -> Iterator[tuple[localstack.LocalStack, kafka_broker.KafkaBroker]]:
    """Start LocalStack and a Kafka broker, both empty; stop them at the end unless ``keep`` is set."""
    with ExitStack() as stack:
        stack.enter_context(locked_sandbox_without_left_programs())
        delete_local_catalog()
        yield (
            stack.enter_context(localstack.running_localstack(keep=keep)),
            stack.enter_context(kafka_broker.running_broker(keep=keep)),
        )


def deploy_sandbox(name: str, stack: localstack.LocalStack, broker: kafka_broker.KafkaBroker) -> Sandbox:
    """Deploy an environment and create what LocalStack only pretends to create: topics and reference tables."""
    standing = make_stand_in(load(name), name)
    environment, names = standing.environment, standing.names
    # LocalStack has every region; the environment's is bootstrapped and used.
    stack = replace(stack, region=environment.region)
    plan = compute_plan(environment)
    assembly = RUN / "cdk.out"
    cdk.synthesise_assembly(standing.name, assembly, localstack.ACCOUNT)
    deploy_to_localstack(stack, assembly, names.account)
    sandbox = Sandbox(environment, names, stack, broker)
    for stream_name, stream in environment.streams.items():
        if stream.cluster_name is not None and stream.topic_pattern is None:
            broker.create_topic(
                names.stream(stream_name), plan.streams[stream_name].expected_partitions.value
            )
    _write_reference_tables(sandbox)
    return sandbox


def _write_reference_tables(sandbox: Sandbox) -> None:
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    catalog.create_namespace_if_not_exists(sandbox.names.database)
    queries = [query for job in sandbox.environment.jobs.values() for query in job.queries.values()]
    enrichments = [each for query in queries for each in getattr(query, "enrich", ())]
    named = {each.table for each in enrichments}
    for name in named.intersection(records_from_nycflights.REFERENCE_TABLES):
        rows = records_from_nycflights.read_reference_table(name)
        catalog.create_table(sandbox.names.table(name), schema=rows.schema).append(rows)
    for name in named.intersection(sandbox.environment.tables).difference(
        records_from_nycflights.REFERENCE_TABLES
    ):
        # Nobody here knows the types of a table that somebody else owns, or its rows: text, and none.
        used = [
            column for e in enrichments if e.table == name for column in (*e.on.values(), *e.columns.values())
        ]
        full = sandbox.names.table(name)
        catalog.create_namespace_if_not_exists(full.split(".")[0])
        catalog.create_table(
            full, schema=pa.schema([(column, pa.string()) for column in dict.fromkeys(used)])
        )
