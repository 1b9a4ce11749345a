"""What a job may read: Kinesis streams, Kafka topics, in this account and in others."""

from __future__ import annotations

from dataclasses import dataclass

from infra.grants import NO_NARROWER, REMADE, Grant, allow
from infra.settings import kafka_clusters, sources
from infra.sinks import written_clusters
from millrace.config.check_reading import plain_beginning
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

FINDS_BROKERS = ["kafka:GetBootstrapBrokers", "kafka:ListClustersV2"]
"""Neither has a resource type ("Actions, resources, and condition keys for Amazon MSK", service authorization reference, read
2026-11-23): granted on a cluster's ARN, the first allows nothing."""


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

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.names.partition}:{service}:{self.names.environment.region}:{self.names.account}:{resource}"

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
        def inside(kind: str, name: str) -> str:
            return f"{arn.replace(':cluster/', f':{kind}/')}/{name}"

        label = "".join(part.title() for part in cluster.split("-"))
        topics = [
            inside("topic", self._topic(name, stream))
            for name, stream in streams.items()
            if isinstance(stream, KafkaTopic) and stream.cluster == cluster
        ]
        return [
            allow(f"Connect{label}", ["kafka-cluster:Connect"], [arn]),
            allow(f"Read{label}", READS_TOPIC, topics),
            allow(
                f"Groups{label}",
                ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
                [inside("group", group) for group in self._groups(cluster)],
                why="Spark makes up the end of a group name at every start",
            ),
        ]

    def _kafka(self, clusters: list[str], streams: dict[str, KinesisStream | KafkaTopic]) -> list[Grant]:
        # The last part of a cluster's ARN is a random id that changes when the cluster is made
        # again under its name; the role stays right, and needs nothing of the Kafka stack.
        topics = [
            f"topic/{self._cluster(stream.cluster)}/{self._topic(name, stream)}"
            for name, stream in streams.items()
            if isinstance(stream, KafkaTopic) and stream.cluster in clusters
        ]
        cluster_arns = [self._arn("kafka", f"cluster/{self._cluster(c)}") for c in clusters]
        groups = [
            self._arn("kafka", f"group/{self._cluster(c)}/{group}")
            for c in clusters
            for group in self._groups(c)
        ]
        return [
            allow("ConnectClusters", ["kafka-cluster:Connect"], cluster_arns, why=REMADE),
            allow(
                "ReadTopics",
                READS_TOPIC,
                [self._arn("kafka", topic) for topic in topics],
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

    def _cluster(self, cluster: str) -> str:
        """Return ``name/id``, with the id open for a cluster that may be made again."""
        settings = self.names.environment.kafka[cluster]
        if isinstance(settings, MskCluster) and settings.existing is not None:
            return settings.existing.split(":cluster/")[1]
        return f"{self.names.cluster(cluster)}/*"
