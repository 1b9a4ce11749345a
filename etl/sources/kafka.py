"""Kafka topics, on MSK or elsewhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from etl import carried, envelope
from etl.errors import StartError
from etl.settings import Connection, KafkaReading, KafkaSource
from etl.sources.asking import asking
from etl.sources.start import milliseconds, moment_of

_AUTHENTICATION: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "tls": {"kafka.security.protocol": "SSL"},
    "iam": {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    },
}

_BROKERS = {
    "iam": "BootstrapBrokerStringSaslIam",
    "tls": "BootstrapBrokerStringTls",
    "none": "BootstrapBrokerString",
}


def bind(name: str, connection: Connection, binds: Mapping[str, str]) -> Connection:
    """Apply what was given with ``--bind kafka.NAME.…`` to a connection.

    Parameters
    ----------
    name
        The connection's name in the launch document.
    connection
        As the launch document has it.
    binds
        Names and values of ``--bind``.

    Raises
    ------
    StartError
        An authentication that does not exist.
    """
    authentication = binds.get(f"kafka.{name}.authentication", connection.authentication)
    if authentication not in _AUTHENTICATION:
        raise StartError(
            f"--bind kafka.{name}.authentication={authentication}: not one of {', '.join(_AUTHENTICATION)}"
        )
    servers = binds.get(f"kafka.{name}.bootstrap", connection.bootstrap_servers)
    return Connection(connection.kind, connection.cluster, servers, authentication)  # type: ignore[arg-type]


def bootstrap_servers(connection: Connection, *, client: Any = None) -> str:
    """Bootstrap servers of a connection; those of an MSK cluster are looked up by its name.

    Parameters
    ----------
    connection
        After :func:`bind`.
    client
        A boto3 ``kafka`` client; left out, one with the job's own role.

    Raises
    ------
    StartError
        No such cluster, or one without an address for this kind of authentication; or it cannot be asked.
    """
    if connection.bootstrap_servers:
        return connection.bootstrap_servers
    if not connection.cluster:
        raise StartError("a Kafka connection names neither bootstrap servers nor a cluster")
    with asking(f"MSK cluster {connection.cluster}"):
        kafka = client or _msk_client()
        clusters = kafka.list_clusters_v2(ClusterNameFilter=connection.cluster)["ClusterInfoList"]
        # The filter of ListClustersV2 matches prefixes.
        arns = [c["ClusterArn"] for c in clusters if c["ClusterName"] == connection.cluster]
        if not arns:
            raise StartError(f"there is no MSK cluster named {connection.cluster} in this account and region")
        brokers = kafka.get_bootstrap_brokers(ClusterArn=arns[0]).get(_BROKERS[connection.authentication])
    if not brokers:
        raise StartError(
            f"MSK cluster {connection.cluster} offers no address for authentication {connection.authentication}"
        )
    return str(brokers)


def resolved(connection: Connection) -> Connection:
    """The connection with its bootstrap servers looked up, so that a job that runs asks AWS for them no more.

    Parameters
    ----------
    connection
        After :func:`bind`.

    Raises
    ------
    StartError
        As of :func:`bootstrap_servers`.
    """
    return dataclasses.replace(connection, bootstrap_servers=bootstrap_servers(connection))


def connecting(connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka source and sink that say where the cluster is and how it is entered.

    Parameters
    ----------
    connection
        After :func:`bind`.

    Raises
    ------
    StartError
        As of :func:`bootstrap_servers`.
    """
    servers = bootstrap_servers(connection)
    return {"kafka.bootstrap.servers": servers, **_AUTHENTICATION[connection.authentication]}


def admin(spark: SparkSession, connecting: Mapping[str, str], seconds: int) -> Any:
    """Kafka's own admin client, in the JVM; for the caller to close.

    Parameters
    ----------
    spark
        Whose class path has the client.
    connecting
        Options of :func:`connecting`.
    seconds
        Longest that a call may take.
    """
    jvm: Any = spark._jvm
    properties = jvm.java.util.HashMap()
    for name, value in connecting.items():
        properties.put(name.removeprefix("kafka."), value)
    properties.put("request.timeout.ms", str(seconds * 500))
    properties.put("default.api.timeout.ms", str(seconds * 1000))
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)


def _msk_client() -> Any:
    return carried.boto3("to look up an MSK cluster; or give --bind kafka.NAME.bootstrap").client("kafka")


def options(source: KafkaSource, connection: Connection, *, partitions: int | None) -> dict[str, str]:
    """Options of Spark's Kafka source.

    Parameters
    ----------
    source
        What to read, and how much of it in a batch.
    connection
        With its bootstrap servers.
    partitions
        Least number of tasks of a batch: large offset ranges are split, without a shuffle.
    """
    reading = source.reading or KafkaReading()
    chosen = {
        "kafka.bootstrap.servers": bootstrap_servers(connection),
        **_topics(source.topic, reading),
        **_start(source, reading),
        "maxOffsetsPerTrigger": str(source.records_per_batch),
        **_waiting(reading),
        # There is no setting of ours for it: loss is never silent.
        "failOnDataLoss": "true",
        "includeHeaders": "true" if reading.headers else "false",
        # Records of aborted transactions were never published.
        "kafka.isolation.level": "read_committed",
        **_AUTHENTICATION[connection.authentication],
    }
    if partitions:
        chosen["minPartitions"] = str(partitions)
    if reading.group_id_prefix is not None:
        chosen["groupIdPrefix"] = reading.group_id_prefix
    return chosen


def _topics(topic: str, reading: KafkaReading) -> dict[str, str]:
    if reading.pattern:
        return {"subscribePattern": topic}
    if reading.partitions is not None:
        return {"assign": json.dumps({topic: list(reading.partitions)})}
    return {"subscribe": topic}


def _waiting(reading: KafkaReading) -> dict[str, str]:
    if reading.min_records_per_batch is None:
        return {}
    chosen = {"minOffsetsPerTrigger": str(reading.min_records_per_batch)}
    if reading.max_delay_seconds is not None:
        chosen["maxTriggerDelay"] = f"{round(reading.max_delay_seconds * 1000)}ms"
    return chosen


def by_shard(source: KafkaSource, offset: Any) -> dict[str, int] | None:
    """Offsets of Spark's Kafka source by what the envelope's ``_shard`` calls a partition.

    Parameters
    ----------
    source
        What is read.
    offset
        ``{topic: {partition: offset}}``, decoded from JSON; None where unknown.

    Returns
    -------
    dict or None
        None where unknown; nothing of topics that are not the source's.
    """
    if not offset:
        return None
    if source.reading is not None and source.reading.pattern:
        return {f"{topic}/{p}": at for topic, partitions in offset.items() for p, at in partitions.items()}
    return dict(offset.get(source.topic, {}))


def _start(source: KafkaSource, reading: KafkaReading) -> dict[str, str]:
    if reading.start_offsets is not None:
        return {"startingOffsets": json.dumps({source.topic: dict(reading.start_offsets)})}
    moment = moment_of(source.start)
    if moment is None:
        return {"startingOffsets": source.start}
    # A partition without a record since then begins at its end.
    return {"startingTimestamp": milliseconds(moment), "startingOffsetsByTimestampStrategy": "latest"}


def read(
    spark: SparkSession, source: KafkaSource, connection: Connection, *, partitions: int | None
) -> DataFrame:
    """Open a topic as a streaming DataFrame in the envelope's shape.

    A batch is a fixed range of offsets of each partition: a replay holds the same records.

    Parameters
    ----------
    spark
        The job's session.
    source
        What to read.
    connection
        After :func:`bind`.
    partitions
        Least number of tasks of a batch.
    """
    chosen = options(source, connection, partitions=partitions)
    records = spark.readStream.format("kafka").options(**chosen).load()
    several = source.reading is not None and source.reading.pattern
    return envelope.from_kafka(records, source.name, several=several)
