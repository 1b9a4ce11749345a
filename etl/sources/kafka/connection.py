"""Kafka clusters, on MSK or elsewhere: look-up of their brokers, and login."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ...launch.kafka_connections import Connection, SecretLogin
from ...launch.sources import KafkaSource
from ...record.errors import NoAnswerError, StartError, describe_error
from ...record.job_run_context import JobRun
from ...services import bundled_boto3_if_missing
from ...services.aws_clients import errors_as_start_error
from . import login as kafka_login

Answer = TypeVar("Answer")

BROKERS = {
    "iam": "BootstrapBrokerStringSaslIam",
    "scram-sha-512": "BootstrapBrokerStringSaslScram",
    "mutual-tls": "BootstrapBrokerStringTls",
    "tls": "BootstrapBrokerStringTls",
    "none": "BootstrapBrokerString",
}

SIGN_IN_SECONDS = 30
"""Longest wait of a start for brokers that do not answer; the queries then wait in their own way."""


@dataclass(frozen=True)
class ConnectionWithBinds(Connection):
    """Connection at the place where the job runs.

    Attributes
    ----------
    secrets_endpoint
        URL of a local Secrets Manager; None for the region's endpoint.
    """

    secrets_endpoint: str | None = None


def apply_bind_options(name: str, connection: Connection, binds: Mapping[str, str]) -> ConnectionWithBinds:
    """Apply ``--bind kafka.NAME.…`` to a connection.

    Parameters
    ----------
    name
        The connection's name in the launch document.
    connection
        Connection of the launch document.

    Raises
    ------
    StartError
        The authentication is unknown, or needs a secret.
    """
    authentication = binds.get(f"kafka.{name}.authentication", connection.authentication)
    if not isinstance(authentication, SecretLogin) and authentication not in kafka_login.WITHOUT:
        raise StartError(
            f"--bind kafka.{name}.authentication={authentication}: must be one of "
            f"{', '.join(kafka_login.WITHOUT)}"
        )
    servers = binds.get(f"kafka.{name}.bootstrap", connection.bootstrap_servers)
    endpoint = binds.get("secretsmanager.endpoint")
    return ConnectionWithBinds(connection.cluster, servers, authentication, endpoint)  # type: ignore[arg-type]


def authentication_kind(connection: Connection) -> str:
    """Return the kind of its authentication, such as ``plain``."""
    login = connection.authentication
    return login.kind if isinstance(login, SecretLogin) else login


def bootstrap_servers(connection: Connection, *, client: Any = None) -> str:
    """Return the bootstrap servers of a connection; those of an MSK cluster are looked up by its name.

    Parameters
    ----------
    client
        A boto3 ``kafka`` client; by default one with the job's role.

    Raises
    ------
    StartError
        No such cluster, no address for this kind of authentication, or AWS does not answer.
    """
    if connection.bootstrap_servers:
        return connection.bootstrap_servers
    with errors_as_start_error(f"MSK cluster {connection.cluster}"):
        kafka = client or _msk_client()
        clusters = kafka.list_clusters_v2(ClusterNameFilter=connection.cluster)["ClusterInfoList"]
        # The filter of ListClustersV2 matches prefixes.
        arns = [c["ClusterArn"] for c in clusters if c["ClusterName"] == connection.cluster]
        if not arns:
            raise StartError(f"MSK cluster {connection.cluster} does not exist in this account and region")
        how = authentication_kind(connection)
        brokers = kafka.get_bootstrap_brokers(ClusterArn=arns[0]).get(BROKERS.get(how, ""))
    if not brokers:
        raise StartError(f"MSK cluster {connection.cluster} has no broker address for authentication {how}")
    return str(brokers)


def with_resolved_brokers(connection: Connection) -> Connection:
    """Return the connection with its bootstrap servers looked up, so that a running job does not ask AWS for them again.

    Raises
    ------
    StartError
        As in :func:`bootstrap_servers`.
    """
    return dataclasses.replace(connection, bootstrap_servers=bootstrap_servers(connection))


def connection_options(connection: Connection) -> dict[str, str]:
    """Return the options of Spark's Kafka source and sink for brokers and login, with the current secret.

    Raises
    ------
    StartError
        As in :func:`bootstrap_servers` and :func:`etl.sources.kafka.login.login_options`.
    """
    endpoint = connection.secrets_endpoint if isinstance(connection, ConnectionWithBinds) else None
    servers = bootstrap_servers(connection)
    return {"kafka.bootstrap.servers": servers, **kafka_login.login_options(connection, endpoint)}


@dataclass
class CachedConnectionOptions:
    """Cache of :func:`connection_options`, valid until they fail: a secret may have changed since."""

    connection: Connection
    _options: Mapping[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cached_or_read_options(self) -> Mapping[str, str]:
        """Return the cached options, or read them.

        Raises
        ------
        StartError
            As in :func:`connection_options`.
        """
        self._options = result = self._options or connection_options(self.connection)
        return result

    def forget_options(self) -> None:
        """Clear the cache."""
        self._options = {}

    def ask_brokers(self, question: Callable[[Mapping[str, str]], Answer]) -> Answer:
        """Send a request to the brokers of a running job.

        Parameters
        ----------
        question
            Called with the options.

        Raises
        ------
        NoAnswerError
            The brokers do not answer or refuse, or the login data cannot be read at present.
        """
        try:
            return question(self.cached_or_read_options())
        except StartError as error:
            raise NoAnswerError(str(error)) from error
        except NoAnswerError:
            self.forget_options()
            raise


def check_kafka_sign_in(spark: SparkSession, connection: Connection) -> None:
    """Sign in once, so that a refusal is reported before the first record is read.

    Brokers that do not answer are no refusal: the reader waits for them.

    Parameters
    ----------
    spark
        Session whose class path has the client.

    Raises
    ------
    StartError
        The brokers refuse or cannot be looked up, or Kafka's client does not accept the secret.
    """
    if authentication_kind(connection) in ("none", "iam"):
        return
    entered = connection_options(connection)
    try:
        with closing_admin_client(spark, entered, SIGN_IN_SECONDS) as (client, answer):
            answer(client.describeCluster().nodes())
    except NoAnswerError as error:
        if (why := kafka_login.login_advice(error.__cause__, connection)) is not None:
            raise StartError(f"Kafka cluster at {entered['kafka.bootstrap.servers']}: {why}") from error


@contextmanager
def closing_admin_client(
    spark: SparkSession, connecting: Mapping[str, str], seconds: int
) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yield Kafka's own admin client, in the JVM, and the function that waits for one of its futures.

    Parameters
    ----------
    spark
        Session whose class path has the client.
    connecting
        Options of :func:`connection_options`.
    seconds
        Longest time of a call.

    Raises
    ------
    NoAnswerError
        The brokers do not answer, or refuse.
    """
    jvm: Any = spark._jvm
    create = jvm.org.apache.kafka.clients.admin.AdminClient.create
    patience = {"request.timeout.ms": str(seconds * 500), "default.api.timeout.ms": str(seconds * 1000)}
    unit = jvm.java.util.concurrent.TimeUnit.SECONDS
    with closing_client(
        lambda: create(client_properties(connecting) | patience), jvm.java.time.Duration.ZERO
    ) as client:
        yield client, lambda future: future.get(seconds, unit)


def topic_cleanup_policy(
    spark: SparkSession, client: Any, answer: Callable[[Any], Any], topic: str
) -> str | None:
    """Return ``cleanup.policy`` of a topic, such as ``compact,delete``; None if the login may not ask for it.

    Parameters
    ----------
    client, answer
        From :func:`closing_admin_client`.
    """
    jvm: Any = spark._jvm
    resources = jvm.org.apache.kafka.common.config.ConfigResource
    resource = resources(resources.Type.TOPIC, topic)
    try:
        configurations = answer(client.describeConfigs(jvm.java.util.List.of(resource)).all())
    except Py4JJavaError as error:
        if "AuthorizationException" in describe_error(error):
            return None
        raise
    return str(configurations.get(resource).get("cleanup.policy").value())


def client_properties(connecting: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's Kafka source under the names of Kafka's own clients."""
    return {name.removeprefix("kafka."): value for name, value in connecting.items()}


@contextmanager
def closing_client(open_client: Callable[[], Any], *patience: Any) -> Iterator[Any]:
    """Yield a Kafka client, and close it at the end.

    Parameters
    ----------
    patience
        Arguments of its ``close``.

    Raises
    ------
    NoAnswerError
        It could not be made, or a call ended with an error of the JVM, which is the cause.
    """
    client = None
    try:
        client = open_client()
        yield client
    except Py4JJavaError as error:
        raise NoAnswerError(describe_error(error)) from error
    finally:
        if client is not None:
            client.close(*patience)


def _msk_client() -> Any:
    return bundled_boto3_if_missing.import_boto3(
        "to look up an MSK cluster; or give --bind kafka.NAME.bootstrap"
    ).client("kafka")


def connection_of_topic(source: KafkaSource, run: JobRun) -> ConnectionWithBinds:
    """Return the connection of a topic, with the values of ``--bind``.

    Raises
    ------
    StartError
        A bound value is invalid.
    """
    return apply_bind_options(source.connection, run.job.connections[source.connection], run.binds)
