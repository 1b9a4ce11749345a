"""Kafka: a topic of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from millrace.config.aws.iam_statements import FINDS_BROKERS, NO_NARROWER, REMADE, Grant, allow
from millrace.config.base import Slug
from millrace.config.document.problems import Finding
from millrace.config.kafka.clusters import MskCluster
from millrace.config.sinks.base import SinkContext, SinkUse
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.config.sources import Stream
from millrace.config.sources.kafka import LARGEST_MESSAGE, KafkaTopic
from millrace.etl.launch import sinks as launch

_PRODUCERS_BUFFER = 31 * 1024**2
"""Limit in bytes of a message to any topic: the producer's buffer holds 32 MiB (Kafka's documentation, ``buffer.memory``)."""


class KafkaSink(StreamSink):
    """A Kafka topic of this environment."""

    keeps = "messages cannot be taken back: what is read again is written again, under the same identities"
    stream_kind, label, named_by = KafkaTopic, "Kafka topic", "topic"

    kind: Literal["kafka"]
    topic: Slug = Field(description="A Kafka topic among the environment's streams.", examples=["totals"])

    def check_stream(self, stream: KafkaTopic, use: SinkUse) -> Iterator[Finding]:
        """Check that it is one topic, and that the topic or the producer's buffer can take the largest message."""
        if stream.pattern is not None:
            yield Finding((*use.path, "topic"), self.topic, "one topic: a pattern stands for several")
        if stream.is_created_on(use.environment.kafka):
            yield from self.check_largest_row_fits(
                LARGEST_MESSAGE, "the largest message of a topic that is made here", use
            )
        else:
            yield from self.check_largest_row_fits(_PRODUCERS_BUFFER, "what a producer's buffer holds", use)

    def kafka_cluster_names(self, streams: Mapping[str, Stream]) -> tuple[str, ...]:
        """Return the cluster of the topic."""
        topic = streams[self.topic]
        assert isinstance(topic, KafkaTopic), f"{self.topic} is no Kafka topic"
        return (topic.cluster,)

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return ways to shorten retention, because records cannot be deleted."""
        name = context.names.stream(self.topic)
        return (
            "the topic keeps records until their retention ends, and consumers may hold copies; to shorten it: "
            f"kafka-configs.sh --alter --topic {name} --add-config retention.ms=…; in a compacted topic, send a message with the same key and no value"
        )

    def launch_settings(self, context: SinkContext) -> launch.KafkaSinkSettings:
        """Return the deployed name of the topic, and the connection to its cluster."""
        return launch.KafkaSinkSettings(
            topic=context.names.stream(self.topic),
            connection=self.kafka_cluster_names(context.names.environment.streams)[0],
            key=self.key,
            max_record_bytes=int(self.max_record_size),
        )

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow finding the brokers of an MSK cluster and, if it uses IAM, writing to the topic."""
        names = context.names
        (cluster,) = self.kafka_cluster_names(names.environment.streams)
        settings = names.environment.kafka[cluster]
        label = "".join(part.title() for part in cluster.split("-"))
        if (base := names.cluster_arn(cluster)) is None:
            return
        if isinstance(settings, MskCluster):
            yield allow(f"FindBrokers{label}", FINDS_BROKERS, ["*"], why=NO_NARROWER)
        if settings.authentication.kind != "iam":
            return
        why = REMADE if "*" in base else None
        # The idempotent producer numbers its messages, so that its own retries create no duplicates.
        connecting = ["kafka-cluster:Connect", "kafka-cluster:WriteDataIdempotently"]
        yield allow(f"ConnectTo{label}", connecting, [base], why=why)
        # Reading is for a replayed batch: messages that the topic already holds are not sent again.
        writing = ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData", "kafka-cluster:WriteData"]
        if self.key is not None:
            # A compacted topic takes no message without a key.
            writing.append("kafka-cluster:DescribeTopicDynamicConfiguration")
        topic = f"{base.replace(':cluster/', ':topic/', 1)}/{names.stream(self.topic)}"
        yield allow(f"Write{label}", writing, [topic], why=why)
        yield allow(
            f"ReadBack{label}",
            ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
            [f"{base.replace(':cluster/', ':group/', 1)}/spark-kafka-relation-*"],
            why="Spark makes up the end of a group name at every read",
        )
