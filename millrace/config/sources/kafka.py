"""Kafka topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from millrace.config.aws.iam_statements import FINDS_BROKERS, NO_NARROWER, REMADE, Grant, allow
from millrace.config.base import Slug
from millrace.config.document.explain_validation_errors import findings_of_unknown_name
from millrace.config.document.problems import MISSING, Finding
from millrace.config.kafka.clusters import MskCluster
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.sources.base import (
    PartitionLimit,
    ReadingJob,
    StreamConfig,
    StreamReadingContext,
    StreamUse,
    Traffic,
)
from millrace.config.units import Duration
from millrace.etl.launch import sources as launch

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names
    from millrace.config.kafka.clusters import KafkaCluster

LARGEST_MESSAGE = 1023 * 1024
"""Bytes of the largest message of a topic that is created here: 1,048,588 by default, including everything around key,
value and headers (Kafka's documentation, ``max.message.bytes``).
"""

READS_TOPIC = [
    "kafka-cluster:DescribeTopic",
    "kafka-cluster:ReadData",
]
"""Actions of MSK's IAM access control (MSK developer guide, "Semantics of IAM authorization policy actions")."""

_SPARKS_OWN = "spark-kafka-source"
"""Prefix of consumer groups without ``groupIdPrefix`` (Structured Streaming + Kafka integration guide)."""

_MADE_UP = "Spark makes up the end of a group name at every start"


class KafkaTopic(StreamConfig):
    """A Kafka topic on one of the environment's clusters."""

    title = "Kafka topic"
    named_by = "topic"
    limits = (PartitionLimit("kafka.partition.bytes_in_per_second", "bytes in"),)
    splits = True
    counted = True
    read_in_ways = True

    kind: Literal["kafka"]
    cluster: Slug = Field(description="Name of a cluster in `kafka`.")
    traffic: Traffic = Field(description="Incoming traffic, from which the plan computes all sizes.")
    topic: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z0-9._-]{1,249}$",
        description="Name of the topic; left out, the name of the stream.",
    )
    pattern: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of one topic, all existing topics whose complete name matches this regular "
        "expression, also topics that are created later.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=200_000,
        description="Pins the partition count; left out, the plan computes it.",
    )
    retention: Duration = Field(
        default=timedelta(days=7),
        description="Retention of the topic: `retention.ms` of a new topic.",
    )
    compression: Literal["producer", "zstd", "lz4", "snappy", "gzip", "uncompressed"] = Field(
        default="producer", description="`compression.type` of a new topic."
    )
    existing: bool = Field(default=False, description="True for an existing topic, which is never changed.")
    disposable: bool = Field(
        default=False, description="With removal: destroy, the topic is deleted with its stack."
    )

    @property
    def name_scope(self) -> str:
        """Its cluster."""
        return f"cluster {self.cluster}"

    def offset_log_key(self, name: str) -> tuple[str, ...]:
        """Return the cluster and the pattern: topics of one cluster are read together, each pattern separately."""
        return (self.cluster, self.pattern or "")

    def physical_name(self, name: str, prefix: str) -> str:
        """Return the topic's name, or the pattern."""
        return self.pattern or self.topic or name

    def is_created_on(self, clusters: Mapping[str, KafkaCluster]) -> bool:
        """Return whether the environment creates the topic; it does on any MSK cluster, also on an existing one."""
        cluster = clusters.get(self.cluster)
        return not self.existing and cluster is not None and cluster.makes_topics

    def check(self, use: StreamUse) -> Iterator[Finding]:
        """Check that the cluster exists, and that an existing topic is not changed."""
        path = ("streams", use.name)
        yield from findings_of_unknown_name(
            (*path, "cluster"),
            self.cluster,
            sorted(use.clusters),
            "a cluster under kafka",
            none="none is declared",
        )
        if self.topic in (".", ".."):
            yield Finding((*path, "topic"), self.topic, "a Kafka topic name other than . and ..")
        if self.is_created_on(use.environment.kafka) and self.traffic.record_size > LARGEST_MESSAGE:
            yield Finding(
                (*path, "traffic", "record_size"),
                f"{int(self.traffic.record_size)}B",
                f"at most {LARGEST_MESSAGE // 1024}KiB, the largest message of a topic that is made here",
            )
        if self.existing and self.disposable:
            yield Finding((*path, "disposable"), "true", "false: an existing topic is never deleted")
        if self.existing and self.partitions is None:
            yield Finding(
                (*path, "partitions"), MISSING, "the number of partitions that the existing topic has"
            )
        yield from self._check_pattern(use)

    def _check_pattern(self, use: StreamUse) -> Iterator[Finding]:
        if self.pattern is None:
            return
        path = ("streams", use.name)
        if self.topic is not None:
            yield Finding((*path, "topic"), self.topic, "a topic or a pattern, not both")
        if not self.existing:
            yield Finding(
                (*path, "existing"),
                "false",
                "true: topics that a pattern finds are not made by this environment",
            )
        try:
            re.compile(self.pattern)
        except re.error as error:
            yield Finding(
                (*path, "pattern"), self.pattern, rf"a regular expression, such as shop\..*: {error}"
            )
            return
        if not literal_prefix(self.pattern):
            yield Finding(
                (*path, "pattern"),
                self.pattern,
                "a pattern that begins with letters, digits, - _ or \\., as every topic of it does",
                "the job's role may read only topics with that prefix",
            )

    def launch_settings(self, name: str, context: StreamReadingContext) -> launch.KafkaSource:
        """Return the deployed name of the topic, and the connection to its cluster."""
        return launch.KafkaSource(
            name=name,
            start=context.query.start,
            retention_seconds=int(self.retention.total_seconds()),
            topic=context.names.stream(name),
            connection=self.cluster,
            records_per_batch=context.records_per_batch,
            reading=self._launch_kafka_reading(context.query.kafka_reading),
        )

    def _launch_kafka_reading(self, given: KafkaReading | None) -> launch.KafkaReadingOptions | None:
        if self.pattern is None and given is None:
            return None
        reading = given or KafkaReading()
        offsets = reading.start_offsets
        return launch.KafkaReadingOptions(
            pattern=self.pattern is not None,
            partitions=None if reading.partitions is None else tuple(sorted(reading.partitions)),
            partition_count=None if reading.partitions is None else self.partitions,
            min_records_per_batch=reading.min_records_per_batch,
            max_delay_seconds=None if reading.max_delay is None else reading.max_delay.total_seconds(),
            start_offsets=None if offsets is None else {str(p): offsets[p] for p in sorted(offsets)},
            headers=reading.headers,
            group_id_prefix=reading.group_id_prefix,
            lag_group=reading.lag_group,
            null_payload=reading.null_payload,
            min_partitions=reading.min_partitions,
        )

    @classmethod
    def grants(cls, streams: Mapping[str, Self], context: ReadingJob) -> Iterator[Grant]:
        """Allow finding the brokers of MSK clusters and, for clusters with IAM, reading their topics."""
        known = context.names.environment.kafka
        clusters = {each.cluster: known[each.cluster] for each in streams.values()}
        if owned := [name for name, each in clusters.items() if isinstance(each, MskCluster)]:
            yield allow("FindBrokers", FINDS_BROKERS, ["*"], why=NO_NARROWER)
        by_role = [name for name, each in clusters.items() if each.authentication.kind == "iam"]
        # The last part of a cluster's ARN is a random id that changes when the cluster is created
        # again under its name; with a wildcard the role stays valid and does not depend on the Kafka stack.
        if together := [name for name in by_role if name in owned]:
            sids = ("ConnectClusters", "ReadTopics", "ConsumerGroups")
            yield from _reading_grants(streams, context, together, sids, REMADE)
        for name in by_role:
            if name not in owned and context.names.cluster_arn(name) is not None:
                label = "".join(part.title() for part in name.split("-"))
                sids = (f"Connect{label}", f"Read{label}", f"Groups{label}")
                yield from _reading_grants(streams, context, [name], sids, None)

    def arn(self, name: str, names: Names) -> str:
        """Return the ARN of the topic, or of all topics with the literal prefix of the pattern."""
        own = names.stream(name) if self.pattern is None else f"{literal_prefix(self.pattern)}*"
        return arn_within_cluster(names, self.cluster, "topic", own)


_READS_GROUP = ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"]


def _reading_grants(
    streams: Mapping[str, KafkaTopic],
    context: ReadingJob,
    clusters: list[str],
    sids: tuple[str, str, str],
    why: str | None,
) -> Iterator[Grant]:
    """Allow connecting to clusters with IAM, reading the streams on them, and using the groups of the job's queries."""
    names = context.names
    topics = [each.arn(name, names) for name, each in streams.items() if each.cluster in clusters]
    groups = [
        arn_within_cluster(names, cluster, "group", group)
        for cluster in clusters
        for group in _consumer_group_names(cluster, context)
    ]
    own = [arn_within_cluster(names, cluster) for cluster in clusters]
    yield allow(sids[0], ["kafka-cluster:Connect"], own, why=why)
    yield allow(sids[1], READS_TOPIC, topics, why=why)
    yield allow(sids[2], _READS_GROUP, groups, why=_MADE_UP)


def arn_within_cluster(names: Names, cluster: str, kind: str = "cluster", name: str | None = None) -> str:
    """Return the ARN of a cluster, or of a topic or group in it."""
    base = (names.cluster_arn(cluster) or "").replace(":cluster/", f":{kind}/", 1)
    return base if name is None else f"{base}/{name}"


def _consumer_group_names(cluster: str, context: ReadingJob) -> list[str]:
    """Return the consumer groups on a cluster: Spark's, which hold no offsets, and the lag groups."""
    streams = context.names.environment.streams
    groups = []
    for query in context.queries.values():
        reading = query.kafka_reading or KafkaReading()
        for name in query.source_stream_names:
            if streams[name].cluster_name == cluster:
                groups.append(f"{reading.group_id_prefix or _SPARKS_OWN}-*")
                groups += [] if reading.lag_group is None else [reading.lag_group]
    return list(dict.fromkeys(groups))


_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|\\\.)*")
_REPEATED = ("*", "?", "{")


def literal_prefix(pattern: str) -> str:
    r"""Return the text that every topic of a pattern begins with.

    A job's role uses it to name topics, because IAM has no regular expressions.

    Examples
    --------
    >>> literal_prefix(r"shop\.(orders|refunds)"), literal_prefix("ab*"), literal_prefix("a|b")
    ('shop.', 'a', '')
    """
    match = _PLAIN.match(pattern)
    assert match is not None, "an empty match is a match"
    if "|" in _pattern_without_groups(pattern):
        return ""
    prefix, rest = match[0], pattern[match.end() :]
    # The next characters may make the last character optional.
    if rest.startswith(_REPEATED):
        prefix = re.sub(r"(\\\.|.)$", "", prefix)
    return prefix.replace("\\.", ".")


def _pattern_without_groups(pattern: str) -> str:
    """Return the pattern without groups in round or square brackets that are closed."""
    before, text = None, re.sub(r"\\.", "", pattern)
    while text != before:
        before, text = text, re.sub(r"\([^()]*\)|\[[^\]]*\]", "", text)
    return text
