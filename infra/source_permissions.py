"""What a job may read: Kinesis streams, Kafka topics, in this account and in others."""

from __future__ import annotations

from dataclasses import dataclass

from infra.settings import kafka_clusters, sources
from infra.sinks import written_clusters
from millrace.config.check_reading import plain_beginning
from millrace.config.grants import FINDS_BROKERS, NO_NARROWER, REMADE, Grant, allow
from millrace.config.kafka_login import secret_of
from millrace.config.model import ExternalCluster, GlueJob, Job, KafkaTopic, KinesisStream, MskCluster
from millrace.config.names import Names
from millrace.config.queries import LandQuery, SourceQuery, StreamQuery
from millrace.config.reading import KafkaReading
from millrace.sizing.model import JobPlan

_SPARKS_OWN = "spark-kafka-source"
"""Prefix of consumer groups where ``groupIdPrefix`` is not given (Structured Streaming + Kafka integration guide)."""

READS_TOPIC = [
    "kafka-cluster:DescribeTopic",
    # Whether the brokers turn away records of any time.
    "kafka-cluster:DescribeTopicDynamicConfiguration",
    "kafka-cluster:ReadData",
]
"""Of MSK's IAM access control (MSK developer guide, "Semantics of IAM authorization policy actions")."""


def kafka_secrets(names: Names, job: Job) -> list[Grant]:
    """Return the statements by which a job signs in to the Kafka clusters that it reads and writes.

    Parameters
    ----------
    names
        The deployed names.
    job
        As the environment has it.
    """
    environment = names.environment
    clusters = dict.fromkeys((*kafka_clusters(environment, job), *written_clusters(environment, job)))
    found = [held for c in clusters if (held := secret_of(environment.kafka[c].authentication)) is not None]
    if not found:
        return []
    secrets = list(dict.fromkeys(secret for secret, _ in found))
    keys = list(dict.fromkeys(key for _, key in found if key is not None))
    grants = [allow("ReadKafkaSecrets", ["secretsmanager:GetSecretValue"], secrets)]
    return [*grants, *([allow("DecryptKafkaSecrets", ["kms:Decrypt"], keys)] if keys else [])]


@dataclass(frozen=True)
class SourcePermissions:
    """The statements by which one job's role reads its sources.

    Parameters
    ----------
    names
        The deployed names.
    plan
        The job.
    """

    names: Names
    plan: JobPlan

    def grants(self) -> list[Grant]:
        """All of them, in a fixed order."""
        environment = self.names.environment
        job = environment.jobs[self.plan.name]
        found: list[Grant] = []
        streams = sources(environment, job)
        kinesis = [name for name, stream in streams.items() if isinstance(stream, KinesisStream)]
        if kinesis:
            found += self._kinesis(kinesis, older=isinstance(job, GlueJob))
        clusters = {name: environment.kafka[name] for name in kafka_clusters(environment, job)}
        owned = [name for name, each in clusters.items() if isinstance(each, MskCluster)]
        if owned:
            found.append(allow("FindBrokers", FINDS_BROKERS, ["*"], why=NO_NARROWER))
        by_role = [name for name in owned if clusters[name].authentication.kind == "iam"]
        if by_role:
            found += self._kafka(by_role, streams)
        for name, each in clusters.items():
            if (
                isinstance(each, ExternalCluster)
                and each.arn is not None
                and each.authentication.kind == "iam"
            ):
                found += self._external(name, each.arn, streams)
        return found

    def _kinesis(self, streams: list[str], *, older: bool) -> list[Grant]:
        actions = [
            "kinesis:DescribeStreamSummary",
            "kinesis:GetRecords",
            "kinesis:GetShardIterator",
            "kinesis:ListShards",
        ]
        if older:
            # Glue's own connector describes the stream the older way.
            actions.append("kinesis:DescribeStream")
        settings = {name: self.names.environment.streams[name] for name in streams}
        roles = {
            name: stream.read_role
            for name, stream in settings.items()
            if isinstance(stream, KinesisStream) and stream.read_role is not None
        }
        found = []
        direct = [self.names.stream_arn(name) for name in streams if name not in roles]
        if direct:
            found.append(allow("ReadStreams", actions, direct))
        if roles:
            found.append(
                allow("ReadInOtherAccounts", ["sts:AssumeRole"], list(dict.fromkeys(roles.values())))
            )
        consumers = [
            f"{self.names.stream_arn(query.source)}/consumer/{self.names.consumer(self.plan.name, name)}:*"
            for name, query in self.names.environment.jobs[self.plan.name].queries.items()
            if isinstance(query, LandQuery) and query.fan_out
        ]
        if consumers:
            found.append(
                allow(
                    "FanOut",
                    ["kinesis:DescribeStreamConsumer", "kinesis:SubscribeToShard"],
                    consumers,
                    why="A consumer's ARN ends with the second at which it was registered",
                )
            )
        return found

    def _external(
        self, cluster: str, arn: str, streams: dict[str, KinesisStream | KafkaTopic]
    ) -> list[Grant]:
        label = "".join(part.title() for part in cluster.split("-"))
        topics = [
            self._inside(cluster, "topic", self._topic(name, stream))
            for name, stream in streams.items()
            if isinstance(stream, KafkaTopic) and stream.cluster == cluster
        ]
        return [
            allow(f"Connect{label}", ["kafka-cluster:Connect"], [arn]),
            allow(f"Read{label}", READS_TOPIC, topics),
            allow(
                f"Groups{label}",
                ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
                [self._inside(cluster, "group", group) for group in self._groups(cluster)],
                why="Spark makes up the end of a group name at every start",
            ),
        ]

    def _kafka(self, clusters: list[str], streams: dict[str, KinesisStream | KafkaTopic]) -> list[Grant]:
        # The last part of a cluster's ARN is a random id that changes when the cluster is made
        # again under its name; the role stays right, and needs nothing of the Kafka stack.
        topics = [
            self._inside(stream.cluster, "topic", self._topic(name, stream))
            for name, stream in streams.items()
            if isinstance(stream, KafkaTopic) and stream.cluster in clusters
        ]
        groups = [self._inside(c, "group", group) for c in clusters for group in self._groups(c)]
        return [
            allow(
                "ConnectClusters", ["kafka-cluster:Connect"], [self._inside(c) for c in clusters], why=REMADE
            ),
            allow(
                "ReadTopics",
                READS_TOPIC,
                topics,
                why=REMADE,
            ),
            allow(
                "ConsumerGroups",
                ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
                groups,
                why="Spark makes up the end of a group name at every start",
            ),
        ]

    def _groups(self, cluster: str) -> list[str]:
        """Return the consumer groups on a cluster: Spark's, which hold no offsets, and those that show the lag."""
        environment = self.names.environment
        found = []
        for query in environment.jobs[self.plan.name].queries.values():
            if not isinstance(query, SourceQuery):
                continue
            asked = (query.kafka if isinstance(query, StreamQuery) else None) or KafkaReading()
            for stream in (environment.streams[name] for name in query.streams):
                if isinstance(stream, KafkaTopic) and stream.cluster == cluster:
                    found.append(f"{asked.group_id_prefix or _SPARKS_OWN}-*")
                    found += [] if asked.lag_group is None else [asked.lag_group]
        return list(dict.fromkeys(found))

    def _topic(self, name: str, stream: KafkaTopic) -> str:
        """Return a topic's name, or what the names of all topics of a pattern begin with."""
        return self.names.stream(name) if stream.pattern is None else f"{plain_beginning(stream.pattern)}*"

    def _inside(self, cluster: str, kind: str = "cluster", name: str | None = None) -> str:
        """Return the ARN of a cluster, or of something that it holds."""
        base = (self.names.cluster_arn(cluster) or "").replace(":cluster/", f":{kind}/", 1)
        return base if name is None else f"{base}/{name}"
