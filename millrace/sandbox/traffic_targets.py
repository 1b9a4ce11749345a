"""Where traffic goes: the running sandbox, a server on this machine, or AWS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import boto3

from millrace.config.model import Environment, KafkaTopic, KinesisStream
from millrace.config.names import Names
from millrace.lifecycle import kafka_client
from millrace.lifecycle.verbs import connect
from millrace.sandbox import samples
from millrace.sandbox.kept import kept_spark
from millrace.sandbox.localstack import ACCOUNT
from millrace.sandbox.process import SandboxError
from millrace.sandbox.producer import KafkaProducer, KinesisProducer, Producer
from millrace.sandbox.toolchain import past_proxies
from millrace.sizing.cost import GB
from millrace.sizing.tables import prices

_PUT_UNIT = 25_000
"""Bytes of a Kinesis PUT payload unit (Kinesis pricing: 25 KB)."""

_KB = 1024
"""To which an on-demand stream's price rounds each record up (Kinesis pricing, "Data-In")."""

_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """A stream or topic that takes records.

    Attributes
    ----------
    where
        For people.
    producer
        Makes a producer; a Kinesis one with so many records in one call at most.
    """

    where: str
    producer: Callable[[int], Producer]


def in_sandbox(environment: Environment, name: str, *, kafka: str | None, kinesis: str | None) -> Target:
    """A stream of the running sandbox, or of a server on this machine whose address is given.

    Parameters
    ----------
    environment
        Of the stream.
    name
        Its logical name.
    kafka, kinesis
        Bootstrap servers and endpoint in place of the sandbox's.

    Raises
    ------
    SandboxError
        No sandbox is running, or an address of another machine.
    """
    names = Names(environment, environment.account or ACCOUNT)
    stream, own = environment.streams[name], physical(names, name)
    if isinstance(stream, KafkaTopic):
        bootstrap = kafka or kept_spark(environment).kafka
        _check_local(*(server.rpartition(":")[0] for server in bootstrap.split(",")))
        return Target(f"topic {own} on {bootstrap}", lambda _: KafkaProducer(bootstrap, own))
    if kinesis is None:
        stack = kept_spark(environment).stack
        return Target(
            f"stream {own} on {stack.endpoint}",
            lambda batch: KinesisProducer(stack.client("kinesis"), own, batch=batch),
        )
    client = _kinesis(environment, kinesis)
    return Target(f"stream {own} on {kinesis}", lambda batch: KinesisProducer(client, own, batch=batch))


def on_aws(environment: Environment, name: str) -> Target:
    """A stream of the deployed environment.

    Parameters
    ----------
    environment, name
        As for :func:`in_sandbox`.

    Raises
    ------
    SandboxError
        The stream belongs to somebody else.
    NotDeployedError
        Its cluster is not there.
    AwsError
        No credentials, or another account's.
    """
    stream = environment.streams[name]
    if stream.existing:
        raise SandboxError(
            f"stream {name} belongs to somebody else: traffic goes to streams of this environment"
        )
    aws = connect(Names(environment, environment.account or ""))
    names, own = aws.names, physical(aws.names, name)
    if isinstance(stream, KinesisStream):
        return Target(
            f"stream {own} on AWS, {environment.region}",
            lambda batch: KinesisProducer(aws.client("kinesis"), own, batch=batch),
        )
    settings: Mapping[str, Any] = kafka_client.settings(names, stream.cluster, aws.client)
    return Target(
        f"topic {own} of cluster {names.cluster(stream.cluster)} on AWS",
        lambda _: KafkaProducer(settings["bootstrap.servers"], own, settings=settings),
    )


def cost(environment: Environment, name: str, records: int, record_bytes: float) -> float:
    """Dollars for records put into a stream: Kinesis' PUT units or gigabytes; a Kafka topic has no price by record.

    Parameters
    ----------
    environment, name
        Of the stream.
    records, record_bytes
        How many, and their mean size with key.
    """
    stream = environment.streams[name]
    if not isinstance(stream, KinesisStream):
        return 0.0
    table = prices(environment.region, environment.places.root)
    if stream.mode == "on-demand":
        rounded = records * math.ceil(record_bytes / _KB) * _KB
        return rounded / GB * table.usd("kinesis.on_demand.gb_in")
    units = records * -(-record_bytes // _PUT_UNIT)
    return units / 1e6 * table.usd("kinesis.million_put_units")


def physical(names: Names, name: str) -> str:
    """The stream's or topic's own name.

    Raises
    ------
    SandboxError
        It is a pattern of several topics.
    """
    stream = names.environment.streams[name]
    if isinstance(stream, KafkaTopic) and stream.pattern is not None:
        raise SandboxError(f"stream {name} is every topic like {stream.pattern}; name one with --topic")
    return names.stream(name)


def _check_local(*hosts: str) -> None:
    other = [host for host in hosts if host.strip("[]") not in _LOCAL]
    if other:
        raise SandboxError(f"{other[0]} is another machine: traffic leaves this one with --aws only")


def sampled(
    environment: Environment, name: str, count: int, *, kafka: str | None, kinesis: str | None, aws: bool
) -> list[bytes]:
    """Read records of a stream that are there.

    Parameters
    ----------
    environment, name, kafka, kinesis
        As for :func:`in_sandbox`.
    count
        How many at most.
    aws
        Of the deployed stream in place of the sandbox's.

    Raises
    ------
    SandboxError
        It cannot be read.
    """
    stream = environment.streams[name]
    if aws:
        caller = connect(Names(environment, environment.account or ""))
        own = physical(caller.names, name)
        if isinstance(stream, KinesisStream):
            return samples.of_stream(caller.client("kinesis"), own, count)
        settings = kafka_client.settings(caller.names, stream.cluster, caller.client)
        return samples.of_topic(settings, own, count)
    names = Names(environment, environment.account or ACCOUNT)
    if isinstance(stream, KafkaTopic):
        bootstrap = kafka or kept_spark(environment).kafka
        _check_local(*(server.rpartition(":")[0] for server in bootstrap.split(",")))
        return samples.of_topic({"bootstrap.servers": bootstrap}, physical(names, name), count)
    client_here = (
        _kinesis(environment, kinesis) if kinesis else kept_spark(environment).stack.client("kinesis")
    )
    return samples.of_stream(client_here, physical(names, name), count)


def _kinesis(environment: Environment, endpoint: str) -> Any:
    _check_local(urlparse(endpoint).hostname or "")
    past_proxies()
    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name=environment.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - servers of the sandbox take any
    )
