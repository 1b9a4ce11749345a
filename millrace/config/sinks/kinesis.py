"""Kinesis: a stream of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.aws.regions import kms_via_service_names
from millrace.config.base import Slug
from millrace.config.document.problems import Finding, dotted_path
from millrace.config.sinks.base import SinkContext, SinkUse
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.config.sources.kinesis import MIB, KinesisStream
from millrace.etl.launch import sinks as launch


class KinesisSink(StreamSink):
    """A Kinesis stream of this environment."""

    in_python = True
    is_public = True
    services = KinesisStream.services
    keeps = "records cannot be taken back: what is read again is written again, under the same identities"
    stream_kind, label, named_by = KinesisStream, "Kinesis stream", "stream"

    kind: Literal["kinesis"]
    stream: Slug = Field(description="A Kinesis stream among the environment's streams.", examples=["alerts"])

    def check_stream(self, stream: KinesisStream, use: SinkUse) -> Iterator[Finding]:
        """Check that the stream is in this account, takes single records, and can take the largest one."""
        if stream.read_role is not None:
            yield Finding(
                (*use.path, "stream"),
                self.stream,
                "a stream of this account: read_role allows reading a stream of another account, not writing it",
            )
        if stream.aggregate is not None:
            writer = dotted_path(use.path)
            yield Finding(
                ("streams", self.stream, "aggregate"),
                f"{int(stream.aggregate)}B",
                f"nothing, as {writer} writes the stream: it puts each row as a record",
            )
        yield from self.check_largest_row_fits(
            stream.max_record_size or MIB,
            f"the largest record of streams.{self.stream}",
            use,
            f"raise streams.{self.stream}.max_record_size, up to 10MiB",
        )

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return ways to shorten retention, because records cannot be deleted."""
        name = context.names.stream(self.stream)
        return (
            "the stream keeps records until their retention ends, and consumers may hold copies; to shorten it: "
            f"aws kinesis decrease-stream-retention-period --stream-name {name} --retention-period-hours 24"
        )

    def launch_settings(self, context: SinkContext) -> launch.KinesisSinkSettings:
        """Return the deployed name of the stream."""
        return launch.KinesisSinkSettings(
            stream=context.names.stream(self.stream),
            region=context.names.environment.region,
            key=self.key,
            max_record_bytes=int(self.max_record_size),
        )

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow putting records, and reading: for a replayed batch, records that the stream holds are not sent again."""
        calls = ["DescribeStreamSummary", "GetRecords", "GetShardIterator", "ListShards", "PutRecords"]
        arns = [context.names.stream_arn(self.stream)]
        yield allow("WriteStreams", [f"kinesis:{call}" for call in calls], arns)
        stream = context.names.environment.streams[self.stream]
        assert isinstance(stream, KinesisStream), f"{self.stream} is no Kinesis stream"
        key = context.streams_key if stream.existing is None else stream.existing_key
        actions = ["kms:Decrypt", "kms:GenerateDataKey"]
        if key is not None:
            yield allow("EncryptStreams", actions, [key])
        if stream.kms_via_service is not None:
            names, why = (
                context.names,
                "The key of a stream that is not ours is not known; Kinesis alone uses it",
            )
            via = kms_via_service_names(stream.kms_via_service, names.environment.region)
            condition = {"StringEquals": {"kms:ViaService": via}}
            yield allow("EncryptExistingStreams", actions, [names.arn("kms", "key/*")], condition, why=why)
