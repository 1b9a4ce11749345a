"""Kafka clusters, on MSK or elsewhere: how they are found and signed in to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ...launch.connections import Connection, SecretLogin
from ...record.errors import NoAnswerError, StartError, describe
from ...services import bundled_boto3
from ...services.aws import as_start_error
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
"""How long a start waits for brokers that say neither yes nor no; the queries then wait in their own way."""


@dataclass(frozen=True)
class BoundConnection(Connection):
    """A connection as it is where the job runs.

    Attributes
    ----------
    secrets_endpoint
        Of a local Secrets Manager; None for the region's own.
    """

    secrets_endpoint: str | None = None


def bind(name: str, connection: Connection, binds: Mapping[str, str]) -> BoundConnection:
    """Apply what was given with ``--bind kafka.NAME.…`` to a connection.

    Parameters
    ----------
    name
        The connection's name in the launch document.
    connection
        As the launch document has it.

    Raises
    ------
    StartError
        An authentication that does not exist, or takes a secret.
    """
    authentication = binds.get(f"kafka.{name}.authentication", connection.authentication)
    if not isinstance(authentication, SecretLogin) and authentication not in kafka_login.WITHOUT:
        raise StartError(
            f"--bind kafka.{name}.authentication={authentication}: not one of {', '.join(kafka_login.WITHOUT)}"
        )
    servers = binds.get(f"kafka.{name}.bootstrap", connection.bootstrap_servers)
    endpoint = binds.get("secretsmanager.endpoint")
    return BoundConnection(connection.cluster, servers, authentication, endpoint)  # type: ignore[arg-type]


def authentication_kind(connection: Connection) -> str:
    """Kind of its authentication, such as ``plain``."""
    login = connection.authentication
    return login.kind if isinstance(login, SecretLogin) else login


def bootstrap_servers(connection: Connection, *, client: Any = None) -> str:
    """Bootstrap servers of a connection; those of an MSK cluster are looked up by its name.

    Parameters
    ----------
    client
        A boto3 ``kafka`` client; left out, one with the job's own role.

    Raises
    ------
    StartError
        No such cluster, or one without an address for this kind of authentication; or it cannot be asked.
    """
    if connection.bootstrap_servers:
        return connection.bootstrap_servers
    with as_start_error(f"MSK cluster {connection.cluster}"):
        kafka = client or _msk_client()
        clusters = kafka.list_clusters_v2(ClusterNameFilter=connection.cluster)["ClusterInfoList"]
        # The filter of ListClustersV2 matches prefixes.
        arns = [c["ClusterArn"] for c in clusters if c["ClusterName"] == connection.cluster]
        if not arns:
            raise StartError(f"there is no MSK cluster named {connection.cluster} in this account and region")
        how = authentication_kind(connection)
        brokers = kafka.get_bootstrap_brokers(ClusterArn=arns[0]).get(BROKERS.get(how, ""))
    if not brokers:
        raise StartError(f"MSK cluster {connection.cluster} offers no address for authentication {how}")
    return str(brokers)


def with_resolved_brokers(connection: Connection) -> Connection:
    """The connection with its bootstrap servers looked up, so that a job that runs asks AWS for them no more.

    Raises
    ------
    StartError
        As of :func:`bootstrap_servers`.
    """
    return dataclasses.replace(connection, bootstrap_servers=bootstrap_servers(connection))


def connection_options(connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka source and sink that say where the cluster is and how to sign in, as of this moment.

    Raises
    ------
    StartError
        As of :func:`bootstrap_servers` and :func:`etl.sources.kafka.login.options`.
    """
    endpoint = connection.secrets_endpoint if isinstance(connection, BoundConnection) else None
    servers = bootstrap_servers(connection)
    return {"kafka.bootstrap.servers": servers, **kafka_login.options(connection, endpoint)}


@dataclass
class CachedOptions:
    """Options of :func:`connection_options`, kept until somebody could not use them: a secret may have been changed since."""

    connection: Connection
    _options: Mapping[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def options(self) -> Mapping[str, str]:
        """Those that are kept, or of now.

        Raises
        ------
        StartError
            As of :func:`connection_options`.
        """
        self._options = found = self._options or connection_options(self.connection)
        return found

    def forget(self) -> None:
        """Ask again the next time."""
        self._options = {}

    def ask_brokers(self, question: Callable[[Mapping[str, str]], Answer]) -> Answer:
        """Ask the brokers of a job that runs.

        Parameters
        ----------
        question
            Given the options.

        Raises
        ------
        NoAnswerError
            They do not answer, or refuse, or nobody knows now how to sign in.
        """
        try:
            return question(self.options())
        except StartError as error:
            raise NoAnswerError(str(error)) from error
        except NoAnswerError:
            self.forget()
            raise


def sign_in(spark: SparkSession, connection: Connection) -> None:
    """Sign in once, so that a refusal is told before the first record is read.

    Brokers that do not answer are no refusal: who reads them waits.

    Parameters
    ----------
    spark
        Whose class path has the client.

    Raises
    ------
    StartError
        The brokers refuse, cannot be known, or the secret is none that Kafka's client takes.
    """
    if authentication_kind(connection) in ("none", "iam"):
        return
    entered = connection_options(connection)
    try:
        with admin(spark, entered, SIGN_IN_SECONDS) as (client, answer):
            answer(client.describeCluster().nodes())
    except NoAnswerError as error:
        if (why := kafka_login.refusal(error.__cause__, connection)) is not None:
            raise StartError(f"Kafka cluster at {entered['kafka.bootstrap.servers']}: {why}") from error


@contextmanager
def admin(
    spark: SparkSession, connecting: Mapping[str, str], seconds: int
) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Kafka's own admin client, in the JVM, and what waits for one of its futures.

    Parameters
    ----------
    spark
        Whose class path has the client.
    connecting
        Options of :func:`connection_options`.
    seconds
        Longest that a call may take.

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
        lambda: create(properties(connecting) | patience), jvm.java.time.Duration.ZERO
    ) as client:
        yield client, lambda future: future.get(seconds, unit)


def properties(connecting: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's Kafka source as Kafka's own clients name them."""
    return {name.removeprefix("kafka."): value for name, value in connecting.items()}


@contextmanager
def closing_client(open_client: Callable[[], Any], *patience: Any) -> Iterator[Any]:
    """A client of Kafka's, closed at the end.

    Parameters
    ----------
    patience
        What its ``close`` takes.

    Raises
    ------
    NoAnswerError
        It could not be made, or what it was asked ended with an error of the JVM, which is the cause.
    """
    client = None
    try:
        client = open_client()
        yield client
    except Py4JJavaError as error:
        raise NoAnswerError(describe(error)) from error
    finally:
        if client is not None:
            client.close(*patience)


def _msk_client() -> Any:
    return bundled_boto3.boto3("to look up an MSK cluster; or give --bind kafka.NAME.bootstrap").client(
        "kafka"
    )
