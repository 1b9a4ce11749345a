"""Mistakes that one section alone cannot show, found without Spark, CDK or a network.

Each check takes what could be read of the environment and yields findings; none
stops at the first, so that one load reports everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path as FilePath

from millrace.config import kafka_versions
from millrace.config.base import arn_parts
from millrace.config.check_estate import check_estate
from millrace.config.check_jobs import check_jobs
from millrace.config.check_kafka_login import check_login
from millrace.config.check_names import check_names, check_tags
from millrace.config.check_reading import check_pattern
from millrace.config.explain import nearest
from millrace.config.model import Environment, KafkaTopic, KinesisStream, MskCluster
from millrace.config.problems import MISSING, Finding
from millrace.config.regions import AS_OF, REGIONS
from millrace.config.sinks.kafka import LARGEST_MESSAGE, made_here
from millrace.config.units import format_duration

MIB = 1024**2


@dataclass(frozen=True)
class Draft:
    """What could be read of an environment.

    Attributes
    ----------
    environment
        Its valid parts only when other parts are broken.
    streams, clusters
        Names of all that the file declares, broken or not, so that a job which
        reads a broken stream is not told that the stream is unknown.
    root
        The project: schemas and transforms are looked up below it.
    """

    environment: Environment
    streams: frozenset[str]
    clusters: frozenset[str]
    root: FilePath


def findings(draft: Draft) -> Iterator[Finding]:
    """Run every check.

    Yields
    ------
    Finding
        In no particular order.
    """
    environment = draft.environment
    yield from check_names(environment)
    if environment.region not in REGIONS:
        yield Finding(
            ("region",),
            environment.region,
            f"a region of AWS, as of {AS_OF}",
            nearest(environment.region, REGIONS),
        )
    yield from check_tags(environment)
    yield from check_estate(environment)
    yield from _clusters(environment)
    for name, stream in environment.streams.items():
        if isinstance(stream, KinesisStream):
            yield from _kinesis(name, stream)
            yield from _existing_stream(environment, name, stream)
        else:
            yield from _kafka(environment, name, stream, draft.clusters)
            yield from check_pattern(name, stream)
    yield from check_jobs(environment, draft.streams, draft.root)


def _clusters(environment: Environment) -> Iterator[Finding]:
    network = environment.network
    zones = len(network.subnets) if network.vpc is not None else network.availability_zones
    for name, cluster in environment.kafka.items():
        path = ("kafka", name)
        yield from check_login(environment, name, cluster)
        if not isinstance(cluster, MskCluster):
            for server in cluster.bootstrap_servers.split(","):
                host, _, port = server.strip().rpartition(":")
                if not host or not port.isdigit() or not 0 < int(port) < 65536:
                    yield Finding((*path, "bootstrap_servers"), server.strip(), "host:port, comma separated")
            if cluster.authentication.kind == "iam" and cluster.arn is None:
                yield Finding(
                    (*path, "arn"),
                    MISSING,
                    "the cluster's ARN, as a job's role must name what it connects to",
                )
            continue
        if cluster.existing is not None:
            yield from _existing_cluster(environment, name, cluster)
            continue
        taken = kafka_versions.of_tier(cluster.tier)
        if cluster.tier != "serverless" and cluster.version not in taken:
            on = "" if cluster.version not in kafka_versions.STANDARD else f" with tier {cluster.tier}"
            yield Finding(
                (*path, "version"),
                cluster.version,
                f"one of {', '.join(taken)}{on}",
                nearest(cluster.version, taken),
            )
        if cluster.tier == "express" and zones != 3:
            yield Finding(
                (*path, "tier"), "express", f"express only over 3 Availability Zones; the network has {zones}"
            )
        if cluster.tier == "serverless":
            for key in ("brokers", "broker_type"):
                value = getattr(cluster, key)
                if value is not None:
                    yield Finding(
                        (*path, key), str(value), "nothing: a serverless cluster has no brokers to size"
                    )
            yield from _serverless_topics(environment, name)
            continue
        if cluster.brokers is not None and cluster.brokers % zones:
            yield Finding(
                (*path, "brokers"),
                str(cluster.brokers),
                f"a multiple of {zones}, the same number in each Availability Zone",
            )


def _serverless_topics(environment: Environment, cluster: str) -> Iterator[Finding]:
    """Refuse topics that would have to be made: CloudFormation makes them on provisioned clusters only (AWS::MSK::Topic)."""
    for name, stream in environment.streams.items():
        if isinstance(stream, KafkaTopic) and stream.cluster == cluster and not stream.existing:
            yield Finding(
                ("streams", name, "existing"),
                "false",
                f"true, as {cluster} is a serverless cluster, on which CloudFormation makes no topics",
                "deploy the cluster, make the topic with Kafka's own kafka-topics.sh, then start the job; or take tier: "
                "standard or express",
            )


def _kinesis(name: str, stream: KinesisStream) -> Iterator[Finding]:
    path = ("streams", name)
    if not timedelta(hours=24) <= stream.retention <= timedelta(hours=8760):
        yield Finding((*path, "retention"), format_duration(stream.retention), "24h to 8760h")
    if stream.shards is not None and stream.mode == "on-demand" and stream.existing is None:
        yield Finding(
            (*path, "shards"),
            str(stream.shards),
            "no shards with mode on-demand: AWS opens them",
            "remove shards, or write mode: provisioned",
        )
    if stream.existing is not None and stream.shards is None and stream.mode == "provisioned":
        yield Finding(
            (*path, "shards"),
            MISSING,
            "the number of shards that the existing stream has",
            f"aws kinesis describe-stream-summary --stream-name {stream.existing}",
        )
    if stream.shards_now is not None and stream.mode == "on-demand":
        yield Finding((*path, "shards_now"), str(stream.shards_now), "nothing with mode on-demand")
    if len(stream.fan_out_consumers) > 20:
        yield Finding(
            (*path, "fan_out_consumers"),
            f"{len(stream.fan_out_consumers)} consumers",
            "at most 20 for a stream",
        )
    for position, consumer in enumerate(stream.fan_out_consumers):
        if consumer in stream.fan_out_consumers[:position]:
            yield Finding((*path, "fan_out_consumers", position), consumer, "each consumer once")
    largest = stream.max_record_size or MIB
    if stream.max_record_size is not None and not MIB <= stream.max_record_size <= 10 * MIB:
        yield Finding((*path, "max_record_size"), str(stream.max_record_size), "1MiB to 10MiB")
    elif stream.traffic.record_size > largest:
        yield Finding(
            (*path, "traffic", "record_size"),
            f"{int(stream.traffic.record_size)}B",
            f"at most {largest // MIB}MiB, the largest record of this stream",
            "raise max_record_size, up to 10MiB",
        )


def _existing_stream(environment: Environment, name: str, stream: KinesisStream) -> Iterator[Finding]:
    path = ("streams", name)
    if stream.existing is None:
        for key in ("existing_key", "read_role"):
            value = getattr(stream, key)
            if value is not None:
                yield Finding((*path, key), value, "only together with existing")
        return
    if stream.disposable:
        yield Finding((*path, "disposable"), "true", "false: an existing stream is never deleted")
    for key in ("fan_out_consumers", "shards_now", "shard_level_metrics"):
        if getattr(stream, key):
            yield Finding((*path, key), "given", "nothing: an existing stream is never changed")
    if not stream.existing.startswith("arn:"):
        return
    region, account, _ = arn_parts(stream.existing)
    if region != environment.region:
        yield Finding((*path, "existing"), stream.existing, f"a stream in {environment.region}")
    if account != environment.account and stream.read_role is None:
        yield Finding(
            (*path, "read_role"),
            MISSING,
            f"a role in account {account} that jobs may take to read the stream",
        )
    if stream.read_role is not None and arn_parts(stream.read_role)[1] != account:
        yield Finding(
            (*path, "read_role"), stream.read_role, f"a role in account {account}, as the stream is"
        )


def _existing_cluster(environment: Environment, name: str, cluster: MskCluster) -> Iterator[Finding]:
    assert cluster.existing is not None
    path = ("kafka", name)
    for key in ("brokers", "broker_type", "disposable"):
        value = getattr(cluster, key)
        if value:
            yield Finding((*path, key), str(value), "nothing: an existing cluster is never changed")
    region, account, _ = arn_parts(cluster.existing)
    if region != environment.region or account != (environment.account or account):
        yield Finding(
            (*path, "existing"),
            cluster.existing,
            f"a cluster of account {environment.account} in {environment.region}",
            "one elsewhere is kind: external, with its bootstrap_servers and arn",
        )


def _kafka(
    environment: Environment, name: str, stream: KafkaTopic, clusters: Iterable[str]
) -> Iterator[Finding]:
    path = ("streams", name)
    if stream.cluster not in clusters:
        known = sorted(clusters)
        yield Finding(
            (*path, "cluster"),
            stream.cluster,
            f"a cluster under kafka: {', '.join(known) or 'none is declared'}",
            nearest(stream.cluster, known),
        )
    if stream.topic in (".", ".."):
        yield Finding((*path, "topic"), stream.topic, "a Kafka topic name other than . and ..")
    if made_here(environment.kafka, stream) and stream.traffic.record_size > LARGEST_MESSAGE:
        yield Finding(
            (*path, "traffic", "record_size"),
            f"{int(stream.traffic.record_size)}B",
            f"at most {LARGEST_MESSAGE // 1024}KiB, the largest message of a topic that is made here",
        )
    if stream.existing and stream.disposable:
        yield Finding((*path, "disposable"), "true", "false: an existing topic is never deleted")
    if stream.existing and stream.partitions is None:
        yield Finding((*path, "partitions"), MISSING, "the number of partitions that the existing topic has")
