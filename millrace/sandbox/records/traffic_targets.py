"""Targets of traffic: the running sandbox, a server on this machine, or AWS."""

from __future__ import annotations

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.sandbox.local_stand_in_environment import make_stand_in
from millrace.sandbox.localstack_deployment import Sandbox
from millrace.sandbox.operate_running_sandbox import spark_of_running_sandbox
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.producer import RecordProducer
from millrace.sandbox.records.traffic_targets_by_kind import TrafficTarget, server_for_stream
from millrace.sizing.prices_and_limits import price_table_of_region


def sandbox_stream_target(
    environment: Environment, name: str, *, kafka: str | None, kinesis: str | None
) -> TrafficTarget:
    """Return a stream of the running sandbox, or of a server on this machine at a given address.

    Parameters
    ----------
    name
        Its logical name.
    kafka, kinesis
        Bootstrap servers and endpoint instead of the sandbox's.

    Raises
    ------
    SandboxError
        No sandbox is running, or an address belongs to another machine.
    """
    standing = make_stand_in(environment)
    environment, names = standing.environment, standing.names
    return server_for_stream(environment.streams[name], name).local_target(
        environment,
        physical_stream_name(names, name),
        {"kafka": kafka, "kinesis": kinesis},
        lambda: spark_of_running_sandbox(environment),
    )


def sandbox_producer(sandbox: Sandbox, name: str, batch: int) -> RecordProducer:
    """Return a producer for a stream of a sandbox, which sends at most so many records in a call."""
    kafka, kinesis = sandbox.kafka.bootstrap, sandbox.stack.endpoint
    return sandbox_stream_target(sandbox.environment, name, kafka=kafka, kinesis=kinesis).producer(batch)


def deployed_stream_target(environment: Environment, name: str) -> TrafficTarget:
    """Return a stream of the deployed environment.

    Parameters
    ----------
    environment, name
        As for :func:`sandbox_stream_target`.

    Raises
    ------
    SandboxError
        The stream belongs to somebody else.
    NotDeployedError
        Its cluster does not exist.
    AwsError
        There are no credentials, or they belong to another account.
    """
    if environment.streams[name].belongs_to_others:
        raise SandboxError(
            f"stream {name} exists outside this environment, which only reads it; choose a stream that "
            "the environment creates"
        )
    return _traffic_target_on_account(environment, name)


def _traffic_target_on_account(environment: Environment, name: str) -> TrafficTarget:
    stream, aws = environment.streams[name], connect_to_account(Names(environment, environment.account or ""))
    return server_for_stream(stream, name).deployed_target(aws, stream, physical_stream_name(aws.names, name))


def cost_of_put_records(environment: Environment, name: str, records: int, record_bytes: float) -> float:
    """Return the dollars for records put into a stream, such as Kinesis' PUT units; a Kafka topic has no price by record.

    Parameters
    ----------
    records, record_bytes
        Number of records, and their mean size with key.
    """
    charge = environment.streams[name].put_charge(records, record_bytes)
    if charge is None:
        return 0.0
    return charge.quantity * price_table_of_region(environment.region, environment.value_locations.root).usd(
        charge.price
    )


def physical_stream_name(names: Names, name: str) -> str:
    """Return the stream's or topic's own name.

    Raises
    ------
    SandboxError
        It is a pattern of several topics.
    """
    pattern = names.environment.streams[name].topic_pattern
    if pattern is not None:
        raise SandboxError(
            f"stream {name} reads every topic that matches {pattern}; name one of them with --topic"
        )
    return names.stream(name)


def read_sample_payloads(
    environment: Environment, name: str, count: int, *, kafka: str | None, kinesis: str | None, aws: bool
) -> list[bytes]:
    """Return payloads of existing records of a stream.

    Parameters
    ----------
    environment, name, kafka, kinesis
        As for :func:`sandbox_stream_target`.
    count
        Maximum number of records.
    aws
        Read the deployed stream instead of the sandbox's.

    Raises
    ------
    SandboxError
        It cannot be read.
    """
    here = (
        _traffic_target_on_account(environment, name)
        if aws
        else sandbox_stream_target(environment, name, kafka=kafka, kinesis=kinesis)
    )
    return here.sample(count)
