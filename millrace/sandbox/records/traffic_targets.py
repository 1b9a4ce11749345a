"""Targets of traffic, by a class for each kind of stream: the running sandbox, a server on this machine, or AWS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

from millrace.config.aws.resource_names import Names
from millrace.config.base import load_kind
from millrace.config.model import Environment, Stream
from millrace.lifecycle.account import kafka_access
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.sandbox.localstack_deployment import Sandbox, make_stand_in
from millrace.sandbox.operate_running_sandbox import spark_of_running_sandbox
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark
from millrace.sandbox.programs.toolchain import exclude_local_servers_from_proxies
from millrace.sandbox.records.producer import KafkaProducer, KinesisProducer, RecordProducer
from millrace.sandbox.schemas import read_sample_records

_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class TrafficTarget:
    """A stream or topic that takes records.

    Attributes
    ----------
    where
        Its place, for people.
    producer
        Returns a producer; the argument is the maximum number of records of one Kinesis call.
    sample
        Reads existing records, at most so many.
    """

    where: str
    producer: Callable[[int], RecordProducer]
    sample: Callable[[int], list[bytes]]


class StreamServer(ABC):
    """Server of one kind of stream."""

    @abstractmethod
    def local_target(
        self,
        environment: Environment,
        own: str,
        addresses: Mapping[str, str | None],
        running: Callable[[], SandboxSpark],
    ) -> TrafficTarget:
        """Return a stream on this machine.

        Parameters
        ----------
        addresses
            Addresses of other servers than the sandbox's, by service; None for the sandbox's.
        running
            Returns the running sandbox.

        Raises
        ------
        SandboxError
            An address belongs to another machine.
        """

    @abstractmethod
    def deployed_target(self, aws: DeployedEnvironment, stream: Stream, own: str) -> TrafficTarget:
        """Return a stream of the deployed environment."""


SERVERS = {
    "kinesis": "millrace.sandbox.records.traffic_targets:KinesisServer",
    "kafka": "millrace.sandbox.records.traffic_targets:KafkaServer",
}
"""Class of a stream's server, by the stream's kind; a distribution adds its own as ``millrace.stream_servers``."""


def server_for_stream(stream: Stream, name: str) -> StreamServer:
    """Return the server of a stream.

    Raises
    ------
    SandboxError
        Its kind has no server for traffic.
    """
    server: type[StreamServer] | None = load_kind("millrace.stream_servers", SERVERS, stream.kind)
    if server is None:
        raise SandboxError(
            f"stream {name} is a {stream.title}, to which Millrace cannot send records, and from which it takes no samples; use the tools of that service"
        )
    return server()


class KinesisServer(StreamServer):
    """Kinesis, or its replacement in the sandbox."""

    def local_target(
        self,
        environment: Environment,
        own: str,
        addresses: Mapping[str, str | None],
        running: Callable[[], SandboxSpark],
    ) -> TrafficTarget:
        """Return a stream at an endpoint on this machine."""
        if (endpoint := addresses.get("kinesis")) is None:
            stack = running().stack
        else:
            refuse_remote_hosts(urlparse(endpoint).hostname or "")
            exclude_local_servers_from_proxies()
            stack = LocalStack(endpoint, environment.region, None)
        return _kinesis_target(f"stream {own} on {stack.endpoint}", stack.client("kinesis"), own)

    def deployed_target(self, aws: DeployedEnvironment, stream: Stream, own: str) -> TrafficTarget:
        """Return a stream in the environment's region."""
        return _kinesis_target(
            f"stream {own} on AWS, {aws.names.environment.region}", aws.client("kinesis"), own
        )


def _kinesis_target(where: str, client: Any, own: str) -> TrafficTarget:
    return TrafficTarget(
        where,
        lambda batch: KinesisProducer(client, own, batch=batch),
        lambda count: read_sample_records.read_oldest_stream_payloads(client, own, count),
    )


class KafkaServer(StreamServer):
    """Kafka brokers."""

    def local_target(
        self,
        environment: Environment,
        own: str,
        addresses: Mapping[str, str | None],
        running: Callable[[], SandboxSpark],
    ) -> TrafficTarget:
        """Return a topic at bootstrap servers on this machine."""
        bootstrap = addresses.get("kafka") or running().kafka
        refuse_remote_hosts(*(server.rpartition(":")[0] for server in bootstrap.split(",")))
        return TrafficTarget(
            f"topic {own} on {bootstrap}",
            lambda _: KafkaProducer(bootstrap, own),
            lambda count: read_sample_records.read_last_topic_payloads(
                {"bootstrap.servers": bootstrap}, own, count
            ),
        )

    def deployed_target(self, aws: DeployedEnvironment, stream: Stream, own: str) -> TrafficTarget:
        """Return a topic on its cluster."""
        assert stream.cluster_name is not None, f"{own} has no cluster"
        settings: Mapping[str, Any] = kafka_access.cluster_connection_settings(
            aws.names, stream.cluster_name, aws.client
        )
        return TrafficTarget(
            f"topic {own} of cluster {aws.names.cluster(stream.cluster_name)} on AWS",
            lambda _: KafkaProducer(settings["bootstrap.servers"], own, settings=settings),
            lambda count: read_sample_records.read_last_topic_payloads(settings, own, count),
        )


def refuse_remote_hosts(*hosts: str) -> None:
    """Refuse addresses of other machines.

    Raises
    ------
    SandboxError
        An address belongs to another machine.
    """
    if other := [host for host in hosts if host.strip("[]") not in _LOCAL]:
        raise SandboxError(f"traffic is sent to another machine, such as {other[0]}, only with --aws")


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
    addresses = {"kafka": kafka, "kinesis": kinesis}
    server = server_for_stream(environment.streams[name], name)
    return server.local_target(
        environment,
        physical_stream_name(names, name),
        addresses,
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
    stream, aws = environment.streams[name], connect_to_account(environment)
    return server_for_stream(stream, name).deployed_target(aws, stream, physical_stream_name(aws.names, name))


def physical_stream_name(names: Names, name: str) -> str:
    """Return the stream's or topic's own name.

    Raises
    ------
    SandboxError
        It is a pattern of several topics.
    """
    if (pattern := names.environment.streams[name].topic_pattern) is not None:
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
