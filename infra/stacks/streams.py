"""Kinesis streams that this environment owns."""

from __future__ import annotations

import math

from aws_cdk import CfnOutput, Duration, Tags
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment, KinesisStream
from millrace.config.queries import LandQuery
from millrace.sizing.plan_model import Plan

from ..accept_finding import accept_finding_at_construct
from ..constructs.encryption import existing_or_new_encryption_key
from ..removal_policies import removal_policy
from .base import EnvironmentStack

_KIB = 1024


class StreamsStack(EnvironmentStack):
    """Streams with their shards from the plan, and their fan-out consumers.

    Attributes
    ----------
    key
        Encrypts all of them.
    streams
        By logical name; streams that somebody else owns are not among them.
    consumers
        Registered fan-out consumers, by ``stream/consumer``.
    """

    def __init__(self, scope: Construct, *, names: Names, plan: Plan) -> None:
        super().__init__(
            scope,
            names=names,
            part="streams",
            stateful=True,
            description=f"Kinesis streams of {names.prefix}",
        )
        owned = owned_streams(names.environment)
        self.key = existing_or_new_encryption_key(
            self,
            "Key",
            environment=names.environment,
            data_class="streams",
            disposable=all(stream.disposable for stream in owned.values()),
        )
        self.export_permanently(self.key.key_arn)
        self.consumers: dict[str, kinesis.StreamConsumer] = {}
        self.streams = {name: self._add_stream(name, stream, plan) for name, stream in owned.items()}
        # One output for all: output names have letters and digits only, so `a-b` and `ab` would be the same.
        CfnOutput(
            self,
            "Streams",
            value=self.to_json_string({name: stream.stream_name for name, stream in self.streams.items()}),
        )
        if self.consumers:
            CfnOutput(
                self,
                "Consumers",
                value=self.to_json_string(
                    {name: consumer.stream_consumer_arn for name, consumer in self.consumers.items()}
                ),
            )

    def _add_stream(self, name: str, settings: KinesisStream, plan: Plan) -> kinesis.Stream:
        partitions = plan.streams[name].partitions
        stream = kinesis.Stream(
            self,
            name,
            stream_name=self.names.stream(name),
            stream_mode=kinesis.StreamMode.ON_DEMAND
            if settings.mode == "on-demand"
            else kinesis.StreamMode.PROVISIONED,
            shard_count=None if partitions is None else partitions.value,
            # Kinesis counts in hours: a record is kept longer rather than shorter than asked.
            retention_period=Duration.hours(math.ceil(settings.retention.total_seconds() / 3600)),
            encryption=kinesis.StreamEncryption.KMS,
            encryption_key=self.key,
            shard_level_metrics=[kinesis.ShardLevelMetrics.ALL] if settings.shard_level_metrics else None,
            removal_policy=removal_policy(self.names.environment, disposable=settings.disposable),
        )
        if settings.max_record_size is not None:
            resource = stream.node.default_child
            assert isinstance(resource, kinesis.CfnStream)
            resource.max_record_size_in_kib = settings.max_record_size // _KIB
        consumers = {f"Consumer-{consumer}": consumer for consumer in settings.fan_out_consumers}
        consumers |= {
            f"Reader-{job}-{query}": self.names.fan_out_consumer(job, query)
            for job, query, each in self.names.environment.queries
            if isinstance(each, LandQuery) and each.fan_out and each.source == name
        }
        self.consumers |= {
            f"{name}/{consumer}": kinesis.StreamConsumer(
                stream, construct_id, stream=stream, stream_consumer_name=consumer
            )
            for construct_id, consumer in consumers.items()
        }
        Tags.of(stream).add("millrace:stream", name)
        accept_finding_at_construct(
            stream,
            "AwsSolutions-KDS3",
            "A key of the environment's own, so that its policy and rotation are ours",
        )
        return stream


def owned_streams(environment: Environment) -> dict[str, KinesisStream]:
    """Return the Kinesis streams that the environment makes, by logical name."""
    return {
        name: stream
        for name, stream in environment.streams.items()
        if isinstance(stream, KinesisStream) and stream.is_created
    }
