"""Environment that stands in for one on AWS, and its deployment to LocalStack."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from millrace.config import load
from millrace.config.aws.resource_names import Names
from millrace.config.document.problems import ConfigurationError
from millrace.config.model import Environment
from millrace.lifecycle.account.deployed_environment import LaunchDocument
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import cdk, kafka_broker, localstack
from millrace.sandbox.programs.child_processes import RUN, locked_sandbox_without_left_programs
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, delete_local_catalog
from millrace.sizing import plan as compute_plan

_NETWORK = ("vpc", "subnets", "zones", "zone_ids", "flow_logs_role")
_STORAGE = ("keys", "buckets", "database", "lake_formation")
_GOVERNANCE = ("permissions_boundary", "qualifier", "bootstrap_key")
_KINESIS = ("existing", "existing_key", "read_role")
_JOB = ("run", "run_every", "role", "image", "python")


@dataclass(frozen=True)
class LocalStandIn:
    """An environment as it is deployed to LocalStack.

    Attributes
    ----------
    name
        The environment for a command line: as it was given, or the file of the stand-in.
    replaced
        A phrase for each part that another one stands in for.
    """

    name: str
    environment: Environment
    replaced: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        """Names of its resources in LocalStack."""
        return Names(self.environment, ACCOUNT)


def make_stand_in(environment: Environment, name: str | None = None) -> LocalStandIn:
    """Return the form of an environment that can be deployed to LocalStack; unchanged if it can be as it is.

    An account, an existing VPC, keys, buckets, database, roles, images, clusters and streams are those of another place. Own
    ones with the names that Millrace gives stand in for them; what jobs do with them stays as written.

    Parameters
    ----------
    name
        The environment on the command line: its name or its file.

    Raises
    ------
    ConfigurationError
        The stand-in is not valid.
    """
    given = name or environment.name
    tree = environment.value_locations.tree
    # No schedule starts runs here: a job that runs in turns runs all the time.
    in_turns = any(job.has_bounded_runs or job.run == "auto" for job in environment.jobs.values())
    if tree is None or (environment.account == ACCOUNT and not in_turns):
        return LocalStandIn(given, environment)
    document = copy.deepcopy({k: v for k, v in tree.to_json().items() if k not in ("extends", "name")})
    if not (said := tuple(_replace_remote_resources_and_describe(document, environment))):
        return LocalStandIn(given, environment)
    document["account"] = ACCOUNT
    others = {*environment.governance.other_accounts, environment.account} - {None, ACCOUNT}
    if others:
        document.setdefault("governance", {})["other_accounts"] = sorted(filter(None, others))
    # The history server shows no more than `millrace history`, and takes the longest to deploy.
    document.pop("history", None)
    file = RUN / "environments" / f"{environment.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1))
    try:
        return LocalStandIn(str(file), load(file, environment.value_locations.root), said)
    except ConfigurationError as error:
        raise error_in_users_file(error, environment, file, "in the stand-in for this machine") from None


def error_in_users_file(
    error: ConfigurationError, environment: Environment, generated: Path, where: str
) -> ConfigurationError:
    """Return the error of an environment file that was generated as one of the user's file; ``where`` says of which generated one."""
    file = environment.value_locations.file_and_line(())[0]
    return ConfigurationError(
        replace(each, file=file, line=0, hint=f"{each.hint}; {where}".lstrip("; "))
        if Path(each.file).name == generated.name
        else each
        for each in error.problems
    )


def _replace_remote_resources_and_describe(
    document: dict[str, Any], environment: Environment
) -> Iterator[str]:
    """Change a document; yield a phrase for each change."""
    if environment.account not in (None, ACCOUNT):
        yield f"account {environment.account}"
    network, storage = document.get("network", {}), document.get("storage", {})
    if environment.network.vpc is not None:
        network["availability_zones"] = min(3, max(2, environment.zone_count))
    yield from (f"network.{key}" for key in _pop_keys(network, _NETWORK))
    yield from (f"storage.{key}" for key in _pop_keys(storage, _STORAGE))
    yield from (f"governance.{key}" for key in _pop_keys(document.get("governance", {}), _GOVERNANCE))
    for name, cluster in document.get("kafka", {}).items():
        if cluster["kind"] != "msk" or cluster.get("existing"):
            document["kafka"][name] = {"kind": "msk", "disposable": True}
            yield f"cluster {name}"
    for name, stream in document["streams"].items():
        if stream["kind"] == "kinesis" and _pop_keys(stream, _KINESIS):
            if stream.get("mode") == "on-demand":
                stream.pop("shards", None)
            yield f"stream {name}"
        elif stream.pop("pattern", None) is not None:
            yield f"the topics of {name}, by one topic of that name"
    # One broker stands in for all clusters.
    topics = {n: s.get("topic", n) for n, s in document["streams"].items() if s["kind"] == "kafka"}
    for name in (n for n, topic in topics.items() if Counter(topics.values())[topic] > 1):
        document["streams"][name]["topic"] = f"{document['streams'][name]['cluster']}.{topics[name]}"
        yield f"the topic of {name}, whose name another cluster has too"
    for name, job in document["jobs"].items():
        yield from (f"{key} of job {name}" for key in _pop_keys(job, _JOB))


def _pop_keys(section: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """Remove keys from a section; return those that it had."""
    return [key for key in keys if section.pop(key, None) is not None]


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
