"""Kinesis data streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import ByteSize, Field, StringConstraints

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.base import KeyArn, RoleArn, Slug, arn_region_account_resource, remove_schema_default
from millrace.config.document.problems import MISSING, Finding, findings_for_refused_keys
from millrace.config.sources import kinesis_charges_and_metrics
from millrace.config.sources.base import (
    Charge,
    MonthlyStreamUsage,
    PartitionLimit,
    ReadingJob,
    StreamConfig,
    StreamReadingContext,
    StreamUse,
    Traffic,
)
from millrace.config.sources.stream_metrics import StreamAlarm, StreamReaderTiming
from millrace.config.units import Duration, Size
from millrace.etl.launch import sources as launch

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names

MIB = 1024**2

CHANGES_A_DAY = 10
"""UpdateShardCount calls on one stream in 24 hours (Kinesis API reference)."""

_FETCH_SHARE = 0.5
"""Share of a trigger that a batch may spend reading one shard, unless the shard needs longer to deliver its limit."""

_SHORTEST_FETCH_SECONDS = 1.0
"""Default of Glue's connector (``maxFetchTimeInMs`` 1000); with less, it reads almost nothing."""


class KinesisStream(StreamConfig):
    """A Kinesis data stream."""

    title = "Kinesis stream"
    named_by = "existing"
    is_public = True
    services = ("kinesis-streams",)
    repeats = False
    fetched_whole = True
    fans_out = True
    in_firehose = True
    parts = "shards"
    limits = (
        PartitionLimit("kinesis.shard.records_in_per_second", "records in"),
        PartitionLimit("kinesis.shard.bytes_in_per_second", "bytes in"),
        PartitionLimit("kinesis.shard.bytes_out_per_second", "bytes out"),
    )
    refuses_fewer = True
    limits_parts = True
    metrics = kinesis_charges_and_metrics.METRICS
    # EMR Serverless user guide.
    engine_jars: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "emr": ("/usr/share/aws/kinesis/spark-sql-kinesis/lib/spark-streaming-sql-kinesis-connector.jar",)
    }

    kind: Literal["kinesis"]
    traffic: Traffic = Field(description="Incoming traffic, from which the plan computes all sizes.")
    mode: Literal["provisioned", "on-demand"] = Field(
        default="provisioned",
        description="Capacity mode: `provisioned` with shards that the plan computes, or `on-demand`, which "
        "Kinesis scales. Left out, the plan takes `on-demand` where a new stream takes the peak at once, and it costs less; a "
        "deployed stream keeps its mode.",
        examples=["provisioned"],
        json_schema_extra=remove_schema_default,
    )
    shards: int | None = Field(
        default=None, ge=1, le=200_000, description="Pins the shard count; left out, the plan computes it."
    )
    retention: Duration = Field(
        default=timedelta(hours=24),
        ge=timedelta(hours=24),
        le=timedelta(hours=8760),
        description="Retention of the stream, 24h to 8760h.",
    )
    shards_now: int | None = Field(
        default=None,
        ge=1,
        description="Open shards of the deployed stream; with it the plan checks that Kinesis allows the change.",
    )
    fan_out_consumers: tuple[Slug, ...] = Field(
        default=(),
        description="Fan-out consumers of other programs; together with those of this environment's jobs at most 20.",
    )
    shard_level_metrics: bool = Field(
        default=False, description="Enables CloudWatch metrics for each shard, at a cost for each shard."
    )
    max_record_size: Size | None = Field(
        default=None, description="Largest record, up to 10MiB; left out, 1 MiB."
    )
    aggregate: Size | None = Field(
        default=None,
        description="Size to which producers fill aggregates of records with the Kinesis Producer Library, such as 24KiB; left out, "
        "they put each record by itself. Only for jobs of Glue, and not for a stream that a sink writes.",
    )
    existing: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^(arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/)?[a-zA-Z0-9_.-]{1,128}$"
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="Name of an existing stream, or its ARN if it is in another account; the stream is never changed.",
    )
    existing_key: KeyArn | None = Field(
        default=None,
        description="KMS key of an existing stream; jobs may use only this key. Left out, any key of the account through Kinesis.",
    )
    read_role: RoleArn | None = Field(
        default=None, description="Role in the other account that jobs assume to read an existing stream."
    )
    disposable: bool = Field(
        default=False, description="With removal: destroy, the stream is deleted with its stack."
    )

    @property
    def name_scope(self) -> str:
        """Scope of the name: the service."""
        return "Kinesis"

    @property
    def is_created(self) -> bool:
        """True if no existing stream is named."""
        return self.existing is None

    @property
    def is_mode_chosen_by_plan(self) -> bool:
        """True if the plan chooses the mode."""
        return not {"mode", "shards", "shards_now", "existing"} & self.model_fields_set

    @property
    def elastic_limit_names(self) -> tuple[str, str] | None:
        """Limits for on-demand streams, whose shards AWS opens."""
        on_demand = ("kinesis.on_demand.first_shards", "kinesis.on_demand.headroom")
        return on_demand if self.mode == "on-demand" else None

    @property
    def traffic_as_service_counts(self) -> Traffic:
        """Aggregates of whole records."""
        size = self.traffic.record_size
        records = max(1, int((self.aggregate or 0) // size))
        return self.traffic.model_copy(
            update={
                "records_per_second": self.traffic.records_per_second / records,
                "record_size": ByteSize(records * size),
            }
        )

    @property
    def kms_via_service(self) -> str | None:
        """Kinesis, if the file names neither key nor role of an existing stream; such a role also decrypts."""
        unknown = self.existing is not None and self.existing_key is None and self.read_role is None
        return "kinesis" if unknown else None

    def most_consumers(self, *, advantage: bool) -> int:
        """Return the most registered consumers (Kinesis quotas, November 2026)."""
        return 50 if advantage and self.mode == "on-demand" else 20

    def physical_name(self, name: str, prefix: str) -> str:
        """Return the name of the existing stream, or a name with the environment's prefix."""
        return (self.existing or f"{prefix}-{name}").rsplit("/", 1)[-1]

    def check(self, use: StreamUse) -> Iterator[Finding]:
        """Check that shards, consumers and sizes are within Kinesis' limits, and that an existing stream is not changed."""
        path = ("streams", use.name)
        if self.shards is not None and self.mode == "on-demand" and self.existing is None:
            yield Finding(
                (*path, "shards"),
                str(self.shards),
                "no shards with mode on-demand: AWS opens them",
                "remove shards, or write mode: provisioned",
            )
        if self.existing is not None and self.shards is None and self.mode == "provisioned":
            yield Finding(
                (*path, "shards"),
                MISSING,
                "the number of shards that the existing stream has",
                f"aws kinesis describe-stream-summary --stream-name {self.existing}",
            )
        if self.shards_now is not None and self.mode == "on-demand":
            yield Finding((*path, "shards_now"), str(self.shards_now), "nothing with mode on-demand")
        for position, consumer in enumerate(self.fan_out_consumers):
            if consumer in self.fan_out_consumers[:position]:
                yield Finding((*path, "fan_out_consumers", position), consumer, "each consumer once")
        largest = self.max_record_size or MIB
        if self.max_record_size is not None and not MIB <= self.max_record_size <= 10 * MIB:
            yield Finding((*path, "max_record_size"), str(self.max_record_size), "1MiB to 10MiB")
        elif self.traffic.record_size > largest:
            yield Finding(
                (*path, "traffic", "record_size"),
                f"{int(self.traffic.record_size)}B",
                f"at most {largest // MIB}MiB, the largest record of this stream",
                "raise max_record_size, up to 10MiB",
            )
        if self.aggregate is not None:
            if not self.traffic.record_size <= self.aggregate <= largest:
                allowed = f"from a record's size to {largest // MIB}MiB, the largest record of this stream"
                yield Finding((*path, "aggregate"), f"{int(self.aggregate)}B", allowed)
            for job, _, query in use.environment.queries:
                if use.name in query.source_stream_names and not use.environment.jobs[job].reads_aggregates:
                    allowed = (
                        f"nothing, as job {job} reads it: EMR's connector may end a batch inside an aggregate"
                    )
                    yield Finding((*path, "aggregate"), f"{int(self.aggregate)}B", allowed, "engine: glue")
                    break
        yield from self._check_existing(use)

    def _check_existing(self, use: StreamUse) -> Iterator[Finding]:
        path = ("streams", use.name)
        if self.existing is None:
            yield from findings_for_refused_keys(
                path, self, ("existing_key", "read_role"), "only together with existing"
            )
            return
        if self.disposable:
            yield Finding((*path, "disposable"), "true", "false: an existing stream is never deleted")
        for key in ("fan_out_consumers", "shards_now", "shard_level_metrics"):
            if getattr(self, key):
                yield Finding((*path, key), "given", "nothing: an existing stream is never changed")
        if not self.existing.startswith("arn:"):
            return
        account = arn_region_account_resource(self.existing)[1]
        if account != use.environment.account and self.read_role is None:
            yield Finding(
                (*path, "read_role"),
                MISSING,
                f"a role in account {account} that jobs may assume to read the stream",
            )
        if self.read_role is not None and arn_region_account_resource(self.read_role)[1] != account:
            yield Finding(
                (*path, "read_role"), self.read_role, f"a role in account {account}, as the stream is"
            )

    def launch_settings(self, name: str, context: StreamReadingContext) -> launch.KinesisSource:
        """Return the deployed name of the stream, with a limit for each shard."""
        assert context.records_per_partition is not None, f"{name}: the plan has no limit for one shard"
        return launch.KinesisSource(
            name=name,
            start=context.query.start,
            retention_seconds=int(self.retention.total_seconds()),
            stream=context.names.stream(name),
            region=context.names.environment.region,
            records_per_shard=context.records_per_partition,
            fetch_seconds=max(
                context.trigger_seconds * _FETCH_SHARE, context.handed_over_seconds, _SHORTEST_FETCH_SECONDS
            ),
            consumer=context.names.fan_out_consumer(context.job, context.name)
            if context.query.uses_fan_out
            else None,
            role=self.read_role,
            records_per_batch=context.records_per_batch,
        )

    @classmethod
    def grants(cls, streams: Mapping[str, Self], context: ReadingJob) -> Iterator[Grant]:
        """Allow reading shards, assuming roles of other accounts, and reading through the queries' own consumers."""
        names = context.names
        actions = [
            "kinesis:DescribeStreamSummary",
            "kinesis:GetRecords",
            "kinesis:GetShardIterator",
            "kinesis:ListShards",
        ]
        if names.environment.jobs[context.job].describes_streams:
            # Glue's own connector calls DescribeStream, the older API.
            actions.append("kinesis:DescribeStream")
        direct = [stream.arn(name, names) for name, stream in streams.items() if stream.read_role is None]
        if direct:
            yield allow("ReadStreams", actions, direct)
        if roles := [stream.read_role for stream in streams.values() if stream.read_role is not None]:
            yield allow("ReadInOtherAccounts", ["sts:AssumeRole"], list(dict.fromkeys(roles)))
        # Kinesis checks a look-up by name against an ARN without the second (aws/aws-cdk#22184).
        if consumers := [
            f"{streams[stream].arn(stream, names)}/consumer/{names.fan_out_consumer(context.job, name)}{second}"
            for name, query in context.queries.items()
            if query.uses_fan_out
            for stream in query.source_stream_names
            for second in ("", ":*")
        ]:
            yield allow(
                "FanOut",
                ["kinesis:DescribeStreamConsumer", "kinesis:SubscribeToShard"],
                consumers,
                why="A consumer's ARN ends with the second at which it was registered",
            )

    def arn(self, name: str, names: Names) -> str:
        """Return the ARN of the stream; an existing one may be in another account."""
        if self.existing is not None and self.existing.startswith("arn:"):
            return self.existing
        return names.arn("kinesis", f"stream/{names.stream(name)}")

    def charges(self, usage: MonthlyStreamUsage) -> Iterator[Charge]:
        """Yield the cost of shards or gigabytes; an existing stream costs this environment nothing."""
        if self.existing is not None:
            return iter(())
        by = (
            kinesis_charges_and_metrics.on_demand_charges
            if self.mode == "on-demand"
            else kinesis_charges_and_metrics.provisioned_charges
        )
        return by(self.traffic_as_service_counts, self.retention, usage)

    def alarms(self, name: str, names: Names, readers: Sequence[StreamReaderTiming]) -> Iterable[StreamAlarm]:
        """Yield alarms for readers that fall behind, and for throttled producers and readers."""
        if self.read_role is not None:
            return ()  # its metrics are in the other account
        return kinesis_charges_and_metrics.kinesis_alarms(
            names, names.stream(name), readers, created=self.is_created
        )

    def finding_if_resize_refused(self, name: str, wanted: int) -> Finding | None:
        """Return a finding if one change would more than double or halve the shards of the deployed stream."""
        now = self.shards_now
        if now is None or self.mode == "on-demand":
            return None
        steps = shard_steps(now, wanted)
        if len(steps) < 2:
            return None
        path = "; ".join(
            f"shards: {after} with shards_now: {before}" for before, after in pairwise((now, *steps))
        )
        more = f", {CHANGES_A_DAY} changes a day" if len(steps) > CHANGES_A_DAY else ""
        return Finding(
            ("streams", name, "shards" if self.shards is not None else "shards_now"),
            f"{now} shards now, {wanted} planned",
            f"{math.ceil(now / 2)} to {2 * now} shards in one change{more}",
            f"deploy one after the other: {path}",
        )


def shard_steps(now: int, wanted: int) -> tuple[int, ...]:
    """Return the shard counts of each step, because Kinesis at most doubles or halves them in one change.

    Parameters
    ----------
    now
        Open shards of the deployed stream.
    wanted
        Shards of the plan.

    Returns
    -------
    tuple of int
        Ends with ``wanted``; empty if nothing changes.

    Examples
    --------
    >>> shard_steps(3, 20), shard_steps(20, 3), shard_steps(4, 8), shard_steps(8, 8)
    ((6, 12, 20), (10, 5, 3), (8,), ())
    """
    steps: list[int] = []
    while now != wanted:
        now = min(2 * now, wanted) if wanted > now else max(math.ceil(now / 2), wanted)
        steps.append(now)
    return tuple(steps)
